#include "store/outbox.hpp"

#include "pg/index_scan.hpp"
#include "pg/sequence.hpp"
#include "store/datum.hpp"

namespace idem::store {

namespace {

std::optional<core::Time> time_of(const OutboxRow& row, outbox::Field field) {
    if (row.nulls[field]) {
        return std::nullopt;
    }
    return DatumGetTimestampTz(row.values[field]);
}

} // namespace

void insert_message(const Message& message) {
    OutboxRow row{};
    for (bool& is_null : row.nulls) {
        is_null = true;
    }
    row.set(outbox::id, uuid_datum(message.id));
    row.set(outbox::aggregatetype, text_datum(message.aggregatetype));
    row.set(outbox::aggregateid, text_datum(message.aggregateid));
    row.set(outbox::type, text_datum(message.type));
    row.set(outbox::payload, JsonbPGetDatum(message.payload));
    if (message.headers != nullptr) {
        row.set(outbox::headers, JsonbPGetDatum(message.headers));
    }
    if (message.has_operation) {
        row.set(outbox::account, text_datum(message.operation.account));
        row.set(outbox::action, text_datum(message.operation.action));
        row.set(outbox::key, text_datum(message.operation.key));
    }
    row.set(outbox::created_at, TimestampTzGetDatum(message.created_at));
    row.set(outbox::deliveries, Int32GetDatum(0));
    row.set(outbox::failures, Int32GetDatum(0));

    const pg::Table table = pg::open_table(pg::TableId::outbox, pg::Access::change); // before the position is drawn
    row.set(outbox::position, Int64GetDatum(pg::next_position()));
    pg::insert_row(table, row.values, row.nulls, outbox::count);
    pg::close_table(table);
}

std::string_view OutboxRow::text(outbox::Field field) const {
    return view_of(values[field]);
}

core::MessageFacts OutboxRow::facts() const {
    return {!nulls[outbox::parked_at], time_of(*this, outbox::leased_until), time_of(*this, outbox::due_at)};
}

std::optional<core::Receipt> OutboxRow::receipt() const {
    if (nulls[outbox::leased_until]) {
        return std::nullopt;
    }
    return core::receipt_of(position(), number(outbox::deliveries), DatumGetTimestampTz(values[outbox::leased_until]));
}

OutboxRow read_outbox_row(const pg::Table& table, HeapTuple tuple) {
    OutboxRow row{};
    row.tuple = tuple;
    pg::read_row(table, tuple, row.values, row.nulls, outbox::count);
    return row;
}

int read_aggregate(const pg::Table& table, Relation index, std::string_view type, std::string_view id,
                   std::int64_t from, OutboxRow* rows, int limit) {
    int size = 0;
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::IndexScan scan(table, index, {pg::equals_text(1, type), pg::equals_text(2, id), pg::from_int8(3, from)},
                       snapshot);
    while (size < limit) {
        HeapTuple tuple = scan.next();
        if (tuple == nullptr) {
            break;
        }
        rows[size++] = read_outbox_row(table, tuple);
    }
    scan.finish();
    UnregisterSnapshot(snapshot);
    return size;
}

bool is_any_leased(const pg::Table& table, Relation index, std::string_view type, std::string_view id, core::Time now) {
    bool leased = false;
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::IndexScan scan(table, index, {pg::equals_text(1, type), pg::equals_text(2, id)}, snapshot);
    while (TupleTableSlot* slot = leased ? nullptr : scan.step()) {
        bool is_null = false;
        leased = now < DatumGetTimestampTz(slot_getattr(slot, outbox::leased_until + 1, &is_null));
    }
    scan.finish();
    UnregisterSnapshot(snapshot);
    return leased;
}

bool find_message(const pg::Table& table, std::int64_t position, OutboxRow& row) {
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::IndexScan scan(table, table.index, {pg::equals_int8(1, position)}, snapshot);
    HeapTuple tuple = scan.next();
    scan.finish();
    UnregisterSnapshot(snapshot);
    if (tuple == nullptr) {
        return false;
    }
    row = read_outbox_row(table, tuple);
    return true;
}

void find_parked(const pg::Table& table, Relation index, Datum id, List<std::int64_t>& positions) {
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::IndexScan scan(table, index, {pg::equals_uuid(1, id)}, snapshot);
    while (TupleTableSlot* slot = scan.step()) {
        bool is_null = false;
        positions.add() = DatumGetInt64(slot_getattr(slot, outbox::position + 1, &is_null));
    }
    scan.finish();
    UnregisterSnapshot(snapshot);
}

} // namespace idem::store
