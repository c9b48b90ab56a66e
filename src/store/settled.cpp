#include "store/settled.hpp"

#include "pg/errors.hpp"
#include "store/datum.hpp"

namespace idem::store {

bool find_settled(const core::Identity& identity, Snapshot snapshot, pg::Access access, SettledRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::settled, access);
    row.tuple = pg::find_row(table, identity, snapshot);
    if (row.tuple != nullptr) {
        pg::read_row(table, row.tuple, row.values, row.nulls, settled::count);
        row.facts.expires_at = DatumGetTimestampTz(row.values[settled::expires_at]);
        row.facts.forget_at = DatumGetTimestampTz(row.values[settled::forget_at]);
        row.facts.stripped = DatumGetBool(row.values[settled::stripped]);
        row.facts.fingerprint.reset();
        if (!row.nulls[settled::fingerprint]) {
            row.facts.fingerprint = view_of(row.values[settled::fingerprint]);
        }
    }
    pg::close_table(table);
    return row.tuple != nullptr;
}

core::Time insert_settled(const core::Identity& identity, const Outcome& outcome, const core::Policy& policy,
                          core::Time now) {
    const pg::Table table = pg::open_table(pg::TableId::settled, pg::Access::change);
    HeapTuple old = pg::find_row(table, identity, SnapshotSelf);
    if (old != nullptr) {
        bool is_null = false;
        const core::Time forget_at =
            DatumGetTimestampTz(heap_getattr(old, settled::forget_at + 1, RelationGetDescr(table.heap), &is_null));
        if (now < forget_at) {
            pg::raise_already_settled(identity); // by hand, or the clock was set back
        }
        pg::delete_row(table, &old->t_self);
    }

    const core::Time expires_at = core::later(now, policy.retention);
    Datum values[settled::count] = {};
    bool nulls[settled::count] = {};
    auto put = [&](settled::Field field, const Nullable& value) {
        values[field] = value.value;
        nulls[field] = value.is_null;
    };
    values[settled::settled_at] = TimestampTzGetDatum(now);
    values[settled::expires_at] = TimestampTzGetDatum(expires_at);
    values[settled::forget_at] = TimestampTzGetDatum(core::later(expires_at, policy.remember));
    put(settled::claimed_at, outcome.claimed_at);
    values[settled::attempt] = Int32GetDatum(outcome.attempt);
    put(settled::status, outcome.status);
    values[settled::succeeded] = BoolGetDatum(outcome.succeeded);
    values[settled::stripped] = BoolGetDatum(false);
    values[settled::account] = text_datum(identity.account);
    values[settled::action] = text_datum(identity.action);
    values[settled::key] = text_datum(identity.key);
    nulls[settled::fingerprint] = !outcome.fingerprint;
    if (outcome.fingerprint) {
        values[settled::fingerprint] = bytea_datum(*outcome.fingerprint);
    }
    put(settled::request, outcome.request);
    put(settled::result, outcome.result);
    put(settled::body, outcome.body);
    put(settled::body_bytes, outcome.body_bytes);
    pg::insert_row(table, values, nulls, settled::count);
    pg::close_table(table);
    return expires_at;
}

} // namespace idem::store
