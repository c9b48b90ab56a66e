// on_interrupt = 'call': an interrupted operation is carried on by the handler that its policy names.
#pragma once

#include "protocol/pass.hpp"

namespace idem::worker {

// A step of a pass, as those in protocol/pass.hpp; starts one handler at most.
void call_some(core::Circle& circle, const protocol::StepLimits& limits, protocol::Counts& counts);

} // namespace idem::worker
