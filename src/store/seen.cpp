#include "store/seen.hpp"

#include "pg/clock.hpp"
#include "pg/index_scan.hpp"
#include "store/columns.hpp"
#include "store/datum.hpp"

namespace idem::store {

namespace {

struct SeenRow {
    Datum values[seen::count] = {};
    bool nulls[seen::count] = {};
};

SeenRow row_of(const core::Identity& identity, const core::Fingerprint& fingerprint, core::Time now,
               core::Duration once_retention) {
    SeenRow row;
    row.values[seen::seen_at] = TimestampTzGetDatum(now);
    row.values[seen::forget_at] = TimestampTzGetDatum(core::later(now, once_retention));
    row.values[seen::account] = text_datum(identity.account);
    row.values[seen::action] = text_datum(identity.action);
    row.values[seen::key] = text_datum(identity.key);
    row.nulls[seen::fingerprint] = !fingerprint;
    if (fingerprint) {
        row.values[seen::fingerprint] = bytea_datum(*fingerprint);
    }
    return row;
}

Seen compare(const SeenRow& stored, const core::Fingerprint& given) {
    if (stored.nulls[seen::fingerprint]) {
        return Seen::duplicate;
    }
    if (!given) {
        return Seen::fingerprint_missing;
    }
    return view_of(stored.values[seen::fingerprint]) == *given ? Seen::duplicate : Seen::mismatch;
}

} // namespace

SeenWriter::SeenWriter(const core::Policy& policy)
    : table(pg::open_table(pg::TableId::seen, pg::Access::change)), inserter(table),
      once_retention(policy.once_retention) {}

Seen SeenWriter::record(const core::Identity& identity, const core::Fingerprint& fingerprint) {
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        const SeenRow row = row_of(identity, fingerprint, pg::now(), once_retention);
        if (inserter.insert(row.values, row.nulls, seen::count)) {
            return Seen::first;
        }
        // A committed row, or one of our own. It may be missed while a rival replaces it: then the insertion is tried
        // again, and waits for that rival.
        HeapTuple tuple = pg::find_row(table, identity, SnapshotSelf);
        if (tuple == nullptr) {
            continue;
        }
        SeenRow stored;
        pg::read_row(table, tuple, stored.values, stored.nulls, seen::count);
        if (pg::now() < DatumGetTimestampTz(stored.values[seen::forget_at])) {
            return compare(stored, fingerprint);
        }
        // Forgotten, and still there: ours, unless a rival was quicker.
        if (pg::replace_row(table, tuple, row.values, row.nulls, seen::count)) {
            return Seen::first;
        }
    }
}

core::Time seen_forget_at(TupleTableSlot* slot) {
    bool is_null = false;
    return DatumGetTimestampTz(slot_getattr(slot, seen::forget_at + 1, &is_null));
}

SeenAt seen_at(const pg::Table& table, ItemPointer tid, const core::Identity& identity) {
    HeapTuple tuple = pg::row_at(table, tid);
    if (tuple == nullptr) {
        return {};
    }
    SeenRow row;
    pg::read_row(table, tuple, row.values, row.nulls, seen::count);
    const bool same = view_of(row.values[seen::account]) == identity.account &&
                      view_of(row.values[seen::action]) == identity.action &&
                      view_of(row.values[seen::key]) == identity.key;
    return {same, DatumGetTimestampTz(row.values[seen::forget_at])};
}

void SeenWriter::finish() {
    inserter.finish();
    pg::close_table(table);
}

} // namespace idem::store
