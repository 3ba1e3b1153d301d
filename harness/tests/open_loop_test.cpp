#include "harness/open_loop.hpp"

#include <gtest/gtest.h>

using namespace timerbench::harness;

namespace {

// Time passes by waiting and by operations only.
struct scripted_clock {
    std::int64_t t = 0;
    [[nodiscard]] std::int64_t now() const { return t; }
    std::int64_t wait_until(std::int64_t at) {
        t = std::max(t, at);
        return t;
    }
};

constexpr std::int64_t us = 1'000;
constexpr std::int64_t ms = 1'000'000;

// 1 000 arms a second for one second, 1 us each; one of them takes 100 ms. About 100 arms were meant to happen meanwhile.
TEST(OpenLoop, AStalledGeneratorShowsInThePercentiles) {
    scripted_clock clock;
    std::vector<double> from_intended;
    std::vector<double> alone;
    for (int i = 0; i < 1'000; ++i) {
        const timed_call c = call_at(clock, i * ms, [&] { clock.t += i == 500 ? 100 * ms : us; });
        from_intended.push_back(c.from_intended_ns);
        alone.push_back(c.alone_ns);
    }
    const auto late =
        std::count_if(from_intended.begin(), from_intended.end(), [](double ns) { return ns > 10.0 * us; });
    EXPECT_GE(late, 99);
    EXPECT_LE(late, 101);
    const tail whole{from_intended};
    EXPECT_EQ(whole.at(50), us);
    EXPECT_GT(whole.at(99), 85.0 * ms) << "the stall is counted once, not for everyone it held up";
    EXPECT_LT(whole.at(99), 95.0 * ms);
    EXPECT_EQ(whole.at(100), 100.0 * ms);
    // What the same run looks like to somebody who times the call alone.
    EXPECT_EQ(tail{alone}.at(99), us);
}

TEST(OpenLoop, AnOperationNeverBeginsBeforeItsIntendedTime) {
    scripted_clock clock{5 * ms};
    const timed_call early = call_at(clock, 7 * ms, [&] { clock.t += us; });
    EXPECT_EQ(early.from_intended_ns, us);
    const timed_call behind = call_at(clock, 6 * ms, [&] { clock.t += us; });
    EXPECT_EQ(behind.from_intended_ns, ms + 2 * us);
    EXPECT_EQ(behind.alone_ns, us);

    punctual_clock real;
    const std::int64_t at = punctual_clock::now() + 2 * ms;
    EXPECT_GE(real.wait_until(at), at);
    EXPECT_GE(real.wait_until(at - ms), at);
}

std::vector<std::int64_t> beginnings(double mean_ns, double busy_ns, std::uint64_t seed, std::size_t n) {
    burst_times times{1'234 * ms, mean_ns, busy_ns, seed};
    std::vector<std::int64_t> all;
    for (std::size_t i = 0; i < n; ++i) {
        all.push_back(times.next());
    }
    return all;
}

TEST(OpenLoop, PhasesOfBurstsAreUniformOverAnyTick) {
    for (const std::int64_t tick : {ms, 4 * ms, 10 * ms, 30 * ms}) {
        for (const auto& [mean, busy] :
             std::vector<std::pair<double, double>>{{1.0 * ms, 0}, {2.0 * ms, 0}, {1.618 * ms, 0.65 * ms}}) {
            EXPECT_LE(chi_square_of_phases(beginnings(mean, busy, 1, 4'000), tick, phase_parts),
                      phase_chi_square_bound)
                << "tick " << tick << " ns, a burst every " << mean << " ns";
        }
    }
}

TEST(OpenLoop, EveryClientInPhaseIsSeen) {
    std::vector<std::int64_t> in_step;
    for (std::int64_t i = 0; i < 4'000; ++i) {
        in_step.push_back(i * ms + i % 3 * us);
    }
    EXPECT_GT(chi_square_of_phases(in_step, 10 * ms, phase_parts), phase_chi_square_bound);
    EXPECT_EQ(chi_square_of_phases({}, ms, phase_parts), 0);
}

TEST(OpenLoop, BurstsKeepTheirRateAndDoNotOverlap) {
    const auto all = beginnings(1.0 * ms, 0.4 * ms, 7, 10'000);
    for (std::size_t i = 1; i < all.size(); ++i) {
        ASSERT_GE(all[i] - all[i - 1], 0.4 * ms - 1);
        ASSERT_LE(all[i] - all[i - 1], 1.6 * ms + 1);
    }
    EXPECT_GE(all.front(), 1'234 * ms);
    EXPECT_NEAR(static_cast<double>(all.back() - all.front()) / (10'000.0 * ms), 1, 0.02);
    EXPECT_EQ(all, beginnings(1.0 * ms, 0.4 * ms, 7, 10'000));
    EXPECT_NE(all, beginnings(1.0 * ms, 0.4 * ms, 8, 10'000));
}

TEST(OpenLoop, APercentileNeedsTenEventsBeyondIt) {
    EXPECT_EQ(events_needed(90), 100u);
    EXPECT_EQ(events_needed(99), 1'000u);
    EXPECT_EQ(events_needed(99.9), 10'000u);
    EXPECT_EQ(events_needed(99.99), 100'000u);

    std::vector<double> values;
    for (int i = 999; i >= 1; --i) {
        values.push_back(i);
    }
    const tail few{values};
    EXPECT_EQ(few.cell(50, 0).text, "500");
    EXPECT_EQ(few.cell(90, 2, 10).text, "89.92") << "interpolated between order statistics";
    EXPECT_EQ(few.cell(100, 0).text, "999");
    EXPECT_EQ(few.cell(99, 0).text, "-");
    ASSERT_EQ(few.cell(99, 0).notes.size(), 1u);
    EXPECT_NE(few.cell(99, 0).notes.front().find("1000 events"), std::string::npos);
    EXPECT_FALSE(few.to_json().contains("p99"));
    EXPECT_EQ(few.to_json().at("p50"), 500);
    values.push_back(1'000);
    EXPECT_TRUE(tail{values}.carries(99));
    EXPECT_EQ(tail{}.cell(50, 0).text, "-");
    EXPECT_EQ(tail{}.to_json().at("n"), 0);
}

TEST(OpenLoop, KeptValuesIncludeTheExtremes) {
    std::vector<double> values;
    for (int i = 0; i < 10'000; ++i) {
        values.push_back(i);
    }
    const auto kept = tail{values}.kept(11);
    ASSERT_EQ(kept.size(), 11u);
    EXPECT_EQ(kept.front(), 0);
    EXPECT_EQ(kept.back(), 9'999);
    EXPECT_EQ(tail{values}.kept(20'000).size(), 10'000u);
}

} // namespace
