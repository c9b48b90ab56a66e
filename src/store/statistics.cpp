#include <cstring>

#include "core/identity.hpp"
#include "store/statistics.hpp"

#include "pg/shared.hpp"
#include "store/list.hpp"

extern "C" {
#include "common/hashfn.h"
#include "port/atomics.h"
}

namespace idem::store {

namespace {

// An open-addressed hash table that is never more than half full of actions; the other half is for the overflow of
// databases, so that there is always an end of the search.
constexpr uint32 table_size = 2048;
constexpr int most_actions = 1024;
constexpr int most_actions_of_database = 512; // a database in which they are made up leaves room for the others
constexpr std::string_view others = "*others*";

constexpr uint32 never_used = 0;
constexpr uint32 used_before = 0xFFFFFFFF; // the search goes on

// Readers look at `database` first: whoever makes the slot writes it last. A slot changes its owner only when its
// database is gone, and with it everybody who would compare the action.
struct Slot {
    pg_atomic_uint32 database;
    pg_atomic_uint32 is_full; // of the overflow: no further action of this database gets a slot
    pg_atomic_uint64 counts[counter_count];
    pg_atomic_uint64 counted_since;
    uint32 action_size; // 0: the overflow, as no action is empty
    char action[core::max_action_bytes];

    std::string_view name() const { return {action, action_size}; }
};

struct Table {
    core::Time started;
    Slot slots[table_size];
};

constinit void* memory = nullptr;

Table* table() {
    return static_cast<Table*>(memory);
}

void clear_counts(Slot& slot, core::Time since) {
    for (pg_atomic_uint64& value : slot.counts) {
        pg_atomic_write_u64(&value, 0);
    }
    pg_atomic_write_u64(&slot.counted_since, static_cast<uint64>(since));
}

void init_table(void* area) {
    auto* fresh = static_cast<Table*>(area);
    fresh->started = GetCurrentTimestamp();
    for (Slot& slot : fresh->slots) {
        pg_atomic_init_u32(&slot.database, never_used);
        pg_atomic_init_u32(&slot.is_full, 0);
        pg_atomic_init_u64(&slot.counted_since, 0);
        for (pg_atomic_uint64& value : slot.counts) {
            pg_atomic_init_u64(&value, 0);
        }
    }
}

constexpr pg::SharedArea area = {"pg_idem statistics", [] { return Size{sizeof(Table)}; }, init_table, &memory};

uint32 first_place(Oid database, std::string_view action) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(action.data());
    return hash_combine(murmurhash32(database), hash_bytes(bytes, static_cast<int>(action.size()))) % table_size;
}

Slot* find_slot(std::string_view action) {
    const uint32 first = first_place(MyDatabaseId, action);
    for (uint32 i = 0; i < table_size; i++) {
        Slot& slot = table()->slots[(first + i) % table_size];
        const uint32 database = pg_atomic_read_u32(&slot.database);
        if (database == never_used) {
            return nullptr;
        }
        if (database == MyDatabaseId) {
            pg_read_barrier();
            if (slot.name() == action) {
                return &slot;
            }
        }
    }
    return nullptr;
}

// Under the lock.
Slot* make_slot(std::string_view action) {
    const uint32 first = first_place(MyDatabaseId, action);
    for (uint32 i = 0; i < table_size; i++) {
        Slot& slot = table()->slots[(first + i) % table_size];
        const uint32 database = pg_atomic_read_u32(&slot.database);
        if (database != never_used && database != used_before) {
            continue;
        }
        clear_counts(slot, table()->started);
        pg_atomic_write_u32(&slot.is_full, 0);
        slot.action_size = static_cast<uint32>(action.size());
        if (!action.empty()) {
            std::memcpy(slot.action, action.data(), action.size());
        }
        pg_write_barrier();
        pg_atomic_write_u32(&slot.database, MyDatabaseId);
        return &slot;
    }
    return nullptr;
}

// Under the lock.
bool has_room_for_action() {
    int used = 0;
    int used_here = 0;
    for (Slot& slot : table()->slots) {
        const uint32 database = pg_atomic_read_u32(&slot.database);
        if (database != never_used && database != used_before && slot.action_size > 0) {
            used++;
            used_here += database == MyDatabaseId ? 1 : 0;
        }
    }
    return used < most_actions && used_here < most_actions_of_database;
}

// Under the lock. nullptr: more databases than there is room for.
Slot* overflow_slot() {
    Slot* overflow = find_slot({});
    return overflow != nullptr ? overflow : make_slot({});
}

// Under the lock.
Slot* add_slot(std::string_view action) {
    if (Slot* rival = find_slot(action)) {
        return rival;
    }
    if (action.empty()) {
        return overflow_slot();
    }
    if (has_room_for_action()) {
        return make_slot(action);
    }
    Slot* overflow = overflow_slot();
    if (overflow != nullptr) {
        pg_atomic_write_u32(&overflow->is_full, 1);
    }
    return overflow;
}

void give_back(Oid database) {
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    for (Slot& slot : table()->slots) {
        if (pg_atomic_read_u32(&slot.database) == database) {
            pg_atomic_write_u32(&slot.database, used_before);
        }
        pg_atomic_write_u32(&slot.is_full, 0);
    }
    LWLockRelease(pg::shared_lock());
}

Slot* slot_of(std::string_view action) {
    if (action == others) {
        action = {};
    }
    if (Slot* slot = find_slot(action)) {
        return slot;
    }
    Slot* overflow = find_slot({});
    if (overflow != nullptr && pg_atomic_read_u32(&overflow->is_full) != 0) {
        return overflow;
    }
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Slot* slot = add_slot(action);
    LWLockRelease(pg::shared_lock());
    return slot;
}

void add(Slot& slot, Counter counter, std::uint64_t n) {
    pg_atomic_fetch_add_u64(&slot.counts[static_cast<int>(counter)], static_cast<int64>(n));
}

// What this transaction will have counted when it commits; in order of `level`.
struct Pending {
    Slot* slot;
    Counter counter;
    int level; // of subtransaction nesting
    std::uint64_t n;

