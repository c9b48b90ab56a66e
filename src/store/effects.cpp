#include <algorithm>
#include <iterator>

#include "store/effects.hpp"

#include "pg/args.hpp"
#include "pg/hash.hpp"
#include "store/datum.hpp"

namespace idem::store {

namespace {

constexpr const char* report_names[] = {"confirmed", "rejected", "absent"};
constexpr const char* state_names[] = {"call", "unknown", "confirmed", "rejected"};

void read_facts(EffectRow& row) {
    core::EffectFacts& f = row.facts;
    f = core::EffectFacts{};
    f.generation = DatumGetInt32(row.values[effects::generation]);
    f.first_sent_at = DatumGetTimestampTz(row.values[effects::first_sent_at]);
    if (!row.nulls[effects::provider_window]) {
        f.window = pg::duration_of(DatumGetIntervalP(row.values[effects::provider_window]));
    }
    if (!row.is_open()) { // what nobody knows how to read, written by hand, was done as far as we are concerned
        f.report = report_of(view_of(row.values[effects::report])).value_or(core::Report::confirmed);
    }
    if (!row.nulls[effects::fingerprint]) {
        f.fingerprint = view_of(row.values[effects::fingerprint]);
    }
}

void read(const pg::Table& table, EffectRow& row) {
    pg::read_row(table, row.tuple, row.values, row.nulls, effects::count);
    read_facts(row);
}

} // namespace

core::Identity EffectRow::identity() const {
    return {view_of(values[effects::account]), view_of(values[effects::action]), view_of(values[effects::key])};
}

std::string_view EffectRow::name() const {
    return view_of(values[effects::name]);
}

core::Time EffectRow::last_heard_of() const {
    const core::Time sent = facts.first_sent_at;
    return nulls[effects::reported_at] ? sent : std::max(sent, DatumGetTimestampTz(values[effects::reported_at]));
}

const char* report_text(core::Report report) {
    return report_names[static_cast<int>(report)];
}

std::optional<core::Report> report_of(std::string_view text) {
    for (std::size_t i = 0; i < std::size(report_names); i++) {
        if (text == report_names[i]) {
            return static_cast<core::Report>(i);
        }
    }
    return std::nullopt;
}

const char* state_text(core::EffectState state) {
    return state_names[static_cast<int>(state)];
}

EffectRow new_effect(const core::Identity& identity, std::string_view name, std::int32_t generation) {
    EffectRow row{};
    for (bool& is_null : row.nulls) {
        is_null = true;
    }
    const core::EffectName hashed = core::effect_name(identity, name, generation);
    row.set(effects::downstream_key, uuid_datum(core::downstream_key(pg::sha256(hashed.bytes, hashed.size))));
    row.set(effects::account, text_datum(identity.account));
    row.set(effects::action, text_datum(identity.action));
    row.set(effects::key, text_datum(identity.key));
    row.set(effects::name, text_datum(name));
    row.set(effects::generation, Int32GetDatum(generation));
    return row;
}

void insert_effect(const EffectRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::change);
    pg::insert_row(table, row.values, row.nulls, effects::count);
    pg::close_table(table);
}

void update_effect(const EffectRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::change);
    pg::update_row(table, row.tuple, row.values, row.nulls, effects::count);
    pg::close_table(table);
}

EffectScan::EffectScan(const pg::Table& opened, const core::Identity& identity, Snapshot snapshot)
    : table(opened), scan(opened, opened.index,
                          {pg::equals_text(1, identity.account), pg::equals_text(2, identity.action),
                           pg::equals_text(3, identity.key)},
                          snapshot) {}

bool EffectScan::next(EffectRow& row) {
    row.tuple = scan.next();
    if (row.tuple == nullptr) {
        return false;
    }
    read(table, row);
    return true;
}

