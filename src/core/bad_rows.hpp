// Rows that a pass could not deal with: they are left alone for a while.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/time.hpp"

namespace idem::core {

// Remembers the last few, by the hash of their identity; of more, those that are due again first are forgotten.
class BadRows {
public:
    static constexpr int size = 16;

    bool any(Time now) const noexcept { return now < latest; }
    bool is_left_alone(std::uint64_t hash, Time now) const noexcept {
        return std::any_of(rows, rows + size, [&](const Row& r) { return r.hash == hash && now < r.until; });
    }
    void add(std::uint64_t hash, Time until) noexcept {
        Row* place = std::find_if(rows, rows + size, [&](const Row& r) { return r.hash == hash; });
        if (place == rows + size) {
            place = std::min_element(rows, rows + size, [](const Row& a, const Row& b) { return a.until < b.until; });
        }
        *place = {hash, until};
        latest = std::max(latest, until);
    }

private:
    struct Row {
        std::uint64_t hash = 0;
        Time until = 0;
    };
    Row rows[size];
    Time latest = 0;
};

} // namespace idem::core
