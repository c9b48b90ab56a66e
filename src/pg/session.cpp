#include <algorithm>

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

namespace {

// Sorted.
struct Remembered {
    SessionId* sessions = nullptr;
    int count = 0;
    int room = 0;
};
constinit Remembered remembered;

bool is_before(const SessionId& a, const SessionId& b) {
    return a.pid != b.pid ? a.pid < b.pid : a.start < b.start;
}

} // namespace

void remember_sessions() {
    pgstat_clear_backend_activity_snapshot();
    const int count = pgstat_fetch_stat_numbackends();
    if (count > remembered.room) {
        if (remembered.sessions != nullptr) {
            pfree(remembered.sessions);
        }
        remembered = Remembered{};
        remembered.sessions =
            static_cast<SessionId*>(MemoryContextAlloc(TopMemoryContext, sizeof(SessionId) * static_cast<Size>(count)));
        remembered.room = count;
    }
    remembered.count = 0;
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus* status = compat::backend_status(i);
        if (status != nullptr) {
            remembered.sessions[remembered.count++] = {status->st_procpid, status->st_proc_start_timestamp};
        }
    }
    pgstat_clear_backend_activity_snapshot(); // which pg_stat_activity would show to the end of the transaction
    std::sort(remembered.sessions, remembered.sessions + remembered.count, is_before);
}

bool was_session_alive(const SessionId& session) {
    return RecoveryInProgress() ||
           std::binary_search(remembered.sessions, remembered.sessions + remembered.count, session, is_before);
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
    bool alive = false;
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus* status = compat::backend_status(i);
        if (status != nullptr && status->st_procpid == session.pid) {
            alive = status->st_proc_start_timestamp == session.start;
            break;
        }
    }
    pgstat_clear_backend_activity_snapshot(); // which pg_stat_activity would show to the end of the transaction
    return alive;
}

} // namespace idem::pg
