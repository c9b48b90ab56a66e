#include <cstring>

#include "pg/logical_message.hpp"

#include "pg/compat.hpp"

extern "C" {
#include "access/xlog.h"
#include "mb/pg_wchar.h"
#include "utils/datetime.h"
#include "utils/json.h"
}

namespace idem::pg {

namespace {

constexpr pg_wchar first_of_two_units = 0x10000;

// Everything that is not ASCII is inside of strings: \uXXXX says the same there.
StringInfoData escape_non_ascii(const char* utf8, int size) {
    StringInfoData out;
    initStringInfo(&out);
    const auto* end = reinterpret_cast<const unsigned char*>(utf8) + size;
    for (const auto* at = reinterpret_cast<const unsigned char*>(utf8); at < end; at += pg_utf_mblen(at)) {
        const pg_wchar c = utf8_to_unicode(at);
        if (c < 0x80) {
            appendStringInfoChar(&out, static_cast<char>(c));
        } else if (c < first_of_two_units) {
            appendStringInfo(&out, "\\u%04x", c);
        } else {
            const pg_wchar rest = c - first_of_two_units;
            appendStringInfo(&out, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
        }
    }
    return out;
}

} // namespace

void emit_logical_message(const char* prefix, const StringInfoData& json) {
    if (!XLogLogicalInfoActive()) {
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("pg_idem.outbox = wal needs wal_level = logical"),
                        errhint("Set wal_level to logical and restart the server, or set pg_idem.outbox to table.")));
    }
    StringInfoData text = json;
    const int encoding = GetDatabaseEncoding();
    if (encoding != PG_UTF8 && encoding != PG_SQL_ASCII) {
        const char* utf8 = pg_server_to_any(json.data, json.len, PG_UTF8);
        text = escape_non_ascii(utf8, utf8 == json.data ? json.len : static_cast<int>(std::strlen(utf8)));
    }
    compat::log_transactional_message(prefix, text.data, static_cast<Size>(text.len));
}

const char* iso_time_text(TimestampTz time) {
    constexpr int offset_size = 6; // "+00:00"
    const int utc = 0;
    auto* text = static_cast<char*>(palloc(MAXDATELEN + 1));
    JsonEncodeDateTime(text, TimestampTzGetDatum(time), TIMESTAMPTZOID, &utc);
    const std::size_t size = std::strlen(text);
    text[size - offset_size] = 'Z';
    text[size - offset_size + 1] = '\0';
    return text;
}

} // namespace idem::pg
