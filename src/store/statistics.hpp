// Counters for each action of each database, in shared memory. Without the preload there are none, and counting does
// nothing. No lock is taken except to make an action's counters, the first time that it is met.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::store {

// In the order of the columns of idem_stats.
enum class Counter : std::uint8_t {
    claims,         // first attempts granted
    recoveries,     // later attempts granted
    replays,        // answered from the record
    in_progress,    // claims answered so
    mismatches,     // the same, and messages of idem_once
    expired,        // claims answered so; also those that were too old
    reviews,        // claims answered so
    completed,      // recorded
    failed,         // recorded, also by rule
    once_first,     // recorded by idem_once
    once_duplicate, // answers of idem_once
    fenced,         // calls of an owner refused: IDM02, IDM04, IDM10
    unsettled,      // commits refused: IDM01
    interrupted,    // recorded
    forgotten,      // settled rows deleted
};
inline constexpr int counter_count = 15;

// Counts at once, and stays when the transaction is rolled back: for what was answered.
void count(std::string_view action, Counter counter, std::uint64_t n = 1);

// Counts when the transaction commits, or is prepared; not if it is rolled back, nor where a rollback to a savepoint
// undoes this: for what was recorded. In a transaction only.
void count_at_commit(std::string_view action, Counter counter, std::uint64_t n = 1);

// The counters of an action of this database.
struct ActionStatistics {
    std::string_view action; // in shared memory, where it stays
    std::uint64_t counts[counter_count];
    core::Time counted_since;
};

int statistics_slots();
bool read_statistics(int slot, ActionStatistics& statistics); // false: not one of this database

// Sets the counters of an action of this database to 0, or of all. False: there are none.
bool reset_statistics(std::optional<std::string_view> action);

// Gives the room of databases that have been dropped to others. In a transaction.
void drop_statistics_of_dropped();

// Registers shared memory and callbacks; from _PG_init, before init_shared().
void init_statistics();

} // namespace idem::store
