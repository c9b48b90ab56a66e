#include <algorithm>

#include "core/delivery.hpp"
#include "protocol/hand_out.hpp"

#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/idle_claim.hpp"
#include "pg/index_scan.hpp"
#include "pg/key_lock.hpp"
#include "pg/settings.hpp"
#include "store/datum.hpp"
#include "store/outbox_floor.hpp"

namespace idem::protocol {

namespace {

using store::OutboxRow;
namespace outbox = store::outbox;

constexpr const char* lease_ran_out = "lease ran out before an acknowledgement";

// Locks on aggregates that the current transaction keeps. Some may have gone with a savepoint: then there are fewer.
struct Kept {
    FullTransactionId transaction{}; // invalid
    int locks = 0;
};
constinit Kept kept;

int locks_kept() {
    const FullTransactionId current = GetTopFullTransactionIdIfAny();
    return FullTransactionIdIsValid(current) && FullTransactionIdEquals(current, kept.transaction) ? kept.locks : 0;
}

// An aggregate that the walk has met.
struct Aggregate {
    uint64 hash; // the key; two aggregates of one hash have one lock
    Aggregate* met_before;
    LOCKTAG tag;
    std::string_view type;
    std::string_view id;
    bool open;    // we have its lock, and nothing has ended its turn
    bool counted; // as a lock that this call has added to those of the transaction
    bool written; // to keep the lock
    bool at_head; // no message was handed out, or failed, before this one
    // What was read of it under its lock, and is not handed out.
    OutboxRow* rows;
    int next;
    int size;
    int chunk;
    bool at_end;
    std::int64_t read_from;
};

class HandOut {
public:
    explicit HandOut(const HandOutCall& asked)
        : call(asked), now(pg::now()), table(pg::open_table(pg::TableId::outbox, pg::Access::change)),
          by_aggregate(pg::open_index(table, {outbox::aggregatetype, outbox::aggregateid, outbox::position})),
          leased(pg::open_partial_index(table, {outbox::aggregatetype, outbox::aggregateid},
                                        {outbox::leased_until, false})),
          floor(store::begin_floor_walk(table, asked.filter)), locks(locks_kept()), aggregates(new_aggregates()),
          taken(static_cast<OutboxRow*>(
              MemoryContextAllocHuge(CurrentMemoryContext, sizeof(OutboxRow) * static_cast<Size>(asked.batch)))) {}

    std::span<OutboxRow> walk();

private:
    static HTAB* new_aggregates();
    bool matches(std::string_view type) const;
    bool meet(TupleTableSlot* slot);
    Aggregate* find(std::string_view type, std::string_view id);
    void open(Aggregate& a, std::string_view type, std::string_view id);
    void close(Aggregate& a);
    OutboxRow* front(Aggregate& a);
    void offer(Aggregate& a, OutboxRow& row);
    bool write(Aggregate& a, const OutboxRow& row);
    bool is_full() const { return size == call.batch; }

