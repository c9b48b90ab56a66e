#include <cstdlib>

#include "pg/catalog_query.hpp"

extern "C" {
#include "executor/spi.h"
}

namespace idem::pg {

namespace {

constexpr int max_arguments = 4;

} // namespace

Texts query_catalog(const char* sql, std::initializer_list<QueryArgument> arguments) {
    Oid types[max_arguments] = {};
    Datum values[max_arguments] = {};
    int count = 0;
    for (const QueryArgument& argument : arguments) {
        Assert(count < max_arguments);
        types[count] = argument.type;
        values[count] = argument.value;
        count++;
    }
    MemoryContext context = CurrentMemoryContext;
    SPI_connect();
    const int done = SPI_execute_with_args(sql, count, types, values, nullptr, true, 0);
    if (done != SPI_OK_SELECT) {
        elog(ERROR, "query over the catalogue failed: %s", SPI_result_code_string(done));
    }
    Texts texts{};
    texts.rows = static_cast<int>(SPI_processed);
    texts.columns = SPI_tuptable->tupdesc->natts;
    texts.values = static_cast<const char**>(
        MemoryContextAlloc(context, sizeof(char*) * static_cast<Size>(texts.rows * texts.columns + 1)));
    for (int row = 0; row < texts.rows; row++) {
        for (int column = 0; column < texts.columns; column++) {
            const char* value = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column + 1);
            texts.values[row * texts.columns + column] =
                value == nullptr ? nullptr : MemoryContextStrdup(context, value);
        }
    }
    SPI_finish();
    return texts;
}

int64 query_count(const char* sql, std::initializer_list<QueryArgument> arguments) {
    const Texts texts = query_catalog(sql, arguments);
    return texts.rows == 1 && texts.at(0) != nullptr ? std::strtoll(texts.at(0), nullptr, 10) : 0;
}

} // namespace idem::pg
