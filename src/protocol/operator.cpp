#include "protocol/operator.hpp"

#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/errors.hpp"
#include "pg/key_lock.hpp"
#include "protocol/attempt.hpp"
#include "protocol/limits.hpp"
#include "protocol/ownership.hpp"
#include "store/audit.hpp"
#include "store/datum.hpp"
#include "store/holdings.hpp"
#include "store/operation.hpp"
#include "store/policies.hpp"

namespace idem::protocol {

namespace {

struct Judged {
    store::Stored stored;
    core::Time now;
    core::OperatorVerdict verdict;
};

// This transaction has kept the key lock since an owner call of the attempt that is stored.
bool is_kept(const core::Identity& identity, const store::Stored& stored) {
    return stored.is_inflight && stored.inflight.facts.token &&
           keeps_lock_since_owner_call(identity, *stored.inflight.facts.token);
}

// Waits for the key lock like any other lock wait.
void lock_and_judge(const core::Identity& identity, Judged& judged) {
    pg::wait_for_key_lock(pg::key_lock_tag(identity));
    store::read_stored(identity, judged.stored);
    judged.now = pg::now();
    judged.verdict = core::judge_operator(judged.stored.settled_facts(), judged.stored.inflight_facts(), judged.now,
                                          is_kept(identity, judged.stored));
}

bool holds(const core::Identity& identity, store::HoldingState state) {
    const store::Holding* holding = store::find_holding(identity);
    return holding != nullptr && holding->state == state;
}

// So that the commit check knows: what this transaction held of the operation is settled, or ended, by this transaction
// itself. An earlier owner call of the same attempt, whose lock may have gone with a savepoint, stays true with that.
void note_decision(const core::Identity& identity, const store::InflightRow& row, store::HoldingState state) {
    store::Holding holding{state, row.attempt(), row.facts.token};
    if (const store::Holding* before = store::find_holding(identity)) {
        holding.session_bound = before->session_bound;
        holding.made_here = before->made_here;
    }
    store::note_holding(identity, holding);
}

void audit(const char* call, const core::Identity& identity, store::AuditEntry entry, core::Time now) {
    entry.call = call;
    entry.account = identity.account;
    entry.action = identity.action;
    entry.key = identity.key;
    store::insert_audit(entry, now);
}

core::Time settle(const ResolveCall& call, const store::InflightRow& row, core::Time now) {
    using namespace store::inflight;
    const core::Policy policy = store::policy_for(call.identity.action);
    check_outcome_size(call.identity, policy, {call.result, call.body});
    store::Outcome outcome{};
    outcome.succeeded = call.verdict == Resolution::completed;
    outcome.attempt = row.attempt();
    outcome.status = call.status;
    outcome.result = call.result;
    outcome.body = call.body;
    outcome.fingerprint = row.facts.fingerprint;
    outcome.request = {row.values[request], row.nulls[request]};
    outcome.claimed_at = {row.values[claimed_at], false};
    refuse_open_effect(call.identity);
    store::delete_inflight(row);
    return store::insert_settled(call.identity, outcome, policy, now);
}

} // namespace

core::Time resolve(const ResolveCall& call) {
    if (holds(call.identity, store::HoldingState::claimed)) {
        pg::raise_claimed_here(call.identity);
    }
    Judged judged{};
    lock_and_judge(call.identity, judged);
    switch (judged.verdict) {
    case core::OperatorVerdict::nothing:
        pg::raise_not_in_flight(call.identity);
    case core::OperatorVerdict::settled:
        pg::raise_already_settled(call.identity);
    case core::OperatorVerdict::open:
        break;
    }
    store::InflightRow& row = judged.stored.inflight;
    if (call.attempt && *call.attempt != row.attempt()) {
        pg::raise_moved_on(call.identity);
    }

    pg::require_durable_commit();
    core::Time until = judged.now;
    if (call.verdict == Resolution::retry) {
        grant_attempt(row, "retry", judged.now);
        store::update_inflight(row);
        note_decision(call.identity, row, store::HoldingState::released);
    } else {
        until = settle(call, row, judged.now);
        note_decision(call.identity, row, store::HoldingState::settled);
    }
    store::AuditEntry entry{};
    entry.rows = 1;
    entry.attempt = row.attempt();
    entry.verdict = call.verdict_text;
    entry.note = call.note;
    audit("resolve", call.identity, entry, judged.now);
    return until;
}

bool reset(const core::Identity& identity, std::string_view note) {
    const store::Holding* holding = store::find_holding(identity);
    if (holding != nullptr && holding->state != store::HoldingState::released) {
        pg::raise_held_here(identity);
    }
    Judged judged{};
    lock_and_judge(identity, judged);
    store::AuditEntry entry{};
    entry.note = note;
    switch (judged.verdict) {
    case core::OperatorVerdict::open:
        pg::raise_in_flight(identity);
    case core::OperatorVerdict::settled:
        entry.rows = 1;
        if (judged.stored.is_inflight) { // failed by rule, and not recorded yet
            entry.attempt = judged.stored.inflight.attempt();
            store::delete_inflight(judged.stored.inflight);
        } else {
            entry.attempt = judged.stored.settled.attempt();
            store::delete_settled(judged.stored.settled);
        }
        store::note_holding(identity, {store::HoldingState::released, *entry.attempt});
        break;
    case core::OperatorVerdict::nothing:
        pg::release_key_lock(pg::key_lock_tag(identity));
        break;
    }
    pg::require_durable_commit();
    audit("reset", identity, entry, judged.now);
    return entry.rows > 0;
}

bool import_outcome(const ImportCall& call) {
    const core::Policy policy = store::policy_for(call.identity.action);
    Judged judged{};
    lock_and_judge(call.identity, judged);
    const bool known =
        judged.verdict != core::OperatorVerdict::nothing || holds(call.identity, store::HoldingState::claimed);
    if (known) {
        pg::release_key_lock(pg::key_lock_tag(call.identity));
    } else {
        check_outcome_size(call.identity, policy, {call.result, call.body});
        store::Outcome outcome{};
        outcome.succeeded = call.succeeded;
        outcome.attempt = 1;
        outcome.status = call.status;
        outcome.result = call.result;
        outcome.body = call.body;
        outcome.fingerprint = call.fingerprint;
        store::import_settled(call.identity, outcome, policy, call.settled_at, judged.now);
        store::note_holding(call.identity, {store::HoldingState::settled, outcome.attempt});
    }
    pg::require_durable_commit();
    store::AuditEntry entry{};
    entry.rows = known ? 0 : 1;
    entry.verdict = call.settled_as;
    audit("import", call.identity, entry, judged.now);
    return !known;
}

} // namespace idem::protocol
