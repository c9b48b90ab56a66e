// Rows that a pass may have to change, found by walking around a table in physical order. What is found is only a
// candidate: it is looked at again under its key lock.
#pragma once

#include "core/circle.hpp"
#include "core/identity.hpp"
#include "pg/table.hpp"

namespace idem::store {

struct Candidate {
    core::StoredIdentity identity;
    ItemPointerData tid;
};

// In memory of the current context.
struct Candidates {
    Candidate* items = nullptr;
    int size = 0;
    core::Circle before; // where the walk began
};

// What a row needs: something now, or later.
struct RowDue {
    bool now = false;
    core::Time later = core::end_of_time;
};
using Judge = RowDue (*)(TupleTableSlot* row, core::Time now);

// The identity of a scanned row. False: no call can have made it.
bool read_identity(TupleTableSlot* row, pg::TableId id, core::StoredIdentity& identity);

// Walks on until about `enough` candidates are found (whole blocks are taken), `most_blocks` have been seen, or the
// circle is closed. A row whose identity no call can have made (it was written by hand) is left alone.
Candidates walk(const pg::Table& table, pg::TableId id, core::Circle& circle, int enough, std::uint32_t most_blocks,
                Judge judge, core::Time now);

// Puts the circle back to the first candidate that was not dealt with.
void go_back(const pg::Table& table, core::Circle& circle, const Candidates& found, int first_left);

// Begins a new circle over the table if the last one is closed.
void begin_circle(const pg::Table& table, core::Circle& circle);

} // namespace idem::store
