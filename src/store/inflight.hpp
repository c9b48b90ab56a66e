// Table idem_inflight: who may advance what is still open.
#pragma once

#include <optional>
#include <string_view>

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "pg/session.hpp"
#include "pg/table.hpp"
#include "store/columns.hpp"
#include "store/row.hpp"

namespace idem::store {

struct InflightRow : Row<inflight::Field, inflight::count> {
    core::InflightFacts facts;

    bool is_announced() const { return DatumGetBool(values[inflight::announced]); }
    int attempt() const { return DatumGetInt32(values[inflight::attempt]); }
    core::Time lease_expires_at() const { return facts.lease_expires_at; }
    core::Duration lease() const;
    std::optional<std::string_view> text(inflight::Field field) const;

    void set_text(inflight::Field field, std::string_view value);
    // In progress, until now + lease.
    void renew(core::Time now, core::Duration lease);
    void bind_to_session(bool bound); // to this one
    void bind_to_session(const pg::SessionId& session);
};

bool find_inflight(const core::Identity& identity, Snapshot snapshot, pg::Access access, InflightRow& row);

// From a scan: valid as long as the slot's row is. Sessions are those of pg::remember_sessions().
void read_inflight(TupleTableSlot* slot, InflightRow& row);

// All under the key lock; a row to update or delete was found with Access::change.
void insert_inflight(const InflightRow& row);
void update_inflight(const InflightRow& row);
void delete_inflight(const InflightRow& row);

// A row with nothing set but what may not be NULL.
InflightRow new_inflight(const core::Identity& identity);

const char* rule_text(core::Rule rule);
core::Rule rule_of(std::string_view text);

} // namespace idem::store
