// idem_effect, idem_effect_report, idem_open_effects.
#include <algorithm>

#include "core/effect.hpp"
#include "pg/entry.hpp"

#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "protocol/effect.hpp"
#include "store/datum.hpp"
#include "store/effects.hpp"

namespace idem::api {

namespace {

core::Window window_arg(FunctionCallInfo fcinfo, int n) {
    const core::Window window = pg::duration_arg(fcinfo, n, "provider_window", false);
    return window ? std::min(*window, core::longest_window) : window;
}

protocol::EffectCall read_call(FunctionCallInfo fcinfo) {
    protocol::EffectCall call;
    call.identity = pg::identity_args(fcinfo);
    const std::optional<core::Token> token = pg::uuid_arg(fcinfo, 3);
    if (!token) {
        protocol::raise_no_token(call.identity);
    }
    call.token = *token;
    call.name = pg::identity_part(pg::text_arg(fcinfo, 4), "name", core::max_effect_name_bytes);
    call.request.window = window_arg(fcinfo, 5);
    call.request.fingerprint = pg::request_fingerprint(fcinfo, 6);
    call.request_json = pg::jsonb_arg(fcinfo, 6);
    call.request.again = !PG_ARGISNULL(7) && PG_GETARG_BOOL(7);
    return call;
}

Datum effect(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_effect()");
    TupleDesc desc = nullptr;
    if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE) {
        elog(ERROR, "return type must be a row type");
    }
    desc = BlessTupleDesc(desc);
    const protocol::EffectAnswer a = protocol::effect(read_call(fcinfo));
    Datum values[] = {CStringGetTextDatum(store::state_text(a.state)), a.downstream_key, a.response.value,
                      TimestampTzGetDatum(a.first_sent_at), TimestampTzGetDatum(a.send_before.value_or(0))};
    bool nulls[] = {false, false, a.response.is_null, false, !a.send_before};
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

core::Report report_arg(FunctionCallInfo fcinfo, int n) {
    const std::optional<std::string_view> text = pg::text_arg(fcinfo, n);
    const std::optional<core::Report> said = text ? store::report_of(*text) : std::nullopt;
    if (!said) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("state must be \"confirmed\", \"rejected\" or \"absent\"")));
    }
    return *said;
}

Datum effect_report(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_effect_report()");
    if (PG_ARGISNULL(0)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("downstream_key must not be NULL")));
    }
    protocol::ReportCall call{PG_GETARG_DATUM(0), report_arg(fcinfo, 1), {PG_GETARG_DATUM(2), PG_ARGISNULL(2)}};
    PG_RETURN_BOOL(protocol::report_effect(call));
}

void put_open_effect(ReturnSetInfo* result, const store::EffectRow& row, core::Time now) {
    using namespace store::effects;
    const core::Time sent_at = row.facts.first_sent_at;
    Datum values[] = {row.values[name],
                      row.values[generation],
                      CStringGetTextDatum(store::state_text(core::state_of(row.facts, now))),
                      row.values[downstream_key],
                      row.nulls[request] ? Datum{0} : JsonbPGetDatum(DatumGetJsonbP(row.values[request])),
                      TimestampTzGetDatum(sent_at),
                      TimestampTzGetDatum(core::send_before(sent_at, row.facts.window)),
                      TimestampTzGetDatum(core::absent_from(sent_at, row.facts.window))};
    bool nulls[] = {false, false, false, false, row.nulls[request], false, false, false};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum open_effects(FunctionCallInfo fcinfo) {
    PreventCommandIfParallelMode("idem_open_effects()");
    const core::Identity identity = pg::identity_args(fcinfo);
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::look);
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    const core::Time now = pg::now();
    store::EffectScan scan(table, identity, snapshot);
    store::EffectRow row;
    while (scan.next(row)) {
        if (row.is_open()) {
            put_open_effect(result, row, now);
        }
    }
    scan.finish();
    UnregisterSnapshot(snapshot);
    pg::close_table(table);
    return Datum{0};
}

PG_IDEM_FUNCTION(effect);
PG_IDEM_FUNCTION(effect_report);
PG_IDEM_FUNCTION(open_effects);

} // namespace

} // namespace idem::api
