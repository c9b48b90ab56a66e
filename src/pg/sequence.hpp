// Our sequence idem_outbox_position: numbers in the order in which they are drawn.
#pragma once

#include <cstdint>

namespace idem::pg {

// Draws the next number. Raises 0A000 where the sequence was altered so that sessions would draw out of order, or the
// same number twice. No privilege on it is needed.
std::int64_t next_position();

// The last number drawn by anybody; 0: none.
std::int64_t last_position();

} // namespace idem::pg
