// pg_idem.force_sync_commit.
#pragma once

namespace idem::pg {

// What this transaction writes must not be lost by a crash after a caller was told: flush at commit even where
// synchronous_commit is off, and wait for synchronous standbys where any are named.
void require_durable_commit();

} // namespace idem::pg
