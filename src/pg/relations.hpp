// Which schema and tables belong to the extension, found by the schema of the function that was called.
#pragma once

#include <cstdint>

#include "pg/pg.hpp"

namespace idem::pg {

enum class TableId : std::uint8_t { settled, inflight, seen, policies, audit, effects, outbox };
inline constexpr int table_count = 7;

// A column as the install script makes it.
struct Column {
    const char* name;
    Oid type;
    bool not_null;
};

// A primary key: columns that follow each other, those that have a collation all of this one.
struct PrimaryKey {
    AttrNumber first;
    int columns;
    Oid collation;
};

// Remembers the extension's schema from the function being called. Every entry calls it first.
void enter_extension(FunctionCallInfo fcinfo);

// The same where no function of the extension is being called.
void enter_schema(Oid schema);
Oid current_schema();

// OID of one of our tables. Raises 0A000 with a hint when it was altered in a way that direct access would skip:
// trigger, row security, partitioning, added constraint, default, or generated column; a column missing.
Oid table_oid(TableId id);

// The same unchecked, for those who only look at the catalogue; InvalidOid: there is none.
Oid named_table(TableId id);

// Looks the table up anew next time.
void forget_table(TableId id);

// OID of a label of an enum type.
Oid enum_label(Oid type, const char* label);

// Registers the cache's invalidation; from _PG_init.
void init_relations();

} // namespace idem::pg
