// The extension as an object of the database, for code that no SQL function of it has called: background workers.
#pragma once

#include <cstdint>

#include "pg/pg.hpp"

namespace idem::pg {

enum class ExtensionState : std::uint8_t { absent, busy, locked };

// Takes a lock on the extension that excludes DROP EXTENSION, ALTER EXTENSION and other passes until the end of the
// transaction, without waiting for it; then finds the extension's schema, and so its tables.
// busy: somebody else has it.
ExtensionState lock_extension();

// The same lock for idem_maintain, waiting for it like any other. The transaction cannot be prepared then.
void wait_for_extension_lock();

// Registers callbacks; from _PG_init.
void init_extension();

} // namespace idem::pg
