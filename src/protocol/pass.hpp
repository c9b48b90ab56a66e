// What a pass does: interrupted operations by their rule, payloads that have expired, rows that may be forgotten.
// Each call is one bounded step in the current transaction; src/worker and idem_maintain put them together.
//
// Nobody is ever waited for: an operation whose key lock is held is left for the next pass. One bad row never stops
// the others: a step that fails is undone, and its rows are done again one by one.
#pragma once

#include "core/bad_rows.hpp"
#include "core/circle.hpp"
#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::protocol {

enum class Task : std::uint8_t {
    interrupted,
    failed,
    review,
    called,
    stripped,
    forgotten,
    seen_forgotten,
    effects_forgotten
};
inline constexpr int task_count = 8;
inline constexpr const char* task_names[task_count] = {
    "interrupted", "failed", "review", "called", "stripped", "forgotten", "seen_forgotten", "effects_forgotten"};

struct Counts {
    int64 rows[task_count] = {};
    int64 bad = 0;              // rows that could not be dealt with
    char last_error[256] = {};  // of the last such row
    bool stopped = false;       // no more can be done now, in whatever step
    core::Duration looking = 0; // time taken to find out what is due

    void add(Task task) { rows[static_cast<int>(task)]++; }
    int64 total() const {
        int64 sum = 0;
        for (const int64 n : rows) {
            sum += n;
        }
        return sum;
    }
};

// What became of one candidate.
struct Done {
    enum Kind : std::uint8_t { nothing, busy, changed, stop } kind = nothing; // stop: no more of them now
    Task task{};
};

// `bad`: rows that are left alone for twelve naps; nullptr where nobody remembers them.
struct StepLimits {
    int rows;             // change at most so many
    std::uint32_t blocks; // see at most so many
    core::Duration nap;   // when to look again at what was locked; twelve of them: at what was bad
    core::BadRows* bad = nullptr;
};

// Interrupted attempts: those under `retry`, and released ones, are announced once on channel pg_idem; `fail` and
// `review` are recorded.
void recover_some(core::Circle& circle, const StepLimits& limits, Counts& counts);

// Payloads past expires_at are stripped; rows past forget_at are deleted.
void sweep_settled_some(core::Circle& circle, const StepLimits& limits, Counts& counts);

// Effects of which a reset has left no operation: those that would be forgotten by now are deleted.
void sweep_effects_some(core::Circle& circle, const StepLimits& limits, Counts& counts);

// idem_seen: rows past forget_at are deleted.
void sweep_seen_some(core::Circle& circle, const StepLimits& limits, Counts& counts);

} // namespace idem::protocol
