// The checks of idem_doctor: what makes the guarantees weaker on this very server and database.
//
// To add one: write a function in the file of its subject, add it to the array at that file's end, describe it in
// docs/sql-reference.md, and see it both ok and not ok in a test. A check may raise: it runs in a subtransaction of
// its own, which is rolled back, and what it raises becomes its row. It waits for no lock longer than an instant.
#pragma once

#include <span>

#include "doctor/report.hpp"

namespace idem::doctor {

struct Check {
    const char* name;
    void (*make)(Report& report);
};

std::span<const Check> durability_checks(); // what a crash or a failover can take away
std::span<const Check> settings_checks();
std::span<const Check> locks_checks(); // the lock table, and transactions that hold claims for long
std::span<const Check> tables_checks();
std::span<const Check> growth_checks();
std::span<const Check> operations_checks(); // what is in flight now
std::span<const Check> outbox_checks();     // messages that nobody takes
std::span<const Check> policies_checks();
std::span<const Check> handlers_checks(); // of on_interrupt = 'call'
std::span<const Check> workers_checks();

// Makes them all, in this order.
void make_checks(Report& report);

} // namespace idem::doctor
