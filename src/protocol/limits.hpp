// Limits of the policy on what a call stores.
#pragma once

#include <initializer_list>
#include <optional>

#include "core/identity.hpp"
#include "core/policy.hpp"
#include "store/settled.hpp"

namespace idem::protocol {

// Raises IDM06 when the parts together are over max_outcome_bytes, as they are before compression.
void check_outcome_size(const core::Identity& identity, const core::Policy& policy,
                        std::initializer_list<store::Nullable> parts);

// Raises 22023 when the lease is over max_lease. identity: may be of an action only.
void check_lease(const core::Identity& identity, const core::Policy& policy, std::optional<core::Duration> lease);

} // namespace idem::protocol
