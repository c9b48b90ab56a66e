// A row of one of our tables, as it was read.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// Its columns by position; values point into its own memory. Setters prepare an insert or an update.
template <typename Field, int columns>
struct Row {
    HeapTuple tuple;
    Datum values[columns];
    bool nulls[columns];

    void set(Field field, Datum value) {
        values[field] = value;
        nulls[field] = false;
    }
    void clear(Field field) {
        values[field] = Datum{0};
        nulls[field] = true;
    }
};

} // namespace idem::store
