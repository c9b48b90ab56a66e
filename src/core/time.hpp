// Points in time and durations, in microseconds; the epoch is PostgreSQL's, 2000-01-01 00:00 UTC.
#pragma once

#include <cstdint>
#include <limits>

namespace idem::core {

using Time = std::int64_t;
using Duration = std::int64_t;

inline constexpr Duration second = 1'000'000;
inline constexpr Duration minute = 60 * second;
inline constexpr Duration hour = 60 * minute;
inline constexpr Duration day = 24 * hour;

// The last timestamp that PostgreSQL can print (294276-12-31); sums stop there instead of overflowing.
inline constexpr Time end_of_time = 9'223'371'331'199'999'999;
inline constexpr Time start_of_time = -211'813'488'000'000'000;

// t + d for d >= 0, never past end_of_time.
constexpr Time later(Time t, Duration d) noexcept {
    return d > end_of_time - (t > 0 ? t : 0) ? end_of_time : t + d;
}

// a - b, saturating. (Timestamps may be -infinity and infinity, the ends of the integer range.)
constexpr Duration between(Time a, Time b) noexcept {
    Duration d = 0;
    if (__builtin_sub_overflow(a, b, &d)) {
        return a < b ? std::numeric_limits<Duration>::min() : std::numeric_limits<Duration>::max();
    }
    return d;
}

// Whole seconds until `until`, rounded up, at least 1: the value of the Retry-After header (RFC 9110, 10.2.3).
constexpr std::int32_t retry_after_seconds(Time now, Time until) noexcept {
    const Duration left = between(until, now);
    if (left <= second) {
        return 1;
    }
    const Duration whole = (left - 1) / second + 1;
    constexpr Duration most = std::numeric_limits<std::int32_t>::max();
    return static_cast<std::int32_t>(whole < most ? whole : most);
}

} // namespace idem::core
