// idem_run, and what its handler may call: idem_current, idem_reject.
#include "core/decide.hpp"
#include "pg/entry.hpp"

#include "api/records.hpp"
#include "pg/args.hpp"
#include "protocol/run.hpp"
#include "store/datum.hpp"

namespace idem::api {

namespace {

constexpr int default_reject_status = 422; // Unprocessable Content (RFC 9110)
constexpr core::Duration default_wait = core::second;

Datum run(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_run()");
    protocol::ClaimCall call;
    call.identity = pg::identity_args(fcinfo);
    call.request_json = pg::jsonb_arg(fcinfo, 3);
    if (PG_ARGISNULL(4)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("handler must not be NULL")));
    }
    call.wait = pg::duration_arg(fcinfo, 5, "wait", true).value_or(default_wait);
    call.request.issued_at = pg::time_arg(fcinfo, 6);
    call.request.fingerprint = pg::fingerprint_args(fcinfo, 3, 7);
    return claim_result(fcinfo, protocol::run(call, PG_GETARG_OID(4)));
}

Datum current(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    core::Identity identity;
    int attempt = 0;
    if (protocol::find_current(identity, attempt)) {
        Datum values[4] = {store::text_datum(identity.account), store::text_datum(identity.action),
                           store::text_datum(identity.key), Int32GetDatum(attempt)};
        bool nulls[4] = {};
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return Datum{0};
}

Datum reject(FunctionCallInfo fcinfo) {
    protocol::reject(pg::jsonb_arg(fcinfo, 0), PG_ARGISNULL(1) ? default_reject_status : PG_GETARG_INT32(1));
}

PG_IDEM_FUNCTION(run);
PG_IDEM_FUNCTION(current);
PG_IDEM_FUNCTION(reject);

} // namespace

} // namespace idem::api
