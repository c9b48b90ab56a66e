// Formats that a policy may require of keys.
#pragma once

#include <optional>
#include <string_view>

#include "core/policy.hpp"
#include "core/time.hpp"

namespace idem::core {

// Whether `key` is written as `format` asks: the hyphenated form of RFC 9562, section 4 (either case).
bool has_format(std::string_view key, KeyFormat format) noexcept;

// The time inside a UUID version 7 (RFC 9562, section 5.7), in milliseconds' resolution; empty for any other text.
std::optional<Time> uuidv7_time(std::string_view key) noexcept;

} // namespace idem::core
