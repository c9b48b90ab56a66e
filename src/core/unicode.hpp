#pragma once

#include <string_view>

namespace idem::core {

// True if nothing in `text` can be seen: it is empty, or holds only Unicode White_Space, control characters
// (general category Cc) and the zero-width U+200B..U+200D, U+2060 and U+FEFF. False if it is not UTF-8.
bool is_blank_utf8(std::string_view text) noexcept;

// Orders two UTF-8 strings by their UTF-16 code units, as RFC 8785 section 3.2.3 sorts members: code points
// above U+FFFF, being surrogate pairs, come before U+E000..U+FFFF. Negative, zero or positive for a before,
// equal to or after b. Bytes that are not UTF-8 are put in some fixed total order too.
int compare_utf16(std::string_view a, std::string_view b) noexcept;

} // namespace idem::core
