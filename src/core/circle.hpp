// A walk around a table, some blocks at a time: it goes on where it stopped, and ends when every block has been seen.
#pragma once

#include <cstdint>

#include "core/time.hpp"

namespace idem::core {

struct Circle {
    std::uint32_t next = 0;     // block
    std::uint32_t left = 0;     // blocks to see until the circle is closed
    std::uint32_t end = 0;      // so many blocks had the table when it was begun
    bool reading = false;       // the block at `next`: true where an error came from reading it
    Time soonest = end_of_time; // when the first of the rows seen, and left as they are, is due

    bool is_closed() const noexcept { return left == 0; }

    // Begins another one at the same place, over a table that has so many blocks.
    void begin(std::uint32_t blocks) noexcept {
        next = next < blocks ? next : 0;
        left = blocks;
        end = blocks;
        soonest = end_of_time;
    }

    void saw_due(Time due) noexcept { soonest = due < soonest ? due : soonest; }

    // The block at `next` has been dealt with. The table may have been truncated meanwhile, or have grown: what was
    // added is seen on the next round, and what was there is seen on this one, however fast others append.
    void step(std::uint32_t blocks) noexcept {
        const std::uint32_t last = blocks < end ? blocks : end;
        next = last > 0 && next < last - 1 ? next + 1 : 0;
        left = left > 0 ? left - 1 : 0;
    }
};

} // namespace idem::core
