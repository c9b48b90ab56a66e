// pg_idem.idle_claim_timeout.
#pragma once

namespace idem::pg {

// While a transaction holds the key lock of an operation and idle_in_transaction_session_timeout is 0, ours takes its
// place: set as by SET LOCAL, so that it goes with the (sub)transaction.
void arm_idle_claim_timeout();

} // namespace idem::pg
