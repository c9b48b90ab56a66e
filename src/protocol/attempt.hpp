// Attempts of a leased claim: how one begins, and how it ends without an outcome.
#pragma once

#include <optional>
#include <string_view>

#include "core/policy.hpp"
#include "store/inflight.hpp"

namespace idem::protocol {

// Prepares the row for the next attempt; token and lease are the caller's. failure_count: the new count of attempts
// without progress.
void begin_attempt(store::InflightRow& row, int failure_count, std::string_view owner_label, core::Time now);

struct AttemptEnd {
    std::optional<std::string_view> error; // it counts as a failed attempt, and backs off
    std::optional<core::Duration> retry_after;
    core::Duration least_backoff = 0; // whatever the policy says
};

// Prepares the row, for update_inflight: released, due at once or after a delay.
void end_attempt(store::InflightRow& row, const AttemptEnd& end, const core::Policy& policy, core::Time now);

// Prepares the row: one more attempt, past the rule and max_attempts, due at once. The old owner's token ends.
void grant_attempt(store::InflightRow& row, std::string_view why, core::Time now);

} // namespace idem::protocol
