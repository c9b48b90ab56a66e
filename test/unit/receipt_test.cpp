#include "core/receipt.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>

namespace {

using idem::core::decode_receipt;
using idem::core::encode;
using idem::core::Receipt;
using idem::core::receipt_of;

TEST(Receipt, comes_back_as_it_was) {
    const std::int64_t positions[] = {
        -1, 0, 1, 15, 16, 4095, 4096, 0x0123'4567'89AB'CDEF, std::numeric_limits<std::int64_t>::max()};
    const std::int32_t counts[] = {1, 2, 255, 256, 0x1234'5678, std::numeric_limits<std::int32_t>::max()};
    const std::int64_t times[] = {0, 1, -1, 0x3FF'FFFF, 0x400'0000, 946'684'800'123'456};
    for (const std::int64_t position : positions) {
        for (const std::int32_t count : counts) {
            for (const std::int64_t time : times) {
                const Receipt receipt = receipt_of(position, count, time);
                EXPECT_EQ(decode_receipt(encode(receipt)), receipt);
            }
        }
    }
}

TEST(Receipt, is_a_uuid_version_8) {
    const auto uuid =
        encode(receipt_of(std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int32_t>::max(), -1));
    EXPECT_EQ(uuid[6] & 0xF0, 0x80);
    EXPECT_EQ(uuid[8] & 0xC0, 0x80);
}

TEST(Receipt, of_each_hand_out_is_another) {
    std::set<std::array<std::uint8_t, 16>> seen;
    for (std::int64_t position = 1; position <= 20; position++) {
        for (std::int32_t count = 1; count <= 20; count++) {
            for (std::int64_t time = 0; time < 3; time++) {
                EXPECT_TRUE(seen.insert(encode(receipt_of(position, count, time))).second);
            }
        }
    }
}

TEST(Receipt, of_anything_else_is_none) {
    const auto good = encode(receipt_of(7, 1, 0));
    ASSERT_TRUE(decode_receipt(good));
    auto other_version = good;
    other_version[6] = 0x47;
    EXPECT_FALSE(decode_receipt(other_version));
    auto other_variant = good;
    other_variant[8] ^= 0x40;
    EXPECT_FALSE(decode_receipt(other_variant));
    EXPECT_FALSE(decode_receipt({}));
    EXPECT_FALSE(decode_receipt(encode(receipt_of(1, 0, 0))));
    EXPECT_FALSE(decode_receipt(encode(receipt_of(1, -1, 0))));
}

} // namespace
