#include "protocol/by_rule.hpp"

#include "pg/durability.hpp"
#include "pg/idle_claim.hpp"
#include "store/datum.hpp"
#include "store/effects.hpp"
#include "store/statistics.hpp"

namespace idem::protocol {

namespace {

constexpr int interrupted_status = 503;
constexpr const char* interrupted_result = R"({"error": "interrupted"})";

// Where the rule is review, an operator decides anyway.
std::string_view reason_for_review(const core::Identity& identity, const store::InflightRow& row, int failure_count) {
    if (row.facts.rule != core::Rule::review && store::has_open_effect(identity, SnapshotSelf)) {
        return effect_open_reason;
    }
    return failure_count >= row.facts.max_attempts ? "attempts_exhausted" : "interrupted";
}

} // namespace

void count_interruption(const store::InflightRow& row) {
    if (!DatumGetBool(row.values[store::inflight::announced])) {
        store::count_at_commit(*row.text(store::inflight::action), store::Counter::interrupted);
    }
}

void fail_by_rule(const core::Identity& identity, const store::InflightRow& row, const core::Policy& policy,
                  core::Time now) {
    using namespace store::inflight;
    store::Outcome outcome{};
    outcome.succeeded = false;
    outcome.attempt = row.attempt();
    outcome.status = {Int32GetDatum(interrupted_status), false};
    outcome.result = {DirectFunctionCall1(jsonb_in, CStringGetDatum(interrupted_result)), false};
    outcome.request = {row.values[request], row.nulls[request]};
    outcome.fingerprint = row.facts.fingerprint;
    outcome.claimed_at = {row.values[claimed_at], false};
    pg::require_durable_commit();
    pg::arm_idle_claim_timeout(); // the key lock is kept to the end of the transaction
    count_interruption(row);
    store::delete_inflight(row);
    store::insert_settled(identity, outcome, policy, now);
}

void review_by_rule(const core::Identity& identity, store::InflightRow& row, int failure_count, core::Time now) {
    using namespace store::inflight;
    count_interruption(row);
    row.set(failures, Int32GetDatum(failure_count));
    row.set(in_review, BoolGetDatum(true));
    row.set(state_since, TimestampTzGetDatum(now));
    row.set_text(reason, reason_for_review(identity, row, failure_count));
    pg::require_durable_commit();
    pg::arm_idle_claim_timeout();
    store::update_inflight(row);
}

} // namespace idem::protocol
