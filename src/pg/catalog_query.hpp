// Read-only SQL over the server's catalogues and statistics views; never over our tables. For diagnosis only: nothing
// that decides about operations runs SQL. Every name and operator in it is qualified with pg_catalog, since the
// search_path is the caller's.
#pragma once

#include <initializer_list>

#include "pg/pg.hpp"

namespace idem::pg {

struct QueryArgument {
    Oid type;
    Datum value;
};

// All values as text, in the current memory context; nullptr for NULL.
struct Texts {
    const char** values;
    int rows;
    int columns;

    const char* at(int row, int column = 0) const { return values[row * columns + column]; }
};

Texts query_catalog(const char* sql, std::initializer_list<QueryArgument> arguments = {});

// A query whose only value is a count.
int64 query_count(const char* sql, std::initializer_list<QueryArgument> arguments = {});

} // namespace idem::pg
