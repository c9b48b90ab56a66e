#include <algorithm>

#include "protocol/recover.hpp"

#include "pg/clock.hpp"
#include "pg/idle_claim.hpp"
#include "pg/key_lock.hpp"
#include "pg/notify.hpp"
#include "pg/session.hpp"
#include "protocol/by_rule.hpp"
#include "protocol/work_through.hpp"
#include "store/holdings.hpp"
#include "store/operation.hpp"
#include "store/policies.hpp"

namespace idem::protocol {

namespace {

using core::Verdict;

// What a pass has to do with it. Under `call` the handler is run (src/worker), and nothing is announced.
bool needs_recovery(const store::InflightRow& row, const core::Decision& decision) {
    switch (decision.verdict) {
    case Verdict::fail_by_rule:
    case Verdict::review_by_rule:
        return true;
    case Verdict::grant_next:
        return row.facts.rule != core::Rule::call && !row.is_announced();
    default:
        return false;
    }
}

store::RowDue judge(TupleTableSlot* slot, core::Time now) {
    store::InflightRow row;
    store::read_inflight(slot, row);
    const core::Decision decision = core::decide_unattended(row.facts, now);
    if (needs_recovery(row, decision)) {
        return {true};
    }
    return {false, next_look(row, decision, now)};
}

// The operation waits for another attempt; whoever listens may take it.
void announce(store::InflightRow& row, core::Time now) {
    using namespace store::inflight;
    count_interruption(row);
    row.set(announced, BoolGetDatum(true));
    if (row.facts.token) {
        const bool by_clock = now >= row.facts.lease_expires_at;
        row.set(state_since, TimestampTzGetDatum(by_clock ? row.facts.lease_expires_at : now));
        row.set_text(reason, by_clock ? "lease_expired" : "session_ended");
    }
    pg::arm_idle_claim_timeout();
    store::update_inflight(row);
}

Done recover(const store::Candidate& candidate) {
    const core::Identity identity = candidate.identity.get();
    UnderLock locked;
    Done done;
    if (!lock_and_decide(identity, needs_recovery, locked, done)) {
        return done;
    }
    store::InflightRow& row = locked.stored.inflight;
    switch (locked.decision.verdict) {
    case Verdict::fail_by_rule:
        fail_by_rule(identity, row, store::policy_for(identity.action), locked.now);
        return {Done::changed, Task::failed};
    case Verdict::review_by_rule:
        review_by_rule(identity, row, locked.decision.failures, locked.now);
        pg::notify(identity.action, "review");
        return {Done::changed, Task::review};
    default:
        announce(row, locked.now);
        pg::notify(identity.action, "interrupted");
        return {Done::changed, Task::interrupted};
    }
}

} // namespace

bool lock_and_decide(const core::Identity& identity, bool (*wanted)(const store::InflightRow&, const core::Decision&),
                     UnderLock& locked, Done& done) {
    done = {Done::busy};
    if (store::find_holding(identity) != nullptr) {
        return false; // this very transaction advances it
    }
    const LOCKTAG tag = pg::key_lock_tag(identity);
    if (!pg::try_key_lock(tag)) {
        return false;
    }
    store::read_stored(identity, locked.stored);
    locked.now = pg::now();
    if (locked.stored.is_inflight) {
        locked.decision = core::decide_unattended(locked.stored.inflight.facts, locked.now);
        if (wanted(locked.stored.inflight, locked.decision)) {
            return true;
        }
    }
    pg::release_key_lock(tag);
    done = {};
    return false;
}

core::Time next_look(const store::InflightRow& row, const core::Decision& decision, core::Time now) {
    if (decision.verdict != Verdict::in_progress) {
        return core::end_of_time;
    }
    // Nothing tells that a session has ended: it is looked for every nap.
    const bool bound = row.facts.token && !row.nulls[store::inflight::session_pid];
    return bound ? now : decision.ready_at;
}

void recover_some(core::Circle& circle, const StepLimits& limits, Counts& counts) {
    const pg::Table table = pg::open_table(pg::TableId::inflight, pg::Access::change);
    const core::Time now = pg::now();
    pg::remember_sessions();
    store::begin_circle(table, circle);
    const store::Candidates found = store::walk(table, pg::TableId::inflight, circle,
                                                std::min(limits.rows, rows_a_step), limits.blocks, judge, now);
    work_through(table, circle, limits, now, found, counts, recover);
    pg::close_table(table);
}

} // namespace idem::protocol
