#include "core/unicode.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

// Surrogates come out as three bytes, which is not UTF-8.
std::string utf8(char32_t code_point) {
    const auto byte = [](char32_t bits) { return static_cast<char>(bits); };
    const auto continuation = [&](int shift) { return byte(0x80 | ((code_point >> shift) & 0x3F)); };
    if (code_point < 0x80) {
        return {byte(code_point)};
    }
    if (code_point < 0x800) {
        return {byte(0xC0 | code_point >> 6), continuation(0)};
    }
    if (code_point < 0x10000) {
        return {byte(0xE0 | code_point >> 12), continuation(6), continuation(0)};
    }
    return {byte(0xF0 | code_point >> 18), continuation(12), continuation(6), continuation(0)};
}

std::u16string utf16(const std::u32string& text) {
    std::u16string units;
    for (const char32_t code_point : text) {
        if (code_point < 0x10000) {
            units += static_cast<char16_t>(code_point);
        } else {
            units += static_cast<char16_t>(0xD800 + ((code_point - 0x10000) >> 10));
            units += static_cast<char16_t>(0xDC00 + ((code_point - 0x10000) & 0x3FF));
        }
    }
    return units;
}

std::string utf8(const std::u32string& text) {
    std::string bytes;
    for (const char32_t code_point : text) {
        bytes += utf8(code_point);
    }
    return bytes;
}

int sign(int value) {
    return (value > 0) - (value < 0);
}

TEST(Unicode, BlankCodePointsAreExactlyThese) {
    const auto expected = [](char32_t c) {
        const bool control = c <= 0x1F || (c >= 0x7F && c <= 0x9F);
        const bool white_space = c == 0x20 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
                                 c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
        const bool zero_width = (c >= 0x200B && c <= 0x200D) || c == 0x2060 || c == 0xFEFF;
        return control || white_space || zero_width;
    };
    for (char32_t c = 0; c <= 0x10FFFF; ++c) {
        if (c < 0xD800 || c > 0xDFFF) {
            ASSERT_EQ(is_blank_utf8(utf8(c)), expected(c)) << std::hex << static_cast<unsigned>(c);
        }
    }
}

TEST(Unicode, BlankText) {
    EXPECT_TRUE(is_blank_utf8(""));
    EXPECT_TRUE(is_blank_utf8(" \t\r\n"));
    EXPECT_TRUE(is_blank_utf8(std::string_view("\0", 1)));
    EXPECT_TRUE(is_blank_utf8("\u00A0 \u200B\u200D\uFEFF\u3000"));
    EXPECT_FALSE(is_blank_utf8("  a"));
    EXPECT_FALSE(is_blank_utf8("\u200Bkey"));
    EXPECT_FALSE(is_blank_utf8("\U0001F600"));
}

TEST(Unicode, WhatIsNotUtf8IsNotBlank) {
    EXPECT_FALSE(is_blank_utf8("\xC2"));             // cut short
    EXPECT_FALSE(is_blank_utf8("\xE2\x80"));         // cut short
    EXPECT_FALSE(is_blank_utf8("\x80"));             // continuation alone
    EXPECT_FALSE(is_blank_utf8("\xA0"));             // no-break space of Latin-1
    EXPECT_FALSE(is_blank_utf8("\xC0\xA0"));         // overlong space
    EXPECT_FALSE(is_blank_utf8("\xE0\x80\xA0"));     // overlong space
    EXPECT_FALSE(is_blank_utf8("\xF0\x80\x80\xA0")); // overlong space
    EXPECT_FALSE(is_blank_utf8("\xFF"));
}

TEST(Unicode, Utf16OrderPutsSurrogatePairsBeforeTheLastOfTheBasicPlane) {
    const std::vector<std::string> ascending = {
        "",       "\r",     "1",          "10",         "\u0080",          "\u00f6",
        "\u20ac", "\uD7FF", "\U00010000", "\U0001F600", "\U0001F600a",     "\U0010FFFF",
        "\uE000", "\uFB33", "\uFFFD",     "\uFFFF",     "\uFFFF\U00010000"};
    for (std::size_t i = 0; i < ascending.size(); ++i) {
        for (std::size_t j = 0; j < ascending.size(); ++j) {
            EXPECT_EQ(sign(compare_utf16(ascending[i], ascending[j])), i < j ? -1 : i > j) << i << ' ' << j;
        }
    }
}

TEST(Unicode, OrderIsThatOfUtf16OnRandomText) {
    constexpr char32_t edges[] = {0,      0x41,   0x7F,   0x80,   0x7FF,   0x800,   0xD7FF,
                                  0xE000, 0xEFFF, 0xF000, 0xFFFF, 0x10000, 0x103FF, 0x10FFFF};
    std::mt19937 random(1);
    const auto text = [&] {
        std::u32string result;
        for (auto size = random() % 5; size > 0; --size) {
            result += edges[random() % std::size(edges)];
        }
        return result;
    };
    for (int round = 0; round < 200'000; ++round) {
        const std::u32string a = text();
        const std::u32string b = text();
        const int expected = sign(utf16(a).compare(utf16(b)));
        ASSERT_EQ(sign(compare_utf16(utf8(a), utf8(b))), expected);
    }
}

// std::sort must never be given an order that is none, whatever the bytes.
TEST(Unicode, OrderIsTotalOnAnyBytes) {
    for (int a = 0; a < 256; ++a) {
        for (int b = 0; b < 256; ++b) {
            const std::string left(1, static_cast<char>(a));
            const std::string right(1, static_cast<char>(b));
            ASSERT_EQ(sign(compare_utf16(left, right)), -sign(compare_utf16(right, left)));
            ASSERT_EQ(compare_utf16(left, right) == 0, a == b);
        }
    }
}

} // namespace
} // namespace idem::core
