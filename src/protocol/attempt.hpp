// An attempt that ends without an outcome.
#pragma once

#include <optional>
#include <string_view>

#include "core/policy.hpp"
#include "store/inflight.hpp"

namespace idem::protocol {

struct AttemptEnd {
    std::optional<std::string_view> error; // it counts as a failed attempt, and backs off
    std::optional<core::Duration> retry_after;
};

// Prepares the row, for update_inflight: released, due at once or after a delay.
void end_attempt(store::InflightRow& row, const AttemptEnd& end, const core::Policy& policy, core::Time now);

} // namespace idem::protocol
