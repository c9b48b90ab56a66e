#include "pg/table.hpp"

#include "pg/compat.hpp"
#include "pg/errors.hpp"

extern "C" {
#include "storage/bufmgr.h"
}

namespace idem::pg {

namespace {

constinit bool writes_as_owner = false;

// An error ends the other user's turn as well: with the (sub)transaction.
Writing begin_writing(const Table& table, bool speculative) {
    Writing w{};
    if (writes_as_owner) {
        GetUserIdAndSecContext(&w.user, &w.context);
        SetUserIdAndSecContext(table.heap->rd_rel->relowner, w.context | SECURITY_RESTRICTED_OPERATION);
        w.settings_level = NewGUCNestLevel();
    }
    w.estate = CreateExecutorState();
    w.result = makeNode(ResultRelInfo);
    InitResultRelInfo(w.result, table.heap, 0, nullptr, 0); // range table index 0: not of a query
    ExecOpenIndices(w.result, speculative);
    w.slot = MakeSingleTupleTableSlot(RelationGetDescr(table.heap), &TTSOpsVirtual);
    return w;
}

void end_writing(Writing& w) {
    ExecDropSingleTupleTableSlot(w.slot);
    ExecCloseIndices(w.result);
    FreeExecutorState(w.estate);
    if (writes_as_owner) {
        AtEOXact_GUC(false, w.settings_level);
        SetUserIdAndSecContext(w.user, w.context);
    }
}

void fill_slot(TupleTableSlot* slot, const Datum* values, const bool* nulls, int count) {
    ExecClearTuple(slot);
    const int all = slot->tts_tupleDescriptor->natts;
    for (int i = 0; i < all; i++) {
        slot->tts_values[i] = i < count ? values[i] : Datum{0};
        slot->tts_isnull[i] = i < count ? nulls[i] : true;
    }
    ExecStoreVirtualTuple(slot);
}

// As fill_slot, but columns past `count` keep what the old row has.
void fill_slot_over(TupleTableSlot* slot, HeapTuple old, const Datum* values, const bool* nulls, int count) {
    ExecClearTuple(slot);
    heap_deform_tuple(old, slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull);
    for (int i = 0; i < count; i++) {
        slot->tts_values[i] = values[i];
        slot->tts_isnull[i] = nulls[i];
    }
    ExecStoreVirtualTuple(slot);
}

// Only a change that bypassed the key lock (by hand, or by logical replication) can get in the way.
[[noreturn]] void raise_changed_behind(const Table& table) {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("a row of table \"%s\" was changed concurrently without its key lock",
                           RelationGetRelationName(table.heap)),
                    errhint("Change operations only through the functions of pg_idem. Retry the transaction.")));
    pg_unreachable();
}

TM_Result update_tuple(const Table& table, Writing& w, HeapTuple row, const Datum* values, const bool* nulls, int count,
                       bool wait) {
    TM_FailureData failure;
    LockTupleMode lock_mode = LockTupleNoKeyExclusive;
    compat::IndexUpdate indexes;
    fill_slot_over(w.slot, row, values, nulls, count);
    const TM_Result done = table_tuple_update(table.heap, &row->t_self, w.slot, GetCurrentCommandId(true), SnapshotSelf,
                                              InvalidSnapshot, wait, &failure, &lock_mode, &indexes.which);
    if (done == TM_Ok && indexes.any()) {
        list_free(compat::insert_index_tuples(w.result, w.slot, w.estate, true, false, nullptr, NIL,
                                              indexes.only_summarizing()));
    }
    return done;
}

bool replace(const Table& table, HeapTuple row, const Datum* values, const bool* nulls, int count, bool wait) {
    Writing w = begin_writing(table, false);
    const TM_Result done = update_tuple(table, w, row, values, nulls, count, wait);
    end_writing(w);
    if (done != TM_Ok) {
        return false;
    }
    CommandCounterIncrement();
    return true;
}

// False: somebody else has changed it, or, unless we wait, is changing it.
bool remove(const Table& table, ItemPointer tid, bool wait) {
    TM_FailureData failure;
    const TM_Result done = table_tuple_delete(table.heap, tid, GetCurrentCommandId(true), SnapshotSelf, InvalidSnapshot,
                                              wait, &failure, false);
    if (done != TM_Ok) {
        return false;
    }
    CommandCounterIncrement();
    return true;
}

} // namespace

void write_as_owner() {
    writes_as_owner = true;
}

Table open_table(TableId id, Access access) {
    const LOCKMODE mode = access == Access::look ? AccessShareLock : RowExclusiveLock;
    Table table{nullptr, nullptr, access};
    for (;;) {
        const Oid oid = table_oid(id);
        table.heap = try_table_open(oid, mode);
        if (table.heap == nullptr) {
            forget_table(id); // dropped before we had the lock; it may be there again under another OID
            continue;
        }
        if (table_oid(id) == oid) { // checked again if it was altered before we had the lock
            break;
        }
        table_close(table.heap, mode);
    }
    const Oid index = compat::primary_key_index(table.heap);
    if (!OidIsValid(index)) {
        raise_altered(RelationGetRelationName(table.heap), "has lost its primary key");
    }
    table.index = index_open(index, mode);
    return table;
}

void close_table(const Table& table) {
    const LOCKMODE release = table.access == Access::look ? AccessShareLock : NoLock;
    index_close(table.index, release);
    table_close(table.heap, release);
}

Scan::Scan(const Table& opened)
    : snapshot(RegisterSnapshot(GetLatestSnapshot())), heap(opened.heap),
      scan(table_beginscan(opened.heap, SnapshotAny, 0, nullptr)), slot(table_slot_create(opened.heap, nullptr)) {}

