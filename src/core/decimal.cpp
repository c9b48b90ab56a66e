#include "core/decimal.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace idem::core {
namespace {

constexpr std::string_view zeros = "00000000000000000000"; // the plain forms never pad with more than 20
constexpr std::size_t max_exponent_digits = 18;            // so that all sums below fit in 64 bits
constexpr std::int64_t max_exponent = 999'999'999'999'999'999;

// (-1)^negative x 0.DIGITS x 10^point, where DIGITS is `whole` followed by `fraction`. Neither the first nor
// the last digit is zero, so equal values are equal in all parts; zero has no digits at all.
struct Decimal {
    bool negative = false;
    std::string_view whole;
    std::string_view fraction;
    std::int64_t point = 0;

    std::size_t size() const noexcept { return whole.size() + fraction.size(); }
};

std::string_view take_digits(std::string_view& text) noexcept {
    std::size_t size = 0;
    while (size < text.size() && text[size] >= '0' && text[size] <= '9') {
        ++size;
    }
    const std::string_view digits = text.substr(0, size);
    text.remove_prefix(size);
    return digits;
}

bool take(std::string_view& text, char wanted) noexcept {
    const bool found = !text.empty() && text.front() == wanted;
    text.remove_prefix(found ? 1 : 0);
    return found;
}

std::size_t strip_leading_zeros(std::string_view& digits) noexcept {
    const std::size_t count = std::min(digits.find_first_not_of('0'), digits.size());
    digits.remove_prefix(count);
    return count;
}

void strip_trailing_zeros(std::string_view& digits) noexcept {
    digits = digits.substr(0, digits.find_last_not_of('0') + 1); // npos + 1 is 0
}

void require(bool well_formed) {
    if (!well_formed) {
        throw std::invalid_argument("not a JSON number");
    }
}

void require_in_range(bool in_range) {
    if (!in_range) {
        throw std::out_of_range("exponent of a JSON number is too large");
    }
}

std::int64_t to_exponent(bool negative, std::string_view digits) {
    strip_leading_zeros(digits);
    require_in_range(digits.size() <= max_exponent_digits);
    std::int64_t magnitude = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
    return negative ? -magnitude : magnitude;
}

Decimal parse(std::string_view text) {
    Decimal number;
    number.negative = take(text, '-');
    number.whole = take_digits(text);
    require(!number.whole.empty() && (number.whole.front() != '0' || number.whole.size() == 1));
    if (take(text, '.')) {
        number.fraction = take_digits(text);
        require(!number.fraction.empty());
    }
    std::string_view exponent;
    bool exponent_negative = false;
    if (take(text, 'e') || take(text, 'E')) {
        exponent_negative = take(text, '-');
        if (!exponent_negative) {
            take(text, '+');
        }
        exponent = take_digits(text);
        require(!exponent.empty());
    }
    require(text.empty());

    strip_leading_zeros(number.whole);
    number.point = static_cast<std::int64_t>(number.whole.size());
    if (number.whole.empty()) {
        number.point -= static_cast<std::int64_t>(strip_leading_zeros(number.fraction));
    }
    strip_trailing_zeros(number.fraction);
    if (number.fraction.empty()) {
        strip_trailing_zeros(number.whole);
    }
    if (number.size() > 0) { // zero is zero whatever its exponent, even one beyond our range
        number.point += to_exponent(exponent_negative, exponent);
        // What is written must be one that can be read again.
        require_in_range(number.point - 1 <= max_exponent && number.point - 1 >= -max_exponent);
    }
    return number;
}

// Puts the digits in the half-open range of positions.
void put_digits(const Decimal& number, std::size_t from, std::size_t to, BufferedSink& out) noexcept {
    const std::size_t whole = number.whole.size();
    if (from < whole) {
        out.put(number.whole.substr(from, std::min(to, whole) - from));
    }
    if (to > whole) {
        const std::size_t start = std::max(from, whole);
        out.put(number.fraction.substr(start - whole, to - start));
    }
}

void put_exponent(std::int64_t exponent, BufferedSink& out) noexcept {
    char text[std::size_t{max_exponent_digits} + 2];
    const auto [end, error] = std::to_chars(text, text + sizeof(text), exponent);
    out.put(exponent < 0 ? "e" : "e+");
    out.put(std::string_view(text, static_cast<std::size_t>(end - text)));
}

} // namespace

void write_decimal(std::string_view text, BufferedSink& out) {
    const Decimal number = parse(text);
    const std::size_t size = number.size();
    const std::int64_t point = number.point;
    if (size == 0) {
        out.put('0');
        return;
    }
    if (number.negative) {
        out.put('-');
    }
    // The cases and their bounds are those of ECMA-262, Number::toString, where `point` is called n.
    if (point > 0 && point <= 21) {
        const auto integer_size = static_cast<std::size_t>(point);
        if (size <= integer_size) {
            put_digits(number, 0, size, out);
            out.put(zeros.substr(0, integer_size - size));
        } else {
            put_digits(number, 0, integer_size, out);
            out.put('.');
            put_digits(number, integer_size, size, out);
        }
    } else if (point > -6 && point <= 0) {
        out.put("0.");
        out.put(zeros.substr(0, static_cast<std::size_t>(-point)));
        put_digits(number, 0, size, out);
    } else {
        put_digits(number, 0, 1, out);
        if (size > 1) {
            out.put('.');
            put_digits(number, 1, size, out);
        }
        put_exponent(point - 1, out);
    }
}

} // namespace idem::core
