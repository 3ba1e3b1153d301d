#include "experiments/workload_plan.hpp"

#include <gtest/gtest.h>

using namespace timerbench;
using namespace timerbench::experiments;

namespace {

TEST(WorkloadPlan, BurstsAddUpToTheRate) {
    for (const double per_burst : {1.0, 0.3, 16.0, 10.7}) {
        std::uint64_t sum = 0;
        for (std::uint64_t k = 0; k < 10'000; ++k) {
            const std::uint64_t n = requests_in(k, per_burst);
            ASSERT_LE(n, static_cast<std::uint64_t>(per_burst) + 1);
            ASSERT_GE(n, static_cast<std::uint64_t>(per_burst));
            sum += n;
        }
        EXPECT_NEAR(static_cast<double>(sum), 10'000 * per_burst, 1);
    }
}

TEST(WorkloadPlan, BurstsAreOneMillisecondApartUnlessRequestsAreRarer) {
    workload w;
    w.threads = 2;
    w.rate = 1'000'000;
    EXPECT_EQ(burst_gap_ns(w), 1e6);
    w.rate = 100;
    EXPECT_EQ(burst_gap_ns(w), 20e6);
}

TEST(WorkloadPlan, OutstandingFollowsLittlesLaw) {
    workload w;
    w.rate = 10'000;
    w.timeout = 2s;
    w.hold = 100ms;
    w.cancel_share = 0.9;
    EXPECT_NEAR(w.outstanding(), 900 + 2'000, 1e-6);
    EXPECT_NEAR(w.outstanding(100ms), 900 + 2'100, 1e-6);
}

TEST(WorkloadPlan, ResultsComeOutOfTheChildAsTheyWere) {
    workload_result r;
    r.cpu_percent = 1.25;
    r.memory_kb = -3;
    r.made_a_second = 19'999;
    r.planned = 100;
    r.made = 99;
    r.missing = 1;
    r.fired_instead = 2;
    r.late_ms = {0.5F, -0.25F};
    r.from_intended_ms = {1.5F};
    r.behind_ms = {0.125F, 7.0F, 8.0F};
    r.quiet = {9, 4, 3, 1, 1, 5};
    r.wrong = "why";
    const workload_result same = workload_result::unpack(r.pack());
    EXPECT_EQ(same.cpu_percent, r.cpu_percent);
    EXPECT_EQ(same.memory_kb, r.memory_kb);
    EXPECT_EQ(same.made_a_second, r.made_a_second);
    EXPECT_EQ(same.planned, r.planned);
    EXPECT_EQ(same.made, r.made);
    EXPECT_EQ(same.missing, r.missing);
    EXPECT_EQ(same.fired_instead, r.fired_instead);
    EXPECT_EQ(same.late_ms, r.late_ms);
    EXPECT_EQ(same.from_intended_ms, r.from_intended_ms);
    EXPECT_EQ(same.behind_ms, r.behind_ms);
    EXPECT_EQ(same.quiet.armed, 9u);
    EXPECT_EQ(same.quiet.fired, 4u);
    EXPECT_EQ(same.quiet.cancelled, 3u);
    EXPECT_EQ(same.quiet.dropped, 1u);
    EXPECT_EQ(same.quiet.pending, 1u);
    EXPECT_EQ(same.quiet.threw, 5u);
    EXPECT_EQ(same.wrong, r.wrong);
}

TEST(WorkloadPlan, AGeneratorThatIsBehindHasNotKeptUp) {
    workload_result r;
    r.planned = r.made = 1'000;
    r.behind_ms = {0.1F, 0.1F, 50.0F};
    EXPECT_TRUE(r.kept_up()) << "one stall is a stall";
    r.behind_ms = {0.1F, 20.0F, 50.0F};
    EXPECT_FALSE(r.kept_up());
    r.behind_ms = {};
    EXPECT_TRUE(r.kept_up());
    r.made = 979;
    EXPECT_FALSE(r.kept_up());
}

// Two services whose cost is a straight line of the rate.
struct two_lines {
    double simplest_per_request = 0;
    double cheapest_per_request = 0;
    double simplest_idle = 0;
    std::uint64_t highest = 5'000'000;

    [[nodiscard]] break_even_step at(std::uint64_t rate) const {
        const auto r = static_cast<double>(rate);
        return {rate, simplest_idle + r * simplest_per_request, r * cheapest_per_request};
    }
    break_even find(std::uint64_t from, double worth, std::vector<break_even_step>& steps) const {
        steps = {at(from)};
        return find_break_even(
            steps, worth, 0.01, [this](std::uint64_t rate) { return rate <= highest; },
            [this](std::uint64_t rate, std::string&) { return std::optional{at(rate)}; });
    }
};

// 80 ns saved a request are 1 % of a core at 125 000 requests a second.
TEST(WorkloadPlan, BreakEvenIsFoundFromBelowAndFromAbove) {
    const two_lines services{110e-7, 30e-7, 0};
    std::vector<break_even_step> steps;
    for (const std::uint64_t from : {10U, 20'000U, 124'000U, 126'000U, 4'000'000U}) {
        const break_even found = services.find(from, 1, steps);
        ASSERT_TRUE(found.rate) << from << ": " << found.why;
        EXPECT_NEAR(*found.rate, 125'000, 1) << from;
        EXPECT_TRUE(found.rising);
        EXPECT_GE(steps.size(), 2u);
    }
}

TEST(WorkloadPlan, BreakEvenThatIsNotThereSaysWhy) {
    std::vector<break_even_step> steps;
    const break_even never = two_lines{30e-7, 30e-7, 0}.find(20'000, 1, steps);
    EXPECT_FALSE(never.rate);
    EXPECT_EQ(never.why, "not reached up to 1280000 requests a second") << "the highest rate that was tried";
    EXPECT_EQ(steps.size(), 4u);

    const break_even always = two_lines{30e-7, 30e-7, 5}.find(20'000, 1, steps);
    EXPECT_FALSE(always.rate);
    EXPECT_EQ(always.why, "it saves at least that at any rate");

    steps = {{1'000, 1, 0.9}};
    const break_even broken = find_break_even(
        steps, 1, 0.01, [](std::uint64_t) { return true; },
        [](std::uint64_t, std::string& problem) -> std::optional<break_even_step> {
            problem = "one of them cannot keep up";
            return std::nullopt;
        });
    EXPECT_FALSE(broken.rate);
    EXPECT_NE(broken.why.find("at 4000 one of them cannot keep up"), std::string::npos) << broken.why;
}

TEST(WorkloadPlan, SavingsThatFallAsTheRateRisesAreCalledNoise) {
    std::vector<break_even_step> steps{{20'000, 5.8, 4.0}};
    const break_even found = find_break_even(
        steps, 1, 0.6, [](std::uint64_t) { return true; },
        [](std::uint64_t rate, std::string&) {
            return std::optional{rate == 5'000 ? break_even_step{rate, 10.2, 4.2}
                                               : break_even_step{rate, 3.4, 5.3}};
        });
    ASSERT_TRUE(found.rate);
    EXPECT_GT(*found.rate, 1'250);
    EXPECT_LT(*found.rate, 5'000);
    EXPECT_FALSE(found.rising);
}

} // namespace
