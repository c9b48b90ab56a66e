// A handler worker: connected as the policy's handler_role, it runs the handler of one interrupted operation. See
// README.md.
#include "pg/entry.hpp"

#include "core/schedule.hpp"
#include "pg/background.hpp"
#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/handler_name.hpp"
#include "pg/settings.hpp"
#include "protocol/owner.hpp"
#include "protocol/run.hpp"
#include "store/operation.hpp"
#include "worker/handler_job.hpp"
#include "worker/jobs.hpp"

extern "C" {
#include "pgstat.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/timeout.h"
}

namespace idem::worker {

namespace {

constexpr int grace_ms = 10'000; // between the cancellation of a handler and the end of its process

constinit HandlerJob* job = nullptr;
constinit TimeoutId lease_timeout = USER_TIMEOUT;
constinit core::Time lease_end = 0; // by the real clock
constinit volatile sig_atomic_t timed_out = 0;

void leave(int, Datum) {
    uncount_handler();
}

// Every message of this process names the operation.
void add_context(void*) {
    const core::Identity identity = job->identity.get();
    pg::errcontext_identity("handler of an interrupted operation", identity);
}
constinit ErrorContextCallback context{nullptr, add_context, nullptr};

// The lease is over: the handler is cancelled; if it catches that and goes on, its process ends.
void on_timeout() {
    if (timed_out != 0) {
        ProcDiePending = true;
    } else {
        QueryCancelPending = true;
    }
    timed_out = 1;
    InterruptPending = true;
    SetLatch(MyLatch);
}

void connect(Datum argument) {
    dsm_segment* segment = dsm_attach(DatumGetUInt32(argument));
    if (segment == nullptr) {
        proc_exit(0); // the starter has gone
    }
    job = static_cast<HandlerJob*>(dsm_segment_address(segment));
    if (!job->hand_count(HandlerJob::starter_does, HandlerJob::worker_does)) {
        proc_exit(0); // the starter is just going
    }
    context.previous = error_context_stack;
    error_context_stack = &context;
    before_shmem_exit(leave, Datum{0});
    BackgroundWorkerInitializeConnectionByOid(job->database, job->role, pg::compat::bypass_role_login_check);
    job->session = pg::this_session();
    pg_write_barrier();
    pg_atomic_write_u32(&job->is_ready, 1);
    PGPROC* starter = BackendPidGetProc(job->starter);
    if (starter != nullptr) {
        SetLatch(&starter->procLatch);
    }
}

Oid find_handler() {
    const pg::HandlerName handler = pg::find_handler(job->function);
    if (handler.wrong != nullptr) {
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("handler \"%s\" %s", job->function, handler.wrong),
                        errhint("Name a function (jsonb) that returns jsonb, with its schema, in idem_policies.")));
    }
    if (!pg::compat::may_use_schema(handler.schema, GetUserId())) {
        aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_SCHEMA, get_namespace_name(handler.schema));
    }
    return handler.function;
}

template <typename Work>
ErrorData* in_transaction(Work work) {
    ErrorData* error = pg::in_transaction(
        [&] {
            pg::enter_schema(job->schema);
            work();
        },
        [](const ErrorData&) {
            disable_timeout(lease_timeout, false); // not while the transaction is being aborted
            return true;
        });
    return error;
}

Jsonb* request_of(const core::Identity& identity) {
    store::Stored stored;
    store::read_stored_mvcc(identity, stored);
    const bool has_request = stored.is_inflight && !stored.inflight.nulls[store::inflight::request];
    return has_request ? DatumGetJsonbP(stored.inflight.values[store::inflight::request]) : nullptr;
}

void run_handler() {
    const core::Identity identity = job->identity.get();
    const Oid function = find_handler();
    Jsonb* request = request_of(identity);
    enable_timeout_every(lease_timeout, lease_end, grace_ms);
    protocol::drive(identity, job->token, job->attempt, function, request);
}

// The attempt counts as failed, unless somebody else has advanced the operation meanwhile.
void note_failure(const char* message) {
    protocol::ReleaseCall call;
    call.identity = job->identity.get();
    call.token = job->token;
    call.error = message;
    call.least_backoff = pg::nap(); // else one that fails at once would use up its attempts within one pass
    (void)protocol::release(call);
}

void handle() {
    CHECK_FOR_INTERRUPTS();
    SetConfigOption("exit_on_error", "off", PGC_SUSET, PGC_S_OVERRIDE); // set for the role: no error could be noted
    ErrorData* error = in_transaction([] {
        // However long the starter takes; what the role sets is for its own code.
        for (const char* timeout : {"lock_timeout", "transaction_timeout"}) {
            if (GetConfigOption(timeout, true, false) != nullptr) { // the latter since 17
                (void)set_config_option(timeout, "0", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
            }
        }
        XactLockTableWait(job->xid, nullptr, nullptr, XLTW_None);
    });
    if (error != nullptr) {
        return;
    }
    // Whether the starter's transaction has committed, and the attempt is still ours.
    bool ours = false;
    error = in_transaction([&] {
        store::Stored stored;
        store::read_stored_mvcc(job->identity.get(), stored);
        ours = stored.is_inflight && stored.inflight.facts.token == job->token;
        if (ours) {
            lease_end = core::translate(stored.inflight.facts.lease_expires_at, pg::now(), GetCurrentTimestamp());
        }
    });
    if (error != nullptr || !ours) {
        return;
    }
    if (lease_end <= GetCurrentTimestamp()) { // the starter's transaction took so long
        constexpr const char* late = "lease ended before the handler could begin";
        ereport(WARNING, (errmsg("handler was not run: %s", late)));
        (void)in_transaction([] { note_failure(late); });
        return;
    }
    error = in_transaction(run_handler);
    disable_timeout(lease_timeout, false);
    if (error == nullptr) {
        return;
    }
    const char* message = timed_out != 0 ? "handler was canceled at the end of its lease" : error->message;
    QueryCancelPending = false; // came too late
    (void)in_transaction([message] { note_failure(message); });
}

} // namespace

} // namespace idem::worker

extern "C" {

PGDLLEXPORT void pg_idem_handler_main(Datum argument);

void pg_idem_handler_main(Datum argument) {
    idem::pg::accept_signals();
    idem::worker::lease_timeout = RegisterTimeout(USER_TIMEOUT, idem::worker::on_timeout);
    idem::pg::guarded([argument] {
        idem::worker::connect(argument);
        pgstat_report_activity(STATE_RUNNING, "pg_idem: handler of an interrupted operation");
        idem::worker::handle();
        return 0;
    });
}
}
