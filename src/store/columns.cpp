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

constexpr pg::Column audit_columns[] = {
    {"id", UUIDOID, true},
    {"called_at", TIMESTAMPTZOID, true},
    {"rows", INT8OID, true},
    {"attempt", INT4OID, false},
    {"call", TEXTOID, true},
    {"account", TEXTOID, true},
    {"action", TEXTOID, false},
    {"key", TEXTOID, false},
    {"verdict", TEXTOID, false},
    {"note", TEXTOID, false},
    {"session_user_name", TEXTOID, true},
    {"user_name", TEXTOID, true},
};
static_assert(std::size(audit_columns) == audit::count);

constexpr pg::Column effects_columns[] = {
    {"first_sent_at", TIMESTAMPTZOID, true},
    {"reported_at", TIMESTAMPTZOID, false},
    {"provider_window", INTERVALOID, false},
    {"downstream_key", UUIDOID, true},
    {"account", TEXTOID, true},
    {"action", TEXTOID, true},
    {"key", TEXTOID, true},
    {"name", TEXTOID, true},
    {"generation", INT4OID, true},
    {"report", TEXTOID, false},
    {"fingerprint", BYTEAOID, false},
    {"request", JSONBOID, false},
    {"response", JSONBOID, false},
};
static_assert(std::size(effects_columns) == effects::count);

constexpr pg::Column outbox_columns[] = {
    {"id", UUIDOID, true},
    {"aggregatetype", TEXTOID, true},
    {"aggregateid", TEXTOID, true},
    {"type", TEXTOID, true},
    {"payload", JSONBOID, false},
    {"headers", JSONBOID, false},
    {"account", TEXTOID, false},
    {"action", TEXTOID, false},
    {"key", TEXTOID, false},
    {"created_at", TIMESTAMPTZOID, true},
    {"position", INT8OID, true},
    {"deliveries", INT4OID, true},
    {"failures", INT4OID, true},
    {"leased_until", TIMESTAMPTZOID, false},
    {"due_at", TIMESTAMPTZOID, false},
    {"parked_at", TIMESTAMPTZOID, false},
    {"last_error", TEXTOID, false},
};
static_assert(std::size(outbox_columns) == outbox::count);

struct TableShape {
    const char* name;
    std::span<const pg::Column> columns;
    pg::PrimaryKey key;
};

// (account, action, key)
constexpr pg::PrimaryKey identity_from(int field) {
    return {static_cast<AttrNumber>(field + 1), 3, C_COLLATION_OID};
}

// Policies are read by column name (store/policies.cpp): users write that table, and later versions add columns.
constexpr TableShape shapes[pg::table_count] = {
    {"idem_settled", settled_columns, identity_from(settled::account)},
    {"idem_inflight", inflight_columns, identity_from(inflight::account)},
    {"idem_seen", seen_columns, identity_from(seen::account)},
    {"idem_policies", {}, {}},
    {"idem_audit", audit_columns, {audit::id + 1, 1, InvalidOid}},
    {"idem_effect_calls", effects_columns, {effects::account + 1, 5, C_COLLATION_OID}},
    {"idem_outbox", outbox_columns, {outbox::position + 1, 1, InvalidOid}},
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

pg::PrimaryKey key_of(pg::TableId id) {
    return shape(id).key;
}

} // namespace idem::store
