// The order of a claim: look without the lock, answer what can be answered, else take the key lock, look again,
// decide, and write. The steps and why they are safe are in docs/internals/protocol.md.
#pragma once

#include <optional>
#include <string_view>

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "pg/pg.hpp"
#include "store/operation.hpp"

namespace idem::protocol {

struct ClaimCall {
    core::Identity identity;
    core::ClaimRequest request; // fingerprint, own token, time of issue
    Jsonb* request_json = nullptr;
    std::optional<core::Duration> lease; // empty: transaction-scoped
    std::optional<std::string_view> owner;
    core::Duration wait = 0;
    bool session_bound = false;
};

enum class Answer : std::uint8_t { claimed, recovered, completed, failed, in_progress, mismatch, expired, review };

// What the SQL type idem_claim_result says; values point into memory of the current context.
struct ClaimAnswer {
    Answer outcome = Answer::in_progress;
    bool replayed = false;
    std::optional<int> attempt;
    std::optional<core::Token> token;
    std::optional<bool> succeeded; // settled_as
    store::Nullable status, result, body, body_bytes;
    store::Nullable checkpoint, progress;
    std::optional<std::string_view> holder;
    std::optional<int> retry_after;
    std::optional<core::Time> settled_at;
    std::optional<core::Time> expires_at;

    bool is_granted() const { return outcome == Answer::claimed || outcome == Answer::recovered; }
};

// Checks what the policy asks of a call (key format, time of issue, fingerprint, length of the lease), then claims.
// Raises IDM05, IDM07, IDM12, 22023, 53200.
ClaimAnswer claim(ClaimCall call);

} // namespace idem::protocol
