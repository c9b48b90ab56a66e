// The receipt of a message that was handed out: a UUID version 8 (RFC 9562, section 5.8) in which everything is written
// that tells this hand-out from any other, so that nothing is stored for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/time.hpp"

namespace idem::core {

struct Receipt {
    std::int64_t position = 0;   // of the message
    std::int32_t deliveries = 0; // how often it has been handed out by then
    // Low bits of the lease's end: they tell apart hand-outs of one count, where one of them was rolled back.
    std::uint32_t stamp = 0;

    friend bool operator==(const Receipt&, const Receipt&) = default;
};

Receipt receipt_of(std::int64_t position, std::int32_t deliveries, Time leased_until) noexcept;

std::array<std::uint8_t, 16> encode(const Receipt& receipt) noexcept;

// Empty: not a UUID version 8, or of no hand-out that there can be.
std::optional<Receipt> decode_receipt(const std::array<std::uint8_t, 16>& uuid) noexcept;

} // namespace idem::core
