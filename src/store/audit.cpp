#include "store/audit.hpp"

#include "pg/random.hpp"
#include "pg/table.hpp"
#include "store/columns.hpp"
#include "store/datum.hpp"

namespace idem::store {

void insert_audit(const AuditEntry& entry, core::Time now) {
    Datum values[audit::count] = {};
    bool nulls[audit::count] = {};
    auto put_text = [&](audit::Field field, const std::optional<std::string_view>& text) {
        nulls[field] = !text;
        values[field] = text ? text_datum(*text) : Datum{0};
    };
    values[audit::id] = uuid_datum(pg::ordered_uuid(now));
    values[audit::called_at] = TimestampTzGetDatum(now);
    values[audit::rows] = Int64GetDatum(entry.rows);
    nulls[audit::attempt] = !entry.attempt;
    values[audit::attempt] = Int32GetDatum(entry.attempt.value_or(0));
    put_text(audit::call, entry.call);
    put_text(audit::account, entry.account);
    put_text(audit::action, entry.action);
    put_text(audit::key, entry.key);
    put_text(audit::verdict, entry.verdict);
    put_text(audit::note, entry.note);
    put_text(audit::session_user_name, GetUserNameFromId(GetSessionUserId(), false));
    put_text(audit::user_name, GetUserNameFromId(GetUserId(), false));

    const pg::Table table = pg::open_table(pg::TableId::audit, pg::Access::change);
    pg::insert_row(table, values, nulls, audit::count);
    pg::close_table(table);
}

} // namespace idem::store
