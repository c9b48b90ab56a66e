#include "protocol/ownership.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/key_lock.hpp"
#include "store/effects.hpp"
#include "store/statistics.hpp"

namespace idem::protocol {

namespace {

// A transaction-scoped claim of this transaction has taken the operation over, though the row of the interrupted
// attempt stays, with its token, until that claim is settled.
bool is_taken_over_here(const core::Identity& identity) {
    const store::Holding* holding = store::find_holding(identity);
    return holding != nullptr && holding->state == store::HoldingState::claimed;
}

} // namespace

bool keeps_lock_since_owner_call(const core::Identity& identity, const core::Token& token) {
    const store::Holding* holding = store::find_holding(identity);
    return holding != nullptr && holding->token == token &&
           (holding->state == store::HoldingState::leased || holding->state == store::HoldingState::guarded);
}

void refuse(const core::Identity& identity, core::OwnerVerdict verdict) {
    store::count(identity.action, store::Counter::fenced);
    store::doom_transaction(identity);
    switch (verdict) {
    case core::OwnerVerdict::settled:
        pg::raise_already_settled(identity);
    case core::OwnerVerdict::in_review:
        pg::raise_in_review(identity);
    default:
        pg::raise_not_owner(identity);
    }
}

void judge(const core::Identity& identity, const core::Token& token, Owned& owned) {
    const bool kept = keeps_lock_since_owner_call(identity, token);
    store::read_stored(identity, owned.stored);
    owned.now = pg::now();
    if (is_taken_over_here(identity)) {
        owned.verdict = core::OwnerVerdict::not_owner;
        return;
    }
    owned.verdict =
        core::judge_owner(owned.stored.settled_facts(), owned.stored.inflight_facts(), token, owned.now, kept);
}

void own_or_raise(const core::Identity& identity, const core::Token& token, Owned& owned) {
    pg::wait_for_key_lock(pg::key_lock_tag(identity));
    judge(identity, token, owned);
    if (owned.verdict != core::OwnerVerdict::current) {
        refuse(identity, owned.verdict);
    }
}

void note_owner_call(const core::Identity& identity, const core::Token& token, const Owned& owned,
                     store::HoldingState state) {
    store::note_owner_call(identity, {state, owned.stored.inflight.attempt(), token});
}

void refuse_open_effect(const core::Identity& identity) {
    if (store::has_open_effect(identity, SnapshotSelf)) {
        pg::raise_effect_open(identity);
    }
}

} // namespace idem::protocol
