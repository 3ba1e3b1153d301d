#include "experiments/herd_plan.hpp"
#include "experiments/tail_pace.hpp"

#include <gtest/gtest.h>

using namespace timerbench;
using namespace timerbench::experiments;

namespace {

constexpr time_point at(duration d) {
    return time_point{d};
}
probe_arm arm(duration intended, duration took) {
    return {intended.count(), static_cast<float>(took.count()), 1};
}

TEST(HerdPlan, ArmsBelongToTheQuietTheHerdOrNeither) {
    const std::vector<wave_times> waves{{at(10ms), at(30ms), at(35ms), at(40ms)},
                                        {at(110ms), at(130ms), at(135ms), at(140ms)}};
    const std::vector<probe_arm> arms{
        arm(5ms, 1us),   // the herd is being armed
        arm(20ms, 2us),  // quiet
        arm(32ms, 3us),  // between quiet and herd
        arm(34ms, 2ms),  // blocked until the herd is being served
        arm(36ms, 4us),  // beside the herd
        arm(40ms, 5us),  // with its last callback
        arm(50ms, 6us),  // over
        arm(115ms, 7us), // quiet, second wave
        arm(137ms, 8us), // beside the second herd
        arm(150ms, 9us), // after everything
    };
    herd_result result;
    sort_out(result, arms, waves);
    EXPECT_EQ(result.quiet_ns, (std::vector<double>{2'000, 7'000}));
    EXPECT_EQ(result.herd_ns, (std::vector<double>{2e6, 4'000, 5'000, 8'000}));
    EXPECT_EQ(result.quiet_alone_ns.size(), 2u);
    EXPECT_EQ(result.herd_alone_ns.size(), 4u);
}

TEST(HerdPlan, WithoutWavesNothingIsCounted) {
    herd_result result;
    sort_out(result, std::vector<probe_arm>{arm(5ms, 1us)}, {});
    EXPECT_TRUE(result.quiet_ns.empty());
    EXPECT_TRUE(result.herd_ns.empty());
}

TEST(TailPace, KeepsTheRateAndLeavesRoomToSleep) {
    for (const std::uint64_t rate : {100U, 800U, 8'000U, 80'000U, 1'000'000U}) {
        const pace p = pace_of(rate);
        EXPECT_NEAR(static_cast<double>(p.pairs) * 1e9 / p.gap_ns, static_cast<double>(rate), 1e-3);
        EXPECT_LE(p.busy_ns(), 0.4 * p.gap_ns * 1.0001) << rate;
        EXPECT_GE(p.pairs, 1u);
        EXPECT_LE(p.spacing_ns, 10'000);
    }
}

} // namespace
