// Whatever the three parts of an identity, its printed form ends within its buffer and shows no control
// character, a stored identity is the one that was stored, and the key's format and time agree with each
// other.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/identity.hpp"
#include "core/key_format.hpp"

namespace {

void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

std::string_view take_line(std::string_view& input, std::size_t most) {
    const std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(line.size() + 1, input.size()));
    return line.substr(0, most);
}

void check_identity(const idem::core::Identity& identity) {
    const idem::core::IdentityText printed = idem::core::describe(identity, identity.key.size());
    const void* const end = std::memchr(printed.text, '\0', sizeof printed.text);
    check(end != nullptr);
    const std::string_view text = printed.text;
    check(std::none_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7F;
    }));
    check(text.starts_with("Account \"") && text.ends_with("\"."));

    const idem::core::StoredIdentity stored(identity);
    check(stored.get() == identity);
}

void check_key(std::string_view key) {
    using idem::core::KeyFormat;
    const auto time = idem::core::uuidv7_time(key);
    check(idem::core::has_format(key, KeyFormat::any));
    check(time.has_value() == idem::core::has_format(key, KeyFormat::uuidv7));
    if (time) {
        check(idem::core::has_format(key, KeyFormat::uuid));
        check(*time >= -946'684'800 * idem::core::second && *time < idem::core::end_of_time);
    }
}

} // namespace

// Input: account, newline, action, newline, key. (Only a key may hold newlines.)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view input(reinterpret_cast<const char*>(data), size); // NOLINT(*-reinterpret-cast)
    const std::string_view account = take_line(input, idem::core::max_account_bytes);
    const std::string_view action = take_line(input, idem::core::max_action_bytes);
    const std::string_view key = input.substr(0, idem::core::max_key_bytes);
    check_identity({account, action, key});
    check_key(key);
    return 0;
}
