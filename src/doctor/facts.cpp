#include "doctor/facts.hpp"

#include "pg/args.hpp"

namespace idem::doctor {

Datum table_oids(std::span<const pg::TableId> tables) {
    Datum oids[pg::table_count];
    int count = 0;
    for (const pg::TableId id : tables) {
        const Oid oid = pg::named_table(id);
        if (OidIsValid(oid)) {
            oids[count++] = ObjectIdGetDatum(oid);
        }
    }
    return PointerGetDatum(construct_array(oids, count, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
}

std::string_view setting(const char* name) {
    const char* value = GetConfigOption(name, true, false);
    return value == nullptr ? "" : value;
}

const char* duration_text(core::Duration duration) {
    if (duration >= core::end_of_time) {
        return "for ever";
    }
    const Datum interval = DirectFunctionCall1(interval_justify_hours, IntervalPGetDatum(pg::interval_of(duration)));
    return DatumGetCString(DirectFunctionCall1(interval_out, interval));
}

const char* time_text(core::Time time) {
    return DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(time)));
}

} // namespace idem::doctor
