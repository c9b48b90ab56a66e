// How a claim and an owner's call are decided: pure functions of what is stored, what is asked, and the clock.
//
// The state machine that they describe is in src/core/README.md; the protocol around them (which reads may be
// believed, who takes the key lock) is in docs/internals/protocol.md and test/model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/policy.hpp"
#include "core/time.hpp"

namespace idem::core {

using Token = std::array<std::uint8_t, 16>;
using Fingerprint = std::optional<std::string_view>; // bytes; empty: none given, none stored

// What is stored of a settled operation.
struct SettledFacts {
    Time expires_at = 0;
    Time forget_at = 0;
    bool stripped = false; // the payload has gone already
    Fingerprint fingerprint;
};

// What is stored of an operation in flight.
struct InflightFacts {
    std::optional<Token> token; // empty: released
    bool in_review = false;
    bool granted = false; // an operator granted one attempt past rule and max_attempts
    Rule rule = Rule::retry;
    std::int32_t failures = 0; // without progress, this attempt not included
    std::int32_t max_attempts = 0;
    Time lease_expires_at = 0;
    bool session_over = false; // session-bound, and that session has ended
    bool effect_open = false;  // nobody knows whether it was done outside; known only where the rule is fail
    Time due_at = 0;           // released: not claimable before
    Fingerprint fingerprint;
};

// What the caller of a claim asks.
struct ClaimRequest {
    Fingerprint fingerprint;
    std::optional<Token> token; // the caller's own
    std::optional<Time> issued_at;
};

enum class Verdict : std::uint8_t {
    // Answers: nothing changes.
    mismatch,
    fingerprint_missing, // none given against one stored
    replay,
    expired,
    review,
    in_progress,
    // Answers that rest on "nothing is stored", or that change the operation: only under the key lock.
    too_old,
    grant_first,    // nothing is known of the operation
    grant_next,     // take over
    repeat_answer,  // the current owner repeats its claim call
    fail_by_rule,   // settle as failed
    review_by_rule, // put in review
};

struct Decision {
    Verdict verdict;
    Time ready_at = 0;         // in_progress: when it may become claimable
    std::int32_t failures = 0; // grant_next, review_by_rule: the new count of attempts without progress
};

constexpr bool needs_lock(Verdict verdict) noexcept {
    return verdict >= Verdict::too_old;
}

// nullptr: no such row. `now` is read after the key lock is had, or with the reads where none is held.
Decision decide(const SettledFacts* settled, const InflightFacts* inflight, const ClaimRequest& request,
                const Policy& policy, Time now) noexcept;

// The same for an operation in flight that nobody asks for: what a claim with the right inputs would be answered.
Decision decide_unattended(const InflightFacts& inflight, Time now) noexcept;

enum class OwnerVerdict : std::uint8_t { current, not_owner, settled, in_review };

// May the holder of `token` advance the operation? kept: its transaction has kept the key lock since an owner call
// that passed, so that the clock cannot take the claim from it any more.
OwnerVerdict judge_owner(const SettledFacts* settled, const InflightFacts* inflight, const Token& token, Time now,
                         bool kept) noexcept;

enum class OperatorVerdict : std::uint8_t { open, settled, nothing };

// What is there for an operator to decide about? open: in flight, or in review. Where the rule is fail, the end of the
// attempt counts as settled, whether or not anybody has recorded it (but not over an open effect); not so for a
// transaction that has kept the key lock since an owner call of that attempt.
OperatorVerdict judge_operator(const SettledFacts* settled, const InflightFacts* inflight, Time now,
                               bool kept) noexcept;

// Whether the attempt is over by the clock or by its session (a released one always is).
bool is_over(const InflightFacts& inflight, Time now) noexcept;

bool is_remembered(const SettledFacts& settled, Time now) noexcept;
bool is_expired(const SettledFacts& settled, Time now) noexcept;

} // namespace idem::core
