// What the business decided for an action: retention, rules, limits.
#pragma once

#include <cstdint>
#include <optional>

#include "core/time.hpp"

namespace idem::core {

enum class Rule : std::uint8_t { retry, fail, review, call };
enum class KeyFormat : std::uint8_t { any, uuid, uuidv7 };

// One row of the policies table; empty: not set there.
struct PolicyRow {
    std::optional<Duration> retention;
    std::optional<Duration> remember;
    std::optional<Duration> once_retention;
    std::optional<Duration> reject_older_than;
    std::optional<KeyFormat> key_format;
    std::optional<bool> fingerprint_required;
    std::optional<Duration> max_lease;
    std::optional<std::int32_t> max_attempts;
    std::optional<Rule> on_interrupt;
    std::optional<Duration> retry_backoff;
    std::optional<Duration> max_backoff;
    std::optional<bool> keep_request;
    std::optional<std::int32_t> max_outcome_bytes;
};

// The policy in force: every value decided. Empty: none (no limit).
struct Policy {
    Duration retention = 3 * day;
    Duration remember = 30 * day;
    Duration once_retention = 7 * day;
    std::optional<Duration> reject_older_than; // clamped, see effective_policy
    Duration tolerated_skew = 10 * minute;     // how far in the future a request may say that it was issued
    KeyFormat key_format = KeyFormat::any;
    bool fingerprint_required = true;
    std::optional<Duration> max_lease = hour;
    std::int32_t max_attempts = 10;
    Rule on_interrupt = Rule::retry;
    Duration retry_backoff = 5 * second;
    std::optional<Duration> max_backoff = hour;
    bool keep_request = false;
    std::int32_t max_outcome_bytes = 1'048'576;
};

// The row of the action itself, then the row '*', then the built-in default. Interval 0 means none.
//
// reject_older_than is clamped to retention + remember less the tolerated skew: a request that says it was issued in
// the future must be too old by the time at which its record is forgotten, else it would be carried out again. Where
// retention + remember is shorter than twice the usual skew, the skew shrinks to half of it, so that fresh requests
// are not too old. Where nothing is kept at all, every one is: nothing could tell it from a retry.
Policy effective_policy(const PolicyRow& own, const PolicyRow& star) noexcept;

// Delay before the next attempt after `failures` (at least 1) failed ones: retry_backoff, doubled for each further
// one, up to max_backoff.
Duration backoff(const Policy& policy, std::int32_t failures) noexcept;

} // namespace idem::core
