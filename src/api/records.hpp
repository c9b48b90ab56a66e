// Composite results.
#pragma once

#include "pg/pg.hpp"
#include "protocol/claim.hpp"

namespace idem::api {

// idem_claim_result.
Datum claim_result(FunctionCallInfo fcinfo, const protocol::ClaimAnswer& answer);

} // namespace idem::api
