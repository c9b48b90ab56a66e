// Formats that a policy may require of keys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/policy.hpp"
#include "core/time.hpp"

namespace idem::core {

// Whether `key` is written as `format` asks: the hyphenated form of RFC 9562, section 4 (either case).
bool has_format(std::string_view key, KeyFormat format) noexcept;

// The time inside a UUID version 7 (RFC 9562, section 5.7), in milliseconds' resolution; empty for any other text.
std::optional<Time> uuidv7_time(std::string_view key) noexcept;

// A UUID version 7 of `time`, with fractions of its millisecond in the 12 bits that follow (RFC 9562, section 6.2,
// method 3), and else random bits.
std::array<std::uint8_t, 16> uuidv7(Time time, std::array<std::uint8_t, 16> random) noexcept;

} // namespace idem::core
