#include <algorithm>

#include "doctor/checks.hpp"

#include "pg/subtransaction.hpp"

extern "C" {
#include "storage/proc.h"
}

namespace idem::doctor {

namespace {

constexpr int lock_wait_ms = 10;

constexpr std::span<const Check> (*groups[])() = {durability_checks, settings_checks,   locks_checks,  tables_checks,
                                                  growth_checks,     operations_checks, outbox_checks, policies_checks,
                                                  handlers_checks,   workers_checks};

void make(const Check& check, Report& report) {
    report.begin(check.name);
    ErrorData* error = pg::in_subtransaction([&check, &report] {
        check.make(report);
        return false; // nothing to keep, locks least of all
    });
    if (error != nullptr) {
        if (error->sqlerrcode == ERRCODE_QUERY_CANCELED) {
            ReThrowError(error);
        }
        report.cannot(*error);
    }
    report.end();
}

void make_all(Report& report) {
    MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "pg_idem doctor", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outer = MemoryContextSwitchTo(scratch);
    for (const auto group : groups) {
        for (const Check& check : group()) {
            CHECK_FOR_INTERRUPTS();
            make(check, report);
            MemoryContextReset(scratch);
        }
    }
    MemoryContextSwitchTo(outer);
    MemoryContextDelete(scratch);
}

} // namespace

void make_checks(Report& report) {
    const int users_timeout = LockTimeout;
    LockTimeout = users_timeout > 0 ? std::min(users_timeout, lock_wait_ms) : lock_wait_ms;
    PG_TRY();
    {
        make_all(report);
    }
    PG_FINALLY();
    {
        LockTimeout = users_timeout;
    }
    PG_END_TRY();
}

} // namespace idem::doctor
