#include "core/receipt.hpp"

#include <cstddef>

namespace idem::core {

namespace {

// 122 bits are free: 64 of the position, 26 of the stamp, 32 of the count. Version and variant lie in between.
constexpr std::uint32_t stamp_mask = (1U << 26) - 1;
constexpr std::uint8_t version = 0x80;
constexpr std::uint8_t variant = 0x80;

} // namespace

Receipt receipt_of(std::int64_t position, std::int32_t deliveries, Time leased_until) noexcept {
    return {position, deliveries, static_cast<std::uint32_t>(leased_until) & stamp_mask};
}

std::array<std::uint8_t, 16> encode(const Receipt& receipt) noexcept {
    const auto position = static_cast<std::uint64_t>(receipt.position);
    const auto deliveries = static_cast<std::uint32_t>(receipt.deliveries);
    std::array<std::uint8_t, 16> uuid{};
    for (std::size_t i = 0; i < 6; i++) {
        uuid[i] = static_cast<std::uint8_t>(position >> (56 - 8 * i));
    }
    uuid[6] = static_cast<std::uint8_t>(version | ((position >> 12) & 0x0F));
    uuid[7] = static_cast<std::uint8_t>(position >> 4);
    uuid[8] = static_cast<std::uint8_t>(variant | ((position & 0x0F) << 2) | ((receipt.stamp >> 24) & 0x03));
    for (std::size_t i = 0; i < 3; i++) {
        uuid[9 + i] = static_cast<std::uint8_t>(receipt.stamp >> (16 - 8 * i));
    }
    for (std::size_t i = 0; i < 4; i++) {
        uuid[12 + i] = static_cast<std::uint8_t>(deliveries >> (24 - 8 * i));
    }
    return uuid;
}

std::optional<Receipt> decode_receipt(const std::array<std::uint8_t, 16>& uuid) noexcept {
    if ((uuid[6] & 0xF0) != version || (uuid[8] & 0xC0) != variant) {
        return std::nullopt;
    }
    std::uint64_t position = 0;
    for (std::size_t i = 0; i < 6; i++) {
        position = position << 8 | uuid[i];
    }
    position = position << 4 | (uuid[6] & 0x0F);
    position = position << 8 | uuid[7];
    position = position << 4 | ((uuid[8] >> 2) & 0x0F);
    std::uint32_t stamp = uuid[8] & 0x03;
    for (std::size_t i = 9; i < 12; i++) {
        stamp = stamp << 8 | uuid[i];
    }
    std::uint32_t deliveries = 0;
    for (std::size_t i = 12; i < 16; i++) {
        deliveries = deliveries << 8 | uuid[i];
    }
    const Receipt receipt{static_cast<std::int64_t>(position), static_cast<std::int32_t>(deliveries), stamp};
    if (receipt.deliveries <= 0) {
        return std::nullopt;
    }
    return receipt;
}

} // namespace idem::core
