#include "core/policy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "core/decide.hpp"
#include "core/time.hpp"

namespace idem::core {
namespace {

TEST(Policy, BuiltInDefaults) {
    const Policy p = effective_policy({}, {});
    EXPECT_EQ(p.retention, 3 * day);
    EXPECT_EQ(p.remember, 30 * day);
    EXPECT_EQ(p.once_retention, 7 * day);
    EXPECT_EQ(p.reject_older_than, std::nullopt);
    EXPECT_EQ(p.tolerated_skew, 10 * minute);
    EXPECT_EQ(p.key_format, KeyFormat::any);
    EXPECT_TRUE(p.fingerprint_required);
    EXPECT_EQ(p.max_lease, hour);
    EXPECT_EQ(p.max_attempts, 10);
    EXPECT_EQ(p.on_interrupt, Rule::retry);
    EXPECT_EQ(p.retry_backoff, 5 * second);
    EXPECT_EQ(p.max_backoff, hour);
    EXPECT_FALSE(p.keep_request);
    EXPECT_EQ(p.max_outcome_bytes, 1'048'576);
}

// Each column by itself: the action's, else that of '*', else the built-in.
template <typename Column, typename Value>
void expect_inherited(std::optional<Column> PolicyRow::* column, Value Policy::* value, Column mine, Column general) {
    const Policy built_in = effective_policy({}, {});
    PolicyRow own;
    PolicyRow star;
    EXPECT_EQ(effective_policy(own, star).*value, built_in.*value);
    star.*column = general;
    EXPECT_EQ(effective_policy(own, star).*value, Value(general));
    own.*column = mine;
    EXPECT_EQ(effective_policy(own, star).*value, Value(mine));
    star.*column = std::nullopt;
    EXPECT_EQ(effective_policy(own, star).*value, Value(mine));
}

TEST(Policy, EveryColumnIsInheritedByItself) {
    expect_inherited(&PolicyRow::retention, &Policy::retention, 5 * hour, 6 * hour);
    expect_inherited(&PolicyRow::remember, &Policy::remember, 5 * hour, 6 * hour);
    expect_inherited(&PolicyRow::once_retention, &Policy::once_retention, 5 * hour, 6 * hour);
    expect_inherited(&PolicyRow::reject_older_than, &Policy::reject_older_than, 5 * hour, 6 * hour);
    expect_inherited(&PolicyRow::key_format, &Policy::key_format, KeyFormat::uuid, KeyFormat::uuidv7);
    expect_inherited(&PolicyRow::key_format, &Policy::key_format, KeyFormat::any, KeyFormat::uuidv7);
    expect_inherited(&PolicyRow::fingerprint_required, &Policy::fingerprint_required, true, false);
    expect_inherited(&PolicyRow::max_lease, &Policy::max_lease, minute, 2 * hour);
    expect_inherited(&PolicyRow::max_attempts, &Policy::max_attempts, 1, 20);
    expect_inherited(&PolicyRow::on_interrupt, &Policy::on_interrupt, Rule::fail, Rule::review);
    expect_inherited(&PolicyRow::on_interrupt, &Policy::on_interrupt, Rule::retry, Rule::call);
    expect_inherited(&PolicyRow::retry_backoff, &Policy::retry_backoff, second, minute);
    expect_inherited(&PolicyRow::retry_backoff, &Policy::retry_backoff, Duration{0}, minute);
    expect_inherited(&PolicyRow::max_backoff, &Policy::max_backoff, minute, 2 * hour);
    expect_inherited(&PolicyRow::keep_request, &Policy::keep_request, false, true);
    expect_inherited(&PolicyRow::max_outcome_bytes, &Policy::max_outcome_bytes, 0, 10);
}

TEST(Policy, ZeroMeansNoneWhereStarSetsSomething) {
    PolicyRow own;
    PolicyRow star;
    star.reject_older_than = day;
    star.max_lease = minute;
    star.max_backoff = minute;
    own.reject_older_than = 0;
    own.max_lease = 0;
    own.max_backoff = 0;
    const Policy p = effective_policy(own, star);
    EXPECT_EQ(p.reject_older_than, std::nullopt);
    EXPECT_EQ(p.max_lease, std::nullopt);
    EXPECT_EQ(p.max_backoff, std::nullopt);
}

TEST(Policy, ZeroInStarMeansNoneToo) {
    PolicyRow star;
    star.reject_older_than = 0;
    star.max_lease = 0;
    star.max_backoff = 0;
    const Policy p = effective_policy({}, star);
    EXPECT_EQ(p.reject_older_than, std::nullopt);
    EXPECT_EQ(p.max_lease, std::nullopt);
    EXPECT_EQ(p.max_backoff, std::nullopt);
}

TEST(Policy, G7_RejectOlderThanIsClampedToWhatIsRemembered) {
    PolicyRow own;
    own.retention = day;
    own.remember = 2 * day;
    own.reject_older_than = 100 * day;
    EXPECT_EQ(effective_policy(own, {}).reject_older_than, 3 * day - 10 * minute);
    own.reject_older_than = 3 * day - 10 * minute;
    EXPECT_EQ(effective_policy(own, {}).reject_older_than, 3 * day - 10 * minute);
    own.reject_older_than = 3 * day - 10 * minute - 1;
    EXPECT_EQ(effective_policy(own, {}).reject_older_than, 3 * day - 10 * minute - 1);
}

TEST(Policy, G7_WhereLittleIsRememberedTheSkewShrinks) {
    PolicyRow own;
    own.retention = 4 * minute;
    own.remember = 0;
    own.reject_older_than = day;
    const Policy p = effective_policy(own, {});
    EXPECT_EQ(p.tolerated_skew, 2 * minute);
    EXPECT_EQ(p.reject_older_than, 2 * minute);
}

TEST(Policy, EndlessRetentionDoesNotOverflow) {
    PolicyRow own;
    own.retention = end_of_time;
    own.remember = end_of_time;
    own.reject_older_than = end_of_time;
    const Policy p = effective_policy(own, {});
    EXPECT_EQ(p.tolerated_skew, 10 * minute);
    EXPECT_EQ(p.reject_older_than, end_of_time - 10 * minute);
}

Duration random_duration(std::mt19937_64& random) {
    switch (random() % 6) {
    case 0:
        return static_cast<Duration>(random() % 4);
    case 1:
        return static_cast<Duration>(random() % static_cast<std::uint64_t>(minute));
    case 2:
        return static_cast<Duration>(random() % static_cast<std::uint64_t>(30 * minute));
    case 3:
        return end_of_time - static_cast<Duration>(random() % 4);
    default:
        return static_cast<Duration>(random() % static_cast<std::uint64_t>(60 * day));
    }
}

// A request is claimed (so it was not too old), saying that it was issued up to the tolerated skew in the
// future; it settles at some later time. Whenever the record is forgotten, the same request is too old.
TEST(Policy, G7_WhatWasOnceClaimedIsNeverClaimedAgain) {
    std::mt19937_64 random(7); // NOLINT(cert-msc51-cpp): the same cases every time
    std::size_t claimed = 0;
    for (int round = 0; round < 300'000; round++) {
        PolicyRow own;
        own.retention = random_duration(random);
        own.remember = random_duration(random);
        own.reject_older_than = 1 + random_duration(random) / 2;
        const Policy policy = effective_policy(own, {});
        ASSERT_TRUE(policy.reject_older_than.has_value());

        const Time first = static_cast<Time>(random() % static_cast<std::uint64_t>(10'000 * day));
        ClaimRequest request;
        const Duration reach = policy.tolerated_skew + std::min(*policy.reject_older_than, 100 * day) + 2;
        request.issued_at =
            first + policy.tolerated_skew - static_cast<Duration>(random() % static_cast<std::uint64_t>(reach));
        if (decide(nullptr, nullptr, request, policy, first).verdict != Verdict::grant_first) {
            continue;
        }
        claimed++;
        const Time settled_at = first + random_duration(random) / 1000;
        SettledFacts record;
        record.expires_at = later(settled_at, policy.retention);
        record.forget_at = later(record.expires_at, policy.remember);
        ASSERT_LE(record.expires_at, record.forget_at);
        for (const Duration wait : {Duration{0}, Duration{1}, random_duration(random)}) {
            const Time retry_at = later(record.forget_at, wait);
            if (retry_at == end_of_time) {
                continue; // saturated: never reached
            }
            const Verdict again = decide(&record, nullptr, request, policy, retry_at).verdict;
            ASSERT_EQ(again, Verdict::too_old)
                << "retention " << *own.retention << ", remember " << *own.remember << ", reject "
                << *policy.reject_older_than << ", skew " << policy.tolerated_skew << ", issued first"
                << *request.issued_at - first << ", settled first+" << settled_at - first << ", wait " << wait;
        }
    }
    EXPECT_GT(claimed, 100'000U);
}

TEST(Policy, G7_FreshRequestsAreNotTooOld) {
    std::mt19937_64 random(8); // NOLINT(cert-msc51-cpp)
    for (int round = 0; round < 100'000; round++) {
        PolicyRow own;
        own.retention = random_duration(random);
        own.remember = random_duration(random);
        own.reject_older_than = minute + random_duration(random) / 2;
        const Policy policy = effective_policy(own, {});
        if (later(*own.retention, *own.remember) < 2) {
            continue; // nothing is remembered at all
        }
        ClaimRequest request;
        request.issued_at = 1000 * day;
        ASSERT_EQ(decide(nullptr, nullptr, request, policy, 1000 * day).verdict, Verdict::grant_first)
            << *own.retention << ' ' << *own.remember << ' ' << *own.reject_older_than;
    }
}

// ---- backoff

Policy backing_off(Duration first, std::optional<Duration> most) {
    Policy p;
    p.retry_backoff = first;
    p.max_backoff = most;
    return p;
}

TEST(Backoff, DoublesUpToTheMost) {
    const Policy p = backing_off(5 * second, minute);
    EXPECT_EQ(backoff(p, 1), 5 * second);
    EXPECT_EQ(backoff(p, 2), 10 * second);
    EXPECT_EQ(backoff(p, 3), 20 * second);
    EXPECT_EQ(backoff(p, 4), 40 * second);
    EXPECT_EQ(backoff(p, 5), minute);
    EXPECT_EQ(backoff(p, 6), minute);
}

TEST(Backoff, TheMostCapsTheFirstToo) {
    EXPECT_EQ(backoff(backing_off(hour, minute), 1), minute);
    EXPECT_EQ(backoff(backing_off(minute, minute), 9), minute);
}

TEST(Backoff, NoneIsNoDelayHoweverManyFailures) {
    EXPECT_EQ(backoff(backing_off(0, hour), 1), 0);
    EXPECT_EQ(backoff(backing_off(0, hour), std::numeric_limits<std::int32_t>::max()), 0);
    EXPECT_EQ(backoff(backing_off(0, std::nullopt), std::numeric_limits<std::int32_t>::max()), 0);
}

TEST(Backoff, WithoutAMostItStopsAtTheEndOfTime) {
    const Policy p = backing_off(1, std::nullopt);
    EXPECT_EQ(backoff(p, 63), Duration{1} << 62);
    EXPECT_EQ(backoff(p, 64), end_of_time);
    EXPECT_EQ(backoff(p, std::numeric_limits<std::int32_t>::max()), end_of_time);
    EXPECT_EQ(backoff(backing_off(end_of_time, std::nullopt), 5), end_of_time);
}

TEST(Backoff, NeverShrinksAndNeverExceedsTheMost) {
    std::mt19937_64 random(9); // NOLINT(cert-msc51-cpp)
    for (int round = 0; round < 10'000; round++) {
        const Duration most = 1 + random_duration(random) / 2;
        const Policy p = backing_off(random_duration(random), most);
        Duration before = 0;
        for (std::int32_t failures = 1; failures < 70; failures++) {
            const Duration delay = backoff(p, failures);
            ASSERT_GE(delay, before);
            ASSERT_LE(delay, most);
            if (failures > 1 && delay < most) {
                ASSERT_EQ(delay, 2 * before);
            }
            before = delay;
        }
    }
}

} // namespace
} // namespace idem::core
