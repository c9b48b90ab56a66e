// idem_outbox_ack, idem_outbox_nack, idem_outbox_retry.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/receipt.hpp"
#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::protocol {

// Each receipt counts while it is that of the message's latest hand-out, and the message was not given back since; also
// after the lease's end. All wait for a change in flight, and take messages in the order of their positions. They
// return how many they changed.
int acknowledge(std::span<core::Receipt> receipts);

struct GiveBackCall {
    core::Duration retry_after = 0;
    std::optional<std::string_view> error; // it counts as a failed attempt of each aggregate's first message
};
int give_back(std::span<core::Receipt> receipts, const GiveBackCall& call);

// Un-parks the parked messages of these ids.
int retry(std::span<const Datum> ids);

} // namespace idem::protocol
