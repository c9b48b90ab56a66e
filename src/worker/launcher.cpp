// The launcher: one process of the server, connected to no database. See README.md.
#include <algorithm>

#include "core/schedule.hpp"
#include "pg/entry.hpp"
#include "worker/worker.hpp"

#include "pg/background.hpp"
#include "pg/compat.hpp"
#include "pg/settings.hpp"
#include "worker/jobs.hpp"
#include "worker/registry.hpp"

extern "C" {
#include "access/heapam.h"
#include "catalog/pg_database.h"
#include "pgstat.h"
}

namespace idem::worker {

namespace {

// A database that a worker may connect to.
struct Known {
    Oid oid;
    bool asked;            // whether it has the extension, by a worker started since we know it
    core::Time not_before; // after a worker that failed
};

struct Running {
    BackgroundWorkerHandle* handle;
    int job;
};

constexpr int max_running = 64; // the most that pg_idem.max_workers may be

struct Launcher {
    Known* known = nullptr; // in memory of the process
    int known_count = 0;
    Running running[max_running] = {};
    int running_count = 0;
    bool complained = false; // that there is no room for a worker
};
constinit Launcher launcher;
constinit bool databases_changed = true;

void on_database_change(Datum, int, uint32) {
    databases_changed = true;
}

Known* find_known(Oid oid) {
    for (int i = 0; i < launcher.known_count; i++) {
        if (launcher.known[i].oid == oid) {
            return &launcher.known[i];
        }
    }
    return nullptr;
}

bool may_connect(const FormData_pg_database* database) {
    return database->datallowconn && !database->datistemplate && database->datconnlimit != pg::compat::invalid_database;
}

// Reads pg_database anew.
void find_databases() {
    databases_changed = false; // before the read
    StartTransactionCommand();
    (void)GetTransactionSnapshot();
    Relation rel = table_open(DatabaseRelationId, AccessShareLock);
    TableScanDesc scan = table_beginscan_catalog(rel, 0, nullptr);
    Known* found = nullptr;
    int count = 0;
    int room = 0;
    for (HeapTuple tuple = heap_getnext(scan, ForwardScanDirection); tuple != nullptr;
         tuple = heap_getnext(scan, ForwardScanDirection)) {
        const auto* database = reinterpret_cast<const FormData_pg_database*>(GETSTRUCT(tuple));
        if (!may_connect(database)) {
            continue;
        }
        if (count == room) {
            room = room == 0 ? 64 : room * 2;
            const Size bytes = sizeof(Known) * static_cast<Size>(room);
            found = static_cast<Known*>(found == nullptr ? MemoryContextAlloc(TopMemoryContext, bytes)
                                                         : repalloc(found, bytes));
        }
        const Known* before = find_known(database->oid);
        found[count++] = before != nullptr ? *before : Known{database->oid, false, 0};
    }
    table_endscan(scan);
    table_close(rel, AccessShareLock);
    CommitTransactionCommand();

    if (launcher.known != nullptr) {
        pfree(launcher.known);
    }
    launcher.known = found;
    launcher.known_count = count;
}

bool is_running(Oid database) {
    return std::any_of(launcher.running, launcher.running + launcher.running_count,
                       [&](const Running& r) { return job_database(r.job) == database; });
}

// Jobs of workers that have gone, which a launcher before this one had started.
void free_orphans() {
    for (int job = 0; job < max_jobs; job++) {
        const bool ours = std::any_of(launcher.running, launcher.running + launcher.running_count,
                                      [job](const Running& r) { return r.job == job; });
        const JobState state = job_state(job);
        if (!ours && (state == JobState::done || state == JobState::failed)) {
            set_job_state(job, JobState::free);
        }
    }
}

// Workers that have gone.
void reap() {
    free_orphans();
    for (int i = launcher.running_count - 1; i >= 0; i--) {
        Running& r = launcher.running[i];
        pid_t pid = 0;
        if (GetBackgroundWorkerPid(r.handle, &pid) != BGWH_STOPPED) {
            continue;
        }
        if (Known* known = find_known(job_database(r.job))) {
            const bool done = job_state(r.job) == JobState::done;
            known->asked = known->asked && done;
            known->not_before = done ? 0 : core::later(GetCurrentTimestamp(), pg::nap());
        }
        set_job_state(r.job, JobState::free);
        pfree(r.handle);
        r = launcher.running[--launcher.running_count];
    }
}

// Handlers leave at least one worker for maintenance.
int room_for_workers() {
    return std::max(1, pg::settings.max_workers - handlers_running()) - launcher.running_count;
}

// False: the server has no room.
bool start(Oid database) {
    const int job = add_job(database);
    if (job < 0) {
        return false;
    }
    BackgroundWorker worker =
        pg::describe_worker("pg_idem_maintenance_main", "pg_idem maintenance", Int32GetDatum(job), pg::Restart::never);
    MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
    BackgroundWorkerHandle* handle = nullptr;
    const bool started = RegisterDynamicBackgroundWorker(&worker, &handle);
    MemoryContextSwitchTo(old);
    if (!started) {
        set_job_state(job, JobState::free);
        if (!launcher.complained) {
            ereport(WARNING, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                              errmsg("no background worker slot is free for pg_idem"),
                              errhint("Increase \"max_worker_processes\".")));
        }
        launcher.complained = true;
        return false;
    }
    launcher.running[launcher.running_count++] = {handle, job};
    return true;
}

// When a worker should look at the database.
core::Time time_of(const Database& database) {
    return core::next_pass(database.due, database.started, pg::nap(), database.left_work);
}

// Starts workers where something is due. Returns when to look again.
core::Time start_due() {
    static Database databases[max_databases];
    const int count = list_databases(databases, max_databases);
    const core::Time now = GetCurrentTimestamp();
    core::Time next = core::later(now, core::most_naps * pg::nap()); // there may be new databases
    bool full = false;
    auto consider = [&](Known& known, core::Time at) {
        at = std::max(at, known.not_before);
        if (is_running(known.oid)) {
            return; // its end wakes us
        }
        if (at > now) {
            next = std::min(next, at);
        } else if (full || room_for_workers() <= 0) {
            full = true; // the end of one of them wakes us
        } else if (!start(known.oid)) {
            full = true;
            next = std::min(next, core::later(now, pg::nap()));
        } else {
            known.asked = true;
        }
    };
    // First those of which nothing is known, however busy the others are; then those that have waited longest.
    for (int i = 0; i < launcher.known_count; i++) {
        Known& known = launcher.known[i];
        if (!known.asked && !is_known(known.oid)) {
            consider(known, 0);
        }
    }
    std::sort(databases, databases + count, [](const Database& a, const Database& b) { return a.started < b.started; });
    for (int i = 0; i < count; i++) {
        if (Known* known = find_known(databases[i].oid)) {
            known->asked = true;
            consider(*known, time_of(databases[i]));
        } else {
            forget_database(databases[i].oid, Unless::never); // dropped, or not to be connected to any more
        }
    }
    return next;
}

void run() {
    for (;;) {
        if (pg::reload_configuration()) {
            start_over();
            for (int i = 0; i < launcher.known_count; i++) {
                launcher.known[i].asked = false;
            }
        }
        if (!pg::settings.worker) {
            publish_plan(0);
            reap();
            pgstat_report_activity(STATE_IDLE, launcher.running_count == 0 ? "switched off by pg_idem.worker" : "");
            pg::sleep_until(core::end_of_time, pg::compat::wait_event(pg::compat::Wait::launcher));
            continue;
        }
        AcceptInvalidationMessages();
        if (databases_changed) {
            find_databases();
        }
        reap();
        publish_plan(core::end_of_time); // whatever is told from now on wakes us, until the plan is known
        const core::Time next = start_due();
        publish_plan(next);
        pgstat_report_activity(STATE_IDLE, ""); // nullptr would leave what was there
        pg::sleep_until(next, pg::compat::wait_event(pg::compat::Wait::launcher));
    }
}

} // namespace

void register_launcher() {
    if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade) {
        return;
    }
    BackgroundWorker worker =
        pg::describe_worker("pg_idem_launcher_main", "pg_idem launcher", Datum{0}, pg::Restart::soon);
    worker.bgw_notify_pid = 0;
    RegisterBackgroundWorker(&worker);
}

} // namespace idem::worker

extern "C" {

PGDLLEXPORT void pg_idem_launcher_main(Datum argument);

void pg_idem_launcher_main(Datum) {
    idem::pg::accept_signals();
    BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
    CacheRegisterSyscacheCallback(DATABASEOID, idem::worker::on_database_change, Datum{0});
    idem::worker::become_launcher();
    idem::pg::guarded([] {
        idem::worker::run();
        return 0;
    });
}
}
