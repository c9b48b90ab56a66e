// decide_unattended(): what a pass makes of an operation in flight, against an oracle written from the design
// ("The pass", and the table of section 4), over everything that a row can say.

#include "core/decide.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

constexpr Time now = 1000 * day;
constexpr Token token{1};
constexpr std::array times{Time{0}, now - 1, now, now + 1, now + day, end_of_time};
constexpr std::array rules{Rule::retry, Rule::fail, Rule::review, Rule::call};
constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
constexpr std::array failure_counts{
    std::int32_t{-1}, std::int32_t{0}, std::int32_t{1}, std::int32_t{2}, std::int32_t{3}, most - 1, most};
constexpr std::array limits{std::int32_t{0}, std::int32_t{1}, std::int32_t{2}, std::int32_t{3}, most};
constexpr std::array both{false, true};

std::string text(const InflightFacts& row) {
    return std::string(row.token ? "held" : "released") + ", in_review " + std::to_string(row.in_review) +
           ", granted " + std::to_string(row.granted) + ", effect_open " + std::to_string(row.effect_open) + ", rule " +
           std::to_string(static_cast<int>(row.rule)) + ", failures " + std::to_string(row.failures) + " of " +
           std::to_string(row.max_attempts) + ", lease now" + std::to_string(row.lease_expires_at - now) +
           ", session_over " + std::to_string(row.session_over) + ", due now" + std::to_string(row.due_at - now);
}

void for_each_row(const std::function<void(const InflightFacts&)>& visit) {
    for (unsigned flags = 0; flags < 32; flags++) {
        for (const Rule rule : rules) {
            for (const std::int32_t failures : failure_counts) {
                for (const std::int32_t max_attempts : limits) {
                    for (const Time lease : times) {
                        for (const Time due : times) {
                            InflightFacts row;
                            if ((flags & 1U) != 0) {
                                row.token = token;
                            }
                            row.in_review = (flags & 2U) != 0;
                            row.granted = (flags & 4U) != 0;
                            row.session_over = (flags & 8U) != 0;
                            row.effect_open = (flags & 16U) != 0;
                            row.rule = rule;
                            row.failures = failures;
                            row.max_attempts = max_attempts;
                            row.lease_expires_at = lease;
                            row.due_at = due;
                            visit(row);
                        }
                    }
                }
            }
        }
    }
}

// ---- the oracle

std::int64_t failures_with_this_one(const InflightFacts& row) {
    const std::int64_t sum =
        std::int64_t{row.failures} + (row.token ? 1 : 0); // a lost lease counts, a release does not
    return sum > most ? most : sum;
}

struct Line {
    const char* text;
    bool (*applies)(const InflightFacts&);
    Verdict verdict;
};

bool is_final(const InflightFacts& row) {
    return row.rule == Rule::fail || row.rule == Rule::review;
}
bool fails(const InflightFacts& row) {
    return row.rule == Rule::fail && !row.effect_open;
}
bool is_used_up(const InflightFacts& row) {
    return failures_with_this_one(row) >= row.max_attempts;
}

constexpr std::array table{
    Line{"in review: only an operator moves it", [](const InflightFacts& row) { return row.in_review; },
         Verdict::review},
    Line{"held, and both its lease and its session last",
         [](const InflightFacts& row) { return row.token && now < row.lease_expires_at && !row.session_over; },
         Verdict::in_progress},
    Line{"released, not due", [](const InflightFacts& row) { return !row.token && now < row.due_at; },
         Verdict::in_progress},
    Line{"released, an operator granted an attempt", [](const InflightFacts& row) { return !row.token && row.granted; },
         Verdict::grant_next},
    Line{"attempts used up: fail", [](const InflightFacts& row) { return is_used_up(row) && fails(row); },
         Verdict::fail_by_rule},
    Line{"attempts used up: any other rule, or an effect is open",
         [](const InflightFacts& row) { return is_used_up(row); }, Verdict::review_by_rule},
    Line{"lost, rule fail", [](const InflightFacts& row) { return row.token && fails(row); }, Verdict::fail_by_rule},
    Line{"lost, rule fail over an open effect",
         [](const InflightFacts& row) { return row.token && row.rule == Rule::fail; }, Verdict::review_by_rule},
    Line{"lost, rule review", [](const InflightFacts& row) { return row.token && row.rule == Rule::review; },
         Verdict::review_by_rule},
    Line{"waits for another attempt", [](const InflightFacts&) { return true; }, Verdict::grant_next},
};

