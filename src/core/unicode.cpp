#include "core/unicode.hpp"

#include <algorithm>
#include <cstddef>

namespace idem::core {
namespace {

bool is_blank(unsigned code_point) noexcept {
    if (code_point <= 0x20 || (code_point >= 0x7F && code_point <= 0xA0)) {
        return true;
    }
    if (code_point >= 0x2000 && code_point <= 0x200D) {
        return true;
    }
    switch (code_point) {
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x2060:
    case 0x3000:
    case 0xFEFF:
        return true;
    default:
        return false;
    }
}

bool is_continuation(unsigned byte) noexcept {
    return (byte & 0xC0U) == 0x80U;
}

// The rank of a byte where two strings first differ. UTF-8 bytes sort like code points, and UTF-16 differs
// from that only in that the lead bytes F0..F4 (beyond U+FFFF) come before EE and EF (U+E000..U+FFFF); no
// other byte of UTF-8 has these values. Raising EE and EF above all others is that order.
int utf16_rank(char character) noexcept {
    const int byte = static_cast<unsigned char>(character);
    return byte == 0xEE || byte == 0xEF ? byte + 0x100 : byte;
}

} // namespace

bool is_blank_utf8(std::string_view text) noexcept {
    // Every blank code point takes at most three bytes, so a longer sequence needs no decoding.
    const auto byte_at = [text](std::size_t at) -> unsigned {
        return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
    };
    for (std::size_t at = 0; at < text.size();) {
        const unsigned lead = byte_at(at);
        unsigned code_point = lead;
        unsigned smallest = 0; // below it the sequence is longer than need be, which is not UTF-8
        std::size_t length = 1;
        if (lead >= 0x80) {
            const unsigned second = byte_at(at + 1);
            const unsigned third = byte_at(at + 2);
            if ((lead & 0xE0U) == 0xC0U && is_continuation(second)) {
                code_point = (lead & 0x1FU) << 6 | (second & 0x3FU);
                smallest = 0x80;
                length = 2;
            } else if ((lead & 0xF0U) == 0xE0U && is_continuation(second) && is_continuation(third)) {
                code_point = (lead & 0x0FU) << 12 | (second & 0x3FU) << 6 | (third & 0x3FU);
                smallest = 0x800;
                length = 3;
            } else {
                return false;
            }
        }
        if (code_point < smallest || !is_blank(code_point)) {
            return false;
        }
        at += length;
    }
    return true;
}

int compare_utf16(std::string_view a, std::string_view b) noexcept {
    const std::size_t common = std::min(a.size(), b.size());
    for (std::size_t at = 0; at < common; ++at) {
        if (a[at] != b[at]) {
            return utf16_rank(a[at]) - utf16_rank(b[at]);
        }
    }
    return a.size() == b.size() ? 0 : a.size() < b.size() ? -1 : 1;
}

} // namespace idem::core
