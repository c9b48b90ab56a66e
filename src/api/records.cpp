#include <iterator>

#include "api/records.hpp"

#include "pg/errors.hpp"
#include "pg/relations.hpp"
#include "store/datum.hpp"

namespace idem::api {

namespace {

namespace field {
enum Field : int {
    outcome,
    replayed,
    attempt,
    token,
    settled_as,
    status,
    result,
    body,
    body_bytes,
    checkpoint,
    progress,
    holder,
    retry_after,
    settled_at,
    expires_at,
    count
};
} // namespace field

constexpr const char* outcome_labels[] = {"claimed",     "recovered", "completed", "failed",
                                          "in_progress", "mismatch",  "expired",   "review"};

constexpr Oid some_enum = InvalidOid;
constexpr Oid field_types[] = {some_enum, BOOLOID, INT4OID,  UUIDOID, TEXTOID, INT4OID,        JSONBOID,      TEXTOID,
                               BYTEAOID,  TEXTOID, JSONBOID, TEXTOID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID};
static_assert(std::size(field_types) == field::count);

void check_row_type(TupleDesc desc) {
    bool same = desc->natts == field::count;
    for (int i = 0; same && i < field::count; i++) {
        const FormData_pg_attribute* att = TupleDescAttr(desc, i);
        same = !att->attisdropped && (field_types[i] == some_enum || att->atttypid == field_types[i]);
    }
    if (!same) {
        pg::raise_altered("idem_claim_result", "has other fields");
    }
}

// The row type that the function being called returns; remembered for the life of the call site.
TupleDesc result_row_type(FunctionCallInfo fcinfo) {
    if (fcinfo->flinfo->fn_extra == nullptr) {
        TupleDesc desc = nullptr;
        MemoryContext old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
        const TypeFuncClass kind = get_call_result_type(fcinfo, nullptr, &desc);
        if (kind != TYPEFUNC_COMPOSITE) {
            elog(ERROR, "return type must be a row type");
        }
        check_row_type(desc);
        fcinfo->flinfo->fn_extra = BlessTupleDesc(CreateTupleDescCopy(desc));
        MemoryContextSwitchTo(old);
    }
    return static_cast<TupleDesc>(fcinfo->flinfo->fn_extra);
}

} // namespace

Datum claim_result(FunctionCallInfo fcinfo, const protocol::ClaimAnswer& answer) {
    return claim_row(result_row_type(fcinfo), answer);
}

TupleDesc claim_row_type(Oid type) {
    TupleDesc desc = lookup_rowtype_tupdesc_copy(type, -1);
    check_row_type(desc);
    return desc;
}

Datum claim_row(TupleDesc desc, const protocol::ClaimAnswer& a) {
    Datum values[field::count] = {};
    bool nulls[field::count];
    for (bool& is_null : nulls) {
        is_null = true;
    }
    auto set = [&](field::Field f, Datum value) {
        values[f] = value;
        nulls[f] = false;
    };
    auto put = [&](field::Field f, const store::Nullable& value) {
        values[f] = value.value;
        nulls[f] = value.is_null;
    };
    const Oid outcome_type = TupleDescAttr(desc, field::outcome)->atttypid;
    set(field::outcome, ObjectIdGetDatum(pg::enum_label(outcome_type, outcome_labels[static_cast<int>(a.outcome)])));
    set(field::replayed, BoolGetDatum(a.replayed));
    if (a.attempt) {
        set(field::attempt, Int32GetDatum(*a.attempt));
    }
    if (a.token) {
        set(field::token, store::uuid_datum(*a.token));
    }
    if (a.succeeded) {
        set(field::settled_as, CStringGetTextDatum(*a.succeeded ? "completed" : "failed"));
    }
    put(field::status, a.status);
    put(field::result, a.result);
    put(field::body, a.body);
    put(field::body_bytes, a.body_bytes);
    put(field::checkpoint, a.checkpoint);
    put(field::progress, a.progress);
    if (a.holder) {
        set(field::holder, store::text_datum(*a.holder));
    }
    if (a.retry_after) {
        set(field::retry_after, Int32GetDatum(*a.retry_after));
    }
    if (a.settled_at) {
        set(field::settled_at, TimestampTzGetDatum(*a.settled_at));
    }
    if (a.expires_at) {
        set(field::expires_at, TimestampTzGetDatum(*a.expires_at));
    }
    return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

} // namespace idem::api
