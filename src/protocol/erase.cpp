#include <algorithm>

#include "protocol/erase.hpp"

#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/idle_claim.hpp"
#include "pg/index_scan.hpp"
#include "pg/key_lock.hpp"
#include "pg/settings.hpp"
#include "pg/table.hpp"
#include "store/audit.hpp"
#include "store/columns.hpp"
#include "store/datum.hpp"
#include "store/effects.hpp"
#include "store/inflight.hpp"
#include "store/outbox.hpp"
#include "store/settled.hpp"

namespace idem::protocol {

namespace {

constexpr int chunk_size = 100; // operations that are found before they are locked one by one

bool has_payload(const store::InflightRow& row) {
    using namespace store::inflight;
    return !row.nulls[request] || !row.nulls[progress] || !row.nulls[last_error];
}

bool is_settled_with_payload(const pg::Table& table, HeapTuple tuple) {
    bool is_null = false;
    return !DatumGetBool(heap_getattr(tuple, store::settled::stripped + 1, RelationGetDescr(table.heap), &is_null));
}

bool is_inflight_with_payload(const pg::Table& table, HeapTuple tuple) {
    store::InflightRow row;
    pg::read_row(table, tuple, row.values, row.nulls, store::inflight::count);
    return has_payload(row);
}

bool is_effect_with_payload(const pg::Table& table, HeapTuple tuple) {
    store::EffectRow row;
    pg::read_row(table, tuple, row.values, row.nulls, store::effects::count);
    return row.has_payload();
}

// Under the key lock; how many rows were erased, 0 where there is nothing (any more).
std::int64_t erase_settled(const core::Identity& identity) {
    store::SettledRow row;
    if (!store::find_settled(identity, SnapshotSelf, pg::Access::change, row) || row.facts.stripped) {
        return 0;
    }
    store::strip_settled(row);
    return 1;
}

std::int64_t erase_inflight(const core::Identity& identity) {
    using namespace store::inflight;
    store::InflightRow row;
    if (!store::find_inflight(identity, SnapshotSelf, pg::Access::change, row) || !has_payload(row)) {
        return 0;
    }
    row.clear(request);
    row.clear(progress);
    row.clear(last_error);
    store::update_inflight(row);
    return 1;
}

struct Kind {
    const char* what;
    pg::TableId table;
    bool (*has_payload)(const pg::Table& table, HeapTuple tuple);
    std::int64_t (*erase)(const core::Identity& identity);
};
constexpr int of_messages = 0; // a kind without operations
// The others in the order in which an operation moves: what leaves the first table after it was searched is found in
// the second.
constexpr Kind kinds[erased_kinds] = {
    {"outbox", pg::TableId::outbox, nullptr, nullptr},
    {"effects", pg::TableId::effects, is_effect_with_payload, store::erase_effects},
    {"inflight", pg::TableId::inflight, is_inflight_with_payload, erase_inflight},
    {"settled", pg::TableId::settled, is_settled_with_payload, erase_settled},
};

// Where a search stands: behind this operation of this kind.
struct Position {
    int kind = 0;
    bool at_start = true;
    core::StoredIdentity last;                 // of messages the account only
    std::int64_t last_position = PG_INT64_MIN; // of messages
};

// Of this session's last call. Only a hint, so nothing need be undone: whatever a transaction that was rolled back, or
// another session, makes of the rows, a round is complete only when it has come by all of them.
constinit Position resume;

// False: no call can have made it, and it does not fit.
bool identity_of(const pg::Table& table, HeapTuple tuple, pg::TableId id, core::StoredIdentity& identity) {
    const int first = store::key_of(id).first;
    std::string_view parts[3];
    constexpr std::size_t limits[3] = {core::max_account_bytes, core::max_action_bytes, core::max_key_bytes};
    for (int i = 0; i < 3; i++) {
        bool is_null = false;
        parts[i] = store::view_of(heap_getattr(tuple, first + i, RelationGetDescr(table.heap), &is_null));
        if (parts[i].size() > limits[i]) {
            return false;
        }
    }
    identity = core::StoredIdentity({parts[0], parts[1], parts[2]});
    return true;
}

struct Chunk {
    core::StoredIdentity operations[chunk_size];
    int size;
};

// Finds operations with payload, behind the position.
void find_next(const Position& from, std::string_view account, int limit, Chunk& chunk) {
    const Kind& kind = kinds[from.kind];
    const core::Identity after = from.last.get();
    const pg::Table table = pg::open_table(kind.table, pg::Access::look);
    pg::AccountScan scan(table, account, from.at_start ? nullptr : &after);
    chunk.size = 0;
    while (chunk.size < std::min(limit, chunk_size)) {
        HeapTuple tuple = scan.next();
        if (tuple == nullptr) {
            break;
        }
        core::StoredIdentity& next = chunk.operations[chunk.size];
        const bool found = kind.has_payload(table, tuple) && identity_of(table, tuple, kind.table, next);
        if (found && (chunk.size == 0 || chunk.operations[chunk.size - 1].get() != next.get())) {
            chunk.size++; // an operation may have several effects, one after the other
        }
        heap_freetuple(tuple);
    }
    scan.finish();
    pg::close_table(table);
}

std::int64_t erase_chunk(const Kind& kind, const Chunk& chunk) {
    std::int64_t erased = 0;
    for (int i = 0; i < chunk.size; i++) {
        const core::Identity identity = chunk.operations[i].get();
        const LOCKTAG tag = pg::key_lock_tag(identity);
        pg::wait_for_key_lock(tag);
        const std::int64_t rows = kind.erase(identity);
        if (rows == 0) {
            pg::release_key_lock(tag);
        }
        erased += rows;
    }
    return erased;
}

bool has_payload(const store::OutboxRow& row) {
    using namespace store::outbox;
    return !row.nulls[payload] || !row.nulls[headers] || !row.nulls[last_error];
}

// Under the row's lock, for which it waits; false: nothing is left to erase.
bool erase_message(const pg::Table& table, std::int64_t position) {
    using namespace store::outbox;
    store::OutboxRow row;
    while (store::find_message(table, position, row) && has_payload(row)) {
        CHECK_FOR_INTERRUPTS();
        row.clear(payload);
        row.clear(headers);
        row.clear(last_error);
        if (pg::replace_row(table, row.tuple, row.values, row.nulls, count)) {
            return true;
        }
    }
    return false;
}

struct Messages {
    std::int64_t positions[chunk_size];
    int size;
};

// Finds messages of the account with payload, behind the position, and erases them. Returns how many; at_end: there
// are no more.
std::int64_t erase_messages(Position& from, std::string_view account, int limit, bool& at_end) {
    const pg::Table table = pg::open_table(pg::TableId::outbox, pg::Access::change);
    Messages found{};
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::IndexScan scan(table, table.index, {pg::from_int8(1, from.last_position)}, snapshot);
    at_end = false;
    while (!at_end && found.size < std::min(limit, chunk_size)) {
        HeapTuple tuple = scan.next();
        at_end = tuple == nullptr;
        if (at_end) {
            break;
        }
        const store::OutboxRow row = store::read_outbox_row(table, tuple);
        if (!row.nulls[store::outbox::account] && row.text(store::outbox::account) == account && has_payload(row)) {
            found.positions[found.size++] = row.position();
        }
        heap_freetuple(tuple);
    }
    scan.finish();
    UnregisterSnapshot(snapshot);
    std::int64_t erased = 0;
    for (int i = 0; i < found.size; i++) {
        erased += erase_message(table, found.positions[i]) ? 1 : 0;
        from.last_position = found.positions[i] + 1;
    }
    from.last = core::StoredIdentity({account, {}, {}});
    from.at_start = false;
    pg::close_table(table);
    return erased;
}

struct Search {
    std::string_view account;
    std::int64_t left; // rows that may still be erased
    MemoryContext scratch;
    Erased erased;
};

// A part of the search, and on to the next kind where it came to the end of one.
std::int64_t search_messages(Search& s, Position& position) {
    bool at_end = false;
    const std::int64_t erased = erase_messages(position, s.account, static_cast<int>(s.left), at_end);
    if (at_end) {
        position = Position{position.kind + 1};
    }
    return erased;
}

std::int64_t search_operations(Search& s, Position& position, Chunk& chunk) {
    find_next(position, s.account, static_cast<int>(s.left), chunk);
    const std::int64_t erased = erase_chunk(kinds[position.kind], chunk);
    if (chunk.size == 0) {
        position = Position{position.kind + 1};
    } else {
        position.at_start = false;
        position.last = chunk.operations[chunk.size - 1];
    }
    return erased;
}

// From the position to the end of the last kind, or until enough is erased. True: came to the end.
bool search(Search& s, Position& position) {
    auto* chunk = static_cast<Chunk*>(palloc(sizeof(Chunk)));
    while (position.kind < erased_kinds) {
        if (s.left <= 0) {
            return false;
        }
        MemoryContext old = MemoryContextSwitchTo(s.scratch);
        const int kind = position.kind;
        const std::int64_t erased =
            kind == of_messages ? search_messages(s, position) : search_operations(s, position, *chunk);
        MemoryContextSwitchTo(old);
        MemoryContextReset(s.scratch);
        s.erased.rows[kind] += erased;
        s.left -= erased;
    }
    return true;
}

} // namespace

Erased erase(std::string_view account, std::string_view note) {
    Search s{account, pg::settings.batch_size,
             AllocSetContextCreate(CurrentMemoryContext, "pg_idem erase", ALLOCSET_DEFAULT_SIZES)};
    for (int i = 0; i < erased_kinds; i++) {
        s.erased.what[i] = kinds[i].what;
    }
    Position position = resume.last.get().account == account ? resume : Position{};
    const bool from_start = position.at_start && position.kind == 0;
    bool at_end = search(s, position);
    if (at_end && !from_start && s.left == pg::settings.batch_size) {
        // All of it: what was erased before may have been rolled back. Only where this call holds no key lock yet: two
        // calls that took them in another order than that of the search could wait for each other.
        position = Position{};
        at_end = search(s, position);
    }
    resume = at_end ? Position{} : position;
    MemoryContextDelete(s.scratch);

    store::AuditEntry entry{"erase"};
    for (const std::int64_t rows : s.erased.rows) {
        entry.rows += rows;
    }
    entry.account = account;
    entry.note = note;
    if (entry.rows > 0) {
        pg::arm_idle_claim_timeout(); // the key locks are kept to the end of the transaction
    }
    pg::require_durable_commit();
    store::insert_audit(entry, pg::now());
    return s.erased;
}

} // namespace idem::protocol
