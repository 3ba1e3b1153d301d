// A point in time that is handed down.
#include "timers/deadline.hpp"

#include "timers/tests/after/support.hpp"

#include <type_traits>

namespace timerbench::testing {
namespace {

constexpr time_point noon{std::chrono::hours{12}};

TEST(deadlines, count_down_to_zero_and_stay_there) {
    const deadline d = deadline::in(30ms, noon);
    EXPECT_EQ(d.when(), noon + 30ms);
    EXPECT_EQ(d.remaining(noon), 30ms);
    EXPECT_EQ(d.remaining(noon + 29ms), 1ms);
    EXPECT_EQ(d.remaining(noon + 30ms), 0ms);
    EXPECT_EQ(d.remaining(noon + 1h), 0ms);
}

TEST(deadlines, expire_at_their_very_point) {
    const deadline d = deadline::at(noon);
    EXPECT_FALSE(d.expired(noon - 1ns));
    EXPECT_TRUE(d.expired(noon));
}

TEST(deadlines, may_lie_in_the_past) {
    const deadline d = deadline::in(-5s, noon);
    EXPECT_EQ(d.when(), noon - 5s);
    EXPECT_TRUE(d.expired(noon));
    EXPECT_EQ(d.remaining(noon), 0s);
}

TEST(deadlines, none_is_later_than_all_and_never_expires) {
    constexpr deadline none = deadline::none();
    EXPECT_TRUE(none.is_none());
    EXPECT_FALSE(none.expired(time_point::max()));
    EXPECT_EQ(none.remaining(noon), duration::max());
    EXPECT_GT(none, deadline::at(time_point::max() - 1ns));
    EXPECT_EQ(earlier(none, deadline::at(noon)), deadline::at(noon));
    EXPECT_EQ(earlier(deadline::at(noon), none), deadline::at(noon));
    EXPECT_TRUE(none.shortened(1h).is_none());
    EXPECT_TRUE(deadline::in(duration::max(), noon).is_none());
    EXPECT_EQ(none.within(1s, noon), deadline::at(noon + 1s));
}

TEST(deadlines, can_only_be_shortened) {
    const deadline d = deadline::in(100ms, noon);
    EXPECT_EQ(d.shortened(10ms).when(), noon + 90ms);
    EXPECT_EQ(d.shortened(-10ms), d);
    EXPECT_EQ(d.shortened(1h).when(), noon + 100ms - 1h);
    EXPECT_EQ(d.within(3s, noon), d);
    EXPECT_EQ(d.within(3ms, noon).when(), noon + 3ms);
    EXPECT_EQ(d.within(-3ms, noon).when(), noon - 3ms);
    EXPECT_EQ(d.within(duration::max(), noon), d);
    EXPECT_EQ(earlier(d, deadline::at(noon)).when(), noon);
}

TEST(deadlines, saturate_at_the_ends_of_the_time_line) {
    EXPECT_EQ(deadline::in(duration::max() - 1ns, noon).remaining(noon), duration::max());
    EXPECT_EQ(deadline::in(duration::min(), noon).when(), noon + duration::min());
    EXPECT_EQ(deadline::in(duration::min(), time_point{-1ns}).when(), time_point::min());
    EXPECT_TRUE(deadline::in(duration::min(), time_point{-1ns}).expired(noon));
    EXPECT_EQ(deadline::at(time_point::min()).shortened(duration::max()).when(), time_point::min());
    EXPECT_EQ(deadline::at(noon).shortened(duration::min()).when(), noon);
    EXPECT_EQ(deadline::at(time_point{1h}).remaining(time_point::min()), duration::max());
}

TEST(deadlines, travel_as_what_is_left) {
    const deadline d = deadline::in(250ms, noon);
    const std::optional<duration> wire = d.to_remaining(noon + 100ms);
    ASSERT_EQ(wire, duration{150ms});
    // The other process's clock has nothing to do with this one's.
    const time_point there{std::chrono::hours{3}};
    EXPECT_EQ(deadline::from_remaining(wire, there).when(), there + 150ms);
    EXPECT_EQ(d.to_remaining(noon + 1s), duration{0});
    EXPECT_TRUE(deadline::from_remaining(duration{0}, there).expired(there));
    EXPECT_EQ(deadline::from_remaining(-7s, there).when(), there);
    EXPECT_EQ(deadline::none().to_remaining(noon), std::nullopt);
    EXPECT_TRUE(deadline::from_remaining(std::nullopt, there).is_none());
    EXPECT_FALSE(deadline::from_remaining(duration::max() - 1ns, there).expired(there + 24h));
}

TEST(deadlines, read_the_clock_once) {
    const counting_clock clock;
    const deadline d = deadline::in(5s, clock.at);
    EXPECT_EQ(d.remaining(clock), 5s);
    EXPECT_EQ(clock.readings, 1);
    EXPECT_EQ(deadline::none().remaining(clock), duration::max());
    EXPECT_EQ(clock.readings, 1);
    EXPECT_GT(deadline::in(1h).remaining(), 59min);
    EXPECT_LE(deadline::in(1h).remaining(), 1h);
    EXPECT_FALSE(deadline::in(1h).expired());
    EXPECT_TRUE(deadline::in(-1ns).expired());
}

static_assert(sizeof(deadline) == 8 && std::is_trivially_copyable_v<deadline>);

} // namespace
} // namespace timerbench::testing
