// NOTIFY, from workers and idem_maintain only, unless asked for: in a caller's transaction it would forbid PREPARE
// TRANSACTION and serialise commits.
#pragma once

#include <string_view>

namespace idem::pg {

// On channel pg_idem, when the transaction commits: {"action": ..., "state": ...}. Neither account nor key: every role
// of the database may listen. Equal notifications of one transaction are sent once.
void notify(std::string_view action, const char* state);

// On channel pg_idem_outbox, without a payload. pg_idem.outbox_notify says that callers have chosen to pay for it.
void notify_outbox();

} // namespace idem::pg
