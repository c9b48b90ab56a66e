#include "pg/index_scan.hpp"

#include "pg/compat.hpp"
#include "pg/errors.hpp"

extern "C" {
#include "catalog/pg_am.h"
#include "commands/defrem.h"
}

namespace idem::pg {

namespace {

constexpr int most_conditions = 4;

Datum text_datum(std::string_view part) {
    return PointerGetDatum(cstring_to_text_with_len(part.data(), static_cast<int>(part.size())));
}

ScanKeyData condition(int column, StrategyNumber strategy, RegProcedure function, Datum value,
                      Oid collation = InvalidOid) {
    ScanKeyData key;
    ScanKeyEntryInitialize(&key, 0, static_cast<AttrNumber>(column), strategy, InvalidOid, collation, function, value);
    return key;
}

// (second column, third column) > (action, key): a row comparison, as the executor makes it.
ScanKeyData is_behind(const core::Identity& after) {
    auto* members = static_cast<ScanKeyData*>(palloc0(2 * sizeof(ScanKeyData))); // as long as the scan
    ScanKeyEntryInitialize(&members[0], SK_ROW_MEMBER, 2, BTGreaterStrategyNumber, InvalidOid, C_COLLATION_OID,
                           F_BTTEXTCMP, text_datum(after.action));
    ScanKeyEntryInitialize(&members[1], SK_ROW_MEMBER | SK_ROW_END, 3, BTGreaterStrategyNumber, InvalidOid,
                           C_COLLATION_OID, F_BTTEXTCMP, text_datum(after.key));
    ScanKeyData key{};
    key.sk_flags = SK_ROW_HEADER;
    key.sk_attno = 2;
    key.sk_strategy = BTGreaterStrategyNumber;
    key.sk_argument = PointerGetDatum(members);
    return key;
}

// Ascending, by the usual order of its type, and in the collation of our columns.
bool is_on(Relation index, std::initializer_list<int> fields) {
    const FormData_pg_index* form = index->rd_index;
    if (!form->indisvalid || index->rd_rel->relam != BTREE_AM_OID ||
        form->indnkeyatts != static_cast<int>(fields.size())) {
        return false;
    }
    int n = 0;
    for (const int field : fields) {
        const Oid collation = index->rd_indcollation[n];
        const Oid usual = GetDefaultOpClass(index->rd_opcintype[n], BTREE_AM_OID);
        if (form->indkey.values[n] != field + 1 || index->rd_indoption[n] != 0 ||
            (OidIsValid(collation) && collation != C_COLLATION_OID) || !OidIsValid(usual) ||
            get_opclass_family(usual) != index->rd_opfamily[n]) {
            return false;
        }
        n++;
    }
    return true;
}

// Whether the index holds all rows (where: nullptr), or exactly those.
bool holds(Relation index, const Where* where) {
    List* predicate = RelationGetIndexPredicate(index);
    if (where == nullptr || list_length(predicate) != 1) {
        return where == nullptr && predicate == NIL;
    }
    const auto* test = static_cast<const NullTest*>(linitial(predicate));
    if (!IsA(test, NullTest) || test->nulltesttype != (where->is_null ? IS_NULL : IS_NOT_NULL) ||
        !IsA(test->arg, Var)) {
        return false;
    }
    return reinterpret_cast<const Var*>(test->arg)->varattno == where->field + 1;
}

Relation find_index(const Table& table, std::initializer_list<int> fields, const Where* where) {
    const LOCKMODE mode = table.access == Access::look ? AccessShareLock : RowExclusiveLock;
    List* indexes = RelationGetIndexList(table.heap);
    ListCell* cell = nullptr;
    foreach (cell, indexes) {
        Relation index = index_open(lfirst_oid(cell), mode);
        if (is_on(index, fields) && holds(index, where)) {
            list_free(indexes);
            return index;
        }
        index_close(index, mode);
    }
    raise_altered(RelationGetRelationName(table.heap), "has lost an index");
}

HeapTuple only_row(const Table& table, std::initializer_list<ScanKeyData> conditions, Snapshot snapshot) {
    IndexScan scan(table, table.index, conditions, snapshot);
    HeapTuple row = scan.next();
    scan.finish();
    return row;
}

} // namespace

ScanKeyData equals_text(int column, std::string_view text) {
    return condition(column, BTEqualStrategyNumber, F_TEXTEQ, text_datum(text), C_COLLATION_OID);
}

ScanKeyData equals_uuid(int column, Datum uuid) {
    return condition(column, BTEqualStrategyNumber, F_UUID_EQ, uuid);
}

ScanKeyData equals_int8(int column, int64 number) {
    return condition(column, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(number));
}

ScanKeyData from_int8(int column, int64 number) {
    return condition(column, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(number));
}

Relation open_index(const Table& table, std::initializer_list<int> fields) {
    return find_index(table, fields, nullptr);
}

Relation open_partial_index(const Table& table, std::initializer_list<int> fields, Where where) {
    return find_index(table, fields, &where);
}

void close_index(const Table& table, Relation index) {
    index_close(index, table.access == Access::look ? AccessShareLock : NoLock);
}

// At SERIALIZABLE, where the scan itself would take predicate locks for an MVCC snapshot, that one judges the versions
// that a scan with SnapshotAny comes by. Elsewhere it is the scan's own, which then marks dead index entries as such. A
// scan with SnapshotSelf would miss a row that moves behind it.
IndexScan::IndexScan(const Table& table, Relation index, std::initializer_list<ScanKeyData> conditions,
                     Snapshot seen_by)
    : snapshot(IsMVCCSnapshot(seen_by) && IsolationIsSerializable() ? seen_by : nullptr),
      slot(table_slot_create(table.heap, nullptr)),
      scan(compat::begin_index_scan(table.heap, index, snapshot != nullptr ? SnapshotAny : seen_by,
                                    static_cast<int>(conditions.size()))) {
    ScanKeyData keys[most_conditions];
    int count = 0;
    for (const ScanKeyData& key : conditions) {
        keys[count++] = key;
    }
    index_rescan(scan, keys, count, nullptr, 0);
}

TupleTableSlot* IndexScan::step() {
    while (index_getnext_slot(scan, ForwardScanDirection, slot)) {
        CHECK_FOR_INTERRUPTS();
        if (snapshot == nullptr || table_tuple_satisfies_snapshot(scan->heapRelation, slot, snapshot)) {
            return slot;
        }
    }
    return nullptr;
}

HeapTuple IndexScan::next() {
    return step() == nullptr ? nullptr : ExecCopySlotHeapTuple(slot);
}

void IndexScan::finish() {
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(slot);
}

HeapTuple find_row(const Table& table, const core::Identity& identity, Snapshot snapshot) {
    return only_row(table,
                    {equals_text(1, identity.account), equals_text(2, identity.action), equals_text(3, identity.key)},
                    snapshot);
}

HeapTuple find_row_by_text(const Table& table, std::string_view key, Snapshot snapshot) {
    return only_row(table, {equals_text(1, key)}, snapshot);
}

namespace {

IndexScan scan_of_account(const Table& table, std::string_view account, const core::Identity* after,
                          Snapshot snapshot) {
    if (after == nullptr) {
        return {table, table.index, {equals_text(1, account)}, snapshot};
    }
    return {table, table.index, {equals_text(1, account), is_behind(*after)}, snapshot};
}

} // namespace

AccountScan::AccountScan(const Table& opened, std::string_view account, const core::Identity* after)
    : snapshot(RegisterSnapshot(GetLatestSnapshot())), scan(scan_of_account(opened, account, after, snapshot)) {}

HeapTuple AccountScan::next() {
    return scan.next();
}

void AccountScan::finish() {
    scan.finish();
    UnregisterSnapshot(snapshot);
}

} // namespace idem::pg
