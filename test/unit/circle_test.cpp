// core::Circle: a walk around a table that may grow or be truncated on the way.

#include "core/circle.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

using Blocks = std::uint32_t;

// The blocks that a walk looks at, as store::walk does: those past the end are stepped over.
std::vector<Blocks> walk(Circle& circle, Blocks blocks) {
    std::vector<Blocks> seen;
    while (!circle.is_closed()) {
        if (circle.next < blocks) {
            seen.push_back(circle.next);
        }
        circle.step(blocks);
    }
    return seen;
}

TEST(Circle, ANewOneIsClosed) {
    const Circle circle;
    EXPECT_TRUE(circle.is_closed());
    EXPECT_EQ(circle.soonest, end_of_time);
}

TEST(Circle, AnEmptyTableIsSeenAtOnce) {
    Circle circle;
    circle.begin(0);
    EXPECT_TRUE(circle.is_closed());
    circle.step(0);
    EXPECT_TRUE(circle.is_closed());
    EXPECT_EQ(circle.next, 0U);
}

TEST(Circle, EveryBlockIsSeenOnceWhereverItBegins) {
    for (Blocks blocks = 1; blocks <= 20; blocks++) {
        for (Blocks first = 0; first < blocks; first++) {
            Circle circle;
            circle.next = first;
            circle.begin(blocks);
            std::vector<Blocks> seen = walk(circle, blocks);
            ASSERT_EQ(seen.front(), first);
            ASSERT_EQ(circle.next, first) << "the next circle begins at the same place";
            std::sort(seen.begin(), seen.end());
            ASSERT_EQ(seen.size(), blocks);
            for (Blocks i = 0; i < blocks; i++) {
                ASSERT_EQ(seen[i], i);
            }
        }
    }
}

TEST(Circle, ItGoesOnWhereItStopped) {
    Circle circle;
    circle.begin(5);
    circle.step(5);
    circle.step(5);
    EXPECT_EQ(circle.next, 2U);
    EXPECT_EQ(circle.left, 3U);
    EXPECT_FALSE(circle.is_closed());
    circle.begin(5); // begun anew before it was closed
    EXPECT_EQ(circle.next, 2U);
    EXPECT_EQ(circle.left, 5U);
}

TEST(Circle, ABeginningPastTheEndIsTheFirstBlock) {
    for (const Blocks next : {Blocks{5}, Blocks{6}, std::numeric_limits<Blocks>::max()}) {
        Circle circle;
        circle.next = next;
        circle.begin(5);
        EXPECT_EQ(circle.next, 0U);
        EXPECT_EQ(circle.left, 5U);
    }
}

// What was there at the beginning is seen in this round even while others append to the table; what was added, at the
// latest in the next one.
TEST(Circle, ATableThatGrowsIsSeenToItsOldEnd) {
    for (Blocks blocks = 1; blocks <= 12; blocks++) {
        for (Blocks first = 0; first < blocks; first++) {
            for (Blocks when = 0; when < blocks; when++) {
                Circle circle;
                circle.next = first;
                circle.begin(blocks);
                std::vector<bool> seen(2 * blocks);
                for (Blocks steps = 0; !circle.is_closed(); steps++) {
                    const Blocks now = steps < when ? blocks : 2 * blocks;
                    ASSERT_LT(circle.next, now);
                    seen[circle.next] = true;
                    circle.step(now);
                }
                for (Blocks i = 0; i < blocks; i++) {
                    ASSERT_TRUE(seen[i]) << blocks << " blocks from " << first << ", grown after " << when << ": " << i;
                }
                circle.begin(2 * blocks);
                ASSERT_EQ(walk(circle, 2 * blocks).size(), 2 * blocks);
            }
        }
    }
}

TEST(Circle, ATruncatedTableIsSeenToItsNewEnd) {
    for (Blocks blocks = 1; blocks <= 12; blocks++) {
        for (Blocks first = 0; first < blocks; first++) {
            for (Blocks when = 0; when < blocks; when++) {
                for (Blocks after = 0; after <= blocks; after++) {
                    Circle circle;
                    circle.next = first;
                    circle.begin(blocks);
                    std::vector<bool> seen(blocks);
                    Blocks steps = 0;
                    for (; !circle.is_closed(); steps++) {
                        const Blocks now = steps < when ? blocks : after;
                        if (circle.next < now) {
                            seen[circle.next] = true;
                        }
                        circle.step(now);
                    }
                    ASSERT_EQ(steps, blocks) << "it ends";
                    for (Blocks i = 0; i < after; i++) {
                        ASSERT_TRUE(seen[i])
                            << blocks << " blocks from " << first << ", " << after << " after " << when << ": " << i;
                    }
                }
            }
        }
    }
}

TEST(Circle, RandomSizesOnTheWay) {
    std::mt19937 random(1); // NOLINT(cert-msc51-cpp): the same cases every time
    for (int round = 0; round < 20'000; round++) {
        Circle circle;
        circle.next = random() % 40;
        const Blocks at_first = random() % 30;
        Blocks blocks = at_first;
        Blocks least = blocks;
        circle.begin(blocks);
        std::vector<bool> seen(200);
        Blocks steps = 0;
        for (; !circle.is_closed(); steps++) {
            if (random() % 4 == 0) {
                blocks = random() % 60;
                least = std::min(least, blocks);
            }
            if (circle.next < blocks) {
                seen[circle.next] = true;
            }
            circle.step(blocks);
        }
        ASSERT_EQ(steps, at_first);
        for (Blocks i = 0; i < least; i++) {
            ASSERT_TRUE(seen[i]) << "round " << round << ", block " << i;
        }
    }
}

TEST(Circle, AsLargeAsATableCanBe) {
    constexpr Blocks most = std::numeric_limits<Blocks>::max() - 1; // MaxBlockNumber
    Circle circle;
    circle.next = most - 1;
    circle.begin(most);
    EXPECT_EQ(circle.next, most - 1);
    EXPECT_EQ(circle.left, most);
    circle.step(most);
    EXPECT_EQ(circle.next, 0U);
    EXPECT_EQ(circle.left, most - 1);
    circle.next = std::numeric_limits<Blocks>::max();
    circle.step(std::numeric_limits<Blocks>::max());
    EXPECT_LT(circle.next, std::numeric_limits<Blocks>::max());
}

TEST(Circle, TheSoonestIsTheLeastOfThisRound) {
    Circle circle;
    circle.begin(2);
    circle.saw_due(50);
    circle.saw_due(70);
    EXPECT_EQ(circle.soonest, 50);
    circle.step(2);
    circle.saw_due(-10);
    EXPECT_EQ(circle.soonest, -10);
    circle.saw_due(end_of_time);
    EXPECT_EQ(circle.soonest, -10);
    circle.step(2);
    ASSERT_TRUE(circle.is_closed());
    EXPECT_EQ(circle.soonest, -10) << "kept until another one begins";
    circle.begin(2);
    EXPECT_EQ(circle.soonest, end_of_time);
}

} // namespace
} // namespace idem::core
