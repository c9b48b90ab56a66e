// The clock by which everything is judged: clock_timestamp(), never the start of the transaction.
#pragma once

#include "core/time.hpp"

namespace idem::pg {

// The setting pg_idem.test_now stands in for it where it is set. Raises 22007 when that is no time.
core::Time now();

} // namespace idem::pg
