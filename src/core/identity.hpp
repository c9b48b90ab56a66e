// The name of an operation: (account, action, key).
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

struct Identity {
    std::string_view account;
    std::string_view action;
    std::string_view key;

    friend bool operator==(const Identity&, const Identity&) = default;
};

// Limits in bytes.
inline constexpr std::size_t max_account_bytes = 255;
inline constexpr std::size_t max_action_bytes = 128;
inline constexpr std::size_t max_key_bytes = 255;
inline constexpr std::size_t max_identity_bytes = max_account_bytes + max_action_bytes + max_key_bytes;

// An Identity with memory of its own, trivially copyable so that it may live in server memory.
class StoredIdentity {
public:
    StoredIdentity() = default;
    explicit StoredIdentity(const Identity& identity) noexcept; // parts within the limits

    Identity get() const noexcept {
        return {
            {bytes, account_size}, {bytes + account_size, action_size}, {bytes + account_size + action_size, key_size}};
    }

private:
    unsigned short account_size = 0;
    unsigned short action_size = 0;
    unsigned short key_size = 0;
    char bytes[max_identity_bytes] = {};
};

// A printed identity for error details: control characters escaped; of the key only the first `shown_key_bytes`, which
// end with a whole character of the server's encoding, at most shown_key_characters of them.
inline constexpr int shown_key_characters = 64;
struct IdentityText {
    char text[4 * max_identity_bytes + 64];
};
IdentityText describe(const Identity& identity, std::size_t shown_key_bytes) noexcept;

} // namespace idem::core
