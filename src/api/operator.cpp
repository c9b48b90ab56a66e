// Calls of an operator: idem_resolve, idem_reset, idem_erase, idem_import.
#include "core/decide.hpp"
#include "pg/entry.hpp"

#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "protocol/erase.hpp"
#include "protocol/operator.hpp"

namespace idem::api {

namespace {

constexpr std::size_t max_note_bytes = 8000;

store::Nullable datum_arg(FunctionCallInfo fcinfo, int n) {
    return {PG_GETARG_DATUM(n), PG_ARGISNULL(n)};
}

std::optional<std::string_view> note_arg(FunctionCallInfo fcinfo, int n) {
    const std::optional<std::string_view> note = pg::text_arg(fcinfo, n);
    if (note && note->size() > max_note_bytes) {
        ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
                        errmsg("note is longer than %zu bytes", max_note_bytes)));
    }
    return note;
}

// Whoever destroys something says why.
std::string_view required_note_arg(FunctionCallInfo fcinfo, int n) {
    return pg::identity_part(pg::text_arg(fcinfo, n), "note", max_note_bytes);
}

protocol::Resolution resolution_of(std::optional<std::string_view> verdict) {
    if (verdict == "completed") {
        return protocol::Resolution::completed;
    }
    if (verdict == "failed") {
        return protocol::Resolution::failed;
    }
    if (verdict != "retry") {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("verdict must be \"completed\", \"failed\" or \"retry\"")));
    }
    return protocol::Resolution::retry;
}

Datum resolve(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_resolve()");
    protocol::ResolveCall call;
    call.identity = pg::any_identity_args(fcinfo);
    const std::optional<std::string_view> verdict = pg::text_arg(fcinfo, 3);
    call.verdict = resolution_of(verdict);
    call.verdict_text = *verdict;
    call.result = datum_arg(fcinfo, 4);
    call.status = datum_arg(fcinfo, 5);
    call.body = datum_arg(fcinfo, 6);
    call.note = note_arg(fcinfo, 7);
    if (!PG_ARGISNULL(8)) {
        call.attempt = PG_GETARG_INT32(8);
    }
    const bool has_outcome = !call.result.is_null || !call.status.is_null || !call.body.is_null;
    if (call.verdict == protocol::Resolution::retry && has_outcome) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("result, status and body must be NULL with verdict \"retry\"")));
    }
    PG_RETURN_TIMESTAMPTZ(protocol::resolve(call));
}

Datum reset(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_reset()");
    const core::Identity identity = pg::any_identity_args(fcinfo);
    PG_RETURN_BOOL(protocol::reset(identity, required_note_arg(fcinfo, 3)));
}

Datum erase(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_erase()");
    const std::string_view account = pg::identity_part(pg::text_arg(fcinfo, 0), "account", core::max_account_bytes);
    const protocol::Erased erased = protocol::erase(account, required_note_arg(fcinfo, 1));
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    for (int i = protocol::erased_kinds - 1; i >= 0; i--) { // the largest table is searched last, and told first
        Datum values[2] = {CStringGetTextDatum(erased.what[i]), Int64GetDatum(erased.rows[i])};
        bool nulls[2] = {};
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return Datum{0};
}

bool is_completed(std::optional<std::string_view> settled_as) {
    if (settled_as != "completed" && settled_as != "failed") {
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("settled_as must be \"completed\" or \"failed\"")));
    }
    return settled_as == "completed";
}

core::Time past_time_arg(FunctionCallInfo fcinfo, int n) {
    const std::optional<core::Time> time = pg::time_arg(fcinfo, n);
    if (!time || TIMESTAMP_NOT_FINITE(*time)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("settled_at must not be NULL or infinite")));
    }
    if (*time > pg::now()) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("settled_at must not be in the future")));
    }
    return *time;
}

Datum import_outcome(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_import()");
    protocol::ImportCall call;
    call.identity = pg::any_identity_args(fcinfo);
    const std::optional<std::string_view> settled_as = pg::text_arg(fcinfo, 3);
    call.succeeded = is_completed(settled_as);
    call.settled_as = *settled_as;
    call.status = datum_arg(fcinfo, 4);
    call.result = datum_arg(fcinfo, 5);
    call.body = datum_arg(fcinfo, 6);
    call.fingerprint = pg::checked_fingerprint(pg::bytes_arg(fcinfo, 7));
    call.settled_at = past_time_arg(fcinfo, 8);
    PG_RETURN_BOOL(protocol::import_outcome(call));
}

PG_IDEM_FUNCTION(resolve);
PG_IDEM_FUNCTION(reset);
PG_IDEM_FUNCTION(erase);
PG_IDEM_FUNCTION(import_outcome);

} // namespace

} // namespace idem::api
