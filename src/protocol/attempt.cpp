#include <algorithm>

#include "protocol/attempt.hpp"

extern "C" {
#include "mb/pg_wchar.h"
}

namespace idem::protocol {

namespace {

constexpr int max_error_bytes = 8000;

} // namespace

void begin_attempt(store::InflightRow& row, int failure_count, std::string_view owner_label, core::Time now) {
    using namespace store::inflight;
    row.facts.failures = failure_count;
    row.set(failures, Int32GetDatum(failure_count));
    row.set(attempt, Int32GetDatum(row.attempt() + 1));
    row.set(claimed_at, TimestampTzGetDatum(now));
    row.set(state_since, TimestampTzGetDatum(now));
    row.set(granted, BoolGetDatum(false));
    row.set(announced, BoolGetDatum(false));
    row.set_text(owner, owner_label);
    row.clear(due_at);
    row.clear(reason);
}

void end_attempt(store::InflightRow& row, const AttemptEnd& end, const core::Policy& policy, core::Time now) {
    using namespace store::inflight;
    core::Duration delay = 0;
    row.clear(token);
    row.clear(lease_expires_at);
    row.bind_to_session(false);
    row.set(announced, BoolGetDatum(false));
    row.set(state_since, TimestampTzGetDatum(now));
    row.set_text(reason, end.error ? "error" : "released");
    if (end.error) {
        const int failed = row.facts.failures + 1;
        row.set(failures, Int32GetDatum(failed));
        const int bytes = pg_mbcliplen(end.error->data(), static_cast<int>(end.error->size()), max_error_bytes);
        row.set_text(last_error, end.error->substr(0, static_cast<std::size_t>(bytes)));
        delay = std::max(core::backoff(policy, failed), end.least_backoff);
    }
    row.set(due_at, TimestampTzGetDatum(core::later(now, end.retry_after.value_or(delay))));
}

void grant_attempt(store::InflightRow& row, std::string_view why, core::Time now) {
    using namespace store::inflight;
    row.clear(token);
    row.clear(lease_expires_at);
    row.bind_to_session(false);
    row.set(granted, BoolGetDatum(true));
    row.set(in_review, BoolGetDatum(false));
    row.set(announced, BoolGetDatum(false));
    row.set(due_at, TimestampTzGetDatum(now));
    row.set(state_since, TimestampTzGetDatum(now));
    row.set_text(reason, why);
}

} // namespace idem::protocol