HeapTuple Scan::next() {
    if (row != nullptr) {
        heap_freetuple(row);
        row = nullptr;
    }
    while (row == nullptr && table_scan_getnextslot(scan, ForwardScanDirection, slot)) {
        CHECK_FOR_INTERRUPTS();
        if (table_tuple_satisfies_snapshot(heap, slot, snapshot)) {
            row = ExecCopySlotHeapTuple(slot);
        }
    }
    return row;
}

void Scan::finish() {
    ExecDropSingleTupleTableSlot(slot);
    table_endscan(scan);
    UnregisterSnapshot(snapshot);
}

void read_row(const Table& table, HeapTuple row, Datum* values, bool* nulls, int count) {
    TupleDesc desc = RelationGetDescr(table.heap);
    for (int i = 0; i < count; i++) {
        values[i] = heap_getattr(row, i + 1, desc, &nulls[i]);
    }
}

void insert_row(const Table& table, const Datum* values, const bool* nulls, int count) {
    MemoryContext context = CurrentMemoryContext;
    volatile bool duplicate = false;
    PG_TRY();
    {
        Writing w = begin_writing(table, false);
        fill_slot(w.slot, values, nulls, count);
        table_tuple_insert(table.heap, w.slot, GetCurrentCommandId(true), 0, nullptr);
        list_free(compat::insert_index_tuples(w.result, w.slot, w.estate, false, false, nullptr, NIL, false));
        end_writing(w);
    }
    PG_CATCH();
    {
        if (geterrcode() != ERRCODE_UNIQUE_VIOLATION) {
            PG_RE_THROW();
        }
        MemoryContextSwitchTo(context);
        FlushErrorState();
        duplicate = true;
    }
    PG_END_TRY();
    if (duplicate) {
        raise_changed_behind(table); // another error in place of 23505: the transaction ends all the same
    }
    CommandCounterIncrement();
}

void update_row(const Table& table, HeapTuple row, const Datum* values, const bool* nulls, int count) {
    if (!replace_row(table, row, values, nulls, count)) {
        raise_changed_behind(table);
    }
}

bool replace_row(const Table& table, HeapTuple row, const Datum* values, const bool* nulls, int count) {
    return replace(table, row, values, nulls, count, true);
}

bool try_replace_row(const Table& table, HeapTuple row, const Datum* values, const bool* nulls, int count) {
    return replace(table, row, values, nulls, count, false);
}

void delete_row(const Table& table, ItemPointer tid) {
    if (!remove(table, tid, true)) {
        raise_changed_behind(table);
    }
}

bool try_delete_row(const Table& table, ItemPointer tid) {
    return remove(table, tid, false);
}

bool remove_row(const Table& table, ItemPointer tid) {
    return remove(table, tid, true);
}

HeapTuple row_at(const Table& table, ItemPointer tid) {
    TupleTableSlot* slot = table_slot_create(table.heap, nullptr);
    HeapTuple row =
        table_tuple_fetch_row_version(table.heap, tid, SnapshotSelf, slot) ? ExecCopySlotHeapTuple(slot) : nullptr;
    ExecDropSingleTupleTableSlot(slot);
    return row;
}

BlockNumber block_count(const Table& table) {
    return RelationGetNumberOfBlocks(table.heap);
}

BlockScan begin_block_scan(const Table& table, BlockNumber first, BlockNumber count) {
    ItemPointerData from;
    ItemPointerData to;
    ItemPointerSet(&from, first, FirstOffsetNumber);
    ItemPointerSet(&to, first + count - 1, MaxOffsetNumber);
    BlockScan scan{};
    scan.slot = table_slot_create(table.heap, nullptr);
    scan.scan = table_beginscan_tidrange(table.heap, SnapshotSelf, &from, &to);
    return scan;
}

bool next_row(BlockScan& scan) {
    return table_scan_getnextslot_tidrange(scan.scan, ForwardScanDirection, scan.slot);
}

void end_block_scan(BlockScan& scan) {
    table_endscan(scan.scan);
    ExecDropSingleTupleTableSlot(scan.slot);
}

SpeculativeInserter::SpeculativeInserter(const Table& opened) : table(opened), writing(begin_writing(opened, true)) {}

// The order of steps is the executor's own for INSERT ... ON CONFLICT DO NOTHING (ExecInsert), without its check that
// the conflicting row is visible to the transaction's snapshot, which fails at REPEATABLE READ.
bool SpeculativeInserter::insert(const Datum* values, const bool* nulls, int count) {
    TupleTableSlot* slot = writing.slot;
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        fill_slot(slot, values, nulls, count);
        ItemPointerData conflict;
        if (!compat::check_index_constraints(writing.result, slot, writing.estate, &conflict, NIL)) {
            ResetPerTupleExprContext(writing.estate);
            return false;
        }
        const uint32 token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
        table_tuple_insert_speculative(table.heap, slot, GetCurrentCommandId(true), 0, nullptr, token);
        bool collided = false;
        list_free(
            compat::insert_index_tuples(writing.result, slot, writing.estate, false, true, &collided, NIL, false));
        table_tuple_complete_speculative(table.heap, slot, token, !collided);
        SpeculativeInsertionLockRelease(GetCurrentTransactionId());
        ResetPerTupleExprContext(writing.estate);
        if (!collided) {
            CommandCounterIncrement();
            return true;
        }
    }
}

void SpeculativeInserter::finish() {
    end_writing(writing);
}

} // namespace idem::pg
