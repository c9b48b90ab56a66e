// When the workers look at a database again.
#pragma once

#include <algorithm>

#include "core/time.hpp"

namespace idem::core {

// Nothing tells of what COMMIT PREPARED, a restore or logical replication brings: a database that has the extension is
// looked at after so many naps at the latest.
inline constexpr int most_naps = 12;

// After a walk around a table follows a rest so many times as long as the looking took: looking in vain costs at most a
// twentieth of one processor. (What is found must be dealt with anyway.)
inline constexpr int rest_factor = 19;
inline constexpr Duration longest_rest = hour; // also where a clock has jumped meanwhile

// When the next pass begins. due: when something is, as far as is known. last: when the last pass began. The passes
// keep a nap between them, unless the last one left work undone.
constexpr Time next_pass(Time due, Time last, Duration nap, bool left_work) noexcept {
    if (left_work) {
        return last;
    }
    return std::clamp(due, later(last, nap), later(last, most_naps * nap));
}

// When the next walk around a table begins. ended, looked_for: of the last one; soonest: when the first of the rows
// that it saw is due. (Rows that came later may be due before that: hence not too late either.)
constexpr Time next_walk(Time ended, Duration looked_for, Time soonest, Duration nap) noexcept {
    const Duration rest =
        looked_for >= longest_rest / rest_factor ? longest_rest : rest_factor * std::max<Duration>(looked_for, 0);
    return std::clamp(soonest, later(ended, rest), later(ended, std::max(rest, most_naps * nap)));
}

// Whether a pass should have begun since `last`: a minute is for those that wait for another worker to end.
constexpr bool is_late(Time now, Time last, Duration nap) noexcept {
    return between(now, last) > most_naps * nap + minute;
}

// A time on one clock as the other one will show it: pg_idem.test_now may stand still, the launcher's clock does not.
constexpr Time translate(Time time, Time now_there, Time now_here) noexcept {
    if (time >= end_of_time) {
        return end_of_time;
    }
    const Duration left = between(time, now_there);
    return left <= 0 ? now_here : later(now_here, left);
}

} // namespace idem::core
