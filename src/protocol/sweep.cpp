// Expiry in two phases: the payload goes at expires_at, the row at forget_at. What is answered does not depend on it:
// the clock decides that.
#include <algorithm>

#include "core/decide.hpp"
#include "protocol/pass.hpp"

#include "pg/clock.hpp"
#include "pg/key_lock.hpp"
#include "protocol/recover.hpp"
#include "protocol/work_through.hpp"
#include "store/effects.hpp"
#include "store/holdings.hpp"
#include "store/operation.hpp"
#include "store/policies.hpp"
#include "store/seen.hpp"
#include "store/settled.hpp"
#include "store/statistics.hpp"

namespace idem::protocol {

namespace {

enum class Sweep : std::uint8_t { nothing, strip, forget };

Sweep needed(const core::SettledFacts& facts, bool has_payload, core::Time now) {
    if (!core::is_remembered(facts, now)) {
        return Sweep::forget;
    }
    return core::is_expired(facts, now) && has_payload ? Sweep::strip : Sweep::nothing;
}

store::RowDue judge_settled(TupleTableSlot* slot, core::Time now) {
    core::SettledFacts facts;
    const bool has_payload = store::read_settled_times(slot, facts);
    if (needed(facts, has_payload, now) != Sweep::nothing) {
        return {true};
    }
    return {false, has_payload ? facts.expires_at : facts.forget_at};
}

Done sweep_settled(const pg::Table& table, const store::Candidate& candidate) {
    const core::Identity identity = candidate.identity.get();
    if (store::find_holding(identity) != nullptr) {
        return {Done::busy};
    }
    const LOCKTAG tag = pg::key_lock_tag(identity);
    if (!pg::try_key_lock(tag)) {
        return {Done::busy};
    }
    store::SettledRow row;
    ItemPointerData tid = candidate.tid;
    Sweep sweep = Sweep::nothing;
    if (store::read_settled_at(table, &tid, identity, row)) {
        sweep = needed(row.facts, row.has_payload(), pg::now());
    }
    switch (sweep) {
    case Sweep::strip:
        store::strip_settled(row);
        return {Done::changed, Task::stripped};
    case Sweep::forget:
        store::forget_settled(identity, row);
        return {Done::changed, Task::forgotten};
    case Sweep::nothing:
        break;
    }
    pg::release_key_lock(tag);
    return {};
}

// As if the operation had been settled by then. Open ones are never forgotten.
core::Time forget_at(const store::EffectRow& row) {
    if (row.is_open()) {
        return core::end_of_time;
    }
    const core::Policy& policy = store::policy_for(row.identity().action);
    return core::later(core::later(row.last_heard_of(), policy.retention), policy.remember);
}

store::RowDue judge_effect(TupleTableSlot* slot, core::Time now) {
    store::EffectRow row;
    store::read_effect(slot, row);
    const core::Time at = forget_at(row);
    return {now >= at, at};
}

// Those of an operation go with it.
bool has_operation(const core::Identity& identity, void (*read)(const core::Identity&, store::Stored&)) {
    store::Stored stored;
    read(identity, stored);
    return !stored.nothing();
}

Done sweep_effect(const pg::Table& table, const store::Candidate& candidate) {
    const core::Identity identity = candidate.identity.get();
    if (has_operation(identity, store::look_at_stored)) { // of nearly all: not worth a lock
        return {};
    }
    const LOCKTAG tag = pg::key_lock_tag(identity);
    if (store::find_holding(identity) != nullptr || !pg::try_key_lock(tag)) {
        return {Done::busy};
    }
    store::EffectRow row;
    ItemPointerData tid = candidate.tid;
    if (has_operation(identity, store::read_stored) || !store::read_effect_at(table, &tid, identity, row) ||
        pg::now() < forget_at(row)) {
        pg::release_key_lock(tag);
        return {};
    }
    pg::delete_row(table, &tid);
    return {Done::changed, Task::effects_forgotten};
}

store::RowDue judge_seen(TupleTableSlot* slot, core::Time now) {
    const core::Time forget_at = store::seen_forget_at(slot);
    return {now >= forget_at, forget_at};
}

// No key lock: idem_once takes none either. The row lock decides.
Done sweep_seen(const pg::Table& table, const store::Candidate& candidate) {
    ItemPointerData tid = candidate.tid;
    const store::SeenAt at = store::seen_at(table, &tid, candidate.identity.get());
    if (!at.exists || pg::now() < at.forget_at) {
        return {};
    }
    if (!pg::try_delete_row(table, &tid)) {
        return {Done::busy};
    }
    return {Done::changed, Task::seen_forgotten};
}

template <typename Work>
void sweep(pg::TableId id, store::Judge judge, core::Circle& circle, const StepLimits& limits, Counts& counts,
           Work work) {
    const pg::Table table = pg::open_table(id, pg::Access::change);
    const core::Time now = pg::now();
    store::begin_circle(table, circle);
    const core::Time began = GetCurrentTimestamp();
    const store::Candidates found =
        store::walk(table, id, circle, std::min(limits.rows, rows_a_step), limits.blocks, judge, now);
    counts.looking += core::between(GetCurrentTimestamp(), began);
    work_through(table, circle, limits, now, found, counts,
                 [&](const store::Candidate& candidate) { return work(table, candidate); });
    pg::close_table(table);
}

} // namespace

void sweep_settled_some(core::Circle& circle, const StepLimits& limits, Counts& counts) {
    sweep(pg::TableId::settled, judge_settled, circle, limits, counts, sweep_settled);
}

void sweep_effects_some(core::Circle& circle, const StepLimits& limits, Counts& counts) {
    sweep(pg::TableId::effects, judge_effect, circle, limits, counts, sweep_effect);
}

void sweep_seen_some(core::Circle& circle, const StepLimits& limits, Counts& counts) {
    sweep(pg::TableId::seen, judge_seen, circle, limits, counts, sweep_seen);
}

} // namespace idem::protocol
