#include "pg/durability.hpp"

#include "pg/pg.hpp"
#include "pg/settings.hpp"

extern "C" {
#include "replication/syncrep.h"
}

namespace idem::pg {

void require_durable_commit() {
    if (!settings.force_sync_commit) {
        return;
    }
    ForceSyncCommit(); // not undone by a rollback to a savepoint
    const bool standbys_named = SyncRepStandbyNames != nullptr && SyncRepStandbyNames[0] != '\0';
    if (standbys_named && synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH) {
        (void)set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
                                false);
    }
}

} // namespace idem::pg
