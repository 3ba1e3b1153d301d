#include "experiments/clocks_deadline.hpp"

#include <gtest/gtest.h>
#include <string_view>

namespace timerbench::experiments {
namespace {

using namespace std::chrono_literals;

const deadline_way& way(std::string_view name) {
    for (const deadline_way& w : deadline_ways) {
        if (name == w.name) {
            return w;
        }
    }
    throw std::invalid_argument{std::string{name}};
}

duration error_of(std::string_view name, duration step) {
    return deadline_error(way(name), 3s, 1s, step);
}

TEST(SteppedWorld, HasTwoClocksThatPartAtTheStep) {
    stepped_world w{1s, -5s};
    const time_point steady = w.steady();
    const time_point wall = w.wall();
    w.sleep(999ms);
    EXPECT_EQ(w.steady() - steady, 999ms);
    EXPECT_EQ(w.wall() - wall, 999ms);
    w.sleep(1ms);
    EXPECT_EQ(w.steady() - steady, 1s);
    EXPECT_EQ(w.wall() - wall, 1s - 5s);
    w.sleep(-3s);
    w.sleep(10s); // once only
    EXPECT_EQ(w.steady() - steady, 11s);
    EXPECT_EQ(w.wall() - wall, 6s);
}

TEST(SteppedWorld, EndsAWaitOnTheWallClockByTheStep) {
    stepped_world w{1s, 3600s};
    const time_point steady = w.steady();
    w.sleep_until_wall(w.wall() + 3s);
    EXPECT_EQ(w.steady() - steady, 1s);
    w.sleep_until_wall(w.wall() - 1s); // long past
    EXPECT_EQ(w.steady() - steady, 1s);
}

TEST(DeadlineError, OfAnAbsoluteTimeOnTheWallClockIsTheStep) {
    EXPECT_EQ(error_of("wall/wait_until", 0s), duration{0s});
    EXPECT_EQ(error_of("wall/wait_until", -1s), duration{1s});
    EXPECT_EQ(error_of("wall/wait_until", -5s), duration{5s});
    EXPECT_EQ(error_of("wall/wait_until", -3600s), duration{3600s});
    EXPECT_EQ(error_of("wall/wait_until", 1s), duration{-1s});
    // There were 2 s left: it cannot end before the step.
    EXPECT_EQ(error_of("wall/wait_until", 5s), duration{-2s});
    EXPECT_EQ(error_of("wall/wait_until", 3600s), duration{-2s});
}

TEST(DeadlineError, OfASleepForTheRestIsTheStepBackOnly) {
    EXPECT_EQ(error_of("wall/sleep_rest", -5s), duration{5s});
    EXPECT_EQ(error_of("wall/sleep_rest", 5s), duration{0s});
}

TEST(DeadlineError, OfAPollIsTheStepToTheNextLook) {
    EXPECT_EQ(error_of("wall/poll_10ms", -3600s), duration{3600s});
    EXPECT_EQ(error_of("wall/poll_10ms", 1s), duration{-1s});
    EXPECT_EQ(error_of("wall/poll_10ms", 5s), duration{-2s});
    EXPECT_EQ(deadline_error(way("steady/poll_10ms"), 25ms, 1ms, 5s), duration{5ms});
}

TEST(DeadlineError, OfATimeOfDayIsHowFarTheOtherClockIsOff) {
    EXPECT_EQ(error_of("handed/time_of_day", -5s), duration{5s});
    EXPECT_EQ(error_of("handed/time_of_day", 1s), duration{-1s});
    EXPECT_EQ(error_of("handed/time_of_day", 3600s), duration{1ms} - 3s); // over when it arrives
    for (const auto step : {-3600s, -1s, 1s, 3600s}) {
        EXPECT_EQ(error_of("handed/remaining", step), transit);
    }
}

TEST(DeadlineError, IsNothingOnTheSteadyClock) {
    for (const deadline_way& w : deadline_ways) {
        if (!w.on_steady_clock) {
            continue;
        }
        for (const auto step : {-3600s, -5s, -1s, 0s, 1s, 5s, 3600s}) {
            const duration error = deadline_error(w, 3s, 1s, step);
            EXPECT_GE(error, duration::zero()) << w.name;
            EXPECT_LE(error, allowed_error(w)) << w.name;
        }
    }
}

} // namespace
} // namespace timerbench::experiments
