// Which transactions may have written to a table and have not ended.
#pragma once

#include <span>

#include "pg/pg.hpp"

namespace idem::pg {

// Transactions of others that hold a lock on the table which lets them write; nothing is acquired. Knows fast-path
// locks and prepared transactions; VACUUM, which writes no rows, is left out. In the current memory context.
std::span<const VirtualTransactionId> find_writers(Oid table);

} // namespace idem::pg
