#include <algorithm>

#include "worker/handler_start.hpp"

#include "pg/background.hpp"
#include "pg/compat.hpp"
#include "pg/relations.hpp"
#include "pg/settings.hpp"
#include "worker/handler_job.hpp"
#include "worker/jobs.hpp"

extern "C" {
#include "storage/dsm.h"
#include "storage/latch.h"
}

namespace idem::worker {

namespace {

constexpr core::Duration longest_start = 3 * core::second; // DROP DATABASE waits 5 for us to go

// One is left for maintenance.
int most_handlers() {
    return std::max(1, pg::settings.max_workers - 1);
}

void fill_job(HandlerJob& job, const HandlerStart& start, TransactionId xid) {
    job.database = MyDatabaseId;
    job.role = start.role;
    job.schema = pg::current_schema();
    job.starter = MyProcPid;
    job.xid = xid;
    job.identity = core::StoredIdentity(start.identity);
    job.token = start.token;
    job.attempt = start.attempt;
    strlcpy(job.function, start.function, sizeof(job.function));
    pg_atomic_init_u32(&job.is_ready, 0);
    pg_atomic_init_u32(&job.counted, HandlerJob::nobody);
}

// However the starter goes: by an error or the end of its process, too.
void stop_counting(dsm_segment* segment, Datum) {
    if (static_cast<HandlerJob*>(dsm_segment_address(segment))
            ->hand_count(HandlerJob::starter_does, HandlerJob::nobody)) {
        uncount_handler();
    }
}

Started wait_until_ready(HandlerJob& job, BackgroundWorkerHandle* handle) {
    const core::Time give_up = core::later(GetCurrentTimestamp(), longest_start);
    while (pg_atomic_read_u32(&job.is_ready) == 0) {
        pid_t pid = 0;
        const BgwHandleStatus status = GetBackgroundWorkerPid(handle, &pid);
        if (status == BGWH_STOPPED || status == BGWH_POSTMASTER_DIED) {
            const bool came = pg_atomic_read_u32(&job.counted) == HandlerJob::worker_does;
            return came ? Started::failed : Started::no_room; // no process was to be had
        }
        if (GetCurrentTimestamp() >= give_up) { // the machine is busy: it is nobody's failure
            TerminateBackgroundWorker(handle);
            return Started::no_room;
        }
        const core::Time next = core::later(GetCurrentTimestamp(), core::second);
        pg::sleep_until(std::min(next, give_up), pg::compat::wait_event(pg::compat::Wait::handler_start));
    }
    pg_read_barrier();
    return Started::yes;
}

} // namespace

bool has_room_for_handler() {
    return handlers_running() < most_handlers();
}

Started start_handler(const HandlerStart& start, pg::SessionId& session) {
    if (!has_room_for_handler()) {
        return Started::no_room;
    }
    const TransactionId xid = GetTopTransactionId();
    dsm_segment* segment = dsm_create(sizeof(HandlerJob), DSM_CREATE_NULL_IF_MAXSEGMENTS);
    if (segment == nullptr) {
        return Started::no_room;
    }
    auto& job = *static_cast<HandlerJob*>(dsm_segment_address(segment));
    fill_job(job, start, xid);
    on_dsm_detach(segment, stop_counting, Datum{0}); // first: whatever is raised from here on is put right by it
    if (!try_count_handler(most_handlers())) {
        dsm_detach(segment);
        return Started::no_room;
    }
    pg_atomic_write_u32(&job.counted, HandlerJob::starter_does);
    const Datum argument = UInt32GetDatum(dsm_segment_handle(segment));
    BackgroundWorker worker =
        pg::describe_worker("pg_idem_handler_main", "pg_idem handler", argument, pg::Restart::never);
    BackgroundWorkerHandle* handle = nullptr;
    if (!RegisterDynamicBackgroundWorker(&worker, &handle)) {
        dsm_detach(segment);
        return Started::no_room;
    }
    const Started started = wait_until_ready(job, handle);
    session = job.session;
    dsm_detach(segment);
    return started;
}

} // namespace idem::worker
