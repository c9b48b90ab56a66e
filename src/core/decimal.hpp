#pragma once

#include <string_view>

#include "core/byte_sink.hpp"

namespace idem::core {

// Writes a JSON number in the one form that its exact decimal value has: the significant digits, without
// zeros at either end, laid out as ECMAScript's Number::toString (which RFC 8785 section 3.2.2.3 adopts)
// lays out the digits it has chosen. So 1, 1.0 and 1e0 give "1", 0.0000001 gives "1e-7", -0 gives "0".
//
// A number that is the shortest decimal form of a double, in any spelling, thereby takes its RFC 8785 form.
// Any other (9007199254740993, 0.10000000000000001, 1e400), which RFC 8785 would round or refuse, keeps all
// its digits: two amounts that differ never become equal. No binary floating point is involved.
//
// Puts at most text.size() + 30 bytes. Throws std::invalid_argument if `text` is not a number by RFC 8259
// section 6, std::out_of_range if its exponent, as given or as written, has more than 18 digits.
void write_decimal(std::string_view text, BufferedSink& out);

} // namespace idem::core
