#include <cstring>
#include <new>
#include <optional>
#include <string_view>

#include "store/policies.hpp"

#include "pg/args.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/index_scan.hpp"
#include "pg/table.hpp"
#include "store/datum.hpp"
#include "store/inflight.hpp"

namespace idem::store {

namespace {

constexpr std::string_view all_others = "*";
constexpr int cache_size = 64; // actions; a session rarely uses more than a few

struct Entry {
    char action[core::max_action_bytes] = {};
    std::size_t action_size = 0;
    core::Policy policy;
};

struct Cache {
    Oid table = InvalidOid;
    bool valid = false;
    int used = 0;
    int next = 0; // overwritten when full
    Entry entries[cache_size] = {};
};
constinit Cache cache;

void on_relation_change(Datum, Oid relation) {
    if (relation == InvalidOid || relation == cache.table) {
        cache.valid = false;
    }
}

// One column of a row, by name: a later version may add columns, and users write this table.
class Columns {
public:
    Columns(Relation rel, HeapTuple row) : desc(RelationGetDescr(rel)), tuple(row) {}

    std::optional<Datum> get(const char* name, Oid type) const {
        for (int i = 0; i < desc->natts; i++) {
            const FormData_pg_attribute* att = TupleDescAttr(desc, i);
            if (!att->attisdropped && std::strcmp(NameStr(att->attname), name) == 0) {
                if (att->atttypid != type) {
                    pg::raise_altered("idem_policies", "has a column of another type");
                }
                bool is_null = false;
                const Datum value = heap_getattr(tuple, i + 1, desc, &is_null);
                return is_null ? std::nullopt : std::optional<Datum>(value);
            }
        }
        return std::nullopt;
    }
    std::optional<core::Duration> duration(const char* name) const {
        const std::optional<Datum> value = get(name, INTERVALOID);
        if (!value) {
            return std::nullopt;
        }
        const Interval* interval = DatumGetIntervalP(*value);
        return pg::compat::is_infinite(interval) ? core::end_of_time : pg::duration_of(interval);
    }
    std::optional<std::string_view> text(const char* name) const {
        const std::optional<Datum> value = get(name, TEXTOID);
        return value ? std::optional<std::string_view>(view_of(*value)) : std::nullopt;
    }
    std::optional<std::int32_t> integer(const char* name) const {
        const std::optional<Datum> value = get(name, INT4OID);
        return value ? std::optional<std::int32_t>(DatumGetInt32(*value)) : std::nullopt;
    }
    std::optional<bool> boolean(const char* name) const {
        const std::optional<Datum> value = get(name, BOOLOID);
        return value ? std::optional<bool>(DatumGetBool(*value)) : std::nullopt;
    }

private:
    TupleDesc desc;
    HeapTuple tuple;
};

std::optional<core::KeyFormat> key_format_of(std::optional<std::string_view> text) {
    if (!text) {
        return std::nullopt;
    }
    return *text == "uuidv7" ? core::KeyFormat::uuidv7
           : *text == "uuid" ? core::KeyFormat::uuid
                             : core::KeyFormat::any; // "" means none
}

core::PolicyRow read_policy(const pg::Table& table, HeapTuple tuple) {
    const Columns columns(table.heap, tuple);
    core::PolicyRow row;
    row.retention = columns.duration("retention");
    row.remember = columns.duration("remember");
    row.once_retention = columns.duration("once_retention");
    row.reject_older_than = columns.duration("reject_older_than");
    row.key_format = key_format_of(columns.text("key_format"));
    if (const auto fingerprint = columns.text("fingerprint")) {
        row.fingerprint_required = *fingerprint == "required";
    }
    row.max_lease = columns.duration("max_lease");
    row.max_attempts = columns.integer("max_attempts");
    if (const auto rule = columns.text("on_interrupt")) {
        row.on_interrupt = rule_of(*rule);
    }
    row.retry_backoff = columns.duration("retry_backoff");
    row.max_backoff = columns.duration("max_backoff");
    row.keep_request = columns.boolean("keep_request");
    row.max_outcome_bytes = columns.integer("max_outcome_bytes");
    return row;
}

core::PolicyRow find_policy(const pg::Table& table, std::string_view action, Snapshot snapshot) {
    HeapTuple tuple = pg::find_row_by_text(table, action, snapshot);
    return tuple == nullptr ? core::PolicyRow{} : read_policy(table, tuple);
}

std::string_view copy_of(std::optional<std::string_view> text) {
    if (!text) {
        return {};
    }
    return {pnstrdup(text->data(), text->size()), text->size()};
}

core::Policy load(std::string_view action) {
    const pg::Table table = pg::open_table(pg::TableId::policies, pg::Access::look);
    cache.table = RelationGetRelid(table.heap);
    cache.valid = true; // before the read: an invalidation that arrives meanwhile clears it again
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    const core::PolicyRow own = find_policy(table, action, snapshot);
    const core::PolicyRow star = find_policy(table, all_others, snapshot);
    UnregisterSnapshot(snapshot);
    pg::close_table(table);
    return core::effective_policy(own, star);
}

} // namespace

const core::Policy& policy_for(std::string_view action) {
    AcceptInvalidationMessages(); // in the middle of a transaction nothing else may have read them
    if (!cache.valid) {
        cache.used = 0;
        cache.next = 0;
    }
    for (int i = 0; i < cache.used; i++) {
        const Entry& entry = cache.entries[i];
        if (action == std::string_view(entry.action, entry.action_size)) {
            return entry.policy;
        }
    }
    const core::Policy policy = load(action);
    Entry& entry = cache.entries[cache.next];
    std::memcpy(entry.action, action.data(), action.size());
    entry.action_size = action.size();
    entry.policy = policy;
    cache.next = (cache.next + 1) % cache_size;
    cache.used = cache.used < cache_size ? cache.used + 1 : cache_size;
    return entry.policy;
}

Handler handler_for(std::string_view action) {
    const pg::Table table = pg::open_table(pg::TableId::policies, pg::Access::look);
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    Handler handler;
    for (const std::string_view row : {action, all_others}) {
        HeapTuple tuple = pg::find_row_by_text(table, row, snapshot);
        if (tuple == nullptr) {
            continue;
        }
        const Columns columns(table.heap, tuple);
        auto get = [&](const char* name) -> const char* {
            const auto text = columns.text(name);
            return text && !text->empty() ? pnstrdup(text->data(), text->size()) : nullptr;
        };
        if (columns.text("handler") || columns.text("handler_role")) {
            handler = {get("handler"), get("handler_role")};
            break;
        }
    }
    UnregisterSnapshot(snapshot);
    pg::close_table(table);
    return handler;
}

StoredPolicies read_all_policies() {
    const pg::Table table = pg::open_table(pg::TableId::policies, pg::Access::look);
    StoredPolicies all{};
    int room = 16;
    auto* rows = static_cast<StoredPolicy*>(palloc(sizeof(StoredPolicy) * room));
    pg::Scan scan(table);
    for (HeapTuple tuple = scan.next(); tuple != nullptr; tuple = scan.next()) {
        if (all.count == room) {
            room *= 2;
            rows = static_cast<StoredPolicy*>(repalloc(rows, sizeof(StoredPolicy) * room));
        }
        StoredPolicy& stored = *new (&rows[all.count++]) StoredPolicy;
        const Columns columns(table.heap, tuple);
        stored.action = copy_of(columns.text("action"));
        stored.row = read_policy(table, tuple);
        stored.handler = copy_of(columns.text("handler"));
        stored.handler_role = copy_of(columns.text("handler_role"));
        stored.sets_handler = columns.text("handler").has_value();
        stored.sets_handler_role = columns.text("handler_role").has_value();
        if (stored.action == all_others) {
            all.star = stored;
        }
    }
    scan.finish();
    pg::close_table(table);
    all.rows = rows;
    return all;
}

void init_policies() {
    CacheRegisterRelcacheCallback(on_relation_change, Datum{0});
}

} // namespace idem::store
