#include "protocol/grant.hpp"

#include "pg/args.hpp"
#include "pg/durability.hpp"
#include "pg/random.hpp"
#include "store/datum.hpp"
#include "protocol/attempt.hpp"
#include "protocol/by_rule.hpp"
#include "store/holdings.hpp"
#include "store/statistics.hpp"

namespace idem::protocol {

void count_grant(const core::Identity& identity, int attempt) {
    store::count(identity.action, attempt > 1 ? store::Counter::recoveries : store::Counter::claims);
}

std::string_view session_label(int pid) {
    return psprintf("%d", pid);
}

ClaimAnswer granted_answer(int attempt, const store::InflightRow* previous) {
    ClaimAnswer a;
    a.outcome = attempt > 1 ? Answer::recovered : Answer::claimed;
    a.attempt = attempt;
    if (previous != nullptr) {
        a.checkpoint = {previous->values[store::inflight::checkpoint], previous->nulls[store::inflight::checkpoint]};
        a.progress = {previous->values[store::inflight::progress], previous->nulls[store::inflight::progress]};
    }
    return a;
}

void fill_lease(const ClaimCall& call, store::InflightRow& row, core::Time now) {
    using namespace store::inflight;
    row.set(lease, IntervalPGetDatum(pg::interval_of(*call.lease)));
    row.renew(now, *call.lease);
    row.bind_to_session(call.session_bound);
}

ClaimAnswer grant_with_lease(const ClaimCall& call, const core::Policy& policy, store::Stored& stored,
                             int failure_count, core::Time now) {
    using namespace store::inflight;
    const bool taken_over = stored.is_inflight;
    store::InflightRow row = taken_over ? stored.inflight : store::new_inflight(call.identity);
    const core::Token own = call.request.token ? *call.request.token : pg::random_token();

    begin_attempt(row, failure_count, call.owner ? *call.owner : session_label(MyProcPid), now);
    row.set(max_attempts, Int32GetDatum(policy.max_attempts));
    row.set(token, store::uuid_datum(own));
    row.set_text(on_interrupt, store::rule_text(policy.on_interrupt));
    fill_lease(call, row, now);
    if (row.nulls[fingerprint] && call.request.fingerprint) {
        row.set(fingerprint, store::bytea_datum(*call.request.fingerprint));
    }
    if (row.nulls[request] && policy.keep_request && call.request_json != nullptr) {
        row.set(request, JsonbPGetDatum(call.request_json));
    }

    pg::require_durable_commit();
    if (taken_over) {
        count_interruption(stored.inflight);
        store::update_inflight(row);
    } else {
        if (stored.is_settled) { // forgotten by the clock: its effects must not be met by this operation
            store::forget_settled(call.identity, stored.settled);
        }
        store::insert_inflight(row);
    }
    const store::Holding holding{store::HoldingState::leased, row.attempt(), own, call.session_bound, true};
    store::note_holding(call.identity, holding);

    count_grant(call.identity, row.attempt());

    ClaimAnswer a = granted_answer(row.attempt(), taken_over ? &stored.inflight : nullptr);
    a.token = own;
    return a;
}

} // namespace idem::protocol
