// Where a relay's walk over the outbox may begin: below its floor there is no live message of its filter, and there
// never will be. So a take does not step over the index entries of messages that are long acknowledged but cannot be
// vacuumed yet, because some old transaction could still see them.
//
// Order does not depend on it: before a message is handed out, its whole aggregate is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "pg/table.hpp"

namespace idem::store {

// One walk: from() is asked before its snapshot is taken, saw() at its first live message of the filter, end() when it
// is over. filter: what tells filters apart.
class FloorWalk {
public:
    FloorWalk(const pg::Table& walked, std::string_view filter_text) : table(walked), filter(filter_text) { begin(); }
    std::int64_t from() const { return start; }
    void saw(std::int64_t position) {
        if (!first) {
            first = position;
        }
    }
    void end();

private:
    void begin();

    const pg::Table& table;
    std::string_view filter;
    std::int64_t start = PG_INT64_MIN;
    std::optional<std::int64_t> first;
    bool proves = false; // what it sees is all that there is up to the round's end
};

// In the current memory context.
FloorWalk& begin_floor_walk(const pg::Table& table, std::string_view filter);

} // namespace idem::store
