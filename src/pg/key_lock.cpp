#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "pg/key_lock.hpp"

#include "pg/compat.hpp"

extern "C" {
#include "common/hashfn.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/resowner.h"
}

namespace idem::pg {

namespace {

constexpr uint64 hash_seed = 0x6964656D; // "idem"; see key_lock_class
constexpr long retry_every_ms = 5;

// While one of these is in use, locks belong to the current subtransaction. Otherwise they would belong to the portal
// that runs the query, and a cursor that fails inside a savepoint would lose a lock whose claim was made before it: a
// claim, its row and its lock end together. No destructor: an error sets the owner anew anyway.
class OwnedBySubtransaction {
public:
    OwnedBySubtransaction() : before(CurrentResourceOwner) { CurrentResourceOwner = CurTransactionResourceOwner; }
    void done() const { CurrentResourceOwner = before; }

private:
    ResourceOwner before;
};

bool acquire(const LOCKTAG& tag, bool at_once) {
    const OwnedBySubtransaction owned;
    const LockAcquireResult result = LockAcquire(&tag, ExclusiveLock, false, at_once);
    owned.done();
    return result != LOCKACQUIRE_NOT_AVAIL;
}

// The parts, together at most max_identity_bytes, are separated by a byte that text cannot hold.
LOCKTAG tag_of(std::initializer_list<std::string_view> parts, uint16 lock_class) {
    unsigned char bytes[core::max_identity_bytes + 2];
    unsigned char* out = bytes;
    for (const std::string_view part : parts) {
        std::memcpy(out, part.data(), part.size());
        out += part.size();
        if (out < bytes + sizeof(bytes)) {
            *out++ = '\0';
        }
    }
    const uint64 hash = hash_bytes_extended(bytes, static_cast<int>(out - bytes), hash_seed);
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(hash >> 32), static_cast<uint32>(hash), lock_class);
    return tag;
}

class Stopwatch {
public:
    Stopwatch() { INSTR_TIME_SET_CURRENT(start); }
    long elapsed_ms() const {
        instr_time now;
        INSTR_TIME_SET_CURRENT(now);
        INSTR_TIME_SUBTRACT(now, start);
        return static_cast<long>(INSTR_TIME_GET_MILLISEC(now));
    }

private:
    instr_time start;
};

} // namespace

LOCKTAG key_lock_tag(const core::Identity& identity) {
    return tag_of({identity.account, identity.action, identity.key}, key_lock_class);
}

LOCKTAG aggregate_lock_tag(std::string_view type, std::string_view id) {
    return tag_of({type, id}, aggregate_lock_class);
}

bool try_key_lock(const LOCKTAG& tag) {
    return acquire(tag, true);
}

void wait_for_key_lock(const LOCKTAG& tag) {
    (void)acquire(tag, false);
}

bool try_key_lock_for(const LOCKTAG& tag, long ms) {
    const Stopwatch watch;
    while (!try_key_lock(tag)) {
        const long left = ms - watch.elapsed_ms();
        if (left <= 0) {
            return false;
        }
        pause_ms(std::min(left, retry_every_ms));
    }
    return true;
}

bool holds_key_lock(const LOCKTAG& tag) {
    return compat::lock_held_by_me(&tag, ExclusiveLock);
}

void release_key_lock(const LOCKTAG& tag) {
    const OwnedBySubtransaction owned;
    LockRelease(&tag, ExclusiveLock, false);
    owned.done();
}

void wait_for_key_lock(const LOCKTAG& tag, long ms) {
    const int users_timeout = LockTimeout;
    const int wait = static_cast<int>(std::clamp<long>(ms, 1, PG_INT32_MAX));
    LockTimeout = users_timeout > 0 ? std::min(users_timeout, wait) : wait;
    PG_TRY();
    {
        wait_for_key_lock(tag);
    }
    PG_FINALLY();
    {
        LockTimeout = users_timeout;
    }
    PG_END_TRY();
}

KeyLockHolder find_key_lock_holder(const LOCKTAG& tag) {
    int count = 0;
    VirtualTransactionId* holders = GetLockConflicts(&tag, ExclusiveLock, &count);
    for (int i = 0; i < count; i++) {
        const int pid = compat::pid_of_transaction(holders[i]);
        if (pid != 0 || compat::is_prepared(holders[i])) {
            return {true, pid};
        }
    }
    return {}; // or it has just ended: whatever it committed is visible by now
}

void pause_ms(long ms) {
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
                    compat::wait_event(compat::Wait::claim));
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

} // namespace idem::pg
