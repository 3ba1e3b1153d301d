#include "experiments/clocks_commit.hpp"

#include <gtest/gtest.h>
#include <string_view>

namespace timerbench::experiments {
namespace {

using namespace std::chrono_literals;

const commit_policy& policy(std::string_view name) {
    for (const commit_policy& p : commit_policies) {
        if (name == p.name) {
            return p;
        }
    }
    throw std::invalid_argument{std::string{name}};
}

double mean(const std::vector<double>& values) {
    return harness::mean(values).value_or(-1);
}

TEST(IntervalClock, ContainsTheTimeAndGrowsUntilItIsSynchronised) {
    manual_time truth;
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const interval_clock clock{truth, 7ms, 1, seed};
        duration smallest = 1h;
        duration largest{};
        bool shrank = false;
        duration before = clock.uncertainty();
        for (int i = 0; i < 600; ++i) {
            truth.shift(100ms);
            const time_interval now = clock.now();
            EXPECT_LE(now.earliest, truth.now());
            EXPECT_GE(now.latest, truth.now());
            const duration u = clock.uncertainty();
            EXPECT_NEAR(static_cast<double>((now.latest - now.earliest).count()),
                        2.0 * static_cast<double>(u.count()), 2);
            smallest = std::min(smallest, u);
            largest = std::max(largest, u);
            shrank |= u < before;
            before = u;
        }
        EXPECT_TRUE(shrank);
        EXPECT_GE(smallest, 999us);
        EXPECT_LE(smallest, 1'100us);
        EXPECT_LE(largest, 7ms);
        EXPECT_GE(largest, 6'900us);
    }
}

TEST(IntervalClock, ThatUnderstatesMayNotContainTheTime) {
    manual_time truth;
    const interval_clock clock{truth, 7ms, 0.25, 1};
    int outside = 0;
    for (int i = 0; i < 1'000; ++i) {
        truth.shift(1s);
        const time_interval now = clock.now();
        outside += truth.now() < now.earliest || truth.now() > now.latest ? 1 : 0;
    }
    EXPECT_GT(outside, 100);
}

TEST(CommitWait, LastsTwiceTheUncertaintyAndNoLonger) {
    manual_time truth;
    const interval_clock clock{truth, 7ms, 1, 5};
    for (int i = 0; i < 50; ++i) {
        truth.shift(777ms);
        const auto u = static_cast<double>(clock.uncertainty().count());
        const time_point begin = truth.now();
        const time_point stamp = clock.now().latest;
        commit_wait(truth, clock, stamp, false);
        EXPECT_GT(clock.now().earliest, stamp);
        // The interval grows meanwhile, and a synchronisation may end the wait at once.
        EXPECT_LE(static_cast<double>((truth.now() - begin).count()), 2.05 * u + 14e6 * 0.01);
        EXPECT_GT(truth.now(), stamp) << "the timestamp has passed for everybody";
    }
}

TEST(Commits, KeepTheirOrderOnlyWithTheWait) {
    const commit_plan plan{.commits = 20'000};
    for (const duration largest : {duration{1ms}, duration{7ms}, duration{50ms}}) {
        for (const commit_policy& p : commit_policies) {
            const commit_result r = simulate_commits(plan, p, largest, 3);
            EXPECT_EQ(r.pairs, plan.commits - 1);
            EXPECT_EQ(r.wait_ms.size(), plan.commits);
            if (p.in_order) {
                EXPECT_EQ(r.violations, 0U) << p.name;
            } else if (largest >= 7ms) {
                EXPECT_GT(r.violations, 0U) << p.name;
            }
        }
    }
}

TEST(Commits, PayTwiceTheUncertaintyForTheWait) {
    const commit_plan plan{.commits = 20'000};
    const auto wait = [&](std::string_view name) {
        return mean(simulate_commits(plan, policy(name), 7ms, 3).wait_ms);
    };
    EXPECT_EQ(wait("local clock"), 0);
    EXPECT_EQ(wait("latest, no wait"), 0);
    const double exact = wait("commit-wait");
    EXPECT_GT(exact, 2.0);  // twice the smallest uncertainty
    EXPECT_LT(exact, 14.1); // and the largest
    const double steps = wait("steps of 2u");
    EXPECT_NEAR(steps / exact, 2, 0.2) << "one step of 2u ends just short of it, so that it takes two";
    // Replication of 5 ms hides that much of it.
    EXPECT_LT(wait("overlapped"), exact - 2);
    EXPECT_GE(wait("overlapped"), exact - 5.1);
}

TEST(Commits, AreTheSameForTheSameSeed) {
    const commit_plan plan{.commits = 1'000};
    const auto a = simulate_commits(plan, policy("commit-wait"), 7ms, 11);
    const auto b = simulate_commits(plan, policy("commit-wait"), 7ms, 11);
    EXPECT_EQ(a.wait_ms, b.wait_ms);
    EXPECT_NE(a.wait_ms, simulate_commits(plan, policy("commit-wait"), 7ms, 12).wait_ms);
}

} // namespace
} // namespace timerbench::experiments
