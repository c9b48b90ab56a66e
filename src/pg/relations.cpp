#include <cstring>
#include <span>

#include "pg/relations.hpp"
#include "pg/errors.hpp"
#include "store/columns.hpp"

extern "C" {
#include "catalog/pg_enum.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_am.h"
}

namespace idem::pg {

namespace {

struct Cache {
    Oid function = InvalidOid; // the last one called ...
    Oid schema = InvalidOid;   // ... and its schema
    Oid table[table_count] = {};
    bool checked[table_count] = {};
};
constinit Cache cache;

void forget_tables() noexcept {
    for (int i = 0; i < table_count; i++) {
        cache.table[i] = InvalidOid;
        cache.checked[i] = false;
    }
}

void on_relation_change(Datum, Oid relation) {
    if (relation == InvalidOid) {
        forget_tables();
        return;
    }
    for (int i = 0; i < table_count; i++) {
        if (cache.table[i] == relation) {
            cache.table[i] = InvalidOid;
            cache.checked[i] = false;
        }
    }
}

[[noreturn]] void raise_altered(Relation rel, const char* how) {
    pg::raise_altered(RelationGetRelationName(rel), how);
}

bool has_trigger_of_others(Relation rel, TableId id) {
    const TriggerDesc* triggers = rel->trigdesc;
    return triggers != nullptr && triggers->numtriggers > 0 && id != TableId::policies;
}

void check_columns(Relation rel, std::span<const Column> columns) {
    TupleDesc desc = RelationGetDescr(rel);
    if (desc->natts < static_cast<int>(columns.size())) {
        raise_altered(rel, "has lost a column");
    }
    for (int i = 0; i < desc->natts; i++) {
        const FormData_pg_attribute* att = TupleDescAttr(desc, i);
        if (i < static_cast<int>(columns.size())) {
            const Column& expected = columns[i];
            if (att->attisdropped || std::strcmp(NameStr(att->attname), expected.name) != 0 ||
                att->atttypid != expected.type) {
                raise_altered(rel, "has a column that was dropped, renamed, or changed");
            }
            if (att->attnotnull != expected.not_null) {
                raise_altered(rel, "has a changed NOT NULL constraint");
            }
        } else if (!att->attisdropped && att->attnotnull) {
            raise_altered(rel, "has an added NOT NULL constraint");
        }
        if (att->atthasdef || att->attgenerated != '\0' || att->attidentity != '\0') {
            raise_altered(rel, "has a default or a generated column");
        }
    }
}

bool is_key_column(Relation index, int n, int column, const PrimaryKey& key) {
    const Oid collation = index->rd_indcollation[n]; // none: of a type that has none
    return index->rd_index->indkey.values[n] == key.first + column &&
           (!OidIsValid(collation) || collation == key.collation);
}

bool holds_column(Relation index, int column, const PrimaryKey& key) {
    for (int n = 0; n < index->rd_index->indnkeyatts; n++) {
        if (is_key_column(index, n, column, key)) {
            return true;
        }
    }
    return false;
}

// A unique index must hold the whole key, as copies of the primary key do that REINDEX CONCURRENTLY makes.
bool may_refuse_rows(Relation index, const PrimaryKey& key) {
    const FormData_pg_index* form = index->rd_index;
    if (form->indisexclusion) {
        return true;
    }
    for (int column = 0; form->indisunique && column < key.columns; column++) {
        if (!holds_column(index, column, key)) {
            return true;
        }
    }
    return false;
}

bool is_on_key(Relation index, const PrimaryKey& key) {
    if (index->rd_index->indnkeyatts != key.columns) {
        return false;
    }
    for (int n = 0; n < key.columns; n++) {
        if (!is_key_column(index, n, n, key)) {
            return false;
        }
    }
    return true;
}

void check_indexes(Relation rel, TableId id) {
    const PrimaryKey key = store::key_of(id);
    ListCell* cell = nullptr;
    List* indexes = RelationGetIndexList(rel);
    foreach (cell, indexes) {
        Relation index = index_open(lfirst_oid(cell), AccessShareLock);
        if (may_refuse_rows(index, key)) {
            raise_altered(rel, "has an added unique or exclusion constraint");
        }
        if (index->rd_index->indisprimary && !is_on_key(index, key)) {
            raise_altered(rel, "has another primary key");
        }
        index_close(index, AccessShareLock);
    }
    list_free(indexes);
}

// False: dropped meanwhile.
bool check_table(Oid oid, TableId id) {
    Relation rel = try_table_open(oid, AccessShareLock);
    if (rel == nullptr) {
        return false;
    }
    const FormData_pg_class* form = rel->rd_rel;
    if (form->relkind != RELKIND_RELATION || form->relam != HEAP_TABLE_AM_OID) {
        raise_altered(rel, "has another kind or access method");
    }
    if (form->relispartition) {
        raise_altered(rel, "has become a partition");
    }
    if (form->relpersistence != RELPERSISTENCE_PERMANENT && !RecoveryInProgress()) {
        raise_altered(rel, "has become unlogged, so that a crash empties it");
    }
    if (has_trigger_of_others(rel, id)) {
        raise_altered(rel, "has a trigger or a foreign key");
    }
    if (form->relrowsecurity && id != TableId::policies) {
        raise_altered(rel, "has row-level security");
    }
    if (form->relhasrules && id != TableId::policies) {
        raise_altered(rel, "has a rule");
    }
    const TupleConstr* constraints = RelationGetDescr(rel)->constr;
    if (constraints != nullptr && constraints->num_check > 0 && id != TableId::policies) {
        raise_altered(rel, "has a CHECK constraint");
    }
    if (id != TableId::policies) {
        check_columns(rel, store::columns_of(id));
        check_indexes(rel, id);
    }
    table_close(rel, AccessShareLock);
    return true;
}

} // namespace

void enter_extension(FunctionCallInfo fcinfo) {
    const Oid function = fcinfo->flinfo->fn_oid;
    if (function == cache.function) {
        return;
    }
    enter_schema(get_func_namespace(function));
    cache.function = function;
}

Oid current_schema() {
    return cache.schema;
}

void enter_schema(Oid schema) {
    if (schema != cache.schema) {
        forget_tables();
        cache.schema = schema;
    }
    cache.function = InvalidOid;
}

namespace {

[[noreturn]] void raise_missing(TableId id) {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                    errmsg("table \"%s\" of extension pg_idem does not exist", store::name_of(id)),
                    errhint("Create the extension again.")));
    pg_unreachable();
}

