// What the views idem_stats, idem_holders and idem_gauges show, and idem_stats_reset.
#include <algorithm>
#include <iterator>

#include "pg/entry.hpp"

#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "store/datum.hpp"
#include "store/gauges.hpp"
#include "store/holders.hpp"
#include "store/statistics.hpp"

namespace idem::api {

namespace {

void put_row(FunctionCallInfo fcinfo, Datum* values, bool* nulls) {
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum stats_rows(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    store::ActionStatistics statistics{};
    for (int i = 0; i < store::statistics_slots(); i++) {
        if (!store::read_statistics(i, statistics)) {
            continue;
        }
        Datum values[store::counter_count + 2] = {store::text_datum(statistics.action)};
        bool nulls[store::counter_count + 2] = {};
        std::transform(statistics.counts, statistics.counts + store::counter_count, values + 1,
                       [](std::uint64_t n) { return Int64GetDatum(static_cast<int64>(n)); });
        values[store::counter_count + 1] = TimestampTzGetDatum(statistics.counted_since);
        put_row(fcinfo, values, nulls);
    }
    return Datum{0};
}

Datum stats_reset(FunctionCallInfo fcinfo) {
    const std::optional<std::string_view> action = pg::text_arg(fcinfo, 0);
    if (!action) {
        store::drop_statistics_of_dropped();
    }
    PG_RETURN_BOOL(store::reset_statistics(action));
}

Datum holders_rows(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    store::Holder holder;
    for (int i = 0; i < store::holder_count(); i++) {
        if (!store::read_holder(i, holder)) {
            continue;
        }
        for (const store::ShownClaim& claim : holder.claims) {
            if (!claim.used) {
                continue;
            }
            const core::Identity identity = claim.identity.get();
            const double age = static_cast<double>(core::between(pg::now(), claim.claimed_at)) / core::second;
            Datum values[] = {Int32GetDatum(holder.pid),
                              store::text_datum(identity.account),
                              store::text_datum(identity.action),
                              store::text_datum(identity.key),
                              TimestampTzGetDatum(claim.claimed_at),
                              Float8GetDatum(age)};
            bool nulls[std::size(values)] = {};
            put_row(fcinfo, values, nulls);
        }
    }
    return Datum{0};
}

Datum gauges_row(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    const store::Gauges g = store::read_gauges();
    const int64 counts[] = {g.in_flight,         g.interrupted,    g.review,         g.settled,
                            g.expired_not_swept, g.seen,           g.seen_not_swept, g.effects_open,
                            g.effects_unknown,   g.outbox_pending, g.outbox_parked};
    const std::optional<core::Time> oldest[] = {g.oldest_in_flight, g.oldest_interrupted, g.oldest_review,
                                                g.oldest_effect_unknown, g.oldest_outbox};
    Datum values[std::size(counts) + std::size(oldest)];
    bool nulls[std::size(values)] = {};
    int column = 0;
    for (const int64 n : counts) {
        values[column++] = Int64GetDatum(n);
    }
    for (const std::optional<core::Time>& time : oldest) {
        nulls[column] = !time;
        values[column++] = TimestampTzGetDatum(time.value_or(0));
    }
    put_row(fcinfo, values, nulls);
    return Datum{0};
}

PG_IDEM_FUNCTION(stats_rows);
PG_IDEM_FUNCTION(stats_reset);
PG_IDEM_FUNCTION(holders_rows);
PG_IDEM_FUNCTION(gauges_row);

} // namespace

} // namespace idem::api
