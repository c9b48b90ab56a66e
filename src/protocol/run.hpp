// idem_run: claim, call a handler, settle, in one transaction; and what the handler may ask and say.
#pragma once

#include "core/identity.hpp"
#include "protocol/claim.hpp"

namespace idem::protocol {

// `handler`: OID of a function (jsonb) returning jsonb that the caller may execute.
ClaimAnswer run(const ClaimCall& call, Oid handler);

// Runs `handler` for a leased claim of an earlier transaction and settles it, in this transaction. Raises what the
// handler raises, but for a rejection, which is recorded; IDM02, IDM04, IDM06, IDM10.
void drive(const core::Identity& identity, const core::Token& token, int attempt, Oid handler, Jsonb* request);

// The operation of the innermost handler that is running; false: none is.
bool find_running(core::Identity& identity, int& attempt);

// The operation that this transaction carries out: of the innermost handler, else of its only open claim; false: none,
// or several.
bool find_current(core::Identity& identity, int& attempt);

// From a handler: undo its changes and record a final failure. Raises IDM08; outside a handler that is an ordinary
// error.
[[noreturn]] void reject(Jsonb* result, int status);

} // namespace idem::protocol
