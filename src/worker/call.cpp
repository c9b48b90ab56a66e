#include <algorithm>
#include <cstring>

#include "worker/call.hpp"

#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/errors.hpp"
#include "pg/idle_claim.hpp"
#include "pg/key_lock.hpp"
#include "pg/random.hpp"
#include "pg/settings.hpp"
#include "protocol/attempt.hpp"
#include "protocol/by_rule.hpp"
#include "protocol/grant.hpp"
#include "protocol/recover.hpp"
#include "protocol/work_through.hpp"
#include "store/datum.hpp"
#include "store/policies.hpp"
#include "worker/handler_start.hpp"

namespace idem::worker {

namespace {

using protocol::Done;
using protocol::Task;

bool needs_call(const store::InflightRow& row, const core::Decision& decision) {
    return decision.verdict == core::Verdict::grant_next && row.facts.rule == core::Rule::call;
}

store::RowDue judge(TupleTableSlot* slot, core::Time now) {
    store::InflightRow row;
    store::read_inflight(slot, row);
    const core::Decision decision = core::decide_unattended(row.facts, now);
    if (needs_call(row, decision)) {
        return {true};
    }
    return {false, row.facts.rule == core::Rule::call ? protocol::next_look(row, decision, now) : core::end_of_time};
}

// What stands in the way of calling it; nullptr: nothing.
const char* find_obstacle(const store::InflightRow& row, const store::Handler& handler, Oid& role) {
    if (handler.function == nullptr) {
        return "policy names no handler";
    }
    if (handler.role == nullptr) {
        return "policy names no handler_role";
    }
    if (std::strlen(handler.function) > max_handler_name) {
        return "name of the handler is too long";
    }
    role = std::strlen(handler.role) < NAMEDATALEN ? get_role_oid(handler.role, true) : InvalidOid;
    if (!OidIsValid(role)) {
        return "handler_role does not exist";
    }
    if (superuser_arg(role)) {
        return "handler_role is a superuser";
    }
    if (row.nulls[store::inflight::request]) {
        return "request was not kept";
    }
    return nullptr;
}

core::Duration lease_of(const store::InflightRow& row, const core::Policy& policy) {
    return policy.max_lease ? std::min(row.lease(), *policy.max_lease) : row.lease();
}

Done call(const store::Candidate& candidate) {
    const core::Identity identity = candidate.identity.get();
    protocol::UnderLock locked;
    Done done;
    if (!protocol::lock_and_decide(identity, needs_call, locked, done)) {
        return done;
    }
    store::InflightRow& row = locked.stored.inflight;
    const core::Policy policy = store::policy_for(identity.action);
    const store::Handler handler = store::handler_for(identity.action);
    const core::Token token = pg::random_token();
    const core::Duration lease = lease_of(row, policy);
    Oid role = InvalidOid;
    pg::SessionId session{};
    const char* error = find_obstacle(row, handler, role);
    if (error == nullptr) {
        switch (start_handler({identity, token, row.attempt() + 1, role, handler.function}, session)) {
        case Started::yes:
            break;
        case Started::no_room:
            pg::release_key_lock(pg::key_lock_tag(identity));
            return {Done::stop};
        case Started::failed:
            error = "handler worker could not connect as handler_role";
            break;
        }
    }
    const core::Time now = pg::now();
    protocol::count_interruption(row);
    protocol::begin_attempt(row, locked.decision.failures, "pg_idem handler", now); // the lost lease counted
    if (error != nullptr) {
        ereport(WARNING, (errmsg("handler was not run: %s", error), pg::errdetail_identity(identity)));
        protocol::end_attempt(row, {error, std::nullopt, pg::nap()}, policy, now);
    } else {
        row.set(store::inflight::token, store::uuid_datum(token));
        row.renew(now, lease);
        row.bind_to_session(session);
    }
    protocol::count_grant(identity, row.attempt());
    pg::require_durable_commit();
    pg::arm_idle_claim_timeout();
    store::update_inflight(row);
    return {Done::changed, Task::called};
}

} // namespace

void call_some(core::Circle& circle, const protocol::StepLimits& limits, protocol::Counts& counts) {
    const core::Time now = pg::now();
    if (!has_room_for_handler()) { // the end of one of them wakes the launcher
        circle.saw_due(core::later(now, limits.nap));
        counts.stopped = true;
        return;
    }
    const pg::Table table = pg::open_table(pg::TableId::inflight, pg::Access::change);
    pg::remember_sessions();
    store::begin_circle(table, circle);
    const store::Candidates found = store::walk(table, pg::TableId::inflight, circle, 1, limits.blocks, judge, now);
    protocol::StepLimits one = limits;
    one.rows = 1;
    protocol::work_through(table, circle, one, now, found, counts, call);
    pg::close_table(table);
}

} // namespace idem::worker