void find_table(TableId id) {
    const Oid oid = get_relname_relid(store::name_of(id), cache.schema);
    if (!OidIsValid(oid)) {
        raise_missing(id);
    }
    cache.table[static_cast<int>(id)] = oid;
}

} // namespace

Oid table_oid(TableId id) {
    const int i = static_cast<int>(id);
    if (!OidIsValid(cache.table[i])) {
        find_table(id);
    }
    if (cache.checked[i]) {
        return cache.table[i];
    }
    const Oid oid = cache.table[i];
    volatile bool exists = false;
    cache.checked[i] = true; // before the look: an invalidation that arrives meanwhile clears it again
    PG_TRY();
    {
        exists = check_table(oid, id);
    }
    PG_CATCH();
    {
        cache.checked[i] = false;
        PG_RE_THROW();
    }
    PG_END_TRY();
    if (!exists) {
        forget_table(id);
        raise_missing(id);
    }
    return oid;
}

Oid named_table(TableId id) {
    return get_relname_relid(store::name_of(id), cache.schema);
}

void forget_table(TableId id) {
    cache.table[static_cast<int>(id)] = InvalidOid;
    cache.checked[static_cast<int>(id)] = false;
}

Oid enum_label(Oid type, const char* label) {
    const Oid oid = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid, ObjectIdGetDatum(type), CStringGetDatum(label));
    if (!OidIsValid(oid)) {
        elog(ERROR, "enum label \"%s\" of pg_idem does not exist", label);
    }
    return oid;
}

void init_relations() {
    CacheRegisterRelcacheCallback(on_relation_change, Datum{0});
}

} // namespace idem::pg
