#include <algorithm>
#include <span>

#include "core/schedule.hpp"
#include "worker/registry.hpp"

#include "pg/clock.hpp"
#include "pg/shared.hpp"

extern "C" {
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
}

namespace idem::worker {

namespace {

struct Slot {
    pg_atomic_uint32 database; // 0: free
    pg_atomic_uint64 told_due; // a core::Time
    int worker_pid;
    PassStatus status; // with worker_pid, under the lock
};

struct Registry {
    pg_atomic_uint64 launcher_latch; // a Latch*, or 0
    pg_atomic_uint32 launcher_pid;
    pg_atomic_uint64 planned;
    pg_atomic_uint32 slots_used; // those behind have never been used
    Slot slots[max_databases];
};

constinit Registry* registry = nullptr;

Size size() {
    return sizeof(Registry);
}

void init(void* area) {
    auto* fresh = static_cast<Registry*>(area);
    pg_atomic_init_u64(&fresh->launcher_latch, 0);
    pg_atomic_init_u32(&fresh->launcher_pid, 0);
    pg_atomic_init_u64(&fresh->planned, core::end_of_time);
    pg_atomic_init_u32(&fresh->slots_used, 0);
    for (Slot& slot : fresh->slots) {
        pg_atomic_init_u32(&slot.database, InvalidOid);
        pg_atomic_init_u64(&slot.told_due, core::end_of_time);
    }
}

const pg::SharedArea area{"pg_idem registry", size, init, reinterpret_cast<void**>(&registry)};

std::span<Slot> slots() {
    return {registry->slots, pg_atomic_read_u32(&registry->slots_used)};
}

Slot* find_slot(Oid database) {
    for (Slot& slot : slots()) {
        if (pg_atomic_read_u32(&slot.database) == database) {
            return &slot;
        }
    }
    return nullptr;
}

// That of this session's database, remembered between calls.
Slot* find_own_slot() {
    static constinit Slot* own = nullptr;
    if (own == nullptr || pg_atomic_read_u32(&own->database) != MyDatabaseId) {
        own = find_slot(MyDatabaseId);
    }
    return own;
}

// Under the lock. nullptr: full.
Slot* find_free_slot() {
    Slot* slot = find_slot(InvalidOid);
    const uint32 used = pg_atomic_read_u32(&registry->slots_used);
    if (slot == nullptr && used < max_databases) {
        slot = &registry->slots[used];
        pg_atomic_write_u32(&registry->slots_used, used + 1);
    }
    return slot;
}

// Under the lock. nullptr: full.
Slot* find_or_add_slot(Oid database) {
    Slot* slot = find_slot(database);
    if (slot == nullptr) {
        slot = find_free_slot();
        if (slot == nullptr) {
            return nullptr;
        }
        slot->status = PassStatus{};
        slot->worker_pid = 0;
        pg_atomic_write_u64(&slot->told_due, 0);
        pg_atomic_write_u32(&slot->database, database);
    }
    return slot;
}

// True: it is sooner than all that was told before.
bool lower(pg_atomic_uint64* told, core::Time due) {
    uint64 before = pg_atomic_read_u64(told);
    while (static_cast<uint64>(due) < before) {
        if (pg_atomic_compare_exchange_u64(told, &before, static_cast<uint64>(due))) {
            return true;
        }
    }
    return false;
}

// At once, and everywhere in the tables.
void start_over(PassStatus& status) {
    status.left_work = true;
    status.settled.start_over();
    status.seen.start_over();
    status.effects.start_over();
}

// What this transaction tells when it commits. Forgotten in the end, also by a rollback to a savepoint only then: the
// launcher then looks in vain once.
struct Told {
    core::Time due = core::end_of_time; // by the real clock
    bool extension = false;
};
constinit Told told;
constinit bool use_is_known = false; // see note_use()

// After the commit has become visible, and where nothing may fail.
void tell() {
    if (told.extension) {
        LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
        Slot* slot = find_or_add_slot(MyDatabaseId);
        if (slot != nullptr) {
            start_over(slot->status);
            pg_atomic_write_u64(&slot->told_due, 0);
        }
        LWLockRelease(pg::shared_lock());
        wake_launcher();
        return;
    }
    Slot* slot = find_own_slot();
    if (slot != nullptr && lower(&slot->told_due, told.due) &&
        static_cast<uint64>(told.due) < pg_atomic_read_u64(&registry->planned)) {
        wake_launcher();
    }
}

void on_transaction(XactEvent event, void*) {
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE) {
        if (told.extension || told.due != core::end_of_time) {
            tell();
        }
    } else if (event != XACT_EVENT_ABORT) {
        return;
    } else if (told.extension) {
        use_is_known = false;
    }
    told = Told{};
}

void leave_slot(int, Datum database) {
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Slot* slot = find_slot(DatumGetObjectId(database));
    if (slot != nullptr && slot->worker_pid == MyProcPid) {
        slot->worker_pid = 0;
    }
    LWLockRelease(pg::shared_lock());
}

void resign_as_launcher(int, Datum) {
    pg_atomic_write_u64(&registry->launcher_latch, 0);
    pg_atomic_write_u32(&registry->launcher_pid, 0);
}

} // namespace

