#include <iterator>

#include "store/inflight.hpp"

#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "pg/index_scan.hpp"
#include "pg/session.hpp"
#include "store/datum.hpp"
#include "worker/registry.hpp"

namespace idem::store {

namespace {

constexpr const char* rule_names[] = {"retry", "fail", "review", "call"};

void read_facts(InflightRow& row, bool (*is_alive)(const pg::SessionId&)) {
    core::InflightFacts& f = row.facts;
    auto time = [&](inflight::Field field) {
        return row.nulls[field] ? core::Time{0} : DatumGetTimestampTz(row.values[field]);
    };
    f = core::InflightFacts{};
    if (!row.nulls[inflight::token]) {
        f.token = token_of(row.values[inflight::token]);
    }
    f.in_review = DatumGetBool(row.values[inflight::in_review]);
    f.granted = DatumGetBool(row.values[inflight::granted]);
    f.rule = rule_of(view_of(row.values[inflight::on_interrupt]));
    f.failures = DatumGetInt32(row.values[inflight::failures]);
    f.max_attempts = DatumGetInt32(row.values[inflight::max_attempts]);
    f.lease_expires_at = time(inflight::lease_expires_at);
    f.due_at = time(inflight::due_at);
    if (f.token && !row.nulls[inflight::session_pid]) {
        f.session_over = !is_alive({DatumGetInt32(row.values[inflight::session_pid]), time(inflight::session_start)});
    }
    if (!row.nulls[inflight::fingerprint]) {
        f.fingerprint = view_of(row.values[inflight::fingerprint]);
    }
}

} // namespace

const char* rule_text(core::Rule rule) {
    return rule_names[static_cast<int>(rule)];
}

core::Rule rule_of(std::string_view text) {
    for (std::size_t i = 0; i < std::size(rule_names); i++) {
        if (text == rule_names[i]) {
            return static_cast<core::Rule>(i);
        }
    }
    return core::Rule::review; // unknown, so written by hand or by a later version: nobody but an operator decides
}

core::Duration InflightRow::lease() const {
    return pg::duration_of(DatumGetIntervalP(values[inflight::lease]));
}

std::optional<std::string_view> InflightRow::text(inflight::Field field) const {
    if (nulls[field]) {
        return std::nullopt;
    }
    return view_of(values[field]);
}

void InflightRow::set_text(inflight::Field field, std::string_view value) {
    set(field, text_datum(value));
}

void InflightRow::renew(core::Time now, core::Duration lease) {
    if (DatumGetBool(values[inflight::announced])) { // it was over, and goes on all the same
        set(inflight::announced, BoolGetDatum(false));
        set(inflight::state_since, TimestampTzGetDatum(now));
        clear(inflight::reason);
    }
    facts.lease_expires_at = core::later(now, lease);
    set(inflight::lease_expires_at, TimestampTzGetDatum(facts.lease_expires_at));
}

void InflightRow::bind_to_session(bool bound) {
    if (!bound) {
        clear(inflight::session_pid);
        clear(inflight::session_start);
        return;
    }
    bind_to_session(pg::this_session());
}

void InflightRow::bind_to_session(const pg::SessionId& session) {
    set(inflight::session_pid, Int32GetDatum(session.pid));
    set(inflight::session_start, TimestampTzGetDatum(session.start));
}

InflightRow new_inflight(const core::Identity& identity) {
    InflightRow row{};
    for (bool& is_null : row.nulls) {
        is_null = true;
    }
    row.set_text(inflight::account, identity.account);
    row.set_text(inflight::action, identity.action);
    row.set_text(inflight::key, identity.key);
    row.set(inflight::attempt, Int32GetDatum(0));
    row.set(inflight::failures, Int32GetDatum(0));
    row.set(inflight::in_review, BoolGetDatum(false));
    row.set(inflight::granted, BoolGetDatum(false));
    row.set(inflight::announced, BoolGetDatum(false));
    return row;
}

bool find_inflight(const core::Identity& identity, Snapshot snapshot, pg::Access access, InflightRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::inflight, access);
    row.tuple = pg::find_row(table, identity, snapshot);
    if (row.tuple != nullptr) {
        pg::read_row(table, row.tuple, row.values, row.nulls, inflight::count);
    }
    pg::close_table(table);
    if (row.tuple == nullptr) {
        return false;
    }
    read_facts(row, pg::is_session_alive);
    return true;
}

void read_inflight(TupleTableSlot* slot, InflightRow& row) {
    slot_getsomeattrs(slot, inflight::count);
    row.tuple = nullptr;
    for (int i = 0; i < inflight::count; i++) {
        row.values[i] = slot->tts_values[i];
        row.nulls[i] = slot->tts_isnull[i];
    }
    read_facts(row, pg::was_session_alive);
}

namespace {

// The workers look at it when its lease ends, or when it may be tried again.
void tell_workers(const InflightRow& row) {
    if (DatumGetBool(row.values[inflight::in_review]) || DatumGetBool(row.values[inflight::announced])) {
        return;
    }
    const inflight::Field due = row.nulls[inflight::token] ? inflight::due_at : inflight::lease_expires_at;
    const bool bound = !row.nulls[inflight::session_pid]; // and nothing tells when a session ends
    worker::note_due(bound || row.nulls[due] ? pg::now() : DatumGetTimestampTz(row.values[due]));
}

} // namespace

void insert_inflight(const InflightRow& row) {
    tell_workers(row);
    const pg::Table table = pg::open_table(pg::TableId::inflight, pg::Access::change);
    pg::insert_row(table, row.values, row.nulls, inflight::count);
    pg::close_table(table);
}

void update_inflight(const InflightRow& row) {
    tell_workers(row);
    const pg::Table table = pg::open_table(pg::TableId::inflight, pg::Access::change);
    pg::update_row(table, row.tuple, row.values, row.nulls, inflight::count);
    pg::close_table(table);
}

void delete_inflight(const InflightRow& row) {
    const pg::Table table = pg::open_table(pg::TableId::inflight, pg::Access::change);
    pg::delete_row(table, &row.tuple->t_self);
    pg::close_table(table);
}

} // namespace idem::store
