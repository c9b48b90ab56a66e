// When the workers look at a database again: bounds that hold whatever is due, and nothing overflows at the ends of
// time.

#include "core/schedule.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

constexpr Duration nap = 5 * second;
constexpr Time last = 1000 * day;
constexpr Time minus_infinity = std::numeric_limits<Time>::min();
constexpr Time infinity = std::numeric_limits<Time>::max();

TEST(NextPass, IsWhenSomethingIsDue) {
    EXPECT_EQ(next_pass(last + 2 * nap, last, nap, false), last + 2 * nap);
    EXPECT_EQ(next_pass(last + nap + 1, last, nap, false), last + nap + 1);
    EXPECT_EQ(next_pass(last + most_naps * nap - 1, last, nap, false), last + most_naps * nap - 1);
}

TEST(NextPass, KeepsANapAfterTheLastOne) {
    for (const Time due : {minus_infinity, Time{0}, last - 1, last, last + nap - 1, last + nap}) {
        EXPECT_EQ(next_pass(due, last, nap, false), last + nap);
    }
}

TEST(NextPass, IsNeverMoreThanTwelveNapsAway) {
    for (const Time due : {last + most_naps * nap, last + most_naps * nap + 1, end_of_time, infinity}) {
        EXPECT_EQ(next_pass(due, last, nap, false), last + most_naps * nap);
    }
}

TEST(NextPass, WorkLeftIsDoneAtOnce) {
    for (const Time due : {minus_infinity, last, last + nap, end_of_time}) {
        EXPECT_EQ(next_pass(due, last, nap, true), last);
    }
}

TEST(NextPass, ADatabaseThatWasNeverLookedAtIsDue) {
    EXPECT_LE(next_pass(0, 0, nap, false), nap);
    EXPECT_LE(next_pass(end_of_time, 0, nap, false), most_naps * nap);
}

TEST(NextPass, StopsAtTheEndOfTime) {
    EXPECT_EQ(next_pass(end_of_time, end_of_time, nap, false), end_of_time);
    EXPECT_EQ(next_pass(0, end_of_time - 1, nap, false), end_of_time);
    EXPECT_EQ(next_pass(end_of_time, end_of_time - 2 * nap, nap, false), end_of_time);
}

TEST(NextPass, BoundsAndOrder) {
    std::mt19937_64 random(1); // NOLINT(cert-msc51-cpp): the same cases every time
    for (int round = 0; round < 100'000; round++) {
        const Time began = static_cast<Time>(random() % static_cast<std::uint64_t>(end_of_time));
        const Duration naps = static_cast<Duration>(1 + random() % static_cast<std::uint64_t>(30 * day));
        const Time due = static_cast<Time>(random());
        const Time next = next_pass(due, began, naps, false);
        ASSERT_GE(next, later(began, naps));
        ASSERT_LE(next, later(began, most_naps * naps));
        ASSERT_LE(next, end_of_time);
        if (due < infinity) {
            ASSERT_LE(next, next_pass(due + 1, began, naps, false)) << "what is due later is not looked at sooner";
        }
    }
}

TEST(NextWalk, BeginsWhenTheFirstRowIsDue) {
    EXPECT_EQ(next_walk(last, 0, last + nap, nap), last + nap);
    EXPECT_EQ(next_walk(last, 0, last, nap), last);
    EXPECT_EQ(next_walk(last, 0, last - day, nap), last) << "at once, for what was left";
}

TEST(NextWalk, RestsNineteenTimesAsLongAsItTook) {
    EXPECT_EQ(next_walk(last, second, last, nap), last + 19 * second);
    EXPECT_EQ(next_walk(last, second, last + 19 * second - 1, nap), last + 19 * second);
    EXPECT_EQ(next_walk(last, second, last + 19 * second + 1, nap), last + 19 * second + 1);
    EXPECT_EQ(next_walk(last, minute, last, nap), last + 19 * minute) << "longer than twelve naps";
    EXPECT_EQ(next_walk(last, minute, end_of_time, nap), last + 19 * minute);
}

TEST(NextWalk, RestsAnHourAtMost) {
    EXPECT_EQ(next_walk(last, hour, last, nap), last + hour);
    EXPECT_EQ(next_walk(last, end_of_time, last, nap), last + hour) << "the clock has jumped meanwhile";
}

TEST(NextWalk, IsAtMostTwelveNapsAwayForWhatCameLater) {
    EXPECT_EQ(next_walk(last, 0, end_of_time, nap), last + most_naps * nap);
    EXPECT_EQ(next_walk(last, 0, infinity, nap), last + most_naps * nap);
    EXPECT_EQ(next_walk(last, second, end_of_time, nap), last + most_naps * nap);
}

TEST(NextWalk, AClockThatWasSetBackCostsNoRest) {
    EXPECT_EQ(next_walk(last, -hour, last, nap), last);
    EXPECT_EQ(next_walk(last, minus_infinity, end_of_time, nap), last + most_naps * nap);
}

