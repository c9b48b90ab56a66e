#include "protocol/publish.hpp"

#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/logical_message.hpp"
#include "pg/notify.hpp"
#include "pg/random.hpp"
#include "pg/settings.hpp"
#include "protocol/run.hpp"
#include "store/datum.hpp"

extern "C" {
#include "utils/json.h"
}

namespace idem::protocol {

namespace {

constexpr const char* log_prefix = "pg_idem.outbox";

void begin_member(StringInfo json, const char* name) {
    appendStringInfo(json, "%s\"%s\": ", json->len == 0 ? "{" : ", ", name);
}

void add_text(StringInfo json, const char* name, std::string_view text) {
    begin_member(json, name);
    escape_json(json, pnstrdup(text.data(), text.size()));
}

void add_json(StringInfo json, const char* name, Jsonb* value) {
    begin_member(json, name);
    if (value == nullptr) {
        appendStringInfoString(json, "null");
    } else {
        (void)JsonbToCString(json, &value->root, static_cast<int>(VARSIZE(value)));
    }
}

void add_part(StringInfo json, const char* name, const store::Message& message, std::string_view part) {
    if (message.has_operation) {
        add_text(json, name, part);
    } else {
        add_json(json, name, nullptr);
    }
}

// The columns of idem_outbox that are a consumer's, by name.
void log_message(const store::Message& message) {
    StringInfoData json;
    initStringInfo(&json);
    add_text(&json, "id", DatumGetCString(DirectFunctionCall1(uuid_out, store::uuid_datum(message.id))));
    add_text(&json, "aggregatetype", message.aggregatetype);
    add_text(&json, "aggregateid", message.aggregateid);
    add_text(&json, "type", message.type);
    add_json(&json, "payload", message.payload);
    add_json(&json, "headers", message.headers);
    add_part(&json, "account", message, message.operation.account);
    add_part(&json, "action", message, message.operation.action);
    add_part(&json, "key", message, message.operation.key);
    add_text(&json, "created_at", pg::iso_time_text(message.created_at));
    appendStringInfoChar(&json, '}');
    pg::emit_logical_message(log_prefix, json);
}

} // namespace

core::Token publish(store::Message message) {
    int attempt = 0;
    message.created_at = pg::now();
    message.id = pg::ordered_uuid(message.created_at);
    message.has_operation = find_current(message.operation, attempt);
    if (pg::settings.outbox == pg::outbox_wal) {
        log_message(message);
    } else {
        store::insert_message(message);
        if (pg::settings.outbox_notify) {
            pg::notify_outbox();
        }
    }
    pg::require_durable_commit();
    return message.id;
}

} // namespace idem::protocol
