#include "pg/extension.hpp"

#include "pg/idle_claim.hpp"
#include "pg/relations.hpp"

extern "C" {
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "utils/fmgroids.h"
}

namespace idem::pg {

namespace {

constexpr const char* extension_name = "pg_idem";

Oid schema_of_extension(Oid extension) {
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
    Relation rel = table_open(ExtensionRelationId, AccessShareLock);
    SysScanDesc scan = systable_beginscan(rel, ExtensionOidIndexId, true, nullptr, 1, &key);
    HeapTuple tuple = systable_getnext(scan);
    const Oid schema = HeapTupleIsValid(tuple)
                           ? reinterpret_cast<const FormData_pg_extension*>(GETSTRUCT(tuple))->extnamespace
                           : InvalidOid;
    systable_endscan(scan);
    table_close(rel, AccessShareLock);
    return schema;
}

} // namespace

ExtensionState lock_extension() {
    const Oid extension = get_extension_oid(extension_name, true);
    if (!OidIsValid(extension)) {
        return ExtensionState::absent;
    }
    if (!ConditionalLockDatabaseObject(ExtensionRelationId, extension, 0, ShareUpdateExclusiveLock)) {
        return ExtensionState::busy;
    }
    const Oid schema = schema_of_extension(extension);
    if (!OidIsValid(schema)) { // dropped before we had the lock
        return ExtensionState::absent;
    }
    enter_schema(schema);
    return ExtensionState::locked;
}

namespace {

constinit bool has_waited = false; // this transaction holds the lock for a call of ours

// A prepared transaction would keep every pass away until somebody ends it.
void on_transaction(XactEvent event, void*) {
    if (event == XACT_EVENT_PRE_PREPARE && has_waited) {
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                        errmsg("cannot prepare a transaction that has called idem_maintain")));
    }
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT) {
        has_waited = false;
    }
}

} // namespace

void init_extension() {
    RegisterXactCallback(on_transaction, nullptr);
}

void wait_for_extension_lock() {
    has_waited = true;
    arm_idle_claim_timeout(); // no pass runs until this transaction ends
    const Oid extension = get_extension_oid(extension_name, false);
    LockDatabaseObject(ExtensionRelationId, extension, 0, ShareUpdateExclusiveLock);
}

} // namespace idem::pg
