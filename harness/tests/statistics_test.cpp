// Hard-coded answers come from numpy 1.24 and scipy 1.10; each says by which call.
#include "harness/statistics.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

using namespace timerbench::harness;

namespace {

const std::vector<double> ten = {31.4, 28.7, 29.9, 35.2, 28.1, 30.0, 44.8, 29.3, 12.5, 30.6};
const double nan = std::numeric_limits<double>::quiet_NaN();
const double inf = std::numeric_limits<double>::infinity();

// numpy.percentile(ten, p)
TEST(Statistics, PercentilesInterpolateLikeNumpy) {
    const std::pair<double, double> known[] = {{0, 12.5},     {2.5, 16.01}, {10, 26.540000000000003},
                                               {25, 28.85},   {50, 29.95},  {90, 36.16},
                                               {97.5, 42.64}, {99, 43.936}, {100, 44.8}};
    for (const auto& [percent, value] : known)
        EXPECT_NEAR(percentile(ten, percent).value(), value, 1e-12) << percent;
    EXPECT_NEAR(median(ten).value(), 29.95, 1e-12);
    EXPECT_FALSE(percentile(ten, -0.1));
    EXPECT_FALSE(percentile(ten, 100.1));
    EXPECT_FALSE(percentile(ten, nan));
}

// numpy.mean(ten), numpy.std(ten, ddof=1)
TEST(Statistics, MeanAndDeviation) {
    EXPECT_NEAR(mean(ten).value(), 30.05, 1e-12);
    EXPECT_NEAR(standard_deviation(ten).value(), 7.891099064417101, 1e-12);
    EXPECT_EQ(minimum(ten), 12.5);
    EXPECT_EQ(maximum(ten), 44.8);
}

// Three repetitions of a benchmark with many iterations each: n is 3, not the iterations. By hand: mean 2, squares 1+0+1.
TEST(Statistics, DeviationDividesByRepetitionsLessOne) {
    EXPECT_DOUBLE_EQ(standard_deviation(std::vector<double>{1, 2, 3}).value(), 1.0);
}

// numpy.percentile(ten, [25, 75]) gives fences 25.325 and 34.725: 12.5 is below, 35.2 and 44.8 are above.
TEST(Statistics, OutliersAreCountedOnBothSides) {
    EXPECT_EQ(count_outliers(ten), (outlier_counts{1, 2}));
    std::vector<double> flat(30, 100);
    for (std::size_t i = 0; i < flat.size(); ++i)
        flat[i] += static_cast<double>(i % 5);
    EXPECT_EQ(count_outliers(flat), (outlier_counts{0, 0}));
    flat[3] = 20;
    flat[7] = 500;
    EXPECT_EQ(count_outliers(flat), (outlier_counts{1, 1}));
    EXPECT_EQ(count_outliers(std::vector<double>{1, 2, 900}), (outlier_counts{0, 0}));
}

// A Python version of the same generator (64-bit masks), checked against the published first outputs for seed 0.
TEST(Statistics, GeneratorIsTheSameEverywhere) {
    random_source zero(0);
    EXPECT_EQ(zero.next(), 0xe220a8397b1dcdafU);
    EXPECT_EQ(zero.next(), 0x6e789e6aa1b965f4U);
    random_source one(1);
    EXPECT_EQ(one.next(), 0x910a2dec89025cc1U);
    random_source forty_two(42);
    for (const std::uint64_t expected : {7, 1, 2, 3, 0, 8, 2, 8})
        EXPECT_EQ(forty_two.below(10), expected);
    EXPECT_EQ(forty_two.below(0), 0U);
    const double unit = forty_two.unit();
    EXPECT_GE(unit, 0);
    EXPECT_LT(unit, 1);
}

// The same resampling written in Python: numpy.median of each of 1 000 (2 000) resamples, then
// numpy.percentile(medians, [2.5, 97.5]). scipy.stats.bootstrap(method='percentile', n_resamples=200000) gives
// 28.7 .. 32.9 with another generator, where the medians stand on a coarse grid.
TEST(Statistics, BootstrapIntervalOfTheMedian) {
    const auto one = median_interval(ten, 1).value();
    EXPECT_NEAR(one.low, 28.4, 1e-9);
    EXPECT_NEAR(one.high, 32.55125, 1e-9);
    const auto seven = median_interval(ten, 7, 2000).value();
    EXPECT_NEAR(seven.low, 28.4, 1e-9);
    EXPECT_NEAR(seven.high, 32.55, 1e-9);
    EXPECT_EQ(median_interval(ten, 1), median_interval(ten, 1, 3))
        << "at least 1000 resamples whatever is asked";
}

// The same with pairs of neighbours as groups, again written in Python.
TEST(Statistics, BootstrapOverGroups) {
    const std::vector<std::uint32_t> groups = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4};
    const auto result = grouped_median_interval(ten, groups, 1).value();
    EXPECT_NEAR(result.low, 29.35, 1e-9);
    EXPECT_NEAR(result.high, 30.65, 1e-9);
    EXPECT_FALSE(grouped_median_interval(ten, std::vector<std::uint32_t>(10, 5), 1)) << "one group";
    EXPECT_FALSE(grouped_median_interval(ten, std::vector<std::uint32_t>(9, 5), 1)) << "sizes differ";
}

