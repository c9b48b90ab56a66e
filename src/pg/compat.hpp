// Differences between PostgreSQL 15, 16, 17 and 18: each with the version that changed it. Nothing else in this tree
// tests PG_VERSION_NUM.
#pragma once

#include <cstdint>
#include <iterator>

#include "pg/pg.hpp"

extern "C" {
#include "access/twophase.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "postmaster/bgworker.h"
#include "replication/message.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/backend_status.h"
#include "utils/guc_tables.h"
#include "utils/wait_event.h"
}

#define PG_IDEM_VERSION "1.0"

// 18: the library says its name and version.
#if PG_VERSION_NUM >= 180000
#define PG_IDEM_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "pg_idem", .version = PG_IDEM_VERSION)
#else
#define PG_IDEM_MODULE_MAGIC PG_MODULE_MAGIC
#endif

namespace idem::pg::compat {

// 18: an instrumentation argument after the snapshot.
inline IndexScanDesc begin_index_scan(Relation heap, Relation index, Snapshot snapshot, int keys) {
#if PG_VERSION_NUM >= 180000
    return index_beginscan(heap, index, snapshot, nullptr, keys, 0);
#else
    return index_beginscan(heap, index, snapshot, keys, 0);
#endif
}

// 18: deferrable_ok.
inline Oid primary_key_index(Relation rel) {
#if PG_VERSION_NUM >= 180000
    return RelationGetPrimaryKeyIndex(rel, false);
#else
    return RelationGetPrimaryKeyIndex(rel);
#endif
}

// 16: which indexes to update is no longer a bool.
struct IndexUpdate {
#if PG_VERSION_NUM >= 160000
    TU_UpdateIndexes which = TU_None;
    bool any() const { return which != TU_None; }
    bool only_summarizing() const { return which == TU_Summarizing; }
#else
    bool which = false;
    bool any() const { return which; }
    bool only_summarizing() const { return false; }
#endif
};

// 16: onlySummarizing.
inline List* insert_index_tuples(ResultRelInfo* rel, TupleTableSlot* slot, EState* estate, bool update,
                                 bool no_duplicate_error, bool* conflict, List* arbiters, bool only_summarizing) {
#if PG_VERSION_NUM >= 160000
    return ExecInsertIndexTuples(rel, slot, estate, update, no_duplicate_error, conflict, arbiters, only_summarizing);
#else
    (void)only_summarizing;
    return ExecInsertIndexTuples(rel, slot, estate, update, no_duplicate_error, conflict, arbiters);
#endif
}

// 18: the tuple's own TID, which must not count as a conflict; a new tuple has none.
inline bool check_index_constraints(ResultRelInfo* rel, TupleTableSlot* slot, EState* estate, ItemPointer conflict,
                                    List* arbiters) {
#if PG_VERSION_NUM >= 180000
    ItemPointerData none;
    ItemPointerSetInvalid(&none);
    return ExecCheckIndexConstraints(rel, slot, estate, conflict, &none, arbiters);
#else
    return ExecCheckIndexConstraints(rel, slot, estate, conflict, arbiters);
#endif
}

// 17: orstronger.
inline bool lock_held_by_me(const LOCKTAG* tag, LOCKMODE mode) {
#if PG_VERSION_NUM >= 170000
    return LockHeldByMe(tag, mode, false);
#else
    return LockHeldByMe(tag, mode);
#endif
}

// 17: intervals may be infinite.
inline bool is_infinite(const Interval* interval) {
#if PG_VERSION_NUM >= 170000
    return INTERVAL_NOT_FINITE(interval);
#else
    (void)interval;
    return false;
#endif
}

// 16: local entries by index in a function of their own.
inline const PgBackendStatus* backend_status(int index) {
#if PG_VERSION_NUM >= 160000
    LocalPgBackendStatus* local = pgstat_get_local_beentry_by_index(index);
    return local == nullptr ? nullptr : &local->backendStatus;
#else
    return pgstat_fetch_stat_beentry(index);
#endif
}

// 16: object_aclcheck for every catalogue.
inline AclResult check_execute(Oid function, Oid role) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE);
#else
    return pg_proc_aclcheck(function, role, ACL_EXECUTE);
