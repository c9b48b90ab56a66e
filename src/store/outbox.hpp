// Table idem_outbox: published messages that are not acknowledged.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/decide.hpp"
#include "core/delivery.hpp"
#include "core/identity.hpp"
#include "core/receipt.hpp"
#include "pg/pg.hpp"
#include "pg/table.hpp"
#include "store/columns.hpp"
#include "store/list.hpp"
#include "store/row.hpp"

namespace idem::store {

// Of aggregatetype, aggregateid and type, in bytes.
inline constexpr std::size_t max_message_name_bytes = 255;

// What is published.
struct Message {
    core::Token id;
    std::string_view aggregatetype;
    std::string_view aggregateid;
    std::string_view type;
    Jsonb* payload = nullptr;
    Jsonb* headers = nullptr; // nullptr: NULL
    bool has_operation = false;
    core::Identity operation;
    core::Time created_at = 0;
};

// Draws the message's position, under the table's lock: whoever waits until all have ended that hold it has seen every
// position drawn before.
void insert_message(const Message& message);

// One row, with its current values.
struct OutboxRow : Row<outbox::Field, outbox::count> {
    std::int64_t position() const { return DatumGetInt64(values[outbox::position]); }
    std::int32_t number(outbox::Field field) const { return DatumGetInt32(values[field]); }
    std::string_view text(outbox::Field field) const;
    core::MessageFacts facts() const;
    std::optional<core::Receipt> receipt() const; // of its latest hand-out, unless it was given back
};

OutboxRow read_outbox_row(const pg::Table& table, HeapTuple tuple);

// Those of one aggregate from a position on, in order, at most `limit`, as they are committed by now. Returns how many;
// what they point to is in the current memory context.
int read_aggregate(const pg::Table& table, Relation index, std::string_view type, std::string_view id,
                   std::int64_t from, OutboxRow* rows, int limit);

// Whether any message of the aggregate, wherever it stands, is handed out by now under a lease that is not over. index:
// that of the rows with a lease.
bool is_any_leased(const pg::Table& table, Relation index, std::string_view type, std::string_view id, core::Time now);

// The message at a position, as it is committed by now; false: none.
bool find_message(const pg::Table& table, std::int64_t position, OutboxRow& row);

// Positions of the parked messages of an id.
void find_parked(const pg::Table& table, Relation index, Datum id, List<std::int64_t>& positions);

} // namespace idem::store
