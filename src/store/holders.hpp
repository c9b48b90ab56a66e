// Open transaction-scoped claims of all sessions, in shared memory: a claim writes nothing else that another session
// could see but its lock, which does not tell the key. Without the preload there is none of it.
//
// Each session writes a part of its own, without a lock and without ever waiting; readers look again when a part was
// written meanwhile.
#pragma once

#include "core/identity.hpp"
#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::store {

inline constexpr int shown_claims = 8; // of each session
inline constexpr int not_shown = -1;

// Shows a claim of this session; returns its place, or not_shown when all places are taken.
int show_claim(const core::Identity& identity, core::Time claimed_at) noexcept;
void hide_claim(int place) noexcept;
void hide_all_claims() noexcept;

struct ShownClaim {
    core::StoredIdentity identity;
    core::Time claimed_at = 0;
    bool used = false;
};
struct Holder {
    int pid = 0;
    Oid database = InvalidOid;
    ShownClaim claims[shown_claims];
};

// By number; false: that one shows nothing in this database.
int holder_count();
bool read_holder(int number, Holder& holder);

// Registers the shared memory; from _PG_init, before init_shared().
void init_holders();

} // namespace idem::store
