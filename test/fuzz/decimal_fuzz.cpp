// Whatever the text, write_decimal refuses it or gives a form that is stable, short enough and, rounded to a
// double, the same number. Two numbers get the same form exactly if a naive comparison finds them equal.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>

#include "../unit/string_sink.hpp"
#include "core/decimal.hpp"

namespace {

using idem::core::BufferedSink;

void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

std::optional<std::string> written(std::string_view text) {
    std::string output;
    BufferedSink out(idem::test::append_to_string, &output);
    try {
        idem::core::write_decimal(text, out);
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    } catch (const std::out_of_range&) {
        return std::nullopt;
    }
    out.flush();
    return output;
}

// Sign, digits as an integer without zeros at the end, and the power of ten that goes with it.
std::tuple<bool, std::string, std::int64_t> naive(std::string text) {
    const bool negative = text.front() == '-';
    text.erase(0, negative ? 1 : 0);
    std::int64_t exponent = 0;
    if (const std::size_t mark = text.find_first_of("eE"); mark != std::string::npos) {
        const std::string digits = text.substr(mark + 1);
        const char* const first = digits.data() + (digits.front() == '+' ? 1 : 0);
        std::from_chars(first, digits.data() + digits.size(), exponent);
        text.resize(mark);
    }
    if (const std::size_t point = text.find('.'); point != std::string::npos) {
        exponent -= static_cast<std::int64_t>(text.size() - point - 1);
        text.erase(point, 1);
    }
    text.erase(0, text.find_first_not_of('0'));
    if (text.empty()) {
        return {false, "", 0};
    }
    while (text.back() == '0') {
        text.pop_back();
        ++exponent;
    }
    return {negative, text, exponent};
}

void check_one(std::string_view text, const std::string& form) {
    check(form.size() <= text.size() + 30);
    check(naive(form) == naive(std::string(text)));
    check(written(form) == form);
    double expected = 0;
    double value = 0;
    const auto before = std::from_chars(text.data(), text.data() + text.size(), expected);
    const auto after = std::from_chars(form.data(), form.data() + form.size(), value);
    check(before.ec == after.ec && expected == value);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t middle = std::min(input.find(' '), input.size());
    const std::string_view first = input.substr(0, middle);
    const std::string_view second = input.substr(std::min(middle + 1, input.size()));
    const auto first_form = written(first);
    const auto second_form = written(second);
    if (first_form) {
        check_one(first, *first_form);
    }
    if (second_form) {
        check_one(second, *second_form);
    }
    if (first_form && second_form) {
        check((*first_form == *second_form) == (naive(std::string(first)) == naive(std::string(second))));
    }
    return 0;
}