TEST(NextWalk, Bounds) {
    std::mt19937_64 random(2); // NOLINT(cert-msc51-cpp): the same cases every time
    for (int round = 0; round < 100'000; round++) {
        const Time ended = static_cast<Time>(random() % static_cast<std::uint64_t>(end_of_time));
        const Duration spent = static_cast<Duration>(random() % static_cast<std::uint64_t>(1000 * day));
        const Duration naps = static_cast<Duration>(1 + random() % static_cast<std::uint64_t>(day));
        const Time soonest = static_cast<Time>(random());
        const Time next = next_walk(ended, spent, soonest, naps);
        const Duration rest = std::min(rest_factor * spent, longest_rest);
        ASSERT_GE(next, later(ended, rest)) << "a twentieth of the time at most";
        ASSERT_LE(next, later(ended, std::max(rest, most_naps * naps)));
        if (soonest > next) {
            ASSERT_EQ(next, later(ended, std::max(rest, most_naps * naps)));
        }
    }
}

TEST(NextWalk, StopsAtTheEndOfTime) {
    EXPECT_EQ(next_walk(end_of_time, day, 0, nap), end_of_time);
    EXPECT_EQ(next_walk(end_of_time - 1, 1, 0, nap), end_of_time);
}

TEST(IsLate, AMinuteAfterTheLastNap) {
    constexpr Duration longest = 12 * nap + minute;
    EXPECT_FALSE(is_late(last, last, nap));
    EXPECT_FALSE(is_late(last + longest, last, nap));
    EXPECT_TRUE(is_late(last + longest + 1, last, nap));
    EXPECT_FALSE(is_late(last - day, last, nap)); // a clock that was set back
    EXPECT_TRUE(is_late(last + minute + 12'001, last, 1'000));
}

TEST(IsLate, TheLongestNapIsNoOverflow) {
    constexpr Duration longest_nap = Duration{std::numeric_limits<std::int32_t>::max()} * 1'000; // in milliseconds
    EXPECT_FALSE(is_late(last + 12 * longest_nap, last, longest_nap));
    EXPECT_TRUE(is_late(last + 13 * longest_nap, last, longest_nap));
    EXPECT_EQ(next_pass(end_of_time, last, longest_nap, false), last + 12 * longest_nap);
}

TEST(Translate, IsAsFarAheadOnTheOtherClock) {
    EXPECT_EQ(translate(100, 40, 1000), 1060);
    EXPECT_EQ(translate(41, 40, 1000), 1001);
    EXPECT_EQ(translate(100, 40, 40), 100) << "the same clock";
}

TEST(Translate, WhatIsPastIsNow) {
    EXPECT_EQ(translate(40, 40, 1000), 1000);
    EXPECT_EQ(translate(39, 40, 1000), 1000);
    EXPECT_EQ(translate(start_of_time, end_of_time, 1000), 1000);
    EXPECT_EQ(translate(minus_infinity, 0, 1000), 1000);
    EXPECT_EQ(translate(minus_infinity, infinity, 1000), 1000);
}

TEST(Translate, NeverStaysNever) {
    for (const Time now_there : {minus_infinity, start_of_time, Time{0}, end_of_time, infinity}) {
        EXPECT_EQ(translate(end_of_time, now_there, 1000), end_of_time);
        EXPECT_EQ(translate(infinity, now_there, 1000), end_of_time);
    }
}

TEST(Translate, StopsAtTheEndOfTime) {
    EXPECT_EQ(translate(end_of_time - 1, 0, 1), end_of_time);
    EXPECT_EQ(translate(end_of_time - 1, 0, 0), end_of_time - 1);
    EXPECT_EQ(translate(end_of_time - 1, start_of_time, 1000), end_of_time);
    EXPECT_EQ(translate(0, minus_infinity, 1000), end_of_time);
}

TEST(Translate, KeepsOrderAndIsNeverBeforeNow) {
    std::mt19937_64 random(3); // NOLINT(cert-msc51-cpp): the same cases every time
    for (int round = 0; round < 100'000; round++) {
        const Time a = static_cast<Time>(random()) >> (random() % 64);
        const Time b = static_cast<Time>(random()) >> (random() % 64);
        const Time there = static_cast<Time>(random()) >> (random() % 64);
        const Time here = static_cast<Time>(random() % static_cast<std::uint64_t>(end_of_time));
        const Time ta = translate(a, there, here);
        const Time tb = translate(b, there, here);
        ASSERT_GE(ta, here);
        ASSERT_LE(ta, end_of_time);
        ASSERT_TRUE(a < b ? ta <= tb : tb <= ta);
        if (a > there && a < end_of_time && ta < end_of_time) {
            ASSERT_EQ(ta - here, a - there);
        }
    }
}

} // namespace
} // namespace idem::core
