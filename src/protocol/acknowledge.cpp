#include <algorithm>

#include "core/delivery.hpp"
#include "protocol/acknowledge.hpp"

#include "pg/clock.hpp"
#include "pg/index_scan.hpp"
#include "pg/key_lock.hpp"
#include "pg/settings.hpp"
#include "store/datum.hpp"
#include "store/outbox.hpp"

namespace idem::protocol {

namespace {

using store::OutboxRow;
namespace outbox = store::outbox;

// By position, so that calls with the same messages do not wait for each other in a circle; each once.
std::span<core::Receipt> in_order(std::span<core::Receipt> receipts) {
    std::sort(receipts.begin(), receipts.end(), [](const core::Receipt& a, const core::Receipt& b) {
        return a.position != b.position       ? a.position < b.position
               : a.deliveries != b.deliveries ? a.deliveries < b.deliveries
                                              : a.stamp < b.stamp;
    });
    const auto end = std::unique(receipts.begin(), receipts.end());
    return receipts.first(static_cast<std::size_t>(end - receipts.begin()));
}

// Calls change(row) until that has changed the row as it is then, or the receipt is that of another hand-out.
template <typename Change>
bool change_message(const pg::Table& table, const core::Receipt& receipt, Change change) {
    OutboxRow row;
    while (store::find_message(table, receipt.position, row) && row.receipt() == receipt) {
        CHECK_FOR_INTERRUPTS();
        if (change(row)) {
            return true;
        }
    }
    return false;
}

// For each receipt in memory of its own.
template <typename Change>
int change_messages(std::span<core::Receipt> receipts, Change change) {
    const pg::Table table = pg::open_table(pg::TableId::outbox, pg::Access::change);
    MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "pg_idem message", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outer = MemoryContextSwitchTo(scratch);
    int changed = 0;
    for (const core::Receipt& receipt : in_order(receipts)) {
        changed += change_message(table, receipt, [&](OutboxRow& row) { return change(table, row); }) ? 1 : 0;
        MemoryContextReset(scratch);
    }
    MemoryContextSwitchTo(outer);
    MemoryContextDelete(scratch);
    pg::close_table(table);
    return changed;
}

bool replace(const pg::Table& table, const OutboxRow& row) {
    return pg::replace_row(table, row.tuple, row.values, row.nulls, outbox::count);
}

// Aggregates of which this call has given a message back. Two of one hash are taken for one.
class Seen {
public:
    Seen() {
        HASHCTL control = {};
        control.keysize = sizeof(uint64);
        control.entrysize = sizeof(uint64);
        control.hcxt = CurrentMemoryContext;
        hashes = hash_create("pg_idem aggregates", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    }
    bool has(const OutboxRow& row) { return find(row, HASH_FIND); }
    void add(const OutboxRow& row) { (void)find(row, HASH_ENTER); }

private:
    bool find(const OutboxRow& row, HASHACTION action) {
        const LOCKTAG tag = pg::aggregate_lock_tag(row.text(outbox::aggregatetype), row.text(outbox::aggregateid));
        const uint64 hash = pg::hash_of(tag);
        bool found = false;
        (void)hash_search(hashes, &hash, action, &found);
        return found;
    }

    HTAB* hashes;
};

void count_failure(OutboxRow& row, std::string_view error, core::Time now) {
    const std::int32_t failures = row.number(outbox::failures) + 1;
    row.set(outbox::failures, Int32GetDatum(failures));
    row.set(outbox::last_error, store::text_datum(error));
    if (core::is_parked_by(failures, pg::settings.outbox_max_attempts)) {
        row.set(outbox::parked_at, TimestampTzGetDatum(now));
    }
}

} // namespace

int acknowledge(std::span<core::Receipt> receipts) {
    return change_messages(receipts, [](const pg::Table& table, const OutboxRow& row) {
        return pg::remove_row(table, &row.tuple->t_self);
    });
}

int give_back(std::span<core::Receipt> receipts, const GiveBackCall& call) {
    Seen seen;
    return change_messages(receipts, [&](const pg::Table& table, OutboxRow& row) {
        const core::Time now = pg::now();
        row.clear(outbox::leased_until);
        row.set(outbox::due_at, TimestampTzGetDatum(core::later(now, call.retry_after)));
        if (call.error && !seen.has(row)) { // those behind it could not be tried, in order
            count_failure(row, *call.error, now);
        }
        if (!replace(table, row)) {
            return false;
        }
        seen.add(row);
        return true;
    });
}

int retry(std::span<const Datum> ids) {
    const pg::Table table = pg::open_table(pg::TableId::outbox, pg::Access::change);
    Relation parked = pg::open_partial_index(table, {outbox::id}, {outbox::parked_at, false});
    store::List<std::int64_t> positions;
    for (const Datum id : ids) {
        store::find_parked(table, parked, id, positions);
    }
    std::sort(positions.items, positions.items + positions.size);
    int changed = 0;
    for (int i = 0; i < positions.size; i++) {
        OutboxRow row;
        while (store::find_message(table, positions.items[i], row) && row.facts().parked) {
            CHECK_FOR_INTERRUPTS();
            row.clear(outbox::parked_at);
            row.clear(outbox::due_at);
            row.set(outbox::failures, Int32GetDatum(0));
            if (replace(table, row)) {
                changed++;
                break;
            }
        }
    }
    pg::close_index(table, parked);
    pg::close_table(table);
    return changed;
}

} // namespace idem::protocol
