// Direct access to our tables: an index probe on the primary key, insert, update and delete through the table access
// method, always into all indexes. No SQL text is run. What it must not be used on is refused by table_oid().
//
// Everything here may raise; callers keep no destructor alive.
#pragma once

#include "core/identity.hpp"
#include "pg/pg.hpp"
#include "pg/relations.hpp"

namespace idem::pg {

// What the caller is going to do with the table, and so which lock it takes on it. A row's TID stays true only as long
// as the lock is kept: VACUUM FULL, CLUSTER and ALTER TABLE rewrite the table.
enum class Access : std::uint8_t {
    look,   // AccessShareLock, let go of at close
    change, // RowExclusiveLock, kept to the end of the transaction: rows that are found may be changed
};

// An opened table with its primary key index. Trivial: close it by hand (an error closes it by itself).
struct Table {
    Relation heap;
    Relation index;
    Access access;
};

// Raises 42P01 when the extension has been dropped meanwhile.
Table open_table(TableId id, Access access);
void close_table(const Table& table);

// Every row that the latest MVCC snapshot sees, in physical order. No predicate locks, as above.
class Scan {
public:
    explicit Scan(const Table& opened);
    HeapTuple next(); // good until the next call; nullptr: no more
    void finish();

private:
    Snapshot snapshot;
    Relation heap;
    TableScanDesc scan;
    TupleTableSlot* slot;
    HeapTuple row = nullptr;
};

// The first `count` columns of a row; values point into `row`.
void read_row(const Table& table, HeapTuple row, Datum* values, bool* nulls, int count);

// The first `count` columns are given; further ones, added by a DBA, are NULL. Raises 40001 on a duplicate key: under
// the key lock there is none, unless the table was changed behind it.
void insert_row(const Table& table, const Datum* values, const bool* nulls, int count);

// Replaces the first `count` columns of `row`, found before. The caller holds the key lock.
void update_row(const Table& table, HeapTuple row, const Datum* values, const bool* nulls, int count);

// The caller holds the key lock.
void delete_row(const Table& table, ItemPointer tid);

// The version at `tid` that SnapshotSelf sees, copied; nullptr: there is none any more. A TID found earlier in this
// transaction names the same row still, or none, as long as a snapshot that is older than the finding is held: it keeps
// the place from being used again.
HeapTuple row_at(const Table& table, ItemPointer tid);

// As delete_row, but without waiting, and no key lock is needed: the row lock decides. False: somebody else has it.
bool try_delete_row(const Table& table, ItemPointer tid);

// Rows of a range of blocks in physical order, as SnapshotSelf sees them. The slot's values point into the page.
struct BlockScan {
    TableScanDesc scan;
    TupleTableSlot* slot;
};
BlockNumber block_count(const Table& table);
BlockScan begin_block_scan(const Table& table, BlockNumber first, BlockNumber count);
bool next_row(BlockScan& scan);
void end_block_scan(BlockScan& scan);

// From now on this process writes each table as its owner, with restricted rights: an index that somebody added may
// call functions of its owner. For workers, which run as a superuser.
void write_as_owner();

// What a direct insert or update into all indexes needs.
struct Writing {
    Oid user;
    int context;
    int settings_level;
    EState* estate;
    ResultRelInfo* result;
    TupleTableSlot* slot;
};

// Inserts rows unless their key is there, one after the other, waiting for an insertion of the same key that is in
// flight: the unique indexes decide, all of them (REINDEX CONCURRENTLY adds one for a while). No key lock is needed.
class SpeculativeInserter {
public:
    explicit SpeculativeInserter(const Table& opened);
    // True: inserted. False: there is a committed row (or one of our own) of that key.
    bool insert(const Datum* values, const bool* nulls, int count);
    void finish();

private:
    Table table;
    Writing writing;
};

// Replaces `row` if it is still the current version, after waiting for a transaction that is changing it. False:
// somebody else changed it; look again. No key lock is needed: the row lock decides.
bool replace_row(const Table& table, HeapTuple row, const Datum* values, const bool* nulls, int count);

// As replace_row, but without waiting. False: somebody else has changed it, or is changing it.
bool try_replace_row(const Table& table, HeapTuple row, const Datum* values, const bool* nulls, int count);

// Deletes the version at `tid` if it is still the current one, after waiting for a transaction that is changing it. No
// key lock is needed. False: somebody else changed it; look again.
bool remove_row(const Table& table, ItemPointer tid);

} // namespace idem::pg
