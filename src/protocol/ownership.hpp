// Whether a token is the current one: what every call of the owner of a leased claim begins with.
#pragma once

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "store/holdings.hpp"
#include "store/operation.hpp"

namespace idem::protocol {

// This transaction has kept the key lock since an owner call with this token that passed.
bool keeps_lock_since_owner_call(const core::Identity& identity, const core::Token& token);

struct Owned {
    store::Stored stored;
    core::Time now;
    core::OwnerVerdict verdict;

    store::InflightRow& row() { return stored.inflight; }
};

// Under the key lock: what is stored, and whether the token may advance it.
void judge(const core::Identity& identity, const core::Token& token, Owned& owned);

// Waits for the key lock like any other lock wait, and keeps it to the end of the transaction.
void own_or_raise(const core::Identity& identity, const core::Token& token, Owned& owned);

// A refused owner call with a token: the transaction can never commit, whatever catches the error.
[[noreturn]] void refuse(const core::Identity& identity, core::OwnerVerdict verdict);

void note_owner_call(const core::Identity& identity, const core::Token& token, const Owned& owned,
                     store::HoldingState state);

// Raises IDM11 when the fate of an effect is open: nothing is settled over it. Under the key lock.
void refuse_open_effect(const core::Identity& identity);

} // namespace idem::protocol
