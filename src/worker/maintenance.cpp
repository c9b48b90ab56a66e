// A maintenance worker: connects to one database, makes one pass, and goes. See README.md.
#include "pg/entry.hpp"

#include "pg/background.hpp"
#include "pg/table.hpp"
#include "worker/pass.hpp"
#include "worker/jobs.hpp"
#include "worker/registry.hpp"

extern "C" {
#include "storage/ipc.h"
}

namespace idem::worker {

namespace {

// Whatever ends it, the launcher learns that it has gone; failed, unless it says otherwise first.
void leave(int, Datum argument) {
    const int job = DatumGetInt32(argument);
    if (job_state(job) == JobState::asked) {
        set_job_state(job, JobState::failed);
    }
}

void maintain(int job) {
    before_shmem_exit(leave, Int32GetDatum(job));
    BackgroundWorkerInitializeConnectionByOid(job_database(job), InvalidOid, 0);
    pg::neutral_settings();
    pg::write_as_owner();
    PassStatus status;
    if (begin_pass(status)) {
        if (run_pass(status)) {
            end_pass(status);
        } else {
            forget_database(MyDatabaseId, Unless::told_meanwhile);
        }
    } else {
        ereport(LOG, (errmsg("pg_idem cannot look after more than %d databases", max_databases)));
    }
    set_job_state(job, JobState::done);
}

} // namespace

} // namespace idem::worker

extern "C" {

PGDLLEXPORT void pg_idem_maintenance_main(Datum argument);

void pg_idem_maintenance_main(Datum argument) {
    idem::pg::accept_signals();
    idem::pg::guarded([argument] {
        idem::worker::maintain(DatumGetInt32(argument));
        return 0;
    });
}
}
