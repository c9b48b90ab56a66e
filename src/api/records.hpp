// Composite results.
#pragma once

#include "pg/pg.hpp"
#include "protocol/claim.hpp"

namespace idem::api {

// idem_claim_result.
Datum claim_result(FunctionCallInfo fcinfo, const protocol::ClaimAnswer& answer);

// The same as a column of a row. type: OID of idem_claim_result.
TupleDesc claim_row_type(Oid type);
Datum claim_row(TupleDesc desc, const protocol::ClaimAnswer& answer);

} // namespace idem::api
