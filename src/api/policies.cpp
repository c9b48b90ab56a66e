// Triggers of the table idem_policies.
#include <cstring>

#include "pg/entry.hpp"

#include "pg/errors.hpp"

namespace idem::api {

namespace {

TriggerData* trigger_data(FunctionCallInfo fcinfo) {
    if (!CALLED_AS_TRIGGER(fcinfo)) {
        ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("not called by trigger manager")));
    }
    return reinterpret_cast<TriggerData*>(fcinfo->context);
}

int column_number(TupleDesc desc, const char* name) {
    for (int i = 0; i < desc->natts; i++) {
        const FormData_pg_attribute* att = TupleDescAttr(desc, i);
        if (!att->attisdropped && std::strcmp(NameStr(att->attname), name) == 0) {
            return i + 1;
        }
    }
    return 0;
}

// Every session hears of it when the change commits, and reads the policies again.
Datum policies_changed(FunctionCallInfo fcinfo) {
    CacheInvalidateRelcache(trigger_data(fcinfo)->tg_relation);
    return PointerGetDatum(nullptr);
}

// Who may write this table must not become another role through it.
Datum policies_check(FunctionCallInfo fcinfo) {
    const TriggerData* trigger = trigger_data(fcinfo);
    if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || !TRIGGER_FIRED_BEFORE(trigger->tg_event)) {
        ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                        errmsg("trigger must be BEFORE ... FOR EACH ROW")));
    }
    HeapTuple row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
    TupleDesc desc = RelationGetDescr(trigger->tg_relation);
    const int column = column_number(desc, "handler_role");
    bool is_null = true;
    if (column > 0 && TupleDescAttr(desc, column - 1)->atttypid != TEXTOID) {
        pg::raise_altered(RelationGetRelationName(trigger->tg_relation), "has a column of another type");
    }
    const Datum value = column > 0 ? heap_getattr(row, column, desc, &is_null) : Datum{0};
    if (is_null) {
        return PointerGetDatum(row);
    }
    const char* name = TextDatumGetCString(value);
    if (name[0] == '\0') {
        return PointerGetDatum(row);
    }
    const Oid role = get_role_oid(name, true);
    if (!OidIsValid(role)) {
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("role \"%s\" does not exist", name)));
    }
    if (superuser_arg(role)) {
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("handler_role must not be a superuser")));
    }
    if (!is_member_of_role(GetUserId(), role)) {
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("must be a member of role \"%s\" to make it handler_role", name)));
    }
    return PointerGetDatum(row);
}

PG_IDEM_FUNCTION(policies_changed);
PG_IDEM_FUNCTION(policies_check);

} // namespace

} // namespace idem::api