bool find_latest_effect(const core::Identity& identity, std::string_view name, EffectRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::change);
    pg::IndexScan scan(table, table.index,
                       {pg::equals_text(1, identity.account), pg::equals_text(2, identity.action),
                        pg::equals_text(3, identity.key), pg::equals_text(4, name)},
                       SnapshotSelf);
    row.tuple = nullptr;
    while (HeapTuple next = scan.next()) { // of few
        row.tuple = next;
    }
    scan.finish();
    if (row.tuple != nullptr) {
        read(table, row);
    }
    pg::close_table(table);
    return row.tuple != nullptr;
}

bool find_effect(Datum downstream_key, EffectRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::look);
    Relation index = pg::open_index(table, {effects::downstream_key});
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::IndexScan scan(table, index, {pg::equals_uuid(1, downstream_key)}, snapshot);
    row.tuple = scan.next();
    scan.finish();
    UnregisterSnapshot(snapshot);
    if (row.tuple != nullptr) {
        read(table, row);
    }
    pg::close_index(table, index);
    pg::close_table(table);
    return row.tuple != nullptr;
}

bool find_generation(const core::Identity& identity, std::string_view name, std::int32_t generation, EffectRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::change);
    EffectScan scan(table, identity, SnapshotSelf);
    bool found = false;
    while (!found && scan.next(row)) {
        found = row.facts.generation == generation && row.name() == name;
    }
    scan.finish();
    pg::close_table(table);
    return found;
}

bool has_open_effect(const core::Identity& identity, Snapshot snapshot) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::look);
    EffectScan scan(table, identity, snapshot);
    EffectRow row;
    bool open = false;
    while (!open && scan.next(row)) {
        open = row.is_open();
        heap_freetuple(row.tuple);
    }
    scan.finish();
    pg::close_table(table);
    return open;
}

void forget_effects(const core::Identity& identity) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::change);
    EffectScan scan(table, identity, SnapshotSelf);
    EffectRow row;
    while (scan.next(row)) {
        pg::delete_row(table, &row.tuple->t_self);
        heap_freetuple(row.tuple);
    }
    scan.finish();
    pg::close_table(table);
}

void read_effect(TupleTableSlot* slot, EffectRow& row) {
    slot_getsomeattrs(slot, effects::count);
    row.tuple = nullptr;
    for (int i = 0; i < effects::count; i++) {
        row.values[i] = slot->tts_values[i];
        row.nulls[i] = slot->tts_isnull[i];
    }
    read_facts(row);
}

bool read_effect_at(const pg::Table& table, ItemPointer tid, const core::Identity& identity, EffectRow& row) {
    row.tuple = pg::row_at(table, tid);
    if (row.tuple == nullptr) {
        return false;
    }
    read(table, row);
    return row.identity() == identity;
}

std::int64_t erase_effects(const core::Identity& identity) {
    const pg::Table table = pg::open_table(pg::TableId::effects, pg::Access::change);
    EffectScan scan(table, identity, SnapshotSelf);
    EffectRow row;
    std::int64_t erased = 0;
    while (scan.next(row)) {
        if (row.has_payload()) { // not so in the version that this very loop has written
            row.clear(effects::request);
            row.clear(effects::response);
            pg::update_row(table, row.tuple, row.values, row.nulls, effects::count);
            erased++;
        }
        heap_freetuple(row.tuple);
    }
    scan.finish();
    pg::close_table(table);
    return erased;
}

OpenEffectScan::OpenEffectScan()
    : table(pg::open_table(pg::TableId::effects, pg::Access::look)),
      index(pg::open_partial_index(table, {effects::first_sent_at}, {effects::report, true})),
      snapshot(RegisterSnapshot(GetLatestSnapshot())), scan(table, index, {}, snapshot) {}

bool OpenEffectScan::next(EffectRow& row) {
    for (;;) {
        row.tuple = scan.next();
        if (row.tuple == nullptr) {
            return false;
        }
        read(table, row);
        if (row.is_open()) { // every row of the index as it was made
            return true;
        }
        heap_freetuple(row.tuple);
    }
}

void OpenEffectScan::finish() {
    scan.finish();
    UnregisterSnapshot(snapshot);
    pg::close_index(table, index);
    pg::close_table(table);
}

} // namespace idem::store
