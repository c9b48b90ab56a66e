// When a message of the outbox may be handed out, and when it is parked.
#pragma once

#include <cstdint>
#include <optional>

#include "core/time.hpp"

namespace idem::core {

struct MessageFacts {
    bool parked = false;
    std::optional<Time> leased_until; // empty: not handed out, or given back
    std::optional<Time> due_at;       // given back: not before
};

enum class Readiness : std::uint8_t {
    ready,
    lease_over, // handed out before, and neither acknowledged nor given back
    pass_over,  // those behind it go on without it
    blocked,    // and with it all behind it
};

constexpr Readiness readiness(const MessageFacts& message, Time now, bool skip_parked) noexcept {
    if (message.parked) {
        return skip_parked ? Readiness::pass_over : Readiness::blocked;
    }
    if (message.leased_until.value_or(start_of_time) > now || message.due_at.value_or(start_of_time) > now) {
        return Readiness::blocked;
    }
    return message.leased_until ? Readiness::lease_over : Readiness::ready;
}

// failures: with the latest. max_attempts 0: never.
constexpr bool is_parked_by(std::int32_t failures, std::int32_t max_attempts) noexcept {
    return max_attempts > 0 && failures >= max_attempts;
}

} // namespace idem::core
