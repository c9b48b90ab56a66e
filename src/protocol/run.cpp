#include <cstring>

#include "protocol/run.hpp"

#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/subtransaction.hpp"
#include "protocol/owner.hpp"
#include "store/holdings.hpp"

namespace idem::protocol {

namespace {

// A handler that is running; on the stack of run().
struct Frame {
    core::Identity identity;
    int attempt;
    Frame* outer;
    MemoryContext context; // outlives the handler's subtransaction
    bool rejected = false;
    Jsonb* result = nullptr;
    int status = 0;
};
constinit Frame* innermost = nullptr;

[[noreturn]] void raise_no_handler(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("handler %s", what),
                    errhint("A handler is a function (jsonb) that returns jsonb.")));
    pg_unreachable();
}

// Returns whether it is STRICT.
bool check_handler(Oid handler) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(handler));
    if (!HeapTupleIsValid(tuple)) {
        raise_no_handler("does not exist");
    }
    const auto* proc = reinterpret_cast<const FormData_pg_proc*>(GETSTRUCT(tuple));
    const bool fits = proc->prokind == PROKIND_FUNCTION && !proc->proretset && proc->pronargs == 1 &&
                      proc->proargtypes.values[0] == JSONBOID && proc->prorettype == JSONBOID;
    const bool strict = proc->proisstrict;
    ReleaseSysCache(tuple);
    if (!fits) {
        raise_no_handler("has another signature");
    }
    const AclResult allowed = pg::compat::check_execute(handler, GetUserId());
    if (allowed != ACLCHECK_OK) {
        aclcheck_error(allowed, OBJECT_FUNCTION, get_func_name(handler));
    }
    return strict;
}

store::Nullable call_handler(Oid handler, Jsonb* request) {
    FmgrInfo function;
    fmgr_info(handler, &function);
    LOCAL_FCINFO(call, 1);
    InitFunctionCallInfoData(*call, &function, 1, DEFAULT_COLLATION_OID, nullptr, nullptr);
    call->args[0].value = request == nullptr ? Datum{0} : JsonbPGetDatum(request);
    call->args[0].isnull = request == nullptr;
    // A fresh snapshot, so that at READ COMMITTED the handler sees what a rival committed while we waited for it.
    PushActiveSnapshot(GetTransactionSnapshot());
    const Datum result = FunctionCallInvoke(call);
    PopActiveSnapshot();
    return {result, call->isnull};
}

// Runs the handler in a subtransaction of its own, so that a rejection can undo it. True: it returned. Any other error
// than a rejection is raised again.
bool run_in_subtransaction(Frame& frame, Oid handler, Jsonb* request, store::Nullable& result) {
    ErrorData* volatile error = nullptr;
    frame.outer = innermost;
    innermost = &frame;
    PG_TRY();
    {
        error = pg::in_subtransaction([&] {
            result = call_handler(handler, request);
            return !frame.rejected;
        });
    }
    PG_FINALLY();
    {
        innermost = frame.outer;
    }
    PG_END_TRY();
    if (error == nullptr && frame.rejected) {
        pg::raise_swallowed_reject(frame.identity);
    }
    if (error != nullptr && !(frame.rejected && error->sqlerrcode == pg::errcode_rejected)) {
        ReThrowError(error);
    }
    return error == nullptr;
}

void check_call(Oid handler, const Jsonb* request) {
    const bool strict = check_handler(handler);
    if (strict && request == nullptr) {
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("request must not be NULL for a STRICT handler")));
    }
}

// What the handler makes of the operation.
SettleCall call_for_outcome(const core::Identity& identity, int attempt, Oid handler, Jsonb* request) {
    Frame frame{identity, attempt, nullptr, CurrentMemoryContext};
    SettleCall settlement;
    settlement.identity = identity;
    settlement.succeeded = run_in_subtransaction(frame, handler, request, settlement.result);
    if (!settlement.succeeded) {
        settlement.status = {Int32GetDatum(frame.status), false};
        settlement.result = {frame.result == nullptr ? Datum{0} : JsonbPGetDatum(frame.result),
                             frame.result == nullptr};
    }
    return settlement;
}

} // namespace

void drive(const core::Identity& identity, const core::Token& token, int attempt, Oid handler, Jsonb* request) {
    check_call(handler, request);
    SettleCall settlement = call_for_outcome(identity, attempt, handler, request);
    settlement.token = token;
    settle(settlement);
}

ClaimAnswer run(const ClaimCall& call, Oid handler) {
    check_call(handler, call.request_json);
    ClaimAnswer answer = claim(call);
    if (!answer.is_granted()) {
        return answer;
    }
    const SettleCall settlement = call_for_outcome(call.identity, *answer.attempt, handler, call.request_json);
    const SettledTimes times = settle(settlement);

    ClaimAnswer outcome;
    outcome.outcome = settlement.succeeded ? Answer::completed : Answer::failed;
    outcome.attempt = answer.attempt;
    outcome.succeeded = settlement.succeeded;
    outcome.status = settlement.status;
    outcome.result = settlement.result;
    outcome.settled_at = times.settled_at;
    outcome.expires_at = times.expires_at;
    return outcome;
}

bool find_running(core::Identity& identity, int& attempt) {
    if (innermost == nullptr) {
        return false;
    }
    identity = innermost->identity;
    attempt = innermost->attempt;
    return true;
}

bool find_current(core::Identity& identity, int& attempt) {
    if (find_running(identity, attempt)) {
        return true;
    }
    store::OpenClaim claim;
    if (!store::find_only_claim(claim)) {
        return false;
    }
    identity = claim.identity;
    attempt = claim.attempt;
    return true;
}

void reject(Jsonb* result, int status) {
    if (innermost == nullptr) {
        ereport(ERROR,
                (errcode(pg::errcode_rejected), errmsg("idem_reject was called outside a handler of idem_run"),
                 errhint("Use idem_fail to record a failure of an operation that was claimed with idem_claim.")));
    }
    Frame& frame = *innermost;
    frame.rejected = true;
    frame.status = status;
    frame.result = nullptr;
    if (result != nullptr) {
        frame.result = static_cast<Jsonb*>(MemoryContextAlloc(frame.context, VARSIZE(result)));
        std::memcpy(frame.result, result, VARSIZE(result));
    }
    ereport(ERROR, (errcode(pg::errcode_rejected), errmsg("operation was rejected by its handler"),
                    pg::errdetail_identity(frame.identity)));
    pg_unreachable();
}

} // namespace idem::protocol
