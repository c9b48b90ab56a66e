// pg_idem.account_from: ties the account of a call to who is calling.
#pragma once

#include <string_view>

namespace idem::pg {

// Whether `rule` is a value that pg_idem.account_from may have.
bool is_account_rule(const char* rule) noexcept;

// Whether the caller may act for `account`. Raises 42501 where the setting itself is forged, or no rule.
bool is_account_permitted(std::string_view account);

// Raises 42501 unless the caller may act for `account`.
void check_account(std::string_view account);

} // namespace idem::pg