    bool is_same(const Pending& other) const {
        return slot == other.slot && counter == other.counter && level == other.level;
    }
};
constinit List<Pending> pending;

// Into the equal one among those from `first` on.
bool merge(int first, const Pending& added) {
    for (int i = first; i < pending.size; i++) {
        if (pending.items[i].is_same(added)) {
            pending.items[i].n += added.n;
            return true;
        }
    }
    return false;
}

int first_of_level(int level) {
    int first = pending.size;
    while (first > 0 && pending.items[first - 1].level >= level) {
        first--;
    }
    return first;
}

void move_up(int level) {
    const int moved = first_of_level(level);
    const int upper = first_of_level(level - 1);
    const int end = pending.size;
    pending.size = moved;
    for (int i = moved; i < end; i++) {
        Pending entry = pending.items[i];
        entry.level = level - 1;
        if (!merge(upper, entry)) {
            pending.items[pending.size++] = entry; // never past the one that is read
        }
    }
}

void on_transaction(XactEvent event, void*) {
    switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_PREPARE:
        for (int i = 0; i < pending.size; i++) {
            add(*pending.items[i].slot, pending.items[i].counter, pending.items[i].n);
        }
        pending = {};
        break;
    case XACT_EVENT_ABORT:
        pending = {};
        break;
    default:
        break;
    }
}

void on_subtransaction(SubXactEvent event, SubTransactionId, SubTransactionId, void*) {
    if (pending.size == 0) {
        return;
    }
    const int level = GetCurrentTransactionNestLevel();
    if (event == SUBXACT_EVENT_ABORT_SUB) {
        pending.size = first_of_level(level);
    } else if (event == SUBXACT_EVENT_COMMIT_SUB) {
        move_up(level);
    }
}

} // namespace

void count(std::string_view action, Counter counter, std::uint64_t n) {
    if (table() == nullptr || n == 0) {
        return;
    }
    if (Slot* slot = slot_of(action)) {
        add(*slot, counter, n);
    }
}

void count_at_commit(std::string_view action, Counter counter, std::uint64_t n) {
    if (table() == nullptr || n == 0) {
        return;
    }
    Slot* slot = slot_of(action);
    if (slot == nullptr) {
        return;
    }
    const int level = GetCurrentTransactionNestLevel();
    const Pending entry{slot, counter, level, n};
    if (!merge(first_of_level(level), entry)) {
        pending.add() = entry;
    }
}

int statistics_slots() {
    return table() == nullptr ? 0 : static_cast<int>(table_size);
}

bool read_statistics(int slot_number, ActionStatistics& statistics) {
    Slot& slot = table()->slots[slot_number];
    if (pg_atomic_read_u32(&slot.database) != MyDatabaseId) {
        return false;
    }
    pg_read_barrier();
    statistics.action = slot.action_size == 0 ? others : slot.name();
    for (int i = 0; i < counter_count; i++) {
        statistics.counts[i] = pg_atomic_read_u64(&slot.counts[i]);
    }
    statistics.counted_since = static_cast<core::Time>(pg_atomic_read_u64(&slot.counted_since));
    return true;
}

bool reset_statistics(std::optional<std::string_view> action) {
    bool any = false;
    const core::Time now = GetCurrentTimestamp();
    ActionStatistics found;
    for (int i = 0; i < statistics_slots(); i++) {
        if (read_statistics(i, found) && (!action || *action == found.action)) {
            clear_counts(table()->slots[i], now);
            any = true;
        }
    }
    return any;
}

void drop_statistics_of_dropped() {
    for (int i = 0; i < statistics_slots(); i++) {
        const uint32 database = pg_atomic_read_u32(&table()->slots[i].database);
        if (database != never_used && database != used_before &&
            !SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database))) {
            give_back(database);
        }
    }
}

void init_statistics() {
    pg::add_shared_area(area);
    RegisterXactCallback(on_transaction, nullptr);
    RegisterSubXactCallback(on_subtransaction, nullptr);
}

} // namespace idem::store
