// The errors of pg_idem: each a SQLSTATE with constant message and hint; the detail names the operation and nothing
// else (never a token, fingerprint, request, result, or holder).
#pragma once

#include "core/identity.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

inline constexpr int errcode_not_settled = MAKE_SQLSTATE('I', 'D', 'M', '0', '1');
inline constexpr int errcode_not_owner = MAKE_SQLSTATE('I', 'D', 'M', '0', '2');
inline constexpr int errcode_not_claimed = MAKE_SQLSTATE('I', 'D', 'M', '0', '3');
inline constexpr int errcode_already_settled = MAKE_SQLSTATE('I', 'D', 'M', '0', '4');
inline constexpr int errcode_fingerprint_required = MAKE_SQLSTATE('I', 'D', 'M', '0', '5');
inline constexpr int errcode_outcome_too_large = MAKE_SQLSTATE('I', 'D', 'M', '0', '6');
inline constexpr int errcode_bad_key_format = MAKE_SQLSTATE('I', 'D', 'M', '0', '7');
inline constexpr int errcode_rejected = MAKE_SQLSTATE('I', 'D', 'M', '0', '8');
inline constexpr int errcode_mismatch = MAKE_SQLSTATE('I', 'D', 'M', '0', '9');
inline constexpr int errcode_in_review = MAKE_SQLSTATE('I', 'D', 'M', '1', '0');
inline constexpr int errcode_effect_open = MAKE_SQLSTATE('I', 'D', 'M', '1', '1');
inline constexpr int errcode_already_claimed = MAKE_SQLSTATE('I', 'D', 'M', '1', '2');

// Copies a message, cut at a whole character.
void copy_message(char* to, std::size_t size, const char* message);

// Names the operation, as errdetail() does.
int errdetail_identity(const core::Identity& identity);
// In an error context callback: what is being done to the operation.
void errcontext_identity(const char* what, const core::Identity& identity);

[[noreturn]] void raise_not_settled(const core::Identity& identity);
[[noreturn]] void raise_not_owner(const core::Identity& identity);
[[noreturn]] void raise_doomed(const core::Identity& identity); // IDM02 at commit
[[noreturn]] void raise_not_claimed(const core::Identity& identity);
[[noreturn]] void raise_already_settled(const core::Identity& identity);
[[noreturn]] void raise_fingerprint_required(const core::Identity& identity);
[[noreturn]] void raise_outcome_too_large(const core::Identity& identity);
[[noreturn]] void raise_bad_key_format(const core::Identity& identity);
[[noreturn]] void raise_issued_in_future(const core::Identity& identity);
[[noreturn]] void raise_swallowed_reject(const core::Identity& identity);
[[noreturn]] void raise_mismatch(const core::Identity& identity);
[[noreturn]] void raise_in_review(const core::Identity& identity);
[[noreturn]] void raise_effect_open(const core::Identity& identity);
[[noreturn]] void raise_already_claimed(const core::Identity& identity);
[[noreturn]] void raise_too_many_claims(int limit);

// Of operator calls.
[[noreturn]] void raise_not_in_flight(const core::Identity& identity); // IDM03
[[noreturn]] void raise_moved_on(const core::Identity& identity);      // IDM02; without a token, so it dooms nothing
[[noreturn]] void raise_claimed_here(const core::Identity& identity);  // IDM12
[[noreturn]] void raise_in_flight(const core::Identity& identity);     // 55006
[[noreturn]] void raise_held_here(const core::Identity& identity);     // 55006

// Of effects.
[[noreturn]] void raise_effect_mismatch(const core::Identity& identity); // IDM09
[[noreturn]] void
raise_contradicting_report(const core::Identity& identity); // IDM04; without a token, so it dooms nothing

// 0A000: an object of the extension is not as the install script made it. how: "has ...".
[[noreturn]] void raise_altered(const char* object, const char* how);
[[noreturn]] void raise_session_bound_prepared(const core::Identity& identity);

} // namespace idem::pg
