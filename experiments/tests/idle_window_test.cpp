#include "experiments/idle_window.hpp"

#include <gtest/gtest.h>
#include <set>

namespace timerbench::experiments {
namespace {

using namespace std::chrono_literals;

TEST(IdleWindow, HoldsSeveralOfTheSlowestTicks) {
    EXPECT_EQ(idle_window(600ms, 1ns, 6), duration{600ms});
    EXPECT_EQ(idle_window(600ms, 100ms, 6), duration{600ms});
    EXPECT_EQ(idle_window(600ms, 300ms, 6), duration{1'800ms});
}

constexpr idle_reading begin{.sleeps = {.caller = 100, .others = 1'000},
                             .process_cpu_ns = 5'000'000,
                             .caller_cpu_ns = 2'000'000,
                             .wall_ns = 0};
constexpr idle_reading end{.sleeps = {.caller = 107, .others = 1'030},
                           .process_cpu_ns = 6'000'000,
                           .caller_cpu_ns = 2'400'000,
                           .wall_ns = 2'000'000'000};

TEST(RatesBetween, LeavesOutTheCallerWhereTheServiceHasThreads) {
    const idle_rates r = rates_between(begin, end, false, 0);
    EXPECT_DOUBLE_EQ(r.wakeups_a_second, 15);
    EXPECT_DOUBLE_EQ(r.cpu_us_a_second, 300);
}

TEST(RatesBetween, TakesTheLoopsSleepsBeyondThoseAskedFor) {
    const idle_rates r = rates_between(begin, end, true, 2);
    EXPECT_DOUBLE_EQ(r.wakeups_a_second, 17.5); // 30 of others, 5 of 7 of the caller, in 2 s
    EXPECT_DOUBLE_EQ(r.cpu_us_a_second, 500);
    // A wait that was over before it slept is no negative wake-up.
    EXPECT_DOUBLE_EQ(rates_between(begin, end, true, 9).wakeups_a_second, 15);
}

TEST(RatesBetween, IsNothingWhereNothingHappened) {
    idle_reading later = begin;
    later.wall_ns = 1'000'000'000;
    // Clocks that are read one after the other may differ by less than nothing.
    later.caller_cpu_ns += 500;
    const idle_rates r = rates_between(begin, later, false, 0);
    EXPECT_EQ(r.wakeups_a_second, 0);
    EXPECT_EQ(r.cpu_us_a_second, 0);
}

TEST(FarOut, SpreadsOverMinutesAndHoursAlike) {
    const auto all = far_out(10'000, 2min, 24h, 3);
    ASSERT_EQ(all.size(), 10'000U);
    EXPECT_EQ(all.front(), duration{24h});
    std::size_t below_middle = 0; // the geometric middle of 2 and 1440 min is 53.7 min
    for (const duration d : all) {
        EXPECT_GE(d, duration{2min});
        EXPECT_LE(d, duration{24h});
        below_middle += d < 3'220s ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(below_middle), 5'000, 300);
    EXPECT_EQ(all, far_out(10'000, 2min, 24h, 3));
    EXPECT_NE(all, far_out(10'000, 2min, 24h, 4));
}

TEST(FarOut, KeepsToFewDurationsWhereItMust) {
    const auto all = far_out(10'000, 2min, 24h, 3, 128);
    const std::set<duration> different(all.begin(), all.end());
    EXPECT_EQ(different.size(), 128U);
    EXPECT_EQ(*different.begin(), duration{2min});
    EXPECT_EQ(*different.rbegin(), duration{24h});
    for (const duration d : far_out(100, 2min, 24h, 3, 1)) {
        EXPECT_EQ(d, duration{24h});
    }
    EXPECT_TRUE(far_out(0, 2min, 24h, 3).empty());
}

} // namespace
} // namespace timerbench::experiments
