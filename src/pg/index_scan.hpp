// Rows of our tables by index: probes, and scans in the order of an index. No kind of snapshot takes predicate locks,
// so that unrelated keys do not conflict at SERIALIZABLE.
//
// Everything here may raise; callers keep no destructor alive.
#pragma once

#include <initializer_list>
#include <string_view>

#include "core/identity.hpp"
#include "pg/table.hpp"

namespace idem::pg {

// Conditions on the columns of an index, counted from 1. What they point to lives as long as the scan.
ScanKeyData equals_text(int column, std::string_view text); // COLLATE "C"
ScanKeyData equals_uuid(int column, Datum uuid);
ScanKeyData equals_int8(int column, int64 number);
ScanKeyData from_int8(int column, int64 number); // >=

// The index on exactly these columns of the table, in this order, opened with the table's lock; close_index() closes
// it. Raises 0A000 where there is none (any more).
Relation open_index(const Table& table, std::initializer_list<int> fields);
// The same for an index that holds only the rows in which `field` is NULL, or is not.
struct Where {
    int field;
    bool is_null;
};
Relation open_partial_index(const Table& table, std::initializer_list<int> fields, Where where);
void close_index(const Table& table, Relation index);

// Rows in the order of an index. With SnapshotSelf, a row that is just being updated may be missed: "none" is believed
// only under the key lock. An MVCC snapshot misses nothing; it is the caller's, and lives as long as the scan.
class IndexScan {
public:
    IndexScan(const Table& table, Relation index, std::initializer_list<ScanKeyData> conditions, Snapshot seen_by);
    HeapTuple next();       // copied into the current memory context, with its TID; nullptr: no more
    TupleTableSlot* step(); // the same row in its page: good until the next call
    void finish();

private:
    Snapshot snapshot; // nullptr: the scan's own is the judge
    TupleTableSlot* slot;
    IndexScanDesc scan;
};

// The row of `identity` that `snapshot` sees, copied into the current memory context with its TID; nullptr: none.
// With SnapshotSelf, a row that is just being updated may be missed: "none" is believed only under the key lock.
HeapTuple find_row(const Table& table, const core::Identity& identity, Snapshot snapshot);

// The same for a table whose primary key is one text column.
HeapTuple find_row_by_text(const Table& table, std::string_view key, Snapshot snapshot);

// Rows of one account that are committed by now, or our own, in the order of action and key. For a table whose primary
// key is the identity. Takes no predicate locks either.
class AccountScan {
public:
    // after: from just behind this action and key on; nullptr: from the first.
    AccountScan(const Table& opened, std::string_view account, const core::Identity* after);
    HeapTuple next(); // copied into the current memory context; nullptr: no more
    void finish();

private:
    Snapshot snapshot;
    IndexScan scan;
};

} // namespace idem::pg