void wake_launcher() {
    auto* latch = reinterpret_cast<Latch*>(pg_atomic_read_u64(&registry->launcher_latch));
    if (latch != nullptr) {
        SetLatch(latch);
    }
}

void note_due(core::Time due) {
    if (registry != nullptr) {
        told.due = std::min(told.due, core::translate(due, pg::now(), GetCurrentTimestamp()));
    }
}

void note_use() {
    if (registry != nullptr && !use_is_known) {
        use_is_known = true;
        told.extension = told.extension || find_slot(MyDatabaseId) == nullptr;
    }
}

void note_extension() {
    told.extension = registry != nullptr;
}

void become_launcher() {
    before_shmem_exit(resign_as_launcher, Datum{0});
    pg_atomic_write_u32(&registry->launcher_pid, MyProcPid);
    pg_atomic_write_u64(&registry->launcher_latch, reinterpret_cast<uint64>(MyLatch));
}

int launcher_pid() {
    return registry == nullptr ? 0 : static_cast<int>(pg_atomic_read_u32(&registry->launcher_pid));
}

void publish_plan(core::Time planned) {
    pg_atomic_write_u64(&registry->planned, static_cast<uint64>(planned));
}

int list_databases(Database* databases, int room) {
    int count = 0;
    LWLockAcquire(pg::shared_lock(), LW_SHARED);
    for (Slot& slot : slots()) {
        const Oid oid = pg_atomic_read_u32(&slot.database);
        if (OidIsValid(oid) && count < room) {
            const auto told_due = static_cast<core::Time>(pg_atomic_read_u64(&slot.told_due));
            databases[count++] = {oid, slot.status.left_work, std::min(slot.status.next_due, told_due),
                                  slot.status.started};
        }
    }
    LWLockRelease(pg::shared_lock());
    return count;
}

bool is_known(Oid database) {
    return find_slot(database) != nullptr;
}

void forget_database(Oid database, Unless unless) {
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Slot* slot = find_slot(database);
    const bool keep = unless == Unless::told_meanwhile && slot != nullptr && slot->status.left_work;
    if (slot != nullptr && !keep) {
        pg_atomic_write_u32(&slot->database, InvalidOid);
    }
    LWLockRelease(pg::shared_lock());
}

void start_over() {
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    for (Slot& slot : slots()) {
        start_over(slot.status);
    }
    LWLockRelease(pg::shared_lock());
}

bool begin_pass(PassStatus& status) {
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Slot* slot = find_or_add_slot(MyDatabaseId);
    if (slot != nullptr) {
        // Before anything is read: what commits later is told later.
        pg_atomic_write_u64(&slot->told_due, core::end_of_time);
        slot->worker_pid = MyProcPid;
        slot->status.left_work = false; // unless it is set again meanwhile
        slot->status.next_due = 0;      // unless the pass comes to its end
        slot->status.started = GetCurrentTimestamp();
        status = slot->status;
        before_shmem_exit(leave_slot, ObjectIdGetDatum(MyDatabaseId));
    }
    LWLockRelease(pg::shared_lock());
    return slot != nullptr;
}

void end_pass(const PassStatus& status) {
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Slot* slot = find_slot(MyDatabaseId);
    if (slot != nullptr) {
        const bool again = slot->status.left_work;
        slot->status = status;
        if (again) { // this was told meanwhile
            start_over(slot->status);
        }
    }
    LWLockRelease(pg::shared_lock());
}

int read_status(StatusRow* rows, int room) {
    if (registry == nullptr) {
        return 0;
    }
    int count = 0;
    LWLockAcquire(pg::shared_lock(), LW_SHARED);
    for (Slot& slot : slots()) {
        const Oid oid = pg_atomic_read_u32(&slot.database);
        if (OidIsValid(oid) && count < room) {
            rows[count++] = {oid, slot.worker_pid, slot.status};
        }
    }
    LWLockRelease(pg::shared_lock());
    return count;
}

void init_registry() {
    if (process_shared_preload_libraries_in_progress) {
        pg::add_shared_area(area);
    }
    RegisterXactCallback(on_transaction, nullptr);
}

} // namespace idem::worker