// 95 % intervals hold the true median of 95 % of samples drawn from a known distribution (here 93 to 97.5 % of 1 000).
TEST(Statistics, BootstrapCoversAsOftenAsItSays) {
    random_source random(5);
    int covered = 0;
    for (int trial = 0; trial < 1000; ++trial) {
        std::vector<double> samples(60);
        for (double& value : samples)
            value = random.unit();
        const auto found = median_interval(samples, static_cast<std::uint64_t>(trial)).value();
        covered += found.low <= 0.5 && 0.5 <= found.high ? 1 : 0;
    }
    EXPECT_GE(covered, 930);
    EXPECT_LE(covered, 975);
}

// numpy.median(a / b), numpy.percentile(a, 10) / numpy.percentile(b, 10), the interval by the Python bootstrap, seed 3.
TEST(Statistics, RatioOfPairs) {
    const std::vector<double> a = {10, 20, 30, 44, 50};
    const std::vector<double> b = {5, 8, 15, 20, 25};
    const auto ratio = paired_ratio(a, b, 3).value();
    EXPECT_EQ(ratio.n, 5U);
    EXPECT_DOUBLE_EQ(ratio.p50, 2.0);
    EXPECT_EQ(ratio.ci95, (interval{2.0, 2.5}));
    EXPECT_DOUBLE_EQ(ratio.min, 2.0);
    EXPECT_NEAR(ratio.p10, 2.258064516129032, 1e-12);
}

TEST(Statistics, RatioSaysWhyItRefuses) {
    std::string why;
    EXPECT_FALSE(paired_ratio(std::vector<double>{1, 2}, std::vector<double>{1, 0}, 1, &why));
    EXPECT_EQ(why, "denominators: sample 1 is zero or negative");
    EXPECT_FALSE(paired_ratio(std::vector<double>{1, -2}, std::vector<double>{1, 1}, 1, &why));
    EXPECT_EQ(why, "numerators: sample 1 is negative");
    EXPECT_FALSE(paired_ratio(std::vector<double>{1, nan}, std::vector<double>{1, 1}, 1, &why));
    EXPECT_EQ(why, "numerators: sample 1 is not finite");
    EXPECT_FALSE(paired_ratio(std::vector<double>{1}, std::vector<double>{1, 2}, 1, &why));
    EXPECT_EQ(why, "1 samples against 2");
    EXPECT_FALSE(paired_ratio(std::vector<double>{1}, std::vector<double>{1}, 1, &why));
    EXPECT_EQ(why, "fewer than 2 pairs");
    EXPECT_FALSE(paired_ratio({}, {}, 1, &why));
    EXPECT_EQ(why, "numerators: no samples");
    EXPECT_TRUE(paired_ratio(std::vector<double>{0, 0}, std::vector<double>{1, 2}, 1))
        << "a cost of zero is a cost";
}

// Decimal arithmetic with 60 digits: 1 - (5/100) ** (1/N).
TEST(Statistics, BoundWhereNothingHappened) {
    EXPECT_NEAR(zero_events_bound(1).value(), 0.95, 1e-15);
    EXPECT_NEAR(zero_events_bound(10).value(), 0.2588655508930523, 1e-15);
    EXPECT_NEAR(zero_events_bound(1'000'000).value(), 2.9957277863525446e-06, 1e-20);
    EXPECT_NEAR(zero_events_bound(105'951'264).value(), 2.82746247482464e-08, 1e-22);
    EXPECT_NEAR(rule_of_three(105'951'264).value(), 2.831490523794034e-08, 1e-22);
    EXPECT_EQ(rule_of_three(1), 1.0);
    EXPECT_FALSE(zero_events_bound(0));
    EXPECT_FALSE(rule_of_three(0));
}

TEST(Statistics, NothingAndOne) {
    const std::vector<double> none;
    const std::vector<double> one = {7};
    EXPECT_FALSE(median(none));
    EXPECT_FALSE(mean(none));
    EXPECT_FALSE(minimum(none));
    EXPECT_FALSE(maximum(none));
    EXPECT_FALSE(standard_deviation(none));
    EXPECT_FALSE(median_interval(none, 1));
    EXPECT_FALSE(split_half_gap(none));
    EXPECT_EQ(count_outliers(none), outlier_counts{});
    EXPECT_EQ(median(one), 7.0);
    EXPECT_EQ(mean(one), 7.0);
    EXPECT_FALSE(standard_deviation(one));
    EXPECT_FALSE(median_interval(one, 1));
    EXPECT_EQ(refuse_samples(none), "no samples");
    EXPECT_EQ(refuse_samples(one), "");
}

