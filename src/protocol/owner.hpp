// Calls of the owner of a claim.
#pragma once

#include <optional>
#include <string_view>

#include "core/identity.hpp"
#include "protocol/claim.hpp"

namespace idem::protocol {

struct SettleCall {
    core::Identity identity;
    bool succeeded = true;
    store::Nullable status, result, body, body_bytes;
    std::optional<core::Token> token;
};

struct SettledTimes {
    core::Time settled_at;
    core::Time expires_at; // until when the outcome is replayed
};

// idem_complete, idem_fail. Raises IDM02, IDM03, IDM04, IDM06, IDM10.
SettledTimes settle(const SettleCall& call);

struct ReleaseCall {
    core::Identity identity;
    std::optional<core::Token> token;
    std::optional<core::Duration> retry_after;
    std::optional<std::string_view> error;
    core::Duration least_backoff = 0; // after an error
};

// False: no longer ours.
bool release(const ReleaseCall& call);

// The lease's new deadline; empty: unknown (the key lock was not to be had, and no row was seen). Raises IDM02, IDM04,
// IDM10.
std::optional<core::Time> renew(const core::Identity& identity, const core::Token& token,
                                std::optional<core::Duration> lease);

struct CheckpointCall {
    core::Identity identity;
    core::Token token;
    std::string_view checkpoint;
    Jsonb* progress = nullptr;
    std::optional<core::Duration> lease;
};

// Returns the lease's new deadline. Raises IDM02, IDM04, IDM06, IDM10.
core::Time checkpoint(const CheckpointCall& call);

// Returns the lease's deadline. Raises IDM02, IDM04, IDM10.
core::Time guard(const core::Identity& identity, const core::Token& token);

} // namespace idem::protocol
