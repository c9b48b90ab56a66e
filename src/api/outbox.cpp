// The outbox: idem_publish, idem_outbox_take, idem_outbox_ack, idem_outbox_nack, idem_outbox_retry.
#include <algorithm>

#include "core/receipt.hpp"
#include "pg/entry.hpp"

#include "pg/args.hpp"
#include "protocol/acknowledge.hpp"
#include "protocol/hand_out.hpp"
#include "protocol/publish.hpp"
#include "store/datum.hpp"

extern "C" {
#include "mb/pg_wchar.h"
}

namespace idem::api {

namespace {

constexpr int default_batch = 100;
constexpr int max_batch = 10'000;
constexpr core::Duration default_lease = 30 * core::second;
constexpr core::Duration longest = core::day; // of a lease and of a pause: nobody could call them back
constexpr core::Duration default_retry_after = 5 * core::second;
constexpr int max_error_bytes = 8000; // what is longer is cut

void refuse_too_long(core::Duration given, const char* name) {
    if (given > longest) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be longer than a day", name)));
    }
}

std::string_view name_arg(FunctionCallInfo fcinfo, int n, const char* name) {
    return pg::identity_part(pg::text_arg(fcinfo, n), name, store::max_message_name_bytes);
}

Datum publish(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_publish()");
    store::Message message;
    message.aggregatetype = name_arg(fcinfo, 0, "aggregatetype");
    message.aggregateid = name_arg(fcinfo, 1, "aggregateid");
    message.type = name_arg(fcinfo, 2, "type");
    message.payload = pg::jsonb_arg(fcinfo, 3);
    if (message.payload == nullptr) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload must not be NULL"),
                        errhint("A message without content, such as a tombstone, has the payload 'null'::jsonb.")));
    }
    message.headers = pg::jsonb_arg(fcinfo, 4);
    if (message.headers != nullptr && !JB_ROOT_IS_OBJECT(message.headers)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("headers must be a JSON object")));
    }
    return store::uuid_datum(protocol::publish(message));
}

// The elements of an array, without NULLs; `name` is for the message.
std::span<Datum> elements_arg(FunctionCallInfo fcinfo, int n, Oid type, const char* name) {
    if (PG_ARGISNULL(n)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be NULL", name),
                        errhint("array_agg over no rows gives NULL: use coalesce(array_agg(...), '{}').")));
    }
    ArrayType* array = PG_GETARG_ARRAYTYPE_P(n);
    if (ARR_NDIM(array) > 1) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be a one-dimensional array", name)));
    }
    int16 length = 0;
    bool by_value = false;
    char align = 0;
    get_typlenbyvalalign(type, &length, &by_value, &align);
    Datum* values = nullptr;
    bool* nulls = nullptr;
    int size = 0;
    deconstruct_array(array, type, length, by_value, align, &values, &nulls, &size);
    std::size_t kept = 0;
    for (int i = 0; i < size; i++) {
        if (!nulls[i]) {
            values[kept++] = values[i];
        }
    }
    return {values, kept};
}

std::span<const std::string_view> types_arg(FunctionCallInfo fcinfo, int n) {
    const std::span<const Datum> given = elements_arg(fcinfo, n, TEXTOID, "aggregatetypes");
    auto* types = static_cast<std::string_view*>(palloc(sizeof(std::string_view) * (given.size() + 1)));
    std::transform(given.begin(), given.end(), types, [](Datum type) { return store::view_of(type); });
    std::sort(types, types + given.size());
    return {types, given.size()};
}

// One text for one filter.
std::string_view text_of(std::span<const std::string_view> types) {
    StringInfoData text;
    initStringInfo(&text);
    appendStringInfoChar(&text, '='); // no filter at all is the empty text
    for (const std::string_view type : types) {
        appendBinaryStringInfo(&text, type.data(), static_cast<int>(type.size()));
        appendStringInfoChar(&text, '\0');
    }
    return {text.data, static_cast<std::size_t>(text.len)};
}

void put_message(ReturnSetInfo* result, const store::OutboxRow& row) {
    namespace outbox = store::outbox;
    constexpr outbox::Field shown[] = {outbox::id,      outbox::aggregatetype, outbox::aggregateid, outbox::type,
                                       outbox::payload, outbox::headers,       outbox::created_at,  outbox::deliveries};
    Datum values[std::size(shown) + 1] = {store::uuid_datum(core::encode(*row.receipt()))};
    bool nulls[std::size(shown) + 1] = {};
    int n = 1;
    for (const outbox::Field field : shown) {
        values[n] = row.values[field];
        nulls[n] = row.nulls[field];
        n++;
    }
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum outbox_take(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_outbox_take()");
    protocol::HandOutCall call;
    call.batch = PG_ARGISNULL(0) ? default_batch : PG_GETARG_INT32(0);
    if (call.batch < 1 || call.batch > max_batch) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("batch must be between 1 and %d", max_batch)));
    }
    call.lease = pg::duration_arg(fcinfo, 1, "lease", false).value_or(default_lease);
    refuse_too_long(call.lease, "lease");
    if (!PG_ARGISNULL(2)) {
        call.aggregatetypes = types_arg(fcinfo, 2);
        call.filter = text_of(*call.aggregatetypes);
    }
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    for (const store::OutboxRow& row : protocol::hand_out(call)) {
        put_message(result, row);
    }
    return Datum{0};
}

// Those that are receipts at all.
std::span<core::Receipt> receipts_arg(FunctionCallInfo fcinfo, int n) {
    const std::span<const Datum> given = elements_arg(fcinfo, n, UUIDOID, "receipts");
    auto* receipts = static_cast<core::Receipt*>(palloc(sizeof(core::Receipt) * (given.size() + 1)));
    std::size_t size = 0;
    for (const Datum uuid : given) {
        if (const std::optional<core::Receipt> receipt = core::decode_receipt(store::token_of(uuid))) {
            receipts[size++] = *receipt;
        }
    }
    return {receipts, size};
}

Datum outbox_ack(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_outbox_ack()");
    PG_RETURN_INT32(protocol::acknowledge(receipts_arg(fcinfo, 0)));
}

Datum outbox_nack(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_outbox_nack()");
    const std::span<core::Receipt> receipts = receipts_arg(fcinfo, 0);
    protocol::GiveBackCall call;
    call.retry_after = pg::duration_arg(fcinfo, 1, "retry_after", true).value_or(default_retry_after);
    refuse_too_long(call.retry_after, "retry_after");
    call.error = pg::text_arg(fcinfo, 2);
    if (call.error) {
        const int bytes = pg_mbcliplen(call.error->data(), static_cast<int>(call.error->size()), max_error_bytes);
        call.error = call.error->substr(0, static_cast<std::size_t>(bytes));
    }
    PG_RETURN_INT32(protocol::give_back(receipts, call));
}

Datum outbox_retry(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_outbox_retry()");
    PG_RETURN_INT32(protocol::retry(elements_arg(fcinfo, 0, UUIDOID, "ids")));
}

PG_IDEM_FUNCTION(publish);
PG_IDEM_FUNCTION(outbox_take);
PG_IDEM_FUNCTION(outbox_ack);
PG_IDEM_FUNCTION(outbox_nack);
PG_IDEM_FUNCTION(outbox_retry);

} // namespace

} // namespace idem::api
