#include "core/key_format.hpp"

#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

// RFC 9562, appendix A.6: 2022-02-22 14:22:22 -05:00.
constexpr std::string_view v7 = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F";
constexpr std::string_view v4 = "919108f7-52d1-4320-9bac-f847db4148a8";
constexpr std::string_view nil = "00000000-0000-0000-0000-000000000000";
constexpr std::string_view max = "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF";

constexpr Time unix_epoch = -946'684'800 * second;

std::string changed(std::string_view text, std::size_t at, char to) {
    std::string result(text);
    result.at(at) = to;
    return result;
}

bool is_one_of(int byte, std::string_view characters) {
    return characters.find(static_cast<char>(byte)) != std::string_view::npos;
}

TEST(KeyFormat, AnyTakesAnything) {
    for (const std::string_view key : {std::string_view(), std::string_view("x"), v4, v7}) {
        EXPECT_TRUE(has_format(key, KeyFormat::any));
    }
}

TEST(KeyFormat, UuidIsTheHyphenatedFormInEitherCase) {
    for (const std::string_view key : {v4, v7, nil, max}) {
        EXPECT_TRUE(has_format(key, KeyFormat::uuid)) << key;
        std::string other(key);
        for (char& c : other) {
            c = static_cast<char>(std::isupper(static_cast<unsigned char>(c)) != 0
                                      ? std::tolower(static_cast<unsigned char>(c))
                                      : std::toupper(static_cast<unsigned char>(c)));
        }
        EXPECT_TRUE(has_format(other, KeyFormat::uuid)) << other;
    }
}

TEST(KeyFormat, OtherSpellingsAreNoUuid) {
    for (const std::string_view key : {
             "",
             "919108f752d143209bacf847db4148a8",
             "{919108f7-52d1-4320-9bac-f847db4148a8}",
             "urn:uuid:919108f7-52d1-4320-9bac-f847db4148a8",
             "919108f7-52d1-4320-9bac-f847db4148a",
             "919108f7-52d1-4320-9bac-f847db4148a80",
             " 919108f7-52d1-4320-9bac-f847db4148a",
             "919108f7-52d1-4320-9bac-f847db4148a8 ",
             "919108f75-2d1-4320-9bac-f847db4148a8",
             "919108f7 52d1 4320 9bac f847db4148a8",
         }) {
        EXPECT_FALSE(has_format(key, KeyFormat::uuid)) << key;
        EXPECT_FALSE(has_format(key, KeyFormat::uuidv7)) << key;
        EXPECT_EQ(uuidv7_time(key), std::nullopt) << key;
    }
}

TEST(KeyFormat, EveryByteOfAUuidIsChecked) {
    for (std::size_t at = 0; at < v7.size(); at++) {
        for (int byte = 0; byte < 256; byte++) {
            const std::string key = changed(v7, at, static_cast<char>(byte));
            const bool hyphen = at == 8 || at == 13 || at == 18 || at == 23;
            const bool right = hyphen ? byte == '-' : is_one_of(byte, "0123456789abcdefABCDEF");
            ASSERT_EQ(has_format(key, KeyFormat::uuid), right) << at << ' ' << byte;
            const bool version = at != 14 || byte == '7';
            const bool variant = at != 19 || is_one_of(byte, "89abAB");
            ASSERT_EQ(has_format(key, KeyFormat::uuidv7), right && version && variant) << at << ' ' << byte;
            ASSERT_EQ(uuidv7_time(key).has_value(), has_format(key, KeyFormat::uuidv7));
        }
    }
}

TEST(KeyFormat, OnlyVersion7OfTheRfcVariantIsUuidv7) {
    EXPECT_TRUE(has_format(v7, KeyFormat::uuidv7));
    EXPECT_FALSE(has_format(v4, KeyFormat::uuidv7));
    EXPECT_FALSE(has_format(nil, KeyFormat::uuidv7));
    EXPECT_FALSE(has_format(max, KeyFormat::uuidv7));
}

TEST(KeyFormat, TheTimeInsideAUuidv7) {
    EXPECT_EQ(uuidv7_time(v7), unix_epoch + 0x017F'22E2'79B0 * 1000);
    EXPECT_EQ(uuidv7_time(v7), (22 * 365 + 6 + 31 + 21) * day + 19 * hour + 22 * minute + 22 * second);
    EXPECT_EQ(uuidv7_time("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), uuidv7_time(v7));
    EXPECT_EQ(uuidv7_time("00000000-0000-7000-8000-000000000000"), unix_epoch);
    EXPECT_EQ(uuidv7_time("00000000-0001-7000-8000-000000000000"), unix_epoch + 1000);
    EXPECT_EQ(uuidv7_time("00000001-0000-7000-8000-000000000000"), unix_epoch + 65'536 * 1000);
    EXPECT_EQ(uuidv7_time("ffffffff-ffff-7fff-bfff-ffffffffffff"), unix_epoch + 0xFFFF'FFFF'FFFF * 1000);
}

TEST(KeyFormat, WhatIsNotTheTimeDoesNotMoveIt) {
    for (std::size_t at = 15; at < v7.size(); at++) {
        if (v7[at] != '-' && at != 19) {
            EXPECT_EQ(uuidv7_time(changed(v7, at, 'e')), uuidv7_time(v7)) << at;
        }
    }
}

std::string written(const std::array<std::uint8_t, 16>& uuid) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : uuid) {
        if (text.size() == 8 || text.size() == 13 || text.size() == 18 || text.size() == 23) {
            text += '-';
        }
        text += digits[byte >> 4];
        text += digits[byte & 0xF];
    }
    return text;
}

TEST(Uuidv7, HoldsTheTimeAndIsInOrder) {
    std::array<std::uint8_t, 16> zeros{};
    std::array<std::uint8_t, 16> ones{};
    ones.fill(0xFF);
    const Time start = (22 * 365 + 6 + 31 + 21) * day;
    for (Time time = start; time < start + 3 * second; time += 997) {
        for (const auto& random : {zeros, ones}) {
            const std::string text = written(uuidv7(time, random));
            ASSERT_TRUE(has_format(text, KeyFormat::uuidv7)) << text;
            ASSERT_EQ(uuidv7_time(text), time / 1000 * 1000) << text;
        }
        ASSERT_LT(uuidv7(time, ones), uuidv7(time + 1, zeros)); // also within a millisecond
    }
    EXPECT_EQ(written(uuidv7(unix_epoch, zeros)), "00000000-0000-7000-8000-000000000000");
    EXPECT_EQ(written(uuidv7(unix_epoch + 500, ones)), "00000000-0000-7800-bfff-ffffffffffff");
}

TEST(Uuidv7, TimesThatItCannotHoldAreTheNearestOnes) {
    const std::array<std::uint8_t, 16> zeros{};
    EXPECT_EQ(uuidv7_time(written(uuidv7(start_of_time, zeros))), unix_epoch);
    EXPECT_EQ(uuidv7_time(written(uuidv7(std::numeric_limits<Time>::min(), zeros))), unix_epoch);
    EXPECT_EQ(uuidv7_time(written(uuidv7(end_of_time, zeros))), unix_epoch + 0xFFFF'FFFF'FFFF * 1000);
}

} // namespace
} // namespace idem::core
