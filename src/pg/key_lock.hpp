// The key lock: an exclusive, transaction-level heavyweight lock on the 64-bit hash of an identity. The server
// releases it after the commit is visible, on rollback, on rollback to a savepoint, and on crash; it moves to a
// prepared transaction; pg_locks shows it as an advisory lock with objsubid = key_lock_class.
#pragma once

#include <string_view>

#include "core/identity.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// An advisory lock class of our own. The server uses 1 and 2, Citus 4 to 16. Prepared transactions carry lock tags
// over restarts and library upgrades: class, hash and seed never change within a major version of pg_idem.
inline constexpr uint16 key_lock_class = 7433;

LOCKTAG key_lock_tag(const core::Identity& identity);

// The same kind of lock for an aggregate of the outbox, in a class of its own: a relay that hands out its messages
// holds it. Parts of at most 255 bytes.
inline constexpr uint16 aggregate_lock_class = key_lock_class + 1;
LOCKTAG aggregate_lock_tag(std::string_view type, std::string_view id);

// The 64 bits of it.
inline uint64 hash_of(const LOCKTAG& tag) {
    return (static_cast<uint64>(tag.locktag_field2) << 32) | tag.locktag_field3;
}

bool try_key_lock(const LOCKTAG& tag);              // true: had
void wait_for_key_lock(const LOCKTAG& tag);         // like any other lock wait; may raise
bool try_key_lock_for(const LOCKTAG& tag, long ms); // asks again until then; works at pre-commit too
bool holds_key_lock(const LOCKTAG& tag);

// Lets go of one acquisition, made in this very subtransaction.
void release_key_lock(const LOCKTAG& tag);

// As wait_for_key_lock, for at most `ms` (or the user's lock_timeout, where that is shorter): then raises 55P03.
void wait_for_key_lock(const LOCKTAG& tag, long ms);

// Who holds the lock: nothing is acquired. Knows prepared transactions.
struct KeyLockHolder {
    bool held = false;
    int pid = 0; // 0: a prepared transaction
};
KeyLockHolder find_key_lock_holder(const LOCKTAG& tag);

// Sleeps for `ms` or until the latch is set, and serves interrupts. wait_event names what is waited for.
void pause_ms(long ms);

} // namespace idem::pg
