// Random tokens and other identifiers.
#pragma once

#include "core/decide.hpp"

namespace idem::pg {

// A UUID version 4 (RFC 9562) from the server's strong random numbers.
core::Token random_token();

// A UUID version 7 of `time`: later ones sort after earlier ones.
core::Token ordered_uuid(core::Time time);

} // namespace idem::pg
