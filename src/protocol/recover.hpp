// Parts of recover_some that the other ways to recover share.
#pragma once

#include "core/decide.hpp"
#include "protocol/pass.hpp"
#include "store/inflight.hpp"

namespace idem::protocol {

// One step changes about so many rows, each with a lock.
inline constexpr int rows_a_step = 100;

// When a row that needs nothing now has to be looked at again.
core::Time next_look(const store::InflightRow& row, const core::Decision& decision, core::Time now);

} // namespace idem::protocol
