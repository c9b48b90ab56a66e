// Random tokens.
#pragma once

#include "core/decide.hpp"

namespace idem::pg {

// A UUID version 4 (RFC 9562) from the server's strong random numbers.
core::Token random_token();

} // namespace idem::pg
