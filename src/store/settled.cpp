#include "store/settled.hpp"

#include "pg/errors.hpp"
#include "pg/index_scan.hpp"
#include "store/datum.hpp"
#include "store/effects.hpp"
#include "store/statistics.hpp"

namespace idem::store {

namespace {

void read(const pg::Table& table, SettledRow& row) {
    pg::read_row(table, row.tuple, row.values, row.nulls, settled::count);
    row.facts.expires_at = DatumGetTimestampTz(row.values[settled::expires_at]);
    row.facts.forget_at = DatumGetTimestampTz(row.values[settled::forget_at]);
    row.facts.stripped = DatumGetBool(row.values[settled::stripped]);
    row.facts.fingerprint.reset();
    if (!row.nulls[settled::fingerprint]) {
        row.facts.fingerprint = view_of(row.values[settled::fingerprint]);
    }
}

} // namespace

bool find_settled(const core::Identity& identity, Snapshot snapshot, pg::Access access, SettledRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::settled, access);
    row.tuple = pg::find_row(table, identity, snapshot);
    if (row.tuple != nullptr) {
        read(table, row);
    }
    pg::close_table(table);
    return row.tuple != nullptr;
}

bool read_settled_times(TupleTableSlot* slot, core::SettledFacts& facts) {
    bool is_null = false;
    auto column = [&](settled::Field field) { return slot_getattr(slot, field + 1, &is_null); };
    facts.expires_at = DatumGetTimestampTz(column(settled::expires_at));
    facts.forget_at = DatumGetTimestampTz(column(settled::forget_at));
    facts.stripped = DatumGetBool(column(settled::stripped));
    for (const settled::Field field : {settled::request, settled::result, settled::body, settled::body_bytes}) {
        column(field);
        if (!is_null) {
            return true;
        }
    }
    return false;
}

bool read_settled_at(const pg::Table& table, ItemPointer tid, const core::Identity& identity, SettledRow& row) {
    row.tuple = pg::row_at(table, tid);
    if (row.tuple == nullptr) {
        return false;
    }
    read(table, row);
    return view_of(row.values[settled::account]) == identity.account &&
           view_of(row.values[settled::action]) == identity.action && view_of(row.values[settled::key]) == identity.key;
}

namespace {

// A forgotten record of the same operation.
void make_room(const pg::Table& table, const core::Identity& identity, core::Time now) {
    HeapTuple old = pg::find_row(table, identity, SnapshotSelf);
    if (old == nullptr) {
        return;
    }
    bool is_null = false;
    const core::Time forget_at =
        DatumGetTimestampTz(heap_getattr(old, settled::forget_at + 1, RelationGetDescr(table.heap), &is_null));
    if (now < forget_at) {
        pg::raise_already_settled(identity); // by hand, or the clock was set back
    }
    pg::delete_row(table, &old->t_self);
    forget_effects(identity);
    count_at_commit(identity.action, Counter::forgotten);
}

struct Times {
    core::Time settled_at;
    core::Time expires_at;
};

void insert(const core::Identity& identity, const Outcome& outcome, const core::Policy& policy, const Times& times,
            bool stripped, core::Time now) {
    const pg::Table table = pg::open_table(pg::TableId::settled, pg::Access::change);
    make_room(table, identity, now);
    Datum values[settled::count] = {};
    bool nulls[settled::count] = {};
    auto put = [&](settled::Field field, const Nullable& value) {
        values[field] = value.value;
        nulls[field] = value.is_null;
    };
    auto put_payload = [&](settled::Field field, const Nullable& value) { put(field, stripped ? Nullable{} : value); };
    values[settled::settled_at] = TimestampTzGetDatum(times.settled_at);
    values[settled::expires_at] = TimestampTzGetDatum(times.expires_at);
    values[settled::forget_at] = TimestampTzGetDatum(core::later(times.expires_at, policy.remember));
    put(settled::claimed_at, outcome.claimed_at);
    values[settled::attempt] = Int32GetDatum(outcome.attempt);
    put(settled::status, outcome.status);
    values[settled::succeeded] = BoolGetDatum(outcome.succeeded);
    values[settled::stripped] = BoolGetDatum(stripped);
    values[settled::account] = text_datum(identity.account);
    values[settled::action] = text_datum(identity.action);
    values[settled::key] = text_datum(identity.key);
    nulls[settled::fingerprint] = !outcome.fingerprint;
    if (outcome.fingerprint) {
        values[settled::fingerprint] = bytea_datum(*outcome.fingerprint);
    }
    put_payload(settled::request, outcome.request);
    put_payload(settled::result, outcome.result);
    put_payload(settled::body, outcome.body);
    put_payload(settled::body_bytes, outcome.body_bytes);
    pg::insert_row(table, values, nulls, settled::count);
    pg::close_table(table);
}

} // namespace

core::Time insert_settled(const core::Identity& identity, const Outcome& outcome, const core::Policy& policy,
                          core::Time now) {
    const core::Time expires_at = core::later(now, policy.retention);
    insert(identity, outcome, policy, {now, expires_at}, false, now);
    count_at_commit(identity.action, outcome.succeeded ? Counter::completed : Counter::failed);
    return expires_at;
}

void import_settled(const core::Identity& identity, const Outcome& outcome, const core::Policy& policy,
                    core::Time settled_at, core::Time now) {
    const core::Time expires_at = core::later(settled_at, policy.retention);
    insert(identity, outcome, policy, {settled_at, expires_at}, now >= expires_at, now);
}

void strip_settled(const SettledRow& row) {
    SettledRow stripped = row;
    stripped.values[settled::stripped] = BoolGetDatum(true);
    for (const settled::Field field : {settled::request, settled::result, settled::body, settled::body_bytes}) {
        stripped.nulls[field] = true;
    }
    const pg::Table table = pg::open_table(pg::TableId::settled, pg::Access::change);
    pg::update_row(table, stripped.tuple, stripped.values, stripped.nulls, settled::count);
    pg::close_table(table);
}

void delete_settled(const SettledRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::settled, pg::Access::change);
    pg::delete_row(table, &row.tuple->t_self);
    pg::close_table(table);
}

void forget_settled(const core::Identity& identity, const SettledRow& row) {
    delete_settled(row);
    forget_effects(identity);
    count_at_commit(identity.action, Counter::forgotten);
}

} // namespace idem::store
