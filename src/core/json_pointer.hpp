#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "core/json.hpp"

namespace idem::core {

inline constexpr std::size_t npos = std::numeric_limits<std::size_t>::max();

// True if `pointer` has the syntax of RFC 6901 section 3: empty, which names the whole document, or
// reference tokens each led by '/', in which '~' occurs only as ~0 and ~1.
bool is_json_pointer(std::string_view pointer) noexcept;

// The index in `tape` of the first token of the value that `pointer` names by RFC 6901 section 4; npos if it
// names nothing: the member or element does not exist, or `pointer` is no JSON Pointer. Array indices are
// decimal without leading zeros; "-", the element after the last, does not exist. `tape` is one well-formed
// value, as for canonicalize. Takes time linear in the tape.
std::size_t find_json_pointer(std::span<const JsonToken> tape, std::string_view pointer) noexcept;

} // namespace idem::core
