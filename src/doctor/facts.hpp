// Small things that several checks need.
#pragma once

#include <span>
#include <string_view>

#include "core/time.hpp"
#include "pg/pg.hpp"
#include "pg/relations.hpp"

namespace idem::doctor {

// The tables that hold operations and messages seen; and with the outbox, all in which rows come and go.
inline constexpr pg::TableId operation_tables[] = {pg::TableId::settled, pg::TableId::inflight, pg::TableId::seen,
                                                   pg::TableId::effects};
inline constexpr pg::TableId busy_tables[] = {pg::TableId::settled, pg::TableId::inflight, pg::TableId::seen,
                                              pg::TableId::effects, pg::TableId::outbox};

// Their OIDs as oid[]; those that are there.
Datum table_oids(std::span<const pg::TableId> tables);

// The value in force in this session; "" where there is no such setting in this version of the server.
std::string_view setting(const char* name);

// For people: "33 days", "00:10:00", "for ever".
const char* duration_text(core::Duration duration);
const char* time_text(core::Time time);

} // namespace idem::doctor
