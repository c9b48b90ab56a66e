#include "core/bad_rows.hpp"

#include <gtest/gtest.h>

namespace idem::core {
namespace {

TEST(BadRows, AreLeftAloneUntilTheirTime) {
    BadRows bad;
    EXPECT_FALSE(bad.any(100));
    EXPECT_FALSE(bad.is_left_alone(7, 100));
    bad.add(7, 200);
    EXPECT_TRUE(bad.any(199));
    EXPECT_FALSE(bad.any(200));
    EXPECT_TRUE(bad.is_left_alone(7, 199));
    EXPECT_FALSE(bad.is_left_alone(7, 200));
    EXPECT_FALSE(bad.is_left_alone(8, 100));
    bad.add(7, 300);
    EXPECT_TRUE(bad.is_left_alone(7, 299));
}

TEST(BadRows, OfManyTheFirstToBeDueAreForgotten) {
    BadRows bad;
    for (int i = 1; i <= BadRows::size + 3; i++) {
        bad.add(static_cast<std::uint64_t>(i), 1'000 + i);
    }
    for (int i = 1; i <= 3; i++) {
        EXPECT_FALSE(bad.is_left_alone(static_cast<std::uint64_t>(i), 0)) << i;
    }
    for (int i = 4; i <= BadRows::size + 3; i++) {
        EXPECT_TRUE(bad.is_left_alone(static_cast<std::uint64_t>(i), 0)) << i;
    }
}

} // namespace
} // namespace idem::core
