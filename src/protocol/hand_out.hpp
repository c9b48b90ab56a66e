// idem_outbox_take: messages in order, leased to a relay.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/time.hpp"
#include "store/outbox.hpp"

namespace idem::protocol {

struct HandOutCall {
    int batch = 0;
    core::Duration lease = 0;
    std::optional<std::span<const std::string_view>> aggregatetypes; // sorted; empty: all
    std::string_view filter;                                         // the same as one text
};

// The messages handed out, by position, as they are now; in the current memory context.
std::span<store::OutboxRow> hand_out(const HandOutCall& call);

} // namespace idem::protocol
