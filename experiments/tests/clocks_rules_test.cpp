#include "experiments/clocks_rules.hpp"

#include <gtest/gtest.h>
#include <set>

namespace timerbench::experiments {
namespace {

TEST(WallOffset, GoesThroughAllStepsBothWays) {
    std::set<std::int64_t> seen;
    for (std::int64_t ns = 0; ns < 35'000'000; ns += 1'000'000) {
        seen.insert(wall_offset_s(ns));
    }
    EXPECT_EQ(seen, (std::set<std::int64_t>{-3'600, -5, -1, 0, 1, 5, 3'600}));
    EXPECT_EQ(wall_offset_s(4'999'999), 0);
    EXPECT_EQ(wall_offset_s(5'000'000), 1);
    EXPECT_EQ(wall_offset_s(35'000'000), 0);
}

TEST(RuntimeLibrary, IsToldByItsName) {
    EXPECT_TRUE(is_runtime_library("/lib/x86_64-linux-gnu/libc.so.6"));
    EXPECT_TRUE(is_runtime_library("/lib/x86_64-linux-gnu/libstdc++.so.6"));
    EXPECT_TRUE(is_runtime_library("libc.so.6"));
    EXPECT_FALSE(is_runtime_library("/lib/x86_64-linux-gnu/libevent_core-2.1.so.7"));
    EXPECT_FALSE(is_runtime_library("/usr/bin/bench_clocks"));
    EXPECT_FALSE(is_runtime_library(""));
}

TEST(WallFutex, IsOneThatWaitsUntilATimeOnTheWallClock) {
    EXPECT_TRUE(is_wall_futex(FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, true));
    EXPECT_TRUE(is_wall_futex(FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, true));
    EXPECT_TRUE(is_wall_futex(FUTEX_LOCK_PI_PRIVATE, true));
    EXPECT_FALSE(is_wall_futex(FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, false)) << "waits for ever";
    EXPECT_FALSE(is_wall_futex(FUTEX_WAIT_BITSET_PRIVATE, true)) << "the monotonic clock";
    EXPECT_FALSE(is_wall_futex(FUTEX_WAIT_PRIVATE, true)) << "a span";
    EXPECT_FALSE(is_wall_futex(FUTEX_WAKE_PRIVATE, true)) << "no timeout where others have one";
}

TEST(WallClock, IsToldFromOthers) {
    EXPECT_TRUE(is_wall(CLOCK_REALTIME));
    EXPECT_TRUE(is_wall(CLOCK_REALTIME_COARSE));
    EXPECT_TRUE(is_wall(CLOCK_TAI));
    for (const clockid_t c :
         {CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_THREAD_CPUTIME_ID}) {
        EXPECT_FALSE(is_wall(c));
    }
}

TEST(WallClockUse, IsAnythingButALibrarysOwnReading) {
    seen_clocks seen;
    EXPECT_EQ(wall_clock_use(seen), "");
    seen.elsewhere = 3;
    EXPECT_EQ(wall_clock_use(seen), "");
    seen.readings = 2;
    EXPECT_EQ(wall_clock_use(seen), "reads the wall clock 2 times");
    seen.waits = 1;
    seen.waited_in = "sem_timedwait";
    EXPECT_EQ(wall_clock_use(seen), "waits against the wall clock 1 times, last in sem_timedwait");
}

TEST(ClockEffect, IsEarlyOrLateBySeconds) {
    EXPECT_EQ(clock_effect(0, 30, 0, 10), "");
    EXPECT_EQ(clock_effect(-0.5, 30, -1, 10), "") << "early by design";
    EXPECT_NE(clock_effect(-1.5, 30, -1, 10), "");
    EXPECT_NE(clock_effect(0, 1'000, 0, 10), "") << "a step of one second";
}

} // namespace
} // namespace timerbench::experiments
