#include "store/columns.hpp"

namespace idem::store {

namespace {

constexpr pg::Column settled_columns[] = {
    {"settled_at", TIMESTAMPTZOID, true},
    {"expires_at", TIMESTAMPTZOID, true},
    {"forget_at", TIMESTAMPTZOID, true},
    {"claimed_at", TIMESTAMPTZOID, false},
    {"attempt", INT4OID, true},
    {"status", INT4OID, false},
    {"succeeded", BOOLOID, true},
    {"stripped", BOOLOID, true},
    {"account", TEXTOID, true},
    {"action", TEXTOID, true},
    {"key", TEXTOID, true},
    {"fingerprint", BYTEAOID, false},
    {"request", JSONBOID, false},
    {"result", JSONBOID, false},
    {"body", TEXTOID, false},
    {"body_bytes", BYTEAOID, false},
};
static_assert(std::size(settled_columns) == settled::count);

constexpr pg::Column inflight_columns[] = {
    {"claimed_at", TIMESTAMPTZOID, true},
    {"state_since", TIMESTAMPTZOID, true},
    {"lease_expires_at", TIMESTAMPTZOID, false},
    {"due_at", TIMESTAMPTZOID, false},
    {"session_start", TIMESTAMPTZOID, false},
    {"session_pid", INT4OID, false},
    {"attempt", INT4OID, true},
    {"failures", INT4OID, true},
    {"max_attempts", INT4OID, true},
    {"in_review", BOOLOID, true},
    {"granted", BOOLOID, true},
    {"announced", BOOLOID, true},
    {"token", UUIDOID, false},
    {"lease", INTERVALOID, true},
    {"account", TEXTOID, true},
    {"action", TEXTOID, true},
    {"key", TEXTOID, true},
    {"on_interrupt", TEXTOID, true},
    {"owner", TEXTOID, false},
    {"reason", TEXTOID, false},
    {"last_error", TEXTOID, false},
    {"fingerprint", BYTEAOID, false},
    {"request", JSONBOID, false},
    {"checkpoint", TEXTOID, false},
    {"progress", JSONBOID, false},
};
static_assert(std::size(inflight_columns) == inflight::count);

constexpr pg::Column seen_columns[] = {
    {"seen_at", TIMESTAMPTZOID, true},
    {"forget_at", TIMESTAMPTZOID, true},
    {"account", TEXTOID, true},
    {"action", TEXTOID, true},
    {"key", TEXTOID, true},
    {"fingerprint", BYTEAOID, false},
};
static_assert(std::size(seen_columns) == seen::count);

struct TableShape {
    const char* name;
    std::span<const pg::Column> columns;
    int identity; // position of the first of its columns
};

// Policies are read by column name (store/policies.cpp): users write that table, and later versions add columns.
constexpr TableShape shapes[pg::table_count] = {
    {"idem_settled", settled_columns, settled::account},
    {"idem_inflight", inflight_columns, inflight::account},
    {"idem_seen", seen_columns, seen::account},
    {"idem_policies", {}, 0},
};

const TableShape& shape(pg::TableId id) {
    return shapes[static_cast<int>(id)];
}

} // namespace

const char* name_of(pg::TableId id) {
    return shape(id).name;
}

std::span<const pg::Column> columns_of(pg::TableId id) {
    return shape(id).columns;
}

AttrNumber first_identity_column(pg::TableId id) {
    return static_cast<AttrNumber>(shape(id).identity + 1);
}

} // namespace idem::store
