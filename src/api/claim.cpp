// idem_claim.
#include "core/decide.hpp"
#include "pg/entry.hpp"

#include "api/records.hpp"
#include "pg/args.hpp"
#include "protocol/claim.hpp"

namespace idem::api {

namespace {

constexpr std::size_t max_owner_bytes = 255;

void require_lease(bool given, const char* name) {
    if (given) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s needs a lease", name),
                        errhint("Without a lease the claim lasts for the transaction, which is its owner.")));
    }
}

Datum claim(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_claim()");
    protocol::ClaimCall call;
    call.identity = pg::identity_args(fcinfo);
    call.request_json = pg::jsonb_arg(fcinfo, 3);
    call.request.fingerprint = pg::fingerprint_args(fcinfo, 3, 4);
    call.lease = pg::duration_arg(fcinfo, 5, "lease", false);
    call.owner = pg::text_arg(fcinfo, 6);
    if (call.owner) {
        pg::identity_part(call.owner, "owner", max_owner_bytes);
    }
    call.wait = pg::duration_arg(fcinfo, 7, "wait", true).value_or(0);
    call.request.issued_at = pg::time_arg(fcinfo, 8);
    call.session_bound = !PG_ARGISNULL(9) && PG_GETARG_BOOL(9);
    call.request.token = pg::uuid_arg(fcinfo, 10);
    if (!call.lease) {
        require_lease(call.session_bound, "session_bound");
        require_lease(call.request.token.has_value(), "token");
    }
    return claim_result(fcinfo, protocol::claim(call));
}

PG_IDEM_FUNCTION(claim);

} // namespace

} // namespace idem::api