TEST(Unattended, EveryRowIsDecidedAsTheTableSays) {
    std::array<std::size_t, table.size()> used{};
    std::size_t wrong = 0;
    for_each_row([&](const InflightFacts& row) {
        std::size_t line = 0;
        while (!table[line].applies(row)) {
            line++;
        }
        used[line]++;
        const Decision actual = decide_unattended(row, now);
        bool right = actual.verdict == table[line].verdict;
        if (right && actual.verdict == Verdict::in_progress) {
            right = actual.ready_at == (row.token ? row.lease_expires_at : row.due_at);
        }
        if (right && (actual.verdict == Verdict::grant_next || actual.verdict == Verdict::review_by_rule)) {
            right = actual.failures == failures_with_this_one(row);
        }
        if (!right && wrong++ < 10) {
            ADD_FAILURE() << text(row) << "\n  is " << static_cast<int>(actual.verdict) << ", not "
                          << static_cast<int>(table[line].verdict) << ": " << table[line].text;
        }
    });
    EXPECT_EQ(wrong, 0U);
    for (std::size_t line = 0; line < table.size(); line++) {
        EXPECT_GT(used[line], 0U) << "never used: " << table[line].text;
    }
}

// ---- what must hold whatever the table says

TEST(Unattended, G1_WhatIsAliveIsNeverTouched) {
    for_each_row([](const InflightFacts& row) {
        if (row.token && now < row.lease_expires_at && !row.session_over) {
            const Verdict verdict = decide_unattended(row, now).verdict;
            ASSERT_TRUE(verdict == Verdict::in_progress || verdict == Verdict::review) << text(row);
            ASSERT_FALSE(needs_lock(verdict)) << text(row);
        }
    });
}

TEST(Unattended, G5_WhatIsNotAliveIsNeverInProgressAtItsEnd) {
    for_each_row([](const InflightFacts& row) {
        const Decision first = decide_unattended(row, now);
        if (first.verdict == Verdict::in_progress) {
            ASSERT_GT(first.ready_at, now) << text(row);
            ASSERT_NE(decide_unattended(row, first.ready_at).verdict, Verdict::in_progress) << text(row);
            ASSERT_EQ(decide_unattended(row, first.ready_at - 1).verdict, Verdict::in_progress) << text(row);
        }
    });
}

TEST(Unattended, OnceDecidedTheClockChangesNothing) {
    for_each_row([](const InflightFacts& row) {
        const Verdict verdict = decide_unattended(row, now).verdict;
        if (verdict != Verdict::in_progress) {
            ASSERT_EQ(decide_unattended(row, end_of_time).verdict, verdict) << text(row);
        }
    });
}

// Whether a pass or a caller comes first makes no difference: the caller's own token apart, the same is decided.
TEST(Unattended, ACallerWithTheRightInputsIsToldTheSame) {
    for (const bool has_fingerprint : both) {
        for_each_row([has_fingerprint](const InflightFacts& row) {
            InflightFacts stored = row;
            ClaimRequest request;
            request.fingerprint = "f";
            request.token = Token{9};
            request.issued_at = Time{0};
            Policy policy;
            policy.reject_older_than = hour;
            if (has_fingerprint) {
                stored.fingerprint = "f";
            }
            const Decision a = decide_unattended(stored, now);
            const Decision b = decide(nullptr, &stored, request, policy, now);
            ASSERT_EQ(a.verdict, b.verdict) << text(row);
            ASSERT_EQ(a.ready_at, b.ready_at) << text(row);
            ASSERT_EQ(a.failures, b.failures) << text(row);
        });
    }
}

TEST(Unattended, NobodysAnswersNeverComeUp) {
    for_each_row([](const InflightFacts& row) {
        const Verdict v = decide_unattended(row, now).verdict;
        ASSERT_TRUE(v == Verdict::in_progress || v == Verdict::review || v == Verdict::grant_next ||
                    v == Verdict::fail_by_rule || v == Verdict::review_by_rule)
            << text(row);
        ASSERT_EQ(v == Verdict::fail_by_rule,
                  v != Verdict::in_progress && v != Verdict::review && v != Verdict::grant_next && fails(row))
            << text(row);
        ASSERT_TRUE(v != Verdict::grant_next || !row.token || !is_final(row)) << text(row);
    });
}

} // namespace
} // namespace idem::core
