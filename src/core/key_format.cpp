#include "core/key_format.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace idem::core {

namespace {

constexpr std::int64_t unix_to_postgres_epoch_ms = 946'684'800'000;
constexpr std::size_t uuid_text_size = 36;
constexpr std::size_t version_at = 14;
constexpr std::size_t variant_at = 19;

int hex_digit(char c) noexcept {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char lower = static_cast<char>(static_cast<unsigned char>(c) | 0x20U);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool is_uuid(std::string_view text) noexcept {
    if (text.size() != uuid_text_size) {
        return false;
    }
    for (std::size_t i = 0; i < text.size(); i++) {
        const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
        if (hyphen ? text[i] != '-' : hex_digit(text[i]) < 0) {
            return false;
        }
    }
    return true;
}

bool is_uuidv7(std::string_view text) noexcept {
    return is_uuid(text) && text[version_at] == '7' && (hex_digit(text[variant_at]) & 0xC) == 0x8;
}

} // namespace

bool has_format(std::string_view key, KeyFormat format) noexcept {
    switch (format) {
    case KeyFormat::any:
        return true;
    case KeyFormat::uuid:
        return is_uuid(key);
    case KeyFormat::uuidv7:
        return is_uuidv7(key);
    }
    return false;
}

std::optional<Time> uuidv7_time(std::string_view key) noexcept {
    if (!is_uuidv7(key)) {
        return std::nullopt;
    }
    std::int64_t milliseconds = 0; // the first 48 bits: 12 digits, a hyphen after the eighth
    for (std::size_t i = 0; i < 13; i++) {
        if (i != 8) {
            milliseconds = milliseconds * 16 + hex_digit(key[i]);
        }
    }
    return (milliseconds - unix_to_postgres_epoch_ms) * 1000;
}

std::array<std::uint8_t, 16> uuidv7(Time time, std::array<std::uint8_t, 16> random) noexcept {
    constexpr Time earliest = -unix_to_postgres_epoch_ms * 1000;
    constexpr Time latest = (0xFFFF'FFFF'FFFF - unix_to_postgres_epoch_ms) * 1000 + 999;
    const std::int64_t microseconds = std::clamp(time, earliest, latest) - earliest;
    const auto milliseconds = static_cast<std::uint64_t>(microseconds / 1000);
    const auto fraction = static_cast<std::uint64_t>(microseconds % 1000) * 4096 / 1000;
    std::array<std::uint8_t, 16> uuid = random;
    for (std::size_t i = 0; i < 6; i++) {
        uuid[i] = static_cast<std::uint8_t>(milliseconds >> (40 - 8 * i));
    }
    uuid[6] = static_cast<std::uint8_t>(0x70 | (fraction >> 8));
    uuid[7] = static_cast<std::uint8_t>(fraction);
    uuid[8] = static_cast<std::uint8_t>((random[8] & 0x3F) | 0x80); // variant
    return uuid;
}

} // namespace idem::core
