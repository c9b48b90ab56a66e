#include <algorithm>

#include "protocol/owner.hpp"

#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/errors.hpp"
#include "pg/key_lock.hpp"
#include "protocol/attempt.hpp"
#include "protocol/by_rule.hpp"
#include "protocol/limits.hpp"
#include "protocol/ownership.hpp"
#include "store/datum.hpp"
#include "store/holdings.hpp"
#include "store/policies.hpp"
#include "store/statistics.hpp"

namespace idem::protocol {

namespace {

constexpr long renew_wait_ms = 100;

store::Outcome outcome_of(const SettleCall& call, int attempt) {
    store::Outcome outcome{};
    outcome.succeeded = call.succeeded;
    outcome.attempt = attempt;
    outcome.status = call.status;
    outcome.result = call.result;
    outcome.body = call.body;
    outcome.body_bytes = call.body_bytes;
    return outcome;
}

void check_size(const SettleCall& call, const core::Policy& policy) {
    check_outcome_size(call.identity, policy, {call.result, call.body, call.body_bytes});
}

SettledTimes settle_leased(const SettleCall& call, const core::Token& token, const core::Policy& policy) {
    using namespace store::inflight;
    Owned owned{};
    own_or_raise(call.identity, token, owned);
    check_size(call, policy);
    refuse_open_effect(call.identity);
    const store::InflightRow& row = owned.row();

    store::Outcome outcome = outcome_of(call, row.attempt());
    outcome.fingerprint = row.facts.fingerprint;
    outcome.request = {row.values[request], row.nulls[request]};
    outcome.claimed_at = {row.values[claimed_at], false};
    pg::require_durable_commit();
    store::delete_inflight(row);
    const core::Time expires_at = store::insert_settled(call.identity, outcome, policy, owned.now);
    note_owner_call(call.identity, token, owned, store::HoldingState::settled);
    return {owned.now, expires_at};
}

SettledTimes settle_in_transaction(const SettleCall& call, const store::Holding& claimed, const core::Policy& policy) {
    check_size(call, policy);
    store::Outcome outcome = outcome_of(call, claimed.attempt);
    if (claimed.fingerprint != nullptr) {
        outcome.fingerprint = store::view_of(PointerGetDatum(claimed.fingerprint));
    }
    if (claimed.request != nullptr) {
        outcome.request = {PointerGetDatum(claimed.request), false};
    }
    store::Holding settled = claimed;
    settled.state = store::HoldingState::settled;

    pg::require_durable_commit();
    store::InflightRow interrupted; // the attempt that this one took over from
    if (store::find_inflight(call.identity, SnapshotSelf, pg::Access::change, interrupted)) {
        refuse_open_effect(call.identity);
        if (outcome.request.is_null) {
            outcome.request = {interrupted.values[store::inflight::request],
                               interrupted.nulls[store::inflight::request]};
        }
        count_interruption(interrupted);
        store::delete_inflight(interrupted);
    }
    const core::Time now = pg::now();
    const core::Time expires_at = store::insert_settled(call.identity, outcome, policy, now);
    store::note_holding(call.identity, settled);
    return {now, expires_at};
}

[[noreturn]] void refuse_without_claim(const core::Identity& identity) {
    store::Stored stored;
    store::read_stored_mvcc(identity, stored);
    if (stored.is_settled && core::is_remembered(stored.settled.facts, pg::now())) {
        store::count(identity.action, store::Counter::fenced);
        pg::raise_already_settled(identity);
    }
    pg::raise_not_claimed(identity);
}

} // namespace

SettledTimes settle(const SettleCall& call) {
    const core::Policy policy = store::policy_for(call.identity.action);
    if (call.token) {
        return settle_leased(call, *call.token, policy);
    }
    const store::Holding* holding = store::find_holding(call.identity);
    if (holding != nullptr && holding->state == store::HoldingState::claimed) {
        return settle_in_transaction(call, *holding, policy);
    }
    if (holding != nullptr && holding->state == store::HoldingState::leased) {
        const core::Token token = *holding->token; // the holding moves when the settlement is noted
        return settle_leased(call, token, policy);
    }
    refuse_without_claim(call.identity);
}

bool release(const ReleaseCall& call) {
    const store::Holding* held = store::find_holding(call.identity);
    if (!call.token && held != nullptr && held->state == store::HoldingState::claimed) {
        store::Holding released = *held;
        released.state = store::HoldingState::released;
        store::note_holding(call.identity, released); // the key itself is free when the transaction ends
        return true;
    }
    std::optional<core::Token> token = call.token;
    if (!token && held != nullptr && held->state == store::HoldingState::leased) {
        token = held->token;
    }
    if (!token) {
        return false;
    }

    const LOCKTAG tag = pg::key_lock_tag(call.identity);
    pg::wait_for_key_lock(tag);
    Owned owned{};
    judge(call.identity, *token, owned);
    if (owned.verdict != core::OwnerVerdict::current) {
        pg::release_key_lock(tag);
        return false;
    }
    const core::Policy policy = store::policy_for(call.identity.action);
    end_attempt(owned.row(), {call.error, call.retry_after, call.least_backoff}, policy, owned.now);
    pg::require_durable_commit();
    store::update_inflight(owned.row());
    note_owner_call(call.identity, *token, owned, store::HoldingState::released);
    return true;
}

std::optional<core::Time> renew(const core::Identity& identity, const core::Token& token,
                                std::optional<core::Duration> lease) {
    const LOCKTAG tag = pg::key_lock_tag(identity);
    Owned owned{};
    if (!pg::try_key_lock_for(tag, renew_wait_ms)) {
        // Only the owner's own transaction can hold it, a takeover of a lease that is over, or an operator's call.
        // Nothing is raised by the clock, nor because nothing was seen; another token, or an outcome, that is committed
        // is believed.
        store::read_stored_mvcc(identity, owned.stored);
        owned.verdict =
            core::judge_owner(owned.stored.settled_facts(), owned.stored.inflight_facts(), token, pg::now(), true);
        if (owned.stored.is_inflight && owned.verdict == core::OwnerVerdict::current) {
            return owned.row().lease_expires_at();
        }
        if (!owned.stored.is_inflight && owned.verdict != core::OwnerVerdict::settled) {
            return std::nullopt;
        }
        refuse(identity, owned.verdict);
    }
    judge(identity, token, owned);
    if (owned.verdict != core::OwnerVerdict::current) {
        refuse(identity, owned.verdict);
    }
    check_lease(identity, store::policy_for(identity.action), lease);
    store::InflightRow& row = owned.row();
    row.renew(owned.now, lease.value_or(row.lease()));
    pg::require_durable_commit();
    store::update_inflight(row);
    note_owner_call(identity, token, owned, store::HoldingState::guarded);
    return row.lease_expires_at();
}

core::Time checkpoint(const CheckpointCall& call) {
    using namespace store::inflight;
    const core::Policy policy = store::policy_for(call.identity.action);
    Owned owned{};
    own_or_raise(call.identity, call.token, owned);
    check_lease(call.identity, policy, call.lease);
    const store::Nullable progress_value{call.progress == nullptr ? Datum{0} : JsonbPGetDatum(call.progress),
                                         call.progress == nullptr};
    check_outcome_size(call.identity, policy, {progress_value, {store::text_datum(call.checkpoint), false}});

    store::InflightRow& row = owned.row();
    const bool is_new = row.text(store::inflight::checkpoint) != call.checkpoint;
    row.set_text(store::inflight::checkpoint, call.checkpoint);
    row.values[progress] = progress_value.value;
    row.nulls[progress] = progress_value.is_null;
    if (is_new) {
        row.set(failures, Int32GetDatum(0));
    }
    row.renew(owned.now, call.lease.value_or(row.lease()));
    pg::require_durable_commit();
    store::update_inflight(row);
    note_owner_call(call.identity, call.token, owned, store::HoldingState::guarded);
    return row.lease_expires_at();
}

core::Time guard(const core::Identity& identity, const core::Token& token) {
    Owned owned{};
    own_or_raise(identity, token, owned);
    note_owner_call(identity, token, owned, store::HoldingState::guarded);
    return owned.row().lease_expires_at();
}

} // namespace idem::protocol
