#include "protocol/effect.hpp"

#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/errors.hpp"
#include "pg/idle_claim.hpp"
#include "pg/key_lock.hpp"
#include "protocol/attempt.hpp"
#include "protocol/by_rule.hpp"
#include "protocol/limits.hpp"
#include "protocol/ownership.hpp"
#include "store/datum.hpp"
#include "store/effects.hpp"
#include "store/policies.hpp"

namespace idem::protocol {

namespace {

using core::EffectState;
using core::EffectVerdict;

// Handed out for the first time, or once more under a new key.
void hand_out(const EffectCall& call, store::EffectRow& row, core::Time now) {
    using namespace store::effects;
    row.facts.first_sent_at = now;
    row.set(first_sent_at, TimestampTzGetDatum(now));
    if (call.request.window) {
        row.set(provider_window, IntervalPGetDatum(pg::interval_of(*call.request.window)));
    }
    if (call.request.fingerprint) {
        row.set(fingerprint, store::bytea_datum(*call.request.fingerprint));
    }
    if (call.request_json != nullptr && store::policy_for(call.identity.action).keep_request) {
        row.set(request, JsonbPGetDatum(call.request_json));
    }
    pg::require_durable_commit();
    store::insert_effect(row);
}

EffectAnswer answer(EffectState state, const store::EffectRow& row) {
    using namespace store::effects;
    return {state,
            row.values[downstream_key],
            {row.values[response], row.nulls[response]},
            row.facts.first_sent_at,
            std::nullopt};
}

EffectAnswer answer_call(const store::EffectRow& row, const core::EffectDecision& decision) {
    EffectAnswer a = answer(EffectState::call, row);
    a.send_before = decision.send_before;
    return a;
}

EffectAnswer carry_out(const EffectCall& call, store::EffectRow& row, const core::EffectDecision& decision,
                       core::Time now) {
    switch (decision.verdict) {
    case EffectVerdict::mismatch:
        pg::raise_effect_mismatch(call.identity);
    case EffectVerdict::first:
        row = store::new_effect(call.identity, call.name, 1);
        hand_out(call, row, now);
        return answer_call(row, decision);
    case EffectVerdict::next_generation:
        row = store::new_effect(call.identity, call.name, row.facts.generation + 1);
        hand_out(call, row, now);
        return answer_call(row, decision);
    case EffectVerdict::call:
        return answer_call(row, decision);
    case EffectVerdict::confirmed:
        return answer(EffectState::confirmed, row);
    case EffectVerdict::rejected:
        return answer(EffectState::rejected, row);
    case EffectVerdict::unknown:
        break;
    }
    return answer(EffectState::unknown, row);
}

} // namespace

EffectAnswer effect(const EffectCall& call) {
    Owned owned{};
    own_or_raise(call.identity, call.token, owned);
    store::EffectRow row;
    const bool known = store::find_latest_effect(call.identity, call.name, row);
    const core::EffectDecision decision = core::decide_effect(known ? &row.facts : nullptr, call.request, owned.now);
    const EffectAnswer a = carry_out(call, row, decision, owned.now);
    note_owner_call(call.identity, call.token, owned, store::HoldingState::guarded);
    return a;
}

void raise_no_token(const core::Identity& identity) {
    const store::Holding* holding = store::find_holding(identity);
    const bool claimed_here = holding != nullptr && holding->state == store::HoldingState::claimed;
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("token must not be NULL"),
                    claimed_here ? errhint("Claim with a lease: that an effect is going to be called must be committed "
                                           "before it is, and a claim without a lease ends at commit.")
                                 : 0));
    pg_unreachable();
}

namespace {

// The operation is forgotten by the clock, and its effects with it.
bool is_forgotten(const store::Stored& stored, core::Time now) {
    return !stored.is_inflight && stored.is_settled && !core::is_remembered(stored.settled.facts, now);
}

// In review, or to be put there as soon as somebody looks, for no other reason than that an effect is open. Not where
// this very transaction has kept the claim: that owner goes on.
bool waits_for_report(const core::Identity& identity, const store::InflightRow& row, const core::Decision& decision) {
    if (row.facts.in_review) {
        return row.text(store::inflight::reason) == effect_open_reason;
    }
    const bool owned_here = row.facts.token && keeps_lock_since_owner_call(identity, *row.facts.token);
    return decision.verdict == core::Verdict::review_by_rule && row.facts.rule != core::Rule::review && !owned_here;
}

// What became of the last open effect is known: the operation may go on.
void wake(store::InflightRow& row, const core::Decision& decision, core::Time now) {
    if (!row.facts.in_review) {
        count_interruption(row);
        row.set(store::inflight::failures, Int32GetDatum(decision.failures));
    }
    grant_attempt(row, "effect_reported", now);
    store::update_inflight(row);
}

void record(const ReportCall& call, store::EffectRow& row, store::Stored& stored, core::Time now) {
    using namespace store::effects;
    const core::Identity identity = row.identity();
    check_outcome_size(identity, store::policy_for(identity.action), {call.response});
    row.set(reported_at, TimestampTzGetDatum(now));
    row.set(report, store::text_datum(store::report_text(call.said)));
    row.values[response] = call.response.value;
    row.nulls[response] = call.response.is_null;
    pg::require_durable_commit();
    pg::arm_idle_claim_timeout(); // the key lock is kept to the end of the transaction
    store::update_effect(row);
    if (!stored.is_inflight) {
        return;
    }
    const core::Decision decision = core::decide_unattended(stored.inflight.facts, now); // while it was open
    if (waits_for_report(identity, stored.inflight, decision) && !store::has_open_effect(identity, SnapshotSelf)) {
        wake(stored.inflight, decision, now);
    }
}

} // namespace

bool report_effect(const ReportCall& call) {
    store::EffectRow found;
    if (!store::find_effect(call.downstream_key, found)) {
        return false;
    }
    const core::Identity identity = found.identity();
    const LOCKTAG tag = pg::key_lock_tag(identity);
    pg::wait_for_key_lock(tag);
    store::Stored stored;
    store::read_stored(identity, stored);
    const core::Time now = pg::now();
    store::EffectRow row;
    store::EffectRow latest;
    const bool known = !is_forgotten(stored, now) &&
                       store::find_generation(identity, found.name(), found.facts.generation, row) &&
                       store::find_latest_effect(identity, found.name(), latest);
    if (!known) {
        pg::release_key_lock(tag);
        return false;
    }
    const bool is_latest = latest.facts.generation == row.facts.generation;
    const core::ReportVerdict verdict = core::judge_report(row.facts, is_latest, call.said, now);
    if (verdict == core::ReportVerdict::record) {
        record(call, row, stored, now);
        return true;
    }
    pg::release_key_lock(tag); // nothing was written
    if (verdict == core::ReportVerdict::contradiction) {
        pg::raise_contradicting_report(identity);
    }
    return verdict == core::ReportVerdict::already_so;
}

} // namespace idem::protocol
