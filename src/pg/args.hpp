// Arguments of SQL functions, checked. What is wrong with them is raised with a SQLSTATE of its own.
#pragma once

#include <optional>
#include <string_view>

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// Text and bytea arguments point into memory of the current context.
std::optional<std::string_view> text_arg(FunctionCallInfo fcinfo, int n);
std::optional<std::string_view> bytes_arg(FunctionCallInfo fcinfo, int n);
std::optional<core::Token> uuid_arg(FunctionCallInfo fcinfo, int n);
Jsonb* jsonb_arg(FunctionCallInfo fcinfo, int n); // nullptr: NULL
std::optional<core::Time> time_arg(FunctionCallInfo fcinfo, int n);

// Months count 30 days and days 24 hours, as where PostgreSQL compares intervals. 22023 when infinite, negative, or,
// unless zero is allowed, zero.
std::optional<core::Duration> duration_arg(FunctionCallInfo fcinfo, int n, const char* name, bool zero_allowed);

// Interval of a table's column, already known to be sound; saturates.
core::Duration duration_of(const Interval* interval);
Interval* interval_of(core::Duration duration);

// The first three arguments. 22023: NULL, empty, or blank; 22001: too long. 42501: account not permitted.
core::Identity identity_args(FunctionCallInfo fcinfo);

// The same, of whatever account: calls that are not made on its behalf are exempt from pg_idem.account_from.
core::Identity any_identity_args(FunctionCallInfo fcinfo);

// The same checks for single parts, or other required text. name: for the message.
std::string_view identity_part(std::optional<std::string_view> part, const char* name, std::size_t limit);

// A required token. 22023: NULL.
core::Token token_arg(FunctionCallInfo fcinfo, int n);

// The fingerprint of a call: the one given, else that of the request, else none. 22023: empty; 22001: over 255 bytes.
core::Fingerprint fingerprint_args(FunctionCallInfo fcinfo, int request, int fingerprint);
core::Fingerprint request_fingerprint(FunctionCallInfo fcinfo, int request);
core::Fingerprint checked_fingerprint(std::optional<std::string_view> given);

// 25006 in a read-only transaction and on a standby; 25000 in a parallel operation.
void require_writable(const char* function);

} // namespace idem::pg