#endif
}

inline bool may_connect(Oid role) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(DatabaseRelationId, MyDatabaseId, role, ACL_CONNECT) == ACLCHECK_OK;
#else
    return pg_database_aclcheck(MyDatabaseId, role, ACL_CONNECT) == ACLCHECK_OK;
#endif
}

inline bool may_use_schema(Oid schema, Oid role) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE) == ACLCHECK_OK;
#else
    return pg_namespace_aclcheck(schema, role, ACL_USAGE) == ACLCHECK_OK;
#endif
}

// 16: the settings moved to a hash table, with a look-up of its own.
inline const config_generic* find_setting(const char* name) {
#if PG_VERSION_NUM >= 160000
    return find_option(name, false, true, 0);
#else
    config_generic** all = get_guc_variables();
    for (int i = 0; i < GetNumConfigOptions(); i++) {
        if (pg_strcasecmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return nullptr;
#endif
}

// 17: backends are numbered by PGPROC, and a PGPROC holds its virtual transaction in one struct. Returns the process
// that runs the transaction now, or nullptr: it has ended, or is prepared and keeps the number of the session that
// began it.
inline const PGPROC* proc_of_transaction(const VirtualTransactionId& vxid) {
#if PG_VERSION_NUM >= 170000
    PGPROC* proc = vxid.procNumber == INVALID_PROC_NUMBER ? nullptr : ProcNumberGetProc(vxid.procNumber);
    const bool same = proc != nullptr && proc->vxid.lxid == vxid.localTransactionId;
#else
    PGPROC* proc = vxid.backendId == InvalidBackendId ? nullptr : BackendIdGetProc(vxid.backendId);
    const bool same = proc != nullptr && proc->lxid == vxid.localTransactionId;
#endif
    return same ? proc : nullptr;
}

inline int pid_of_transaction(const VirtualTransactionId& vxid) {
    const PGPROC* proc = proc_of_transaction(vxid);
    return proc == nullptr ? 0 : proc->pid;
}

// Whether the transaction is a prepared one.
inline bool is_prepared(const VirtualTransactionId& vxid) {
    bool more = false;
    return VirtualTransactionIdIsRecoveredPreparedXact(vxid) ||
           TransactionIdIsValid(TwoPhaseGetXidByVirtualXID(vxid, &more));
}

// 17: PGPROCs are addressed by number, which the PGPROC itself no longer knows. Less than MaxBackends in a session.
inline int my_backend_number() {
#if PG_VERSION_NUM >= 170000
    return MyProcNumber;
#else
    return MyProc->pgprocno;
#endif
}

// 17: a background worker may connect as a role that has no LOGIN.
#if PG_VERSION_NUM >= 170000
inline constexpr uint32 bypass_role_login_check = BGWORKER_BYPASS_ROLELOGINCHECK;
#else
inline constexpr uint32 bypass_role_login_check = 0;
#endif
inline constexpr bool worker_role_needs_login = bypass_role_login_check == 0;

// 17: whether to flush at once.
inline void log_transactional_message(const char* prefix, const char* message, Size size) {
#if PG_VERSION_NUM >= 170000
    (void)LogLogicalMessage(prefix, message, size, true, false);
#else
    (void)LogLogicalMessage(prefix, message, size, true);
#endif
}

// 15.4: a database whose DROP was interrupted has this connection limit.
inline constexpr int32 invalid_database = -2;

// 17: extensions name their wait events.
enum class Wait : std::uint8_t { claim, launcher, sweep_rest, handler_start };
inline uint32 wait_event(Wait wait) {
#if PG_VERSION_NUM >= 170000
    static constexpr const char* names[] = {"PgIdemClaim", "PgIdemLauncherMain", "PgIdemSweepRest",
                                            "PgIdemHandlerStart"};
    static uint32 events[std::size(names)] = {};
    const int i = static_cast<int>(wait);
    if (events[i] == 0) {
        events[i] = WaitEventExtensionNew(names[i]);
    }
    return events[i];
#else
    (void)wait;
    return PG_WAIT_EXTENSION;
#endif
}

} // namespace idem::pg::compat
