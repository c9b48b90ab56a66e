// idem_publish: a message that exists if and only if this transaction commits.
#pragma once

#include "store/outbox.hpp"

namespace idem::protocol {

// Fills in id, time and the operation of this transaction; stores the message, or writes it into the log only
// (pg_idem.outbox). Returns its id.
core::Token publish(store::Message message);

} // namespace idem::protocol
