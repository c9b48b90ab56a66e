#include "pg/session.hpp"

#include "pg/compat.hpp"

extern "C" {
#include "access/xlog.h"
#include "storage/procarray.h"
}

namespace idem::pg {

SessionId this_session() {
    return {MyProcPid, MyStartTimestamp};
}

bool is_session_alive(const SessionId& session) {
    if (RecoveryInProgress()) {
        return true;
    }
    if (session.pid == MyProcPid) {
        return session.start == MyStartTimestamp;
    }
    if (BackendPidGetProc(session.pid) == nullptr) {
        return false;
    }
    // The process ID lives; is it the same session? The local copy of the backends' states is kept for the whole
    // transaction unless cleared. (pg_stat_activity hides the start time from other roles.)
    pgstat_clear_backend_activity_snapshot();
    const int count = pgstat_fetch_stat_numbackends();
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus* status = compat::backend_status(i);
        if (status != nullptr && status->st_procpid == session.pid) {
            return status->st_proc_start_timestamp == session.start;
        }
    }
    return false;
}

} // namespace idem::pg
