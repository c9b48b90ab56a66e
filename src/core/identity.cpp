#include "core/identity.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace idem::core {

namespace {

// What could steer a terminal or turn the text around where it is shown: the controls of ASCII; in UTF-8 also C1
// controls, line and paragraph separators, and marks of writing direction. size 0: none.
struct Control {
    std::size_t size;
    unsigned code_point;
};
Control control_at(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    if (byte(0) < 0x20 || byte(0) == 0x7F) {
        return {1, byte(0)};
    }
    if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F) {
        return {2, byte(1)};
    }
    if (byte(0) == 0xD8 && byte(1) == 0x9C) {
        return {2, 0x061C};
    }
    if (byte(0) == 0xE2 && (byte(1) == 0x80 || byte(1) == 0x81) && (byte(2) & 0xC0U) == 0x80) {
        const unsigned code_point = 0x2000U + ((byte(1) & 0x3FU) << 6U) + (byte(2) & 0x3FU);
        const bool mark = code_point == 0x200E || code_point == 0x200F ||
                          (code_point >= 0x2028 && code_point <= 0x202E) ||
                          (code_point >= 0x2066 && code_point <= 0x2069);
        return mark ? Control{3, code_point} : Control{0, 0};
    }
    return {0, 0};
}

// Writes `part` with such characters as \xNN or \uNNNN.
char* escape(char* out, std::string_view part) noexcept {
    while (!part.empty()) {
        const Control control = control_at(part);
        if (control.size == 0) {
            *out++ = part.front();
            part.remove_prefix(1);
            continue;
        }
        out = control.code_point < 0x100 ? fmt::format_to(out, "\\x{:02x}", control.code_point)
                                         : fmt::format_to(out, "\\u{:04x}", control.code_point);
        part.remove_prefix(control.size);
    }
    return out;
}

} // namespace

StoredIdentity::StoredIdentity(const Identity& identity) noexcept
    : account_size(static_cast<unsigned short>(identity.account.size())),
      action_size(static_cast<unsigned short>(identity.action.size())),
      key_size(static_cast<unsigned short>(identity.key.size())) {
    std::memcpy(bytes, identity.account.data(), account_size);
    std::memcpy(bytes + account_size, identity.action.data(), action_size);
    std::memcpy(bytes + account_size + action_size, identity.key.data(), key_size);
}

IdentityText describe(const Identity& identity, std::size_t shown_key_bytes) noexcept {
    IdentityText result;
    const std::string_view key = identity.key.substr(0, shown_key_bytes);
    auto literal = [](char* out, std::string_view text) { return std::copy(text.begin(), text.end(), out); };

    char* out = literal(result.text, "Account \"");
    out = escape(out, identity.account);
    out = literal(out, "\", action \"");
    out = escape(out, identity.action);
    out = literal(out, "\", key \"");
    out = escape(out, key);
    out = literal(out, key.size() < identity.key.size() ? "...\"." : "\".");
    *out = '\0';
    return result;
}

} // namespace idem::core
