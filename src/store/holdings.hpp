// What this transaction holds: its open claims, the leased claims that it made or advanced, and the promises that must
// still be true when it commits. Memory of this backend only.
//
// The list is a journal: every event is appended with the nesting level of its subtransaction, and a rollback to a
// savepoint cuts the events of that level off its end. What holds now for an operation is its last event.
#pragma once

#include <cstdint>
#include <optional>

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "pg/pg.hpp"

namespace idem::store {

enum class HoldingState : std::uint8_t {
    claimed, // transaction-scoped claim, open: must be settled or released before commit
    leased,  // leased claim made by this transaction
    guarded, // of a claim made by an earlier transaction: an owner call with a token passed; the key lock is kept since
    settled,
    released,
};

struct Holding {
    HoldingState state;
    int attempt = 0;
    std::optional<core::Token> token; // leased, guarded
    bool session_bound = false;       // leased
    bool made_here = false;           // a leased claim that this transaction made: if it is rolled back, it never was
    // Of a transaction-scoped claim, for its settlement; in memory of the transaction.
    struct varlena* fingerprint = nullptr;
    struct varlena* request = nullptr;
    core::Time claimed_at = 0;
};

// What this transaction holds of `identity`; nullptr: nothing. Valid until the next call of note_holding.
const Holding* find_holding(const core::Identity& identity);

// Appends an event. The key lock is held. Raises 53200 when the transaction would hold too many. The first one of a
// transaction registers its commit check and arms the timeout of idle claims.
void note_holding(const core::Identity& identity, const Holding& holding);

// The only operation of this transaction whose claim is open; false: none, or several.
struct OpenClaim {
    core::Identity identity;
    int attempt;
};
bool find_only_claim(OpenClaim& claim);

// The same for an owner call that passed with holding.token. Where the claim was not made by this transaction, it is
// also promised that at commit the token is still the current one, though a rollback to a savepoint has dropped the key
// lock meanwhile: work that was guarded may have been done before that rollback or after it.
void note_owner_call(const core::Identity& identity, Holding holding);

// An owner call with a token was refused: this transaction can never commit, whatever catches the error.
void doom_transaction(const core::Identity& identity);

// Registers the callbacks; from _PG_init.
void init_holdings();

} // namespace idem::store
