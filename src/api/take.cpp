// idem_take.
#include "pg/entry.hpp"

#include "api/records.hpp"
#include "pg/args.hpp"
#include "pg/settings.hpp"
#include "protocol/take.hpp"
#include "store/datum.hpp"

namespace idem::api {

namespace {

constexpr std::size_t max_owner_bytes = 255;

struct Result {
    ReturnSetInfo* rows;
    TupleDesc claim_type;
};

void put_row(const core::Identity& identity, const store::Nullable& request, const protocol::ClaimAnswer& claim,
             void* context) {
    const auto* result = static_cast<const Result*>(context);
    Datum values[4] = {store::text_datum(identity.account), store::text_datum(identity.key), request.value,
                       claim_row(result->claim_type, claim)};
    bool nulls[4] = {false, false, request.is_null, false};
    tuplestore_putvalues(result->rows->setResult, result->rows->setDesc, values, nulls);
}

Datum take(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_take()");
    protocol::TakeCall call;
    call.action = pg::identity_part(pg::text_arg(fcinfo, 0), "action", core::max_action_bytes);
    const std::optional<core::Duration> lease = pg::duration_arg(fcinfo, 1, "lease", false);
    if (!lease) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("lease must not be NULL")));
    }
    call.lease = *lease;
    call.batch = PG_ARGISNULL(2) ? 1 : PG_GETARG_INT32(2);
    if (call.batch <= 0) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("batch must be greater than zero")));
    }
    call.owner = pg::text_arg(fcinfo, 3);
    if (call.owner) {
        pg::identity_part(call.owner, "owner", max_owner_bytes);
    }
    InitMaterializedSRF(fcinfo, 0);
    Result result{reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo), nullptr};
    const FormData_pg_attribute* claim = TupleDescAttr(result.rows->setDesc, 3);
    result.claim_type = claim_row_type(claim->atttypid);
    protocol::take(call, put_row, &result);
    return Datum{0};
}

PG_IDEM_FUNCTION(take);

} // namespace

} // namespace idem::api
