// idem_fingerprint.
#include <string_view>

#include "core/json_pointer.hpp"
#include "pg/entry.hpp"

#include "pg/args.hpp"
#include "pg/json.hpp"
#include "store/datum.hpp"

extern "C" {
#include "mb/pg_wchar.h"
}

namespace idem::api {

namespace {

std::string_view in_utf8(std::string_view text) {
    char* copy = pnstrdup(text.data(), text.size());
    return pg_server_to_any(copy, static_cast<int>(text.size()), PG_UTF8);
}

std::span<const std::string_view> pointers_arg(FunctionCallInfo fcinfo, int n) {
    if (PG_ARGISNULL(n)) {
        return {};
    }
    Datum* values = nullptr;
    bool* nulls = nullptr;
    int size = 0;
    deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &size);
    auto* pointers = static_cast<std::string_view*>(palloc(sizeof(std::string_view) * (size + 1)));
    for (int i = 0; i < size; i++) {
        const std::string_view pointer = nulls[i] ? std::string_view() : in_utf8(store::view_of(values[i]));
        if (pointer.empty() || !core::is_json_pointer(pointer)) {
            ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("ignore must hold JSON Pointers"),
                            errdetail("A JSON Pointer (RFC 6901) names a part of the request, as \"/meta/sent_at\".")));
        }
        pointers[i] = pointer;
    }
    return {pointers, static_cast<std::size_t>(size)};
}

Datum fingerprint(FunctionCallInfo fcinfo) {
    const std::span<const std::string_view> ignore = pointers_arg(fcinfo, 1);
    Jsonb* request = pg::jsonb_arg(fcinfo, 0);
    if (request == nullptr) {
        PG_RETURN_NULL();
    }
    auto* result = static_cast<bytea*>(palloc(VARHDRSZ + pg::fingerprint_bytes));
    SET_VARSIZE(result, VARHDRSZ + pg::fingerprint_bytes);
    pg::fingerprint_of(request, ignore, reinterpret_cast<unsigned char*>(VARDATA(result)));
    PG_RETURN_BYTEA_P(result);
}

PG_IDEM_FUNCTION(fingerprint);

} // namespace

} // namespace idem::api
