#include "experiments/clocks_lease.hpp"

#include <gtest/gtest.h>
#include <string_view>

namespace timerbench::experiments {
namespace {

using namespace std::chrono_literals;

const lease_guard& guard(std::string_view name) {
    for (const lease_guard& g : lease_guards) {
        if (name == g.name) {
            return g;
        }
    }
    throw std::invalid_argument{std::string{name}};
}

TEST(FencedStore, RefusesTokensSmallerThanItHasSeen) {
    fenced_store store{true};
    EXPECT_TRUE(store.write(1));
    EXPECT_TRUE(store.write(1));
    EXPECT_TRUE(store.write(3));
    EXPECT_FALSE(store.write(2));
    EXPECT_EQ(store.newest(), 3U);
    store.learn(5);
    EXPECT_FALSE(store.write(4));
    EXPECT_EQ(store.newest(), 3U);
    EXPECT_TRUE(store.write(5));
}

TEST(FencedStore, TakesEverythingWhereItDoesNotLook) {
    fenced_store store{false};
    EXPECT_TRUE(store.write(3));
    EXPECT_TRUE(store.write(1));
    EXPECT_EQ(store.newest(), 3U);
}

lease_plan without_pauses() {
    lease_plan plan;
    plan.pause_chance = 0;
    return plan;
}

TEST(Leases, AreHandedOnWithoutHarmWhereNobodyIsPaused) {
    for (const lease_guard& g : lease_guards) {
        const lease_counts c = simulate_leases(without_pauses(), g, 100, 1);
        EXPECT_EQ(c.leases, 300U) << g.name;
        EXPECT_EQ(c.writes, 300U * 20) << g.name;
        EXPECT_EQ(c.outlived, 0U) << g.name;
        EXPECT_EQ(c.stale, 0U) << g.name;
        EXPECT_EQ(c.rejected, 0U) << g.name;
    }
}

// 20 writes of 101 ms fill 2.02 s; of a lease of 1 s only the first nine (909 ms) arrive before another may have it.
TEST(Leases, EndWhetherTheHolderKnowsOrNot) {
    lease_plan plan = without_pauses();
    plan.ttl = 1s;
    plan.holders = 2;
    plan.look_again = 1ns; // at once
    const lease_counts c = simulate_leases(plan, guard("nothing"), 1, 1);
    EXPECT_EQ(c.leases, 2U);
    EXPECT_EQ(c.outlived, 1U);
    EXPECT_EQ(c.writes, 40U);
    EXPECT_EQ(c.stale, 11U);
    EXPECT_EQ(c.stale_accepted, 11U);
    // The first of them comes at 1.010 s, the newer holder's first at 1.101 s.
    EXPECT_EQ(c.overwrites, 10U);

    const lease_counts fenced = simulate_leases(plan, guard("token"), 1, 1);
    EXPECT_EQ(fenced.stale, 11U);
    EXPECT_EQ(fenced.rejected, 10U);
    EXPECT_EQ(fenced.stale_accepted, 1U);
    EXPECT_EQ(fenced.overwrites, 0U);

    // A holder that looks at its clock and is not paused stops by itself: both after nine writes.
    const lease_counts clock = simulate_leases(plan, guard("own clock"), 1, 1);
    EXPECT_EQ(clock.writes, 18U);
    EXPECT_EQ(clock.stale, 0U);
}

TEST(Leases, ArePassedOverByPausesAndSavedByTokens) {
    lease_plan plan;
    plan.pause_chance = 0.02;
    lease_counts seen[lease_guards.size()];
    for (std::size_t i = 0; i < lease_guards.size(); ++i) {
        seen[i] = simulate_leases(plan, lease_guards[i], 2'000, 7);
        EXPECT_EQ(seen[i], simulate_leases(plan, lease_guards[i], 2'000, 7)) << "the same seed";
        EXPECT_EQ(seen[i].rightful_rejected, 0U);
        EXPECT_EQ(seen[i].leases, 6'000U);
        EXPECT_EQ(seen[i].stale, seen[i].stale_accepted + seen[i].rejected);
        if (lease_guards[i].token) {
            EXPECT_EQ(seen[i].overwrites, 0U) << lease_guards[i].name;
            EXPECT_GT(seen[i].rejected, 0U) << lease_guards[i].name;
        } else {
            EXPECT_GT(seen[i].overwrites, 0U) << lease_guards[i].name;
        }
    }
    EXPECT_LT(seen[1].stale, seen[0].stale) << "a look at the clock spares most, not all";
    EXPECT_GT(seen[3].stale_accepted, 0U) << "before the newer holder's first write";
    EXPECT_EQ(seen[4].stale_accepted, 0U) << "the store knows of the grant";
}

} // namespace
} // namespace timerbench::experiments