TEST(Statistics, NothingFiniteComesFromNonFinite) {
    for (const double bad : {nan, inf, -inf}) {
        std::vector<double> samples = ten;
        samples[3] = bad;
        EXPECT_EQ(refuse_samples(samples), "sample 3 is not finite");
        EXPECT_FALSE(median(samples));
        EXPECT_FALSE(mean(samples));
        EXPECT_FALSE(standard_deviation(samples));
        EXPECT_FALSE(minimum(samples));
        EXPECT_FALSE(maximum(samples));
        EXPECT_FALSE(median_interval(samples, 1));
        EXPECT_FALSE(split_half_gap(samples));
        EXPECT_EQ(count_outliers(samples), outlier_counts{});
    }
    EXPECT_EQ(refuse_samples(std::vector<double>{1, 0}, true), "sample 1 is zero or negative");
    // Sums that overflow are not handed out either.
    const std::vector<double> huge = {1e308, 1e308, -1e308};
    EXPECT_TRUE(std::isfinite(median(huge).value()));
    EXPECT_FALSE(standard_deviation(huge));
    EXPECT_TRUE(std::isfinite(mean(std::vector<double>{1.7e308, 1.7e308}).value()));
}

// abs(numpy.median(ten[0::2]) - numpy.median(ten[1::2])) / numpy.median(ten)
TEST(Statistics, SplitHalves) {
    EXPECT_NEAR(split_half_gap(ten).value(), 0.0033388981636060574, 1e-15);
    const std::vector<double> steps = {1, 1, 3, 3};
    EXPECT_DOUBLE_EQ(split_half_gap(steps).value(), 0.0);
    const std::vector<std::uint32_t> visits = {0, 0, 1, 1};
    EXPECT_DOUBLE_EQ(split_half_gap(steps, visits).value(), 1.0) << "halves are made of whole visits";
}

TEST(Statistics, VerdictsNeedOneStory) {
    const auto ratio = [](double p50, double low, double high, double min, double p10) {
        return ratio_summary{60, p50, {low, high}, min, p10};
    };
    EXPECT_EQ(judge(ratio(0.7, 0.65, 0.75, 0.7, 0.7), 0.1), verdict::less);
    EXPECT_EQ(judge(ratio(1.4, 1.3, 1.5, 1.4, 1.4), 0.1), verdict::more);
    EXPECT_EQ(judge(ratio(1.02, 0.95, 1.08, 0.97, 1.0), 0.1), verdict::same);
    EXPECT_EQ(judge(ratio(0.7, 0.65, 0.75, 1.1, 0.7), 0.1), verdict::cannot_decide) << "minima disagree";
    EXPECT_EQ(judge(ratio(0.88, 0.70, 1.05, 0.85, 0.85), 0.1), verdict::cannot_decide)
        << "interval reaches 1";
    EXPECT_EQ(judge(ratio(1.09, 1.05, 1.12, 1.09, 1.09), 0.2), verdict::same) << "smaller than the noise";
}

// Two threads of 2 ms per operation each, side by side: 2 ms per operation per thread, not 1.
TEST(Statistics, ThreadsDoNotDivideTheTime) {
    for (const std::size_t threads : {1U, 2U, 4U, 8U}) {
        std::vector<thread_time> times(threads, thread_time{1000, 1000 + 10 * 2e6, 10 * 1.5e6});
        times.back().end_ns += 10 * 2e6; // the last one takes twice as long
        const auto figures = combine_threads(times, 10).value();
        const auto n = static_cast<double>(threads);
        EXPECT_NEAR(figures.wall_ns_per_op_per_thread, 2e6 * (n + 1) / n, 1e-6) << threads;
        EXPECT_NEAR(figures.cpu_ns_per_op, 1.5e6, 1e-6) << threads;
        EXPECT_NEAR(figures.operations_per_second, n * 10 / 0.04, 1e-6) << threads;
    }
    EXPECT_FALSE(combine_threads({}, 10));
    EXPECT_FALSE(combine_threads(std::vector<thread_time>{{0, 10, 10}}, 0));
    EXPECT_FALSE(combine_threads(std::vector<thread_time>{{10, 10, 10}}, 1));
    EXPECT_FALSE(combine_threads(std::vector<thread_time>{{0, 10, -1}}, 1));
}

} // namespace