    const HandOutCall& call;
    core::Time now;
    pg::Table table;
    Relation by_aggregate;
    Relation leased;
    store::FloorWalk& floor;
    int locks;
    HTAB* aggregates;
    Aggregate* last_met = nullptr;
    OutboxRow* taken;
    int size = 0;
};

HTAB* HandOut::new_aggregates() {
    HASHCTL control = {};
    control.keysize = sizeof(uint64);
    control.entrysize = sizeof(Aggregate);
    control.hcxt = CurrentMemoryContext;
    return hash_create("pg_idem aggregates", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

bool HandOut::matches(std::string_view type) const {
    return !call.aggregatetypes || std::binary_search(call.aggregatetypes->begin(), call.aggregatetypes->end(), type);
}

std::string_view copy_of(std::string_view text) {
    return {pnstrdup(text.data(), text.size()), text.size()};
}

// nullptr: no more aggregates in this transaction.
Aggregate* HandOut::find(std::string_view type, std::string_view id) {
    const LOCKTAG tag = pg::aggregate_lock_tag(type, id);
    const uint64 hash = pg::hash_of(tag);
    bool found = false;
    if (auto* known = static_cast<Aggregate*>(hash_search(aggregates, &hash, HASH_FIND, &found))) {
        return known;
    }
    if (locks >= pg::settings.max_claims_per_transaction) {
        return nullptr;
    }
    auto* a = static_cast<Aggregate*>(hash_search(aggregates, &hash, HASH_ENTER, &found));
    *a = Aggregate{.hash = hash, .met_before = last_met, .tag = tag, .at_head = true, .chunk = 1};
    last_met = a;
    open(*a, type, id);
    return a;
}

void HandOut::open(Aggregate& a, std::string_view type, std::string_view id) {
    a.type = copy_of(type);
    a.id = copy_of(id);
    a.read_from = PG_INT64_MIN;
    const bool held = pg::holds_key_lock(a.tag);
    a.open = pg::try_key_lock(a.tag);
    a.counted = a.open && !held;
    locks += a.counted ? 1 : 0;
    // Before it may stand one that has committed late, or was given back alone: not for anybody else either.
    if (a.open && store::is_any_leased(table, leased, type, id, now)) {
        close(a);
    }
}

void HandOut::close(Aggregate& a) {
    if (a.open && !a.written) {
        pg::release_key_lock(a.tag);
        locks -= a.counted ? 1 : 0;
    }
    a.open = false;
}

// The next message of the aggregate, read under a snapshot that is younger than its lock. They are read in chunks that
// grow: a batch has few of each of many aggregates, or many of few.
OutboxRow* HandOut::front(Aggregate& a) {
    if (a.next == a.size && !a.at_end) {
        a.rows = static_cast<OutboxRow*>(palloc(sizeof(OutboxRow) * static_cast<Size>(a.chunk)));
        a.size = store::read_aggregate(table, by_aggregate, a.type, a.id, a.read_from, a.rows, a.chunk);
        a.next = 0;
        a.at_end = a.size < a.chunk;
        a.chunk = std::min(a.chunk * 2, call.batch);
        if (a.size > 0) {
            a.read_from = a.rows[a.size - 1].position() + 1;
        }
    }
    return a.next < a.size ? &a.rows[a.next] : nullptr;
}

// Without waiting: somebody who is changing the row, as a late acknowledgement does, ends the aggregate's turn.
bool HandOut::write(Aggregate& a, const OutboxRow& row) {
    if (!pg::try_replace_row(table, row.tuple, row.values, row.nulls, outbox::count)) {
        close(a);
        return false;
    }
    a.written = true;
    return true;
}

void HandOut::offer(Aggregate& a, OutboxRow& row) {
    const core::Readiness readiness = core::readiness(row.facts(), now, pg::settings.outbox_skip_parked);
    if (readiness == core::Readiness::pass_over) {
        return;
    }
    if (readiness == core::Readiness::blocked) {
        close(a);
        return;
    }
    if (readiness == core::Readiness::lease_over && a.at_head) {
        // Those behind it could not be tried, in order.
        const std::int32_t failures = row.number(outbox::failures) + 1;
        row.set(outbox::failures, Int32GetDatum(failures));
        row.set(outbox::last_error, store::text_datum(lease_ran_out));
        if (core::is_parked_by(failures, pg::settings.outbox_max_attempts)) {
            row.clear(outbox::leased_until);
            row.set(outbox::parked_at, TimestampTzGetDatum(now));
            a.at_head = false;
            if (write(a, row) && !pg::settings.outbox_skip_parked) {
                close(a);
            }
            return;
        }
    }
    a.at_head = false;
    row.set(outbox::deliveries, Int32GetDatum(row.number(outbox::deliveries) + 1));
    row.set(outbox::leased_until, TimestampTzGetDatum(core::later(now, call.lease)));
    row.clear(outbox::due_at);
    if (write(a, row)) {
        taken[size++] = row;
    }
}

// Hands out what there is of the row's aggregate, up to that row. False: the batch ends.
bool HandOut::meet(TupleTableSlot* slot) {
    bool is_null = false;
    const std::string_view type = store::view_of(slot_getattr(slot, outbox::aggregatetype + 1, &is_null));
    const std::string_view id = store::view_of(slot_getattr(slot, outbox::aggregateid + 1, &is_null));
    if (!matches(type) || type.size() > store::max_message_name_bytes || id.size() > store::max_message_name_bytes) {
        return true; // too long: written by hand
    }
    const std::int64_t position = DatumGetInt64(slot_getattr(slot, outbox::position + 1, &is_null));
    floor.saw(position);
    Aggregate* a = find(type, id);
    if (a == nullptr) {
        return false;
    }
    if (a->type != type || a->id != id) {
        return true;
    }
    while (a->open && !is_full()) {
        OutboxRow* row = front(*a);
        if (row == nullptr) {
            close(*a); // nothing of it is left: a lock that has written nothing counts no more
            break;
        }
        if (row->position() > position) {
            break;
        }
        a->next++;
        offer(*a, *row);
    }
    return !is_full();
}

std::span<OutboxRow> HandOut::walk() {
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::IndexScan scan(table, table.index, {pg::from_int8(1, floor.from())}, snapshot);
    TupleTableSlot* slot = scan.step();
    while (slot != nullptr && meet(slot)) {
        slot = scan.step();
    }
    scan.finish();
    UnregisterSnapshot(snapshot);
    floor.end();
    bool written = false;
    for (Aggregate* a = last_met; a != nullptr; a = a->met_before) {
        written |= a->written;
        close(*a);
    }
    if (written) {
        kept = {GetTopFullTransactionId(), locks};
        pg::arm_idle_claim_timeout();
        pg::require_durable_commit();
    }
    pg::close_index(table, leased);
    pg::close_index(table, by_aggregate);
    pg::close_table(table);
    std::sort(taken, taken + size, [](const OutboxRow& x, const OutboxRow& y) { return x.position() < y.position(); });
    return {taken, static_cast<std::size_t>(size)};
}

} // namespace

std::span<OutboxRow> hand_out(const HandOutCall& call) {
    HandOut work(call);
    return work.walk();
}

} // namespace idem::protocol
