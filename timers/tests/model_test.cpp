// The oracle against known answers, and the floor.
#include "timers/floor.hpp"
#include "timers/model.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using ids = std::vector<model::id>;

constexpr time_point start{1h};

TEST(model, fires_by_deadline_and_equal_deadlines_in_the_order_of_their_arms) {
    model m{start};
    EXPECT_TRUE(m.arm(1, 20ms));
    EXPECT_TRUE(m.arm(2, 10ms));
    EXPECT_EQ(m.advance_to(start + 5ms), ids{});
    EXPECT_TRUE(m.arm(3, 15ms));
    EXPECT_TRUE(m.arm(0, 5ms));
    EXPECT_EQ(m.next(), start + 10ms);
    EXPECT_EQ(m.advance_to(start + 10ms - 1ns), ids{});
    EXPECT_EQ(m.advance_to(start + 20ms), (ids{2, 0, 1, 3}));
    EXPECT_EQ(m.next(), std::nullopt);
    EXPECT_EQ(m.counters().fired, 4u);
    EXPECT_TRUE(m.counters().balanced());
}

TEST(model, an_armed_timer_is_not_armed_again_and_a_cancelled_one_does_not_fire) {
    model m{start};
    EXPECT_TRUE(m.arm(7, 1s));
    EXPECT_FALSE(m.arm(7, 2s));
    EXPECT_TRUE(m.cancel(7));
    EXPECT_FALSE(m.cancel(7));
    EXPECT_FALSE(m.cancel(8));
    EXPECT_EQ(m.advance_to(start + 1h), ids{});
    EXPECT_EQ(m.counters().armed, 1u);
    EXPECT_EQ(m.counters().cancelled, 1u);
}

TEST(model, zero_negative_and_endless_durations) {
    model m{start};
    EXPECT_TRUE(m.arm(1, duration::max()));
    EXPECT_TRUE(m.arm(2, duration::max() - 1ns));
    EXPECT_TRUE(m.arm(3, 0ns));
    EXPECT_TRUE(m.arm(4, duration::min()));
    EXPECT_EQ(m.advance_to(start), (ids{4, 3}));
    EXPECT_EQ(m.advance_to(time_point::max()), ids{});
    EXPECT_EQ(m.counters().pending, 2u);
}

TEST(model, judges_a_service_that_fires_late) {
    model m{start};
    EXPECT_TRUE(m.arm(1, 10ms));
    EXPECT_TRUE(m.arm(2, 30ms));
    m.set_time(start + 19ms);
    EXPECT_EQ(m.overdue(10ms), ids{});
    EXPECT_EQ(m.overdue(9ms), (ids{1}));
    EXPECT_FALSE(m.fire(2)); // early
    EXPECT_FALSE(m.fire(3)); // idle
    EXPECT_TRUE(m.fire(1));
    EXPECT_FALSE(m.fire(1)); // twice
    EXPECT_EQ(m.overdue(9ms), ids{});
    EXPECT_EQ(m.counters().fired, 1u);
}

TEST(model, stop_drops_what_is_pending) {
    model m{start};
    EXPECT_TRUE(m.arm(1, 1s));
    EXPECT_TRUE(m.arm(2, 2s));
    m.stop();
    EXPECT_FALSE(m.armed(1));
    EXPECT_FALSE(m.arm(1, 1s));
    EXPECT_FALSE(m.cancel(2));
    EXPECT_EQ(m.counters().dropped, 2u);
    EXPECT_TRUE(m.counters().balanced());
}

TEST(floor_service, only_remembers_that_a_timer_is_armed_and_says_so) {
    floor_service f;
    floor_service::timer t{f};
    EXPECT_FALSE(f.cancel(t));
    EXPECT_TRUE(f.arm(t, 1s, {[](void*) { FAIL(); }, nullptr}));
    EXPECT_TRUE(f.cancel(t));
    EXPECT_FALSE(f.cancel(t));
    EXPECT_TRUE(f.traits().has_fault("never_fires"));
    EXPECT_TRUE(f.counters().balanced());
}

} // namespace
} // namespace timerbench
