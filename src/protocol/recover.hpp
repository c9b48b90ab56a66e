// Parts of recover_some that the other ways to recover share.
#pragma once

#include "core/decide.hpp"
#include "protocol/pass.hpp"
#include "store/operation.hpp"

namespace idem::protocol {

// One step changes about so many rows, each with a lock.
inline constexpr int rows_a_step = 100;

// Takes the key lock of an operation, without waiting, and decides about what is in flight under it. False: there is
// nothing to do, and no lock; `done` says whether because somebody holds it.
struct UnderLock {
    store::Stored stored;
    core::Decision decision;
    core::Time now;
};
bool lock_and_decide(const core::Identity& identity, bool (*wanted)(const store::InflightRow&, const core::Decision&),
                     UnderLock& locked, Done& done);

// When a row that needs nothing now has to be looked at again.
core::Time next_look(const store::InflightRow& row, const core::Decision& decision, core::Time now);

} // namespace idem::protocol
