// Calls of the owner of a claim: idem_complete, idem_fail, idem_release, idem_renew, idem_checkpoint, idem_guard.
#include "core/decide.hpp"
#include "pg/entry.hpp"

#include "pg/args.hpp"
#include "protocol/owner.hpp"

namespace idem::api {

namespace {

store::Nullable datum_arg(FunctionCallInfo fcinfo, int n) {
    return {PG_GETARG_DATUM(n), PG_ARGISNULL(n)};
}

Datum settle(FunctionCallInfo fcinfo, bool succeeded) {
    protocol::SettleCall call;
    call.identity = pg::identity_args(fcinfo);
    call.succeeded = succeeded;
    call.result = datum_arg(fcinfo, 3);
    call.status = datum_arg(fcinfo, 4);
    call.body = datum_arg(fcinfo, 5);
    call.body_bytes = datum_arg(fcinfo, 6);
    call.token = pg::uuid_arg(fcinfo, 7);
    PG_RETURN_TIMESTAMPTZ(protocol::settle(call).expires_at);
}

Datum complete(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_complete()");
    return settle(fcinfo, true);
}

Datum fail(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_fail()");
    return settle(fcinfo, false);
}

Datum release(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_release()");
    protocol::ReleaseCall call;
    call.identity = pg::identity_args(fcinfo);
    call.token = pg::uuid_arg(fcinfo, 3);
    call.retry_after = pg::duration_arg(fcinfo, 4, "retry_after", true);
    call.error = pg::text_arg(fcinfo, 5);
    PG_RETURN_BOOL(protocol::release(call));
}

Datum renew(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_renew()");
    const core::Identity identity = pg::identity_args(fcinfo);
    const core::Token token = pg::token_arg(fcinfo, 3);
    const std::optional<core::Duration> lease = pg::duration_arg(fcinfo, 4, "lease", false);
    const std::optional<core::Time> deadline = protocol::renew(identity, token, lease);
    if (!deadline) {
        PG_RETURN_NULL();
    }
    PG_RETURN_TIMESTAMPTZ(*deadline);
}

Datum checkpoint(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_checkpoint()");
    protocol::CheckpointCall call;
    call.identity = pg::identity_args(fcinfo);
    call.token = pg::token_arg(fcinfo, 3);
    const std::optional<std::string_view> name = pg::text_arg(fcinfo, 4);
    if (!name || name->empty()) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("checkpoint must not be NULL or empty")));
    }
    call.checkpoint = *name;
    call.progress = pg::jsonb_arg(fcinfo, 5);
    call.lease = pg::duration_arg(fcinfo, 6, "lease", false);
    PG_RETURN_TIMESTAMPTZ(protocol::checkpoint(call));
}

Datum guard(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_guard()");
    const core::Identity identity = pg::identity_args(fcinfo);
    PG_RETURN_TIMESTAMPTZ(protocol::guard(identity, pg::token_arg(fcinfo, 3)));
}

PG_IDEM_FUNCTION(complete);
PG_IDEM_FUNCTION(fail);
PG_IDEM_FUNCTION(release);
PG_IDEM_FUNCTION(renew);
PG_IDEM_FUNCTION(checkpoint);
PG_IDEM_FUNCTION(guard);

} // namespace

} // namespace idem::api
