// Whether the background workers run, and keep up.
#include "core/schedule.hpp"
#include "doctor/checks.hpp"
#include "worker/registry.hpp"

#include "pg/settings.hpp"
#include "pg/shared.hpp"

extern "C" {
#include "access/xlog.h"
}

namespace idem::doctor {

namespace {

constexpr core::Duration recent = core::hour;

// False: there are no workers here, which is said elsewhere or as it should be.
bool should_run() {
    return pg::is_preloaded() && pg::settings.worker && !RecoveryInProgress();
}

void check_worker(Report& report) {
    if (RecoveryInProgress()) {
        report.ok("on a standby no worker runs");
        return;
    }
    if (!pg::is_preloaded()) {
        report.warning(
            "no background worker runs, as pg_idem is not preloaded: interrupted operations wait for a claim, "
            "and nothing is forgotten",
            "Preload pg_idem, or call idem_maintain from a scheduler.");
    } else if (!pg::settings.worker) {
        report.warning(
            "the background workers are switched off: interrupted operations wait for a claim, and nothing is "
            "forgotten",
            "Set pg_idem.worker to on, or call idem_maintain from a scheduler.");
    } else if (worker::launcher_pid() == 0) {
        report.critical("the launcher of the background workers does not run",
                        "Look into the server's log; it is started again 5 seconds after it ends.");
    }
    report.ok("the launcher of the background workers runs");
}

const worker::StatusRow* find_status() {
    auto* rows = static_cast<worker::StatusRow*>(palloc(sizeof(worker::StatusRow) * worker::max_databases));
    const int count = worker::read_status(rows, worker::max_databases);
    for (int i = 0; i < count; i++) {
        if (rows[i].database == MyDatabaseId && rows[i].status.passes > 0) {
            return &rows[i];
        }
    }
    return nullptr;
}

void check_pass(Report& report) {
    if (!should_run()) {
        report.ok("no worker is expected");
        return;
    }
    const worker::StatusRow* found = find_status();
    if (found == nullptr) {
        report.warning("no worker has been through this database yet",
                       "Call idem_wake_workers, and look into the server's log if this stays.");
        return;
    }
    const worker::PassStatus& status = found->status;
    const core::Time now = GetCurrentTimestamp(); // the workers' clock, whatever pg_idem.test_now says
    if (core::is_late(now, status.last_pass, pg::nap())) {
        report.warning(psprintf("the last pass over this database was %lld seconds ago",
                                static_cast<long long>(core::between(now, status.last_pass) / core::second)),
                       "Look into idem_worker_status and the server's log; other databases or handlers may take all of "
                       "pg_idem.max_workers.");
    }
    if (status.last_error[0] != '\0' && core::between(now, status.last_error_at) < recent) {
        report.warning(psprintf("the last error of a pass over this database: %s", status.last_error),
                       "Look into the server's log for the operation that it names.");
    }
    report.ok("the workers go through this database");
}

void check_slots(Report& report) {
    const int wanted = pg::settings.max_workers + 1; // and the launcher
    if (should_run() && max_worker_processes < wanted) {
        report.warning(psprintf("max_worker_processes is %d, but pg_idem may want %d", max_worker_processes, wanted),
                       "Increase max_worker_processes, which parallel queries and other extensions share.");
    }
    report.ok(psprintf("max_worker_processes is %d", max_worker_processes));
}

constexpr Check checks[] = {
    {"worker", check_worker},
    {"worker_pass", check_pass},
    {"worker_slots", check_slots},
};

} // namespace

std::span<const Check> workers_checks() {
    return checks;
}

} // namespace idem::doctor
