#include "pg/sequence.hpp"

#include "pg/errors.hpp"
#include "pg/pg.hpp"
#include "pg/relations.hpp"

extern "C" {
#include "catalog/pg_class.h"
#include "catalog/pg_sequence.h"
#include "commands/sequence.h"
#include "storage/bufmgr.h"
}

namespace idem::pg {

namespace {

constexpr const char* sequence_name = "idem_outbox_position";

Oid sequence_oid() {
    const Oid oid = get_relname_relid(sequence_name, current_schema());
    if (!OidIsValid(oid)) {
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("sequence \"%s\" of extension pg_idem does not exist", sequence_name),
                        errhint("Create the extension again.")));
    }
    return oid;
}

// A session that keeps numbers in stock draws them out of order; one that is not logged begins anew after a crash.
void check_sequence(Oid oid) {
    HeapTuple tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(oid));
    if (!HeapTupleIsValid(tuple)) {
        raise_altered(sequence_name, "is no sequence any more");
    }
    const auto* form = reinterpret_cast<const FormData_pg_sequence*>(GETSTRUCT(tuple));
    const bool sound = form->seqcache == 1 && form->seqincrement > 0 && !form->seqcycle && form->seqtypid == INT8OID;
    ReleaseSysCache(tuple);
    if (!sound) {
        raise_altered(sequence_name, "has another type, a cache, a negative increment, or a cycle");
    }
    if (get_rel_persistence(oid) != RELPERSISTENCE_PERMANENT) {
        raise_altered(sequence_name, "has become unlogged, so that a crash sets it back");
    }
}

} // namespace

std::int64_t next_position() {
    const Oid oid = sequence_oid();
    check_sequence(oid);
    return nextval_internal(oid, false);
}

std::int64_t last_position() {
    Relation sequence = relation_open(sequence_oid(), AccessShareLock);
    const Buffer buffer = ReadBuffer(sequence, 0);
    LockBuffer(buffer, BUFFER_LOCK_SHARE);
    Page page = BufferGetPage(buffer);
    auto* item = reinterpret_cast<HeapTupleHeader>(PageGetItem(page, PageGetItemId(page, FirstOffsetNumber)));
    HeapTupleData tuple{};
    tuple.t_data = item;
    const FormData_pg_sequence_data data = *reinterpret_cast<const FormData_pg_sequence_data*>(GETSTRUCT(&tuple));
    UnlockReleaseBuffer(buffer);
    relation_close(sequence, AccessShareLock);
    return data.is_called ? data.last_value : data.last_value - 1;
}

} // namespace idem::pg
