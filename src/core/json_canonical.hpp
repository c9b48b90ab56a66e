#pragma once

#include <span>
#include <string_view>

#include "core/byte_sink.hpp"
#include "core/json.hpp"

namespace idem::core {

// Writes the RFC 8785 (JCS) form of the value in `tape`: no white space, members sorted by the UTF-16 code
// units of their names, one spelling for each string and number. It differs from JCS in one point: a number
// that no double holds keeps all its digits (see write_decimal). So two values give the same bytes exactly
// if they are equal as JSON with numbers compared as decimals.
//
// Members and elements whose JSON Pointer (RFC 6901) is in `ignore` are left out. A pointer that names none
// changes nothing; nor does "", since the whole document is neither member nor element. Array indices are
// those of the whole array, whatever else is left out of it.
//
// Strings and keys must be valid UTF-8; this is not checked, and no Unicode normalisation is done. Depth is
// limited by memory only; memory is linear in the size of the tape, and none is allocated for small values.
//
// Throws std::invalid_argument if `tape` is not one well-formed value, a key occurs twice in one object, or
// a number is not one by RFC 8259; std::out_of_range as write_decimal; std::bad_alloc. After an exception
// the sink has had an arbitrary part of the output.
void canonicalize(std::span<const JsonToken> tape, std::span<const std::string_view> ignore, ByteSink sink,
                  void* state);

} // namespace idem::core
