#include "experiments/fire_plan.hpp"

#include <gtest/gtest.h>
#include <set>

namespace timerbench::experiments {
namespace {

using namespace std::chrono_literals;

TEST(ArmSequence, MemoryOrderIsTheOrderOfArmsAndOfDeadlines) {
    const arm_sequence s{100, fire_order::memory, 1};
    ASSERT_EQ(s.size(), 100U);
    for (std::size_t k = 0; k < s.size(); ++k) {
        EXPECT_EQ(s.timer_at(k), k);
        EXPECT_EQ(s.rank_at(k), k);
    }
}

TEST(ArmSequence, ShuffledTakesEachTimerAndEachRankOnceAndRepeats) {
    constexpr std::size_t n = 10'000;
    const arm_sequence s{n, fire_order::shuffled, 7};
    const arm_sequence again{n, fire_order::shuffled, 7};
    const arm_sequence other{n, fire_order::shuffled, 8};
    std::set<std::size_t> timers;
    std::set<std::size_t> ranks;
    std::size_t timer_in_place = 0;
    std::size_t rank_in_place = 0;
    std::size_t together = 0;
    std::size_t differs = 0;
    for (std::size_t k = 0; k < n; ++k) {
        timers.insert(s.timer_at(k));
        ranks.insert(s.rank_at(k));
        timer_in_place += s.timer_at(k) == k ? 1 : 0;
        rank_in_place += s.rank_at(k) == k ? 1 : 0;
        together += s.timer_at(k) == s.rank_at(k) ? 1 : 0;
        EXPECT_EQ(s.timer_at(k), again.timer_at(k));
        EXPECT_EQ(s.rank_at(k), again.rank_at(k));
        differs += s.timer_at(k) != other.timer_at(k) ? 1 : 0;
    }
    EXPECT_EQ(timers.size(), n);
    EXPECT_EQ(*timers.rbegin(), n - 1);
    EXPECT_EQ(ranks.size(), n);
    EXPECT_EQ(*ranks.rbegin(), n - 1);
    // One of each is expected by chance; the shuffles must not be the same one.
    EXPECT_LT(timer_in_place, 10U);
    EXPECT_LT(rank_in_place, 10U);
    EXPECT_LT(together, 10U);
    EXPECT_GT(differs, n - 10);
}

TEST(OffsetOf, SpreadsEvenlyAndEndsAtTheEnd) {
    constexpr std::size_t n = 1'000'000;
    EXPECT_EQ(offset_of(0, n, 10s), 10us);
    EXPECT_EQ(offset_of(499'999, n, 10s), 5s);
    EXPECT_EQ(offset_of(n - 1, n, 10s), 10s);
    EXPECT_EQ(offset_of(n - 1, n, 10min), 10min);
    for (std::size_t rank = 1; rank < 1'000; ++rank) {
        EXPECT_LT(offset_of(rank - 1, 1'000, 1s), offset_of(rank, 1'000, 1s));
    }
}

TEST(OffsetOf, ABurstIsOneDeadline) {
    EXPECT_EQ(offset_of(0, 10, 0s), 0s);
    EXPECT_EQ(offset_of(9, 10, 0s), 0s);
    EXPECT_EQ(offset_of(9, 10, 0s, 4), 0s);
}

TEST(OffsetOf, StepsBoundTheNumberOfDifferentOffsets) {
    constexpr std::size_t n = 10'000;
    std::set<duration> seen;
    for (std::size_t rank = 0; rank < n; ++rank) {
        const duration exact = offset_of(rank, n, 10s);
        const duration stepped = offset_of(rank, n, 10s, 128);
        EXPECT_GE(stepped, exact);
        EXPECT_LE(stepped - exact, duration{10s} / 128 + 1ns);
        seen.insert(stepped);
    }
    EXPECT_EQ(seen.size(), 128U);
    EXPECT_EQ(*seen.rbegin(), duration{10s});
    // More steps than timers change nothing.
    EXPECT_EQ(offset_of(3, 10, 10s, 128), offset_of(3, 10, 10s));
}

TEST(ClockSteps, MovesTenThousandTimersAtATimeAndAtLeastOnce) {
    EXPECT_EQ(clock_steps(0), 1U);
    EXPECT_EQ(clock_steps(4'000), 1U);
    EXPECT_EQ(clock_steps(100'000), 10U);
    EXPECT_EQ(clock_steps(1'000'000), 100U);
}

TEST(LeadFor, IsTwiceWhatAllArmsAreExpectedToTake) {
    EXPECT_EQ(lead_for(1'000'000, 2'000, 1ms), duration{200ms + 1s});
    EXPECT_EQ(lead_for(100, 0, 0ns), duration{200ms});
}

TEST(WithinLimit, TakesWhatTheServiceCanHaveAndSaysWhy) {
    service_traits traits;
    EXPECT_EQ(within_limit(traits, 1'000'000).count, 1'000'000U);
    EXPECT_EQ(within_limit(traits, 1'000'000).note, "");
    traits.most_timers = 4'000;
    EXPECT_EQ(within_limit(traits, 4'000).count, 4'000U);
    EXPECT_EQ(within_limit(traits, 4'000).note, "");
    EXPECT_EQ(within_limit(traits, 4'001).count, 4'000U);
    EXPECT_NE(within_limit(traits, 4'001).note.find("4000"), std::string::npos);
}

} // namespace
} // namespace timerbench::experiments
