#include "core/time.hpp"

#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

constexpr Time minus_infinity = std::numeric_limits<Time>::min();
constexpr Time infinity = std::numeric_limits<Time>::max();

TEST(Time, LaterAdds) {
    EXPECT_EQ(later(0, 0), 0);
    EXPECT_EQ(later(5, 7), 12);
    EXPECT_EQ(later(-5, 7), 2);
    EXPECT_EQ(later(start_of_time, day), start_of_time + day);
}

TEST(Time, LaterStopsAtTheEndOfTime) {
    EXPECT_EQ(later(end_of_time, 0), end_of_time);
    EXPECT_EQ(later(end_of_time, 1), end_of_time);
    EXPECT_EQ(later(end_of_time - 5, 5), end_of_time);
    EXPECT_EQ(later(end_of_time - 5, 6), end_of_time);
    EXPECT_EQ(later(1, end_of_time), end_of_time);
    EXPECT_EQ(later(-1, end_of_time), end_of_time - 1);
    EXPECT_EQ(later(1, infinity), end_of_time);
    EXPECT_EQ(later(-1, infinity), end_of_time);
    EXPECT_EQ(later(infinity, 0), end_of_time);
    EXPECT_EQ(later(infinity, infinity), end_of_time);
    EXPECT_EQ(later(minus_infinity, 1), minus_infinity + 1);
    EXPECT_EQ(later(minus_infinity, infinity), end_of_time);
}

TEST(Time, LaterNeverGoesBack) {
    std::mt19937_64 random(1); // NOLINT(cert-msc51-cpp): the same cases every time
    for (int round = 0; round < 100'000; round++) {
        const Time t = static_cast<Time>(random()) >> (random() % 64);
        const Duration d = static_cast<Duration>(random() >> (1 + random() % 63));
        const Time sum = later(t, d);
        ASSERT_LE(sum, end_of_time);
        if (t <= end_of_time) {
            ASSERT_GE(sum, t);
            ASSERT_GE(sum, later(t, d / 2));
        }
    }
}

TEST(Time, BetweenSaturates) {
    EXPECT_EQ(between(7, 5), 2);
    EXPECT_EQ(between(5, 7), -2);
    EXPECT_EQ(between(infinity, minus_infinity), infinity);
    EXPECT_EQ(between(minus_infinity, infinity), minus_infinity);
    EXPECT_EQ(between(0, minus_infinity), infinity);
    EXPECT_EQ(between(-1, minus_infinity), infinity);
    EXPECT_EQ(between(-2, infinity), minus_infinity);
    EXPECT_EQ(between(end_of_time, start_of_time), infinity);
    EXPECT_EQ(between(infinity, infinity), 0);
    EXPECT_EQ(between(minus_infinity, minus_infinity), 0);
}

TEST(Time, RetryAfterIsWholeSecondsRoundedUpAtLeastOne) {
    EXPECT_EQ(retry_after_seconds(0, 0), 1);
    EXPECT_EQ(retry_after_seconds(0, -day), 1);
    EXPECT_EQ(retry_after_seconds(0, 1), 1);
    EXPECT_EQ(retry_after_seconds(0, second), 1);
    EXPECT_EQ(retry_after_seconds(0, second + 1), 2);
    EXPECT_EQ(retry_after_seconds(0, 2 * second), 2);
    EXPECT_EQ(retry_after_seconds(-second, second), 2);
    EXPECT_EQ(retry_after_seconds(500'000, 3 * second), 3);
}

TEST(Time, RetryAfterStopsAtTheLargestInteger) {
    constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
    EXPECT_EQ(retry_after_seconds(0, most * second), most);
    EXPECT_EQ(retry_after_seconds(0, (most - 1) * second), most - 1);
    EXPECT_EQ(retry_after_seconds(0, most * second + 1), most);
    EXPECT_EQ(retry_after_seconds(start_of_time, end_of_time), most);
    EXPECT_EQ(retry_after_seconds(minus_infinity, infinity), most);
    EXPECT_EQ(retry_after_seconds(infinity, minus_infinity), 1);
}

} // namespace
} // namespace idem::core
