#include "core/decimal.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "string_sink.hpp"

namespace idem::core {
namespace {

std::string written(std::string_view text) {
    std::string output;
    BufferedSink out(test::append_to_string, &output);
    write_decimal(text, out);
    out.flush();
    return output;
}

std::string in_format(double value, std::chars_format format) {
    std::array<char, 1100> text;
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value, format);
    return {text.data(), end};
}

// The steps of ECMA-262, Number::toString, on the shortest digits that std::to_chars finds.
std::string ecmascript(double value) {
    if (value == 0) {
        return "0";
    }
    if (value < 0) {
        return "-" + ecmascript(-value);
    }
    std::string digits = in_format(value, std::chars_format::scientific);
    const std::size_t mark = digits.find('e');
    const int n = std::stoi(digits.substr(mark + 1)) + 1;
    digits.resize(mark);
    if (digits.size() > 1) {
        digits.erase(1, 1); // the point
    }
    const int k = static_cast<int>(digits.size());
    if (k <= n && n <= 21) {
        return digits + std::string(static_cast<std::size_t>(n - k), '0');
    }
    if (0 < n && n <= 21) {
        return digits.insert(static_cast<std::size_t>(n), ".");
    }
    if (-6 < n && n <= 0) {
        return "0." + std::string(static_cast<std::size_t>(-n), '0') + digits;
    }
    const std::string exponent = (n > 0 ? "e+" : "e-") + std::to_string(std::abs(n - 1));
    return k == 1 ? digits + exponent : digits.insert(1, ".") + exponent;
}

struct Vector {
    std::uint64_t bits;
    std::string_view text;
};

// RFC 8785, appendix B, but for NaN and Infinity, which JSON does not have.
constexpr Vector rfc8785_appendix_b[] = {
    {0x0000000000000000, "0"},
    {0x8000000000000000, "0"},
    {0x0000000000000001, "5e-324"},
    {0x8000000000000001, "-5e-324"},
    {0x7fefffffffffffff, "1.7976931348623157e+308"},
    {0xffefffffffffffff, "-1.7976931348623157e+308"},
    {0x4340000000000000, "9007199254740992"},
    {0xc340000000000000, "-9007199254740992"},
    {0x4430000000000000, "295147905179352830000"},
    {0x44b52d02c7e14af5, "9.999999999999997e+22"},
    {0x44b52d02c7e14af6, "1e+23"},
    {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
    {0x444b1ae4d6e2ef4e, "999999999999999700000"},
    {0x444b1ae4d6e2ef4f, "999999999999999900000"},
    {0x444b1ae4d6e2ef50, "1e+21"},
    {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
    {0x3eb0c6f7a0b5ed8d, "0.000001"},
    {0x41b3de4355555553, "333333333.3333332"},
    {0x41b3de4355555554, "333333333.33333325"},
    {0x41b3de4355555555, "333333333.3333333"},
    {0x41b3de4355555556, "333333333.3333334"},
    {0x41b3de4355555557, "333333333.33333343"},
    {0xbecbf647612f3696, "-0.0000033333333333333333"},
    {0x43143ff3c1cb0959, "1424953923781206.2"},
};

TEST(Decimal, Rfc8785AppendixB) {
    for (const auto& [bits, text] : rfc8785_appendix_b) {
        const double value = std::bit_cast<double>(bits);
        EXPECT_EQ(ecmascript(value), text);
        EXPECT_EQ(written(in_format(value, std::chars_format::scientific)), text);
        EXPECT_EQ(written(text), text);
    }
}

// The claim on which write_decimal rests: for a number that is the shortest form of a double, laying out
// the exact decimal is what ECMAScript, and so RFC 8785, does with that double.
void expect_ecmascript(double value) {
    if (!std::isfinite(value)) {
        return;
    }
    const std::string expected = ecmascript(value);
    ASSERT_EQ(written(in_format(value, std::chars_format::scientific)), expected);
    ASSERT_EQ(written(expected), expected);
    // std::to_chars writes a whole number in fixed format with all the digits of its exact value, which
    // need not be the shortest ones.
    if (std::fabs(value) < 0x1p53) {
        ASSERT_EQ(written(in_format(value, std::chars_format::fixed)), expected);
    }
}

TEST(Decimal, ShortestFormOfADoubleIsItsEcmascriptForm) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 200'000; ++round) {
        ASSERT_NO_FATAL_FAILURE(expect_ecmascript(std::bit_cast<double>(random())));
        // All magnitudes near the changes of layout, and amounts of money.
        const double mantissa = static_cast<double>(random() >> 11) * 0x1p-53;
        ASSERT_NO_FATAL_FAILURE(expect_ecmascript(mantissa * std::pow(10.0, static_cast<double>(random() % 40) - 12)));
        ASSERT_NO_FATAL_FAILURE(expect_ecmascript(static_cast<double>(random() % 100'000'000) / 100));
    }
    for (int exponent = -1074; exponent <= 1023; ++exponent) {
        const double power = std::ldexp(1.0, exponent);
        for (const double value : {power, std::nextafter(power, 0.0), std::nextafter(power, INFINITY)}) {
            ASSERT_NO_FATAL_FAILURE(expect_ecmascript(value));
        }
    }
    for (int exponent = -323; exponent <= 308; ++exponent) {
        const double power = std::strtod(("1e" + std::to_string(exponent)).c_str(), nullptr);
        for (const double value : {power, std::nextafter(power, 0.0), std::nextafter(power, INFINITY)}) {
            ASSERT_NO_FATAL_FAILURE(expect_ecmascript(value));
        }
    }
}

TEST(Decimal, EverySpellingOfAValueIsOneForm) {
    for (const std::string_view text : {"1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "100.00e-2", "1e-00"}) {
        EXPECT_EQ(written(text), "1");
    }
    for (const std::string_view text : {"0", "-0", "0.0", "-0.000", "0e5", "0E-7", "0e99999999999999999999"}) {
        EXPECT_EQ(written(text), "0");
    }
    EXPECT_EQ(written("-0.10"), "-0.1");
    EXPECT_EQ(written("1000"), "1000");
    EXPECT_EQ(written("1e3"), "1000");
    EXPECT_EQ(written("100000000000000000000"), "100000000000000000000");
    EXPECT_EQ(written("1000000000000000000000"), "1e+21");
    EXPECT_EQ(written("0.000001"), "0.000001");
    EXPECT_EQ(written("0.0000001"), "1e-7");
    EXPECT_EQ(written("1E-7"), "1e-7");
    EXPECT_EQ(written("0.00000015"), "1.5e-7");
    EXPECT_EQ(written("1234.50"), "1234.5");
    EXPECT_EQ(written("12345e-2"), "123.45");
}

TEST(Decimal, WhatNoDoubleHoldsKeepsItsDigits) {
    EXPECT_EQ(written("9007199254740993"), "9007199254740993");
    EXPECT_EQ(written("0.10000000000000001"), "0.10000000000000001");
    EXPECT_EQ(written("333333333.33333329"), "333333333.33333329"); // RFC 8785 would round it to ...33
    EXPECT_EQ(written("295147905179352825856"), "295147905179352825856");
    EXPECT_EQ(written("1e400"), "1e+400");
    EXPECT_EQ(written("-1.5e-400"), "-1.5e-400");
    EXPECT_EQ(written("123456789012345678901234567890.5"), "1.234567890123456789012345678905e+29");
    EXPECT_EQ(written("123456789012345678901.5"), "123456789012345678901.5");
}

// Three neighbours that differ in the last of 40 digits, at every place of the point.
TEST(Decimal, NeighboursDiffer) {
    const std::string digits = "1234567890123456789012345678901234567";
    for (int exponent = -60; exponent <= 60; ++exponent) {
        const std::string suffix = "e" + std::to_string(exponent);
        const std::string middle = written(digits + "5" + suffix);
        EXPECT_NE(written(digits + "4" + suffix), middle);
        EXPECT_NE(written(digits + "6" + suffix), middle);
        EXPECT_NE(written(digits + "5" + "e" + std::to_string(exponent + 1)), middle);
        EXPECT_EQ(written(digits + "50" + "e" + std::to_string(exponent - 1)), middle);
        EXPECT_EQ(written("-" + digits + "5" + suffix), "-" + middle);
        EXPECT_EQ(written(middle), middle);
    }
}

TEST(Decimal, AsLongAsNumericGoes) {
    const std::string nines(131'072, '9');
    EXPECT_EQ(written(nines), "9." + nines.substr(1) + "e+131071");
    const std::string small = "0." + std::string(16'382, '0') + "1";
    EXPECT_EQ(written(small), "1e-16383");
    EXPECT_EQ(written("1" + std::string(131'071, '0')), "1e+131071");
    EXPECT_EQ(written(nines + "." + std::string(16'383, '0')), written(nines));
}

TEST(Decimal, RefusesWhatIsNoNumber) {
    for (const std::string_view text :
         {"",    "-",  "+1", ".5",  "5.",       "1.e3",      "01",  "-01", "00", "1e",    "1e+",  "1e1.5",
          "0x1", " 1", "1 ", "NaN", "Infinity", "-Infinity", "1,5", "--1", "1-", "1e--1", "1e+-1"}) {
        EXPECT_THROW(written(text), std::invalid_argument) << text;
    }
    EXPECT_THROW(written(std::string_view("1\0", 2)), std::invalid_argument);
}

TEST(Decimal, RefusesAnExponentBeyondItsRange) {
    EXPECT_EQ(written("1e999999999999999999"), "1e+999999999999999999");
    EXPECT_EQ(written("1e-999999999999999999"), "1e-999999999999999999");
    EXPECT_EQ(written("1e00000000000000000000000000005"), "100000");
    EXPECT_EQ(written("0.1e-999999999999999998"), "1e-999999999999999999");
    EXPECT_THROW(written("10e999999999999999999"), std::out_of_range);
    EXPECT_THROW(written("0.1e-999999999999999999"), std::out_of_range);
    EXPECT_THROW(written("1e1000000000000000000"), std::out_of_range);
    EXPECT_THROW(written("1e-1000000000000000000"), std::out_of_range);
}

} // namespace
} // namespace idem::core
