// Composite results.
#pragma once

#include "pg/pg.hpp"
#include "protocol/claim.hpp"

namespace idem::api {

// The row type that the function being called returns; remembered for the life of the call site.
TupleDesc result_row_type(FunctionCallInfo fcinfo);

// idem_claim_result.
Datum claim_result(FunctionCallInfo fcinfo, const protocol::ClaimAnswer& answer);

} // namespace idem::api
