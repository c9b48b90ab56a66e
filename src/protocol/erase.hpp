// idem_erase: an account's stored payloads.
#pragma once

#include <cstdint>
#include <string_view>

namespace idem::protocol {

// What is erased, by the kind of its rows.
inline constexpr int erased_kinds = 4;
struct Erased {
    const char* what[erased_kinds];
    std::int64_t rows[erased_kinds];
};

// At most pg_idem.batch_size rows, operations each under its key lock, which is kept to the end of the transaction.
// Goes on where the last call of this session for this account stopped; nothing at all is erased only when a complete
// round found nothing. Fingerprint, status and times stay, and with them the protection against a second execution;
// messages are still handed out.
Erased erase(std::string_view account, std::string_view note);

} // namespace idem::protocol
