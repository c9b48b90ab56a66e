#include "pg/writers.hpp"

#include "pg/compat.hpp"

namespace idem::pg {

namespace {

bool is_vacuum(const VirtualTransactionId& vxid) {
    const PGPROC* proc = compat::proc_of_transaction(vxid);
    return proc != nullptr && (proc->statusFlags & PROC_IN_VACUUM) != 0;
}

} // namespace

std::span<const VirtualTransactionId> find_writers(Oid table) {
    LOCKTAG tag;
    SET_LOCKTAG_RELATION(tag, MyDatabaseId, table);
    int count = 0;
    VirtualTransactionId* holders = GetLockConflicts(&tag, ShareLock, &count);
    std::size_t writers = 0;
    for (int i = 0; i < count; i++) {
        if (!is_vacuum(holders[i])) {
            holders[writers++] = holders[i];
        }
    }
    return {holders, writers};
}

} // namespace idem::pg
