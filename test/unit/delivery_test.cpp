#include "core/delivery.hpp"

#include <gtest/gtest.h>

namespace {

using idem::core::is_parked_by;
using idem::core::MessageFacts;
using idem::core::readiness;
using idem::core::Readiness;

TEST(Delivery, a_new_message_is_ready) {
    EXPECT_EQ(readiness({}, 100, false), Readiness::ready);
}

TEST(Delivery, a_lease_blocks_until_the_very_moment_at_which_it_ends) {
    MessageFacts message;
    message.leased_until = 100;
    EXPECT_EQ(readiness(message, 99, false), Readiness::blocked);
    EXPECT_EQ(readiness(message, 100, false), Readiness::lease_over);
}

TEST(Delivery, one_given_back_is_ready_when_it_is_due) {
    MessageFacts message;
    message.due_at = 100;
    EXPECT_EQ(readiness(message, 99, false), Readiness::blocked);
    EXPECT_EQ(readiness(message, 100, false), Readiness::ready);
}

TEST(Delivery, a_parked_one_blocks_unless_it_is_passed_over) {
    MessageFacts message;
    message.parked = true;
    EXPECT_EQ(readiness(message, 100, false), Readiness::blocked);
    EXPECT_EQ(readiness(message, 100, true), Readiness::pass_over);
}

TEST(Delivery, passing_over_is_for_parked_ones_only) {
    MessageFacts message;
    message.leased_until = 101;
    EXPECT_EQ(readiness(message, 100, true), Readiness::blocked);
}

TEST(Delivery, is_parked_at_the_last_attempt) {
    EXPECT_FALSE(is_parked_by(9, 10));
    EXPECT_TRUE(is_parked_by(10, 10));
    EXPECT_TRUE(is_parked_by(11, 10));
    EXPECT_TRUE(is_parked_by(1, 1));
    EXPECT_FALSE(is_parked_by(1000, 0));
}

} // namespace
