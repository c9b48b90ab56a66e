#include "core/identity.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace idem::core {

namespace {

constexpr std::size_t shown_key_characters = 64;

bool is_continuation(unsigned char byte) noexcept {
    return (byte & 0xC0U) == 0x80U;
}

// Writes `part` with control characters (C0, DEL) as \xNN. A part of a multi-byte character is never cut off: in
// UTF-8 and in every other encoding that a server may use, such bytes are above 0x7F or printable.
char* escape(char* out, std::string_view part) noexcept {
    for (const char c : part) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7F) {
            out = fmt::format_to(out, "\\x{:02x}", byte);
        } else {
            *out++ = c;
        }
    }
    return out;
}

// The first `limit` characters of `text`. Bytes of the form 10xxxxxx continue a character (UTF-8); in a server
// with another encoding the cut may come later, never inside an ASCII character.
std::string_view first_characters(std::string_view text, std::size_t limit) noexcept {
    std::size_t characters = 0;
    for (std::size_t i = 0; i < text.size(); i++) {
        if (is_continuation(static_cast<unsigned char>(text[i]))) {
            continue;
        }
        if (++characters > limit) {
            return text.substr(0, i);
        }
    }
    return text;
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

IdentityText describe(const Identity& identity) noexcept {
    IdentityText result;
    const std::string_view key = first_characters(identity.key, shown_key_characters);
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
