// decide(), judge_owner() and judge_operator() against tables written from the design, over every situation that they
// tell apart, and by name for the rules that a guarantee (G1..G12) rests on.

#include "core/decide.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace idem::core {

std::ostream& operator<<(std::ostream& out, Verdict verdict) {
    constexpr std::array names{"mismatch",   "fingerprint_missing", "replay",       "expired",
                               "review",     "in_progress",         "too_old",      "grant_first",
                               "grant_next", "repeat_answer",       "fail_by_rule", "review_by_rule"};
    return out << names.at(static_cast<std::size_t>(verdict));
}

std::ostream& operator<<(std::ostream& out, OperatorVerdict verdict) {
    constexpr std::array names{"open", "settled", "nothing"};
    return out << names.at(static_cast<std::size_t>(verdict));
}

std::ostream& operator<<(std::ostream& out, OwnerVerdict verdict) {
    constexpr std::array names{"current", "not_owner", "settled", "in_review"};
    return out << names.at(static_cast<std::size_t>(verdict));
}

namespace {

constexpr Time now = 1000 * day;
constexpr Duration reject_older_than = 2 * hour;
constexpr std::int32_t max_attempts = 3;
constexpr Token own_token{1};
constexpr Token other_token{2};

// ---- every situation, in words

enum class Print { none, a, b }; // which fingerprint
enum class Settled { none, live, stripped, at_expiry, expired, at_forgetting, forgotten };
enum class Holder { none, released, own, other }; // none: no row in flight
enum class Passed { before, exactly, after };     // where now stands to a deadline
enum class Issued { unknown, under, exactly, over, future };

constexpr std::array prints{Print::none, Print::a, Print::b};
constexpr std::array stored_prints{Print::none, Print::a};
constexpr std::array settled_states{Settled::none,    Settled::live,          Settled::stripped, Settled::at_expiry,
                                    Settled::expired, Settled::at_forgetting, Settled::forgotten};
constexpr std::array holders{Holder::none, Holder::released, Holder::own, Holder::other};
constexpr std::array passed{Passed::before, Passed::exactly, Passed::after};
constexpr std::array issues{Issued::unknown, Issued::under, Issued::exactly, Issued::over, Issued::future};
constexpr std::array rules{Rule::retry, Rule::fail, Rule::review, Rule::call};
constexpr std::array counts{0, max_attempts - 1, max_attempts};
constexpr std::array both{false, true};

struct Situation {
    Settled settled = Settled::none;
    Print settled_print = Print::none;
    Holder holder = Holder::none;
    Print inflight_print = Print::none;
    bool in_review = false;
    bool granted = false;
    Rule rule = Rule::retry;
    std::int32_t failures = 0;
    Passed lease = Passed::before;
    bool session_over = false;
    bool effect_open = false; // told only where the rule is fail
    Passed due = Passed::after;
    Print print = Print::none;
    bool brings_token = false;
    Issued issued = Issued::unknown;
    bool rejects = false; // the policy has reject_older_than
};

std::ostream& operator<<(std::ostream& out, const Situation& s) {
    auto number = [](auto value) { return static_cast<int>(value); };
    return out << "settled " << number(s.settled) << '/' << number(s.settled_print) << ", holder " << number(s.holder)
               << ", print " << number(s.inflight_print) << ", in_review " << s.in_review << ", granted " << s.granted
               << ", rule " << number(s.rule) << ", failures " << s.failures << ", lease " << number(s.lease)
               << ", session_over " << s.session_over << ", effect_open " << s.effect_open << ", due " << number(s.due)
               << "; given print " << number(s.print) << ", token " << s.brings_token << ", issued " << number(s.issued)
               << ", rejects " << s.rejects;
}

// ---- the same in the terms of core/decide

Fingerprint bytes(Print print) {
    switch (print) {
    case Print::a:
        return "fingerprint a";
    case Print::b:
        return "fingerprint b";
    default:
        return std::nullopt;
    }
}

Time deadline(Passed state) {
    return state == Passed::before ? now + 1 : state == Passed::exactly ? now : now - 1;
}

SettledFacts settled_facts(Settled state, Print print) {
    SettledFacts facts{now + 1, now + day, false, bytes(print)};
    switch (state) {
    case Settled::stripped:
        facts.stripped = true;
        break;
    case Settled::at_expiry:
        facts.expires_at = now;
        break;
    case Settled::expired:
        facts.expires_at = now - 1;
        facts.forget_at = now + 1;
        break;
    case Settled::at_forgetting:
        facts.expires_at = now - day;
        facts.forget_at = now;
        break;
    case Settled::forgotten:
        facts.expires_at = now - day;
        facts.forget_at = now - 1;
        break;
    default:
        break;
    }
    return facts;
}

InflightFacts inflight_facts(const Situation& s) {
    InflightFacts facts;
    if (s.holder == Holder::own) {
        facts.token = own_token;
    } else if (s.holder == Holder::other) {
        facts.token = other_token;
    }
    facts.in_review = s.in_review;
    facts.granted = s.granted;
    facts.rule = s.rule;
    facts.failures = s.failures;
    facts.max_attempts = max_attempts;
    facts.lease_expires_at = deadline(s.lease);
    facts.session_over = s.session_over;
    facts.effect_open = s.effect_open;
    facts.due_at = deadline(s.due);
    facts.fingerprint = bytes(s.inflight_print);
    return facts;
}

ClaimRequest claim_request(const Situation& s) {
    ClaimRequest request;
    request.fingerprint = bytes(s.print);
    if (s.brings_token) {
        request.token = own_token;
    }
    switch (s.issued) {
    case Issued::unknown:
        break;
    case Issued::under:
        request.issued_at = now - reject_older_than + 1;
        break;
    case Issued::exactly:
        request.issued_at = now - reject_older_than;
        break;
    case Issued::over:
        request.issued_at = now - reject_older_than - 1;
        break;
    case Issued::future:
        request.issued_at = now + minute;
        break;
    }
    return request;
}

Decision decide(const Situation& s) {
    const SettledFacts settled = settled_facts(s.settled, s.settled_print);
    const InflightFacts inflight = inflight_facts(s);
    Policy policy;
    if (s.rejects) {
        policy.reject_older_than = reject_older_than;
    }
    return decide(s.settled == Settled::none ? nullptr : &settled, s.holder == Holder::none ? nullptr : &inflight,
                  claim_request(s), policy, now);
}

// ---- the table of the design: the first row that applies is the answer

bool known(const Situation& s) {
    return s.settled != Settled::none && s.settled != Settled::at_forgetting && s.settled != Settled::forgotten;
}
bool differs(Print stored, Print given) {
    return stored != Print::none && given != Print::none && stored != given;
}
bool unproven(Print stored, Print given) {
    return stored != Print::none && given == Print::none;
}
bool none_in_flight(const Situation& s) {
    return s.holder == Holder::none;
}
bool is_released(const Situation& s) {
    return s.holder == Holder::released;
}
bool alive(const Situation& s) {
    return !is_released(s) && s.lease == Passed::before && !s.session_over;
}
bool final_by_the_clock(const Situation& s) {
    return s.rule == Rule::fail || s.rule == Rule::review;
}
bool fails(const Situation& s) {
    return s.rule == Rule::fail && !s.effect_open;
}
std::int32_t failures_so_far(const Situation& s) {
    return s.failures + (is_released(s) ? 0 : 1);
}

struct Row {
    const char* text;
    bool (*applies)(const Situation&);
    Verdict verdict;
};

constexpr std::array table{
    Row{"known, fingerprint differs", [](const Situation& s) { return known(s) && differs(s.settled_print, s.print); },
        Verdict::mismatch},
    Row{"known, no fingerprint given",
        [](const Situation& s) { return known(s) && unproven(s.settled_print, s.print); },
        Verdict::fingerprint_missing},
    Row{"before expires_at", [](const Situation& s) { return s.settled == Settled::live; }, Verdict::replay},
    Row{"past expires_at, or stripped", [](const Situation& s) { return known(s); }, Verdict::expired},
    Row{"nothing known, too old",
        [](const Situation& s) {
            return none_in_flight(s) && s.rejects && (s.issued == Issued::exactly || s.issued == Issued::over);
        },
        Verdict::too_old},
    Row{"nothing known", [](const Situation& s) { return none_in_flight(s); }, Verdict::grant_first},
    Row{"in flight, fingerprint differs", [](const Situation& s) { return differs(s.inflight_print, s.print); },
        Verdict::mismatch},
    Row{"in flight, no fingerprint given", [](const Situation& s) { return unproven(s.inflight_print, s.print); },
        Verdict::fingerprint_missing},
    Row{"own token, not in review, lease alive or its end not final",
        [](const Situation& s) {
            return s.brings_token && s.holder == Holder::own && !s.in_review && (alive(s) || !final_by_the_clock(s));
        },
        Verdict::repeat_answer},
    Row{"in review", [](const Situation& s) { return s.in_review; }, Verdict::review},
    Row{"lease alive", [](const Situation& s) { return alive(s); }, Verdict::in_progress},
    Row{"released, not yet due", [](const Situation& s) { return is_released(s) && s.due == Passed::before; },
        Verdict::in_progress},
    Row{"released, due, granted", [](const Situation& s) { return is_released(s) && s.granted; }, Verdict::grant_next},
    Row{"released, due, attempts left",
        [](const Situation& s) { return is_released(s) && failures_so_far(s) < max_attempts; }, Verdict::grant_next},
    Row{"lease over, attempts left, rule lets go on",
        [](const Situation& s) {
            return !is_released(s) && failures_so_far(s) < max_attempts && !final_by_the_clock(s);
        },
        Verdict::grant_next},
    Row{"by rule or used up: fail", [](const Situation& s) { return fails(s); }, Verdict::fail_by_rule},
    Row{"by rule or used up: review", [](const Situation&) { return true; }, Verdict::review_by_rule},
};

void for_each_request(const std::function<void(const Situation&)>& visit, Situation s) {
    for (const Print print : prints) {
        for (const bool brings_token : both) {
            for (const Issued issued : issues) {
                for (const bool rejects : both) {
                    s.print = print;
                    s.brings_token = brings_token;
                    s.issued = issued;
                    s.rejects = rejects;
                    visit(s);
                }
            }
        }
    }
}

void for_each_inflight(const std::function<void(const Situation&)>& visit, Situation s) {
    for (const Holder holder : holders) {
        s.holder = holder;
        if (holder == Holder::none) {
            visit(s);
            continue;
        }
        for (const Print print : stored_prints) {
            for (unsigned flags = 0; flags < 8; flags++) {
                for (const Rule rule : rules) {
                    for (const std::int32_t failures : counts) {
                        for (const Passed lease : passed) {
                            for (const Passed due : passed) {
                                s.inflight_print = print;
                                s.in_review = (flags & 1U) != 0;
                                s.granted = (flags & 2U) != 0;
                                s.session_over = (flags & 4U) != 0;
                                s.rule = rule;
                                s.failures = failures;
                                s.lease = lease;
                                s.due = due;
                                visit(s);
                                if (rule == Rule::fail) {
                                    s.effect_open = true;
                                    visit(s);
                                    s.effect_open = false;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

void for_each_situation(const std::function<void(const Situation&)>& visit) {
    for (const Settled settled : settled_states) {
        for (const Print print : stored_prints) {
            Situation s;
            s.settled = settled;
            s.settled_print = print;
            if (settled == Settled::none && print != Print::none) {
                continue;
            }
            for_each_inflight([&](const Situation& with_inflight) { for_each_request(visit, with_inflight); }, s);
        }
    }
}

TEST(Decide, EverySituationIsAnsweredAsTheTableSays) {
    std::array<std::size_t, table.size()> used{};
    std::size_t wrong = 0;
    for_each_situation([&](const Situation& s) {
        std::size_t row = 0;
        while (!table[row].applies(s)) {
            row++;
        }
        used[row]++;
        const Decision actual = decide(s);
        bool right = actual.verdict == table[row].verdict;
        if (actual.verdict == Verdict::in_progress) {
            right &= actual.ready_at == deadline(is_released(s) ? s.due : s.lease);
        }
        if (actual.verdict == Verdict::grant_next || actual.verdict == Verdict::review_by_rule) {
            right &= actual.failures == failures_so_far(s);
        }
        if (!right && wrong++ < 10) {
            ADD_FAILURE() << s << "\n  is " << actual.verdict << ", ready_at now" << (actual.ready_at - now)
                          << ", failures " << actual.failures << "\n  not " << table[row].verdict << ": "
                          << table[row].text;
        }
    });
    EXPECT_EQ(wrong, 0U);
    for (std::size_t row = 0; row < table.size(); row++) {
        EXPECT_GT(used[row], 0U) << "never used: " << table[row].text;
    }
}

// ---- what must hold in every situation, whatever the table says

TEST(Decide, G1_NothingIsGrantedOverALiveLeaseOrAKnownOutcome) {
    for_each_situation([](const Situation& s) {
        const Verdict verdict = decide(s).verdict;
        if (verdict == Verdict::grant_first || verdict == Verdict::grant_next) {
            ASSERT_FALSE(known(s)) << s;
            ASSERT_TRUE(none_in_flight(s) || !alive(s)) << s;
            ASSERT_EQ(verdict == Verdict::grant_first, none_in_flight(s)) << s;
        }
        if (verdict == Verdict::repeat_answer) {
            ASSERT_TRUE(s.brings_token && s.holder == Holder::own) << s;
        }
    });
}

TEST(Decide, G3_AKnownOutcomeIsNeverReplacedByARule) {
    for_each_situation([](const Situation& s) {
        if (known(s)) {
            ASSERT_FALSE(needs_lock(decide(s).verdict)) << s;
        }
    });
}

TEST(Decide, G4_AMismatchShowsInEveryStateThatKeepsAFingerprint) {
    for_each_situation([](const Situation& s) {
        const bool kept = known(s) || !none_in_flight(s);
        const Print stored = known(s) ? s.settled_print : s.inflight_print;
        ASSERT_EQ(decide(s).verdict == Verdict::mismatch, kept && differs(stored, s.print)) << s;
    });
}

TEST(Decide, G5_EveryInterruptedAttemptIsDecidedAtOnce) {
    for_each_situation([](const Situation& s) {
        const bool is_due = is_released(s) ? s.due != Passed::before : !alive(s);
        if (!none_in_flight(s) && is_due) {
            ASSERT_NE(decide(s).verdict, Verdict::in_progress) << s;
        }
    });
}

TEST(Decide, G12_NoFingerprintNeverOpensAnOperationThatHasOne) {
    for_each_situation([](const Situation& s) {
        const Print stored = known(s) ? s.settled_print : none_in_flight(s) ? Print::none : s.inflight_print;
        ASSERT_EQ(decide(s).verdict == Verdict::fingerprint_missing, unproven(stored, s.print)) << s;
    });
}

// ---- one rule each, by name

Situation settled(Settled state) {
    Situation s;
    s.settled = state;
    s.settled_print = Print::a;
    s.print = Print::a;
    return s;
}

Situation leased(Passed lease, Rule rule = Rule::retry) {
    Situation s;
    s.holder = Holder::other;
    s.lease = lease;
    s.rule = rule;
    s.inflight_print = Print::a;
    s.print = Print::a;
    return s;
}

Situation released(Passed due, Rule rule = Rule::retry) {
    Situation s = leased(Passed::before, rule);
    s.holder = Holder::released;
    s.due = due;
    return s;
}

TEST(Decide, FirstClaimIsGranted) {
    EXPECT_EQ(decide(Situation{}).verdict, Verdict::grant_first);
}

TEST(Decide, G1_TheOwnTokenOfNobodyIsNotTheCurrentOne) {
    Situation s = released(Passed::after);
    s.brings_token = false;
    EXPECT_EQ(decide(s).verdict, Verdict::grant_next);
    s.brings_token = true;
    EXPECT_EQ(decide(s).verdict, Verdict::grant_next);
}

TEST(Decide, G1_SettledWinsOverTheInflightRowThatItReplaces) {
    Situation s = leased(Passed::before);
    s.settled = Settled::live;
    s.settled_print = Print::a;
    EXPECT_EQ(decide(s).verdict, Verdict::replay);
}

TEST(Decide, G3_ReplayUntilTheLastMicrosecond) {
    EXPECT_EQ(decide(settled(Settled::live)).verdict, Verdict::replay);
    EXPECT_EQ(decide(settled(Settled::at_expiry)).verdict, Verdict::expired);
}

TEST(Decide, G3_StrippedBeforeItsTimeIsExpiredNotReplayed) {
    EXPECT_EQ(decide(settled(Settled::stripped)).verdict, Verdict::expired);
}

TEST(Decide, G4_MismatchWinsOverReplay) {
    Situation s = settled(Settled::live);
    s.print = Print::b;
    EXPECT_EQ(decide(s).verdict, Verdict::mismatch);
}

TEST(Decide, G4_MismatchWinsOverExpired) {
    for (const Settled state : {Settled::at_expiry, Settled::expired, Settled::stripped}) {
        Situation s = settled(state);
        s.print = Print::b;
        EXPECT_EQ(decide(s).verdict, Verdict::mismatch);
    }
}

TEST(Decide, G4_MismatchWinsOverTheOwnToken) {
    Situation s = leased(Passed::before);
    s.holder = Holder::own;
    s.brings_token = true;
    s.print = Print::b;
    EXPECT_EQ(decide(s).verdict, Verdict::mismatch);
}

TEST(Decide, G4_MismatchWinsOverReviewAndRules) {
    for (const Rule rule : rules) {
        for (const bool in_review : both) {
            Situation s = leased(Passed::after, rule);
            s.in_review = in_review;
            s.print = Print::b;
            EXPECT_EQ(decide(s).verdict, Verdict::mismatch);
        }
    }
}

TEST(Decide, G4_ForgottenInputsAreNoMismatch) {
    Situation s = settled(Settled::at_forgetting);
    s.print = Print::b;
    EXPECT_EQ(decide(s).verdict, Verdict::grant_first);
}

TEST(Decide, G4_AForgottenOutcomeLeavesTheFingerprintInFlightInForce) {
    Situation s = leased(Passed::before);
    s.settled = Settled::forgotten;
    s.settled_print = Print::a;
    s.inflight_print = Print::a;
    s.print = Print::b;
    EXPECT_EQ(decide(s).verdict, Verdict::mismatch);
    s.settled_print = Print::a;
    s.inflight_print = Print::none;
    EXPECT_EQ(decide(s).verdict, Verdict::in_progress);
}

TEST(Decide, G4_APrefixOrAnEmptyFingerprintDiffers) {
    SettledFacts facts = settled_facts(Settled::live, Print::a);
    ClaimRequest request;
    for (const std::string_view given : {"fingerprint", "fingerprint a ", "Fingerprint a", ""}) {
        request.fingerprint = given;
        EXPECT_EQ(core::decide(&facts, nullptr, request, Policy{}, now).verdict, Verdict::mismatch);
    }
    using namespace std::string_view_literals;
    facts.fingerprint = "\0a"sv;
    request.fingerprint = "\0b"sv;
    EXPECT_EQ(core::decide(&facts, nullptr, request, Policy{}, now).verdict, Verdict::mismatch);
    request.fingerprint = "\0a"sv;
    EXPECT_EQ(core::decide(&facts, nullptr, request, Policy{}, now).verdict, Verdict::replay);
}

TEST(Decide, G4_NothingStoredNothingDiffers) {
    Situation s = settled(Settled::live);
    s.settled_print = Print::none;
    for (const Print print : prints) {
        s.print = print;
        EXPECT_EQ(decide(s).verdict, Verdict::replay);
    }
}

TEST(Decide, G5_TheEndOfTheLeaseIsExact) {
    EXPECT_EQ(decide(leased(Passed::before)).verdict, Verdict::in_progress);
    EXPECT_EQ(decide(leased(Passed::before)).ready_at, now + 1);
    EXPECT_EQ(decide(leased(Passed::exactly)).verdict, Verdict::grant_next);
}

TEST(Decide, G5_TheEndOfTheSessionEndsTheClaimWhileTheLeaseRuns) {
    Situation s = leased(Passed::before);
    s.session_over = true;
    EXPECT_EQ(decide(s).verdict, Verdict::grant_next);
    s.rule = Rule::fail;
    EXPECT_EQ(decide(s).verdict, Verdict::fail_by_rule);
    s.rule = Rule::review;
    EXPECT_EQ(decide(s).verdict, Verdict::review_by_rule);
}

TEST(Decide, G5_AReleasedAttemptWaitsForItsTimeExactly) {
    EXPECT_EQ(decide(released(Passed::before)).verdict, Verdict::in_progress);
    EXPECT_EQ(decide(released(Passed::before)).ready_at, now + 1);
    EXPECT_EQ(decide(released(Passed::exactly)).verdict, Verdict::grant_next);
}

TEST(Decide, G5_AReleasedAttemptIsClaimableUnderEveryRule) {
    for (const Rule rule : rules) {
        EXPECT_EQ(decide(released(Passed::after, rule)).verdict, Verdict::grant_next);
    }
}

TEST(Decide, G5_ALostLeaseCountsAndAReleaseDoesNot) {
    EXPECT_EQ(decide(leased(Passed::after)).failures, 1);
    EXPECT_EQ(decide(released(Passed::after)).failures, 0);
}

TEST(Decide, G5_UsedUpAttemptsAreReviewedOrFailed) {
    for (const Rule rule : rules) {
        Situation s = released(Passed::after, rule);
        s.failures = max_attempts;
        EXPECT_EQ(decide(s).verdict, rule == Rule::fail ? Verdict::fail_by_rule : Verdict::review_by_rule);
        s = leased(Passed::after, rule);
        s.failures = max_attempts - 1; // the lost lease is the last one
        EXPECT_EQ(decide(s).verdict, rule == Rule::fail ? Verdict::fail_by_rule : Verdict::review_by_rule);
    }
}

TEST(Decide, G5_UsedUpAttemptsOfALiveLeaseAreStillAnAttempt) {
    Situation s = leased(Passed::before, Rule::fail);
    s.failures = max_attempts;
    EXPECT_EQ(decide(s).verdict, Verdict::in_progress);
}

TEST(Decide, G5_AGrantGoesPastRuleAndAttemptsOnce) {
    for (const Rule rule : rules) {
        Situation s = released(Passed::exactly, rule);
        s.granted = true;
        s.failures = max_attempts;
        EXPECT_EQ(decide(s).verdict, Verdict::grant_next);
        EXPECT_EQ(decide(s).failures, max_attempts);
        s.holder = Holder::other; // the granted attempt was taken, and lost
        s.lease = Passed::after;
        EXPECT_EQ(decide(s).verdict, rule == Rule::fail ? Verdict::fail_by_rule : Verdict::review_by_rule);
    }
}

TEST(Decide, G5_AGrantDoesNotLiftAReview) {
    Situation s = released(Passed::after);
    s.granted = true;
    s.in_review = true;
    EXPECT_EQ(decide(s).verdict, Verdict::review);
}

TEST(Decide, G5_TheCountOfFailuresDoesNotWrapAround) {
    InflightFacts facts = inflight_facts(leased(Passed::after));
    facts.failures = std::numeric_limits<std::int32_t>::max();
    facts.max_attempts = std::numeric_limits<std::int32_t>::max();
    const Decision decision = core::decide(nullptr, &facts, claim_request(leased(Passed::after)), Policy{}, now);
    EXPECT_EQ(decision.verdict, Verdict::review_by_rule);
    EXPECT_EQ(decision.failures, std::numeric_limits<std::int32_t>::max());
}

TEST(Decide, G6_RepeatedClaimAfterTheEndUnderFailIsFailed) {
    Situation s = leased(Passed::exactly, Rule::fail);
    s.holder = Holder::own;
    s.brings_token = true;
    EXPECT_EQ(decide(s).verdict, Verdict::fail_by_rule);
    s.rule = Rule::review;
    EXPECT_EQ(decide(s).verdict, Verdict::review_by_rule);
}

TEST(Decide, G6_RepeatedClaimAfterTheEndUnderRetryStaysTheOwners) {
    for (const Rule rule : {Rule::retry, Rule::call}) {
        Situation s = leased(Passed::after, rule);
        s.holder = Holder::own;
        s.brings_token = true;
        s.failures = max_attempts; // repeating the call is no new attempt
        EXPECT_EQ(decide(s).verdict, Verdict::repeat_answer);
    }
}

TEST(Decide, G6_RepeatedClaimInReviewIsReview) {
    Situation s = leased(Passed::before);
    s.holder = Holder::own;
    s.brings_token = true;
    s.in_review = true;
    EXPECT_EQ(decide(s).verdict, Verdict::review);
}

TEST(Decide, G6_AnotherTokenOverALiveLeaseIsInProgress) {
    Situation s = leased(Passed::before);
    s.brings_token = true;
    EXPECT_EQ(decide(s).verdict, Verdict::in_progress);
}

TEST(Decide, G6_TokensDifferInEveryByte) {
    InflightFacts facts = inflight_facts(leased(Passed::before));
    for (std::size_t byte = 0; byte < Token{}.size(); byte++) {
        ClaimRequest request = claim_request(leased(Passed::before));
        request.token = other_token;
        EXPECT_EQ(core::decide(nullptr, &facts, request, Policy{}, now).verdict, Verdict::repeat_answer);
        request.token->at(byte) ^= 0x80U;
        EXPECT_EQ(core::decide(nullptr, &facts, request, Policy{}, now).verdict, Verdict::in_progress);
    }
}

TEST(Decide, G7_ExactlyAtForgetAt) {
    EXPECT_EQ(decide(settled(Settled::expired)).verdict, Verdict::expired); // one microsecond before
    EXPECT_EQ(decide(settled(Settled::at_forgetting)).verdict, Verdict::grant_first);
}

TEST(Decide, G7_TooOldExactlyAtTheLimit) {
    Situation s;
    s.rejects = true;
    s.issued = Issued::under;
    EXPECT_EQ(decide(s).verdict, Verdict::grant_first);
    s.issued = Issued::exactly;
    EXPECT_EQ(decide(s).verdict, Verdict::too_old);
}

TEST(Decide, G7_TooOldEvenAfterItIsForgotten) {
    Situation s = settled(Settled::forgotten);
    s.rejects = true;
    s.issued = Issued::over;
    EXPECT_EQ(decide(s).verdict, Verdict::too_old);
}

TEST(Decide, G7_TooOldDoesNotHideWhatIsKnown) {
    for (const Settled state : {Settled::live, Settled::expired}) {
        Situation s = settled(state);
        s.rejects = true;
        s.issued = Issued::over;
        EXPECT_EQ(decide(s).verdict, state == Settled::live ? Verdict::replay : Verdict::expired);
    }
    Situation s = leased(Passed::before);
    s.rejects = true;
    s.issued = Issued::over;
    EXPECT_EQ(decide(s).verdict, Verdict::in_progress);
}

TEST(Decide, G7_TheEndsOfTimeDoNotOverflow) {
    constexpr Time least = std::numeric_limits<Time>::min();
    constexpr Time most = std::numeric_limits<Time>::max();
    Policy policy;
    policy.reject_older_than = reject_older_than;
    ClaimRequest request;
    request.issued_at = least; // -infinity
    EXPECT_EQ(core::decide(nullptr, nullptr, request, policy, now).verdict, Verdict::too_old);
    EXPECT_EQ(core::decide(nullptr, nullptr, request, policy, end_of_time).verdict, Verdict::too_old);
    request.issued_at = most;
    EXPECT_EQ(core::decide(nullptr, nullptr, request, policy, now).verdict, Verdict::grant_first);
    EXPECT_EQ(core::decide(nullptr, nullptr, request, policy, start_of_time).verdict, Verdict::grant_first);
}

TEST(Decide, OnlyAnswersThatChangeOrRestOnNothingNeedTheLock) {
    for (const Verdict verdict : {Verdict::mismatch, Verdict::fingerprint_missing, Verdict::replay, Verdict::expired,
                                  Verdict::review, Verdict::in_progress}) {
        EXPECT_FALSE(needs_lock(verdict)) << verdict;
    }
    for (const Verdict verdict : {Verdict::too_old, Verdict::grant_first, Verdict::grant_next, Verdict::repeat_answer,
                                  Verdict::fail_by_rule, Verdict::review_by_rule}) {
        EXPECT_TRUE(needs_lock(verdict)) << verdict;
    }
}

// ---- owner calls

struct OwnerRow {
    const char* text;
    bool (*applies)(const Situation&, bool kept);
    OwnerVerdict verdict;
};

constexpr std::array owner_table{
    OwnerRow{"settled", [](const Situation& s, bool) { return none_in_flight(s) && known(s); }, OwnerVerdict::settled},
    OwnerRow{"nothing known", [](const Situation& s, bool) { return none_in_flight(s); }, OwnerVerdict::not_owner},
    OwnerRow{"released, or another's token", [](const Situation& s, bool) { return s.holder != Holder::own; },
             OwnerVerdict::not_owner},
    OwnerRow{"in review", [](const Situation& s, bool) { return s.in_review; }, OwnerVerdict::in_review},
    OwnerRow{"judged before in this transaction", [](const Situation&, bool kept) { return kept; },
             OwnerVerdict::current},
    OwnerRow{"over, rule fail, no effect open", [](const Situation& s, bool) { return !alive(s) && fails(s); },
             OwnerVerdict::not_owner},
    OwnerRow{"over, rule review, or fail over an open effect",
             [](const Situation& s, bool) { return !alive(s) && final_by_the_clock(s); }, OwnerVerdict::in_review},
    OwnerRow{"else", [](const Situation&, bool) { return true; }, OwnerVerdict::current},
};

OwnerVerdict judge(const Situation& s, bool kept = false) {
    const SettledFacts settled = settled_facts(s.settled, s.settled_print);
    const InflightFacts inflight = inflight_facts(s);
    return judge_owner(s.settled == Settled::none ? nullptr : &settled, s.holder == Holder::none ? nullptr : &inflight,
                       own_token, now, kept);
}

TEST(JudgeOwner, EverySituationIsAnsweredAsTheTableSays) {
    std::array<std::size_t, owner_table.size()> used{};
    for (const Settled state : settled_states) {
        Situation start;
        start.settled = state;
        for_each_inflight(
            [&](const Situation& s) {
                for (const bool kept : both) {
                    std::size_t row = 0;
                    while (!owner_table[row].applies(s, kept)) {
                        row++;
                    }
                    used[row]++;
                    ASSERT_EQ(judge(s, kept), owner_table[row].verdict)
                        << s << ", kept " << kept << ": " << owner_table[row].text;
                }
            },
            start);
    }
    for (std::size_t row = 0; row < owner_table.size(); row++) {
        EXPECT_GT(used[row], 0U) << "never used: " << owner_table[row].text;
    }
}

Situation owned(Passed lease, Rule rule) {
    Situation s = leased(lease, rule);
    s.holder = Holder::own;
    return s;
}

TEST(JudgeOwner, G6_LateOwnerUnderFailIsRefused) {
    EXPECT_EQ(judge(owned(Passed::before, Rule::fail)), OwnerVerdict::current);
    EXPECT_EQ(judge(owned(Passed::exactly, Rule::fail)), OwnerVerdict::not_owner);
}

TEST(JudgeOwner, G11_LateOwnerUnderFailWithAnOpenEffectIsToldOfTheReview) {
    Situation s = owned(Passed::exactly, Rule::fail);
    s.effect_open = true;
    EXPECT_EQ(judge(s), OwnerVerdict::in_review);
    EXPECT_EQ(judge(s, true), OwnerVerdict::current);
}

TEST(JudgeOwner, G6_LateOwnerUnderReviewIsToldOfTheReview) {
    EXPECT_EQ(judge(owned(Passed::before, Rule::review)), OwnerVerdict::current);
    EXPECT_EQ(judge(owned(Passed::exactly, Rule::review)), OwnerVerdict::in_review);
}

TEST(JudgeOwner, G6_LateOwnerUnderRetryGoesOnUntilTakenOver) {
    EXPECT_EQ(judge(owned(Passed::after, Rule::retry)), OwnerVerdict::current);
    Situation s = owned(Passed::before, Rule::retry);
    s.holder = Holder::other;
    EXPECT_EQ(judge(s), OwnerVerdict::not_owner);
}

TEST(JudgeOwner, G6_TheOwnerOfAReleasedAttemptIsOut) {
    Situation s = owned(Passed::before, Rule::retry);
    s.holder = Holder::released;
    EXPECT_EQ(judge(s), OwnerVerdict::not_owner);
    EXPECT_EQ(judge(s, true), OwnerVerdict::not_owner);
}

TEST(JudgeOwner, G6_AKeptLockOutlivesTheClockButNothingElse) {
    for (const Rule rule : {Rule::fail, Rule::review}) {
        Situation s = owned(Passed::after, rule);
        EXPECT_EQ(judge(s, true), OwnerVerdict::current);
        s.in_review = true;
        EXPECT_EQ(judge(s, true), OwnerVerdict::in_review);
        s.in_review = false;
        s.holder = Holder::other;
        EXPECT_EQ(judge(s, true), OwnerVerdict::not_owner);
    }
}

TEST(JudgeOwner, G6_SettledIsToldApartFromNeverKnown) {
    Situation s;
    EXPECT_EQ(judge(s), OwnerVerdict::not_owner);
    s.settled = Settled::expired;
    EXPECT_EQ(judge(s), OwnerVerdict::settled);
    s.settled = Settled::at_forgetting;
    EXPECT_EQ(judge(s), OwnerVerdict::not_owner);
}

TEST(JudgeOwner, G6_ANewAttemptAfterForgettingHasItsOwnOwner) {
    Situation s = owned(Passed::before, Rule::retry);
    s.settled = Settled::forgotten;
    EXPECT_EQ(judge(s), OwnerVerdict::current);
    s.holder = Holder::other;
    EXPECT_EQ(judge(s), OwnerVerdict::not_owner);
}

// Claim and owner call agree: whoever is told "the same answer as before" may go on, and nobody else.
TEST(JudgeOwner, AgreesWithARepeatedClaim) {
    Situation start;
    start.brings_token = true;
    start.print = Print::a;
    for_each_inflight(
        [](const Situation& s) {
            ASSERT_EQ(decide(s).verdict == Verdict::repeat_answer, judge(s) == OwnerVerdict::current) << s;
        },
        start);
}

// An operator decides about what a claim would find in flight, unless that claim would be answered by rule `fail`.
TEST(JudgeOperator, G5_AgreesWithAClaimThatFindsItFailed) {
    Situation start;
    start.print = Print::a;
    for_each_inflight(
        [](const Situation& s) {
            if (s.holder == Holder::none) {
                return;
            }
            const InflightFacts inflight = inflight_facts(s);
            const bool failed = decide_unattended(inflight, now).verdict == Verdict::fail_by_rule;
            ASSERT_EQ(judge_operator(nullptr, &inflight, now, false),
                      failed ? OperatorVerdict::settled : OperatorVerdict::open)
                << s;
            ASSERT_EQ(judge_operator(nullptr, &inflight, now, true), OperatorVerdict::open) << s;
        },
        start);
}

TEST(JudgeOperator, G3_WhatIsRememberedIsSettled) {
    for (const Settled state : settled_states) {
        const SettledFacts settled = settled_facts(state, Print::a);
        const bool known = state != Settled::none && state != Settled::at_forgetting && state != Settled::forgotten;
        EXPECT_EQ(judge_operator(state == Settled::none ? nullptr : &settled, nullptr, now, false),
                  known ? OperatorVerdict::settled : OperatorVerdict::nothing);
        const InflightFacts inflight = inflight_facts(owned(Passed::before, Rule::retry)); // a new attempt
        EXPECT_EQ(judge_operator(&settled, &inflight, now, false), OperatorVerdict::open);
    }
}

TEST(JudgeOperator, G11_NothingHasFailedOverAnOpenEffect) {
    Situation s = owned(Passed::after, Rule::fail);
    InflightFacts row = inflight_facts(s);
    EXPECT_EQ(judge_operator(nullptr, &row, now, false), OperatorVerdict::settled);
    row.effect_open = true;
    EXPECT_EQ(judge_operator(nullptr, &row, now, false), OperatorVerdict::open);
}

// One attempt granted past the rule and max_attempts, and no more: what takes it is judged by them again.
TEST(JudgeOperator, G5_AGrantedAttemptIsOne) {
    for (const Rule rule : rules) {
        InflightFacts row;
        row.rule = rule;
        row.failures = max_attempts;
        row.max_attempts = max_attempts;
        row.due_at = now;
        row.granted = true;
        EXPECT_EQ(decide_unattended(row, now).verdict, Verdict::grant_next);
        EXPECT_EQ(decide_unattended(row, now - 1).verdict, Verdict::in_progress);
        EXPECT_EQ(judge_operator(nullptr, &row, now, false), OperatorVerdict::open);
        row.granted = false; // taken
        row.token = own_token;
        row.lease_expires_at = now;
        EXPECT_EQ(decide_unattended(row, now).verdict,
                  rule == Rule::fail ? Verdict::fail_by_rule : Verdict::review_by_rule);
    }
}

TEST(Clock, EndsAreExclusive) {
    InflightFacts inflight;
    inflight.token = own_token;
    inflight.lease_expires_at = now;
    EXPECT_FALSE(is_over(inflight, now - 1));
    EXPECT_TRUE(is_over(inflight, now));
    inflight.session_over = true;
    EXPECT_TRUE(is_over(inflight, now - 1));
    inflight.session_over = false;
    inflight.token.reset();
    EXPECT_TRUE(is_over(inflight, now - 1));

    const SettledFacts settled{now, now + 1, false, std::nullopt};
    EXPECT_FALSE(is_expired(settled, now - 1));
    EXPECT_TRUE(is_expired(settled, now));
    EXPECT_TRUE(is_remembered(settled, now));
    EXPECT_FALSE(is_remembered(settled, now + 1));
    EXPECT_TRUE(is_expired({now, now + 1, true, std::nullopt}, now - 1));
}

} // namespace
} // namespace idem::core
