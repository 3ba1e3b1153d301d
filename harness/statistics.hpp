// Statistics of small sets of samples, as pure functions: no state, no clock, no locale, same results on every
// machine (the bootstrap uses a generator of its own and only additions, comparisons and interpolation).
//
// What they give back when there is no answer: an empty optional, never NaN. Every function that takes samples gives
// an empty optional when there are none, when fewer than it states, or when one of them is not finite;
// refuse_samples() says which. Negative values are ordinary (an early fire has a negative lateness) except where a
// function says "positive only".
//
// Costs: a percentile copies and sorts (O(n log n)). A bootstrap interval draws `resamples` x n indices into a
// histogram of ranks, without sorting each resample: about 10 ms for n = 5 000. Bad at: n above a million.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace timerbench::harness {

// A 64-bit generator (SplitMix64) whose sequence is the same everywhere, unlike the distributions of <random>.
class random_source {
  public:
    explicit random_source(std::uint64_t seed) : state_(seed) {}

    // Uniform over all 64-bit values.
    std::uint64_t next();
    // Uniform over 0 .. bound-1 by multiply and shift; the bias is below bound / 2^64. bound 0 gives 0.
    std::uint64_t below(std::uint64_t bound);
    // Uniform over [0, 1) in steps of 2^-53.
    double unit();

    // Fisher-Yates, from the last element down.
    template <class T>
    void shuffle(std::vector<T>& values) {
        for (std::size_t i = values.size(); i > 1; --i)
            std::swap(values[i - 1], values[static_cast<std::size_t>(below(i))]);
    }

  private:
    std::uint64_t state_;
};

struct interval {
    double low = 0;
    double high = 0;
    friend bool operator==(const interval&, const interval&) = default;
};

struct outlier_counts {
    std::size_t low = 0;  // below q1 - 1.5 x (q3 - q1)
    std::size_t high = 0; // above q3 + 1.5 x (q3 - q1)
    friend bool operator==(const outlier_counts&, const outlier_counts&) = default;
};

// Why these samples cannot be used, as one phrase ("no samples", "sample 3 is not finite", and with positive_only
// "sample 3 is zero or negative"; counted from 0). Empty string: they can.
[[nodiscard]] std::string refuse_samples(std::span<const double> samples, bool positive_only = false);

// percent in 0..100 (outside: empty). Linear interpolation between order statistics at rank percent/100 x (n-1).
[[nodiscard]] std::optional<double> percentile(std::span<const double> samples, double percent);
// The same for samples that are already sorted ascending and finite; no copy. Precondition: not empty.
[[nodiscard]] double percentile_of_sorted(std::span<const double> sorted, double percent);

[[nodiscard]] std::optional<double> median(std::span<const double> samples);
[[nodiscard]] std::optional<double> mean(std::span<const double> samples);
// Sample standard deviation, divisor n-1; at least 2 samples.
[[nodiscard]] std::optional<double> standard_deviation(std::span<const double> samples);
[[nodiscard]] std::optional<double> minimum(std::span<const double> samples);
[[nodiscard]] std::optional<double> maximum(std::span<const double> samples);

// Tukey's fences at 1.5 interquartile ranges, both sides. Counted, never dropped. At least 4 samples, else {0, 0}.
[[nodiscard]] outlier_counts count_outliers(std::span<const double> samples);

constexpr std::size_t default_resamples = 1000;

// 95 % percentile-bootstrap interval of the median: samples are drawn with replacement `resamples` times (raised to
// 1000 if fewer), the interval runs from the 2.5th to the 97.5th percentile of the medians. At least 2 samples.
[[nodiscard]] std::optional<interval> median_interval(std::span<const double> samples, std::uint64_t seed,
                                                      std::size_t resamples = default_resamples);

// The same where samples come in groups that share a disturbance (batches of one visit): whole groups are drawn.
// group_of[i] is the group of sample i; sizes must match. At least 2 groups.
[[nodiscard]] std::optional<interval> grouped_median_interval(std::span<const double> samples,
                                                              std::span<const std::uint32_t> group_of,
                                                              std::uint64_t seed,
                                                              std::size_t resamples = default_resamples);

// Ratios of samples taken as pairs next to each other in time.
struct ratio_summary {
    std::size_t n = 0;
    double p50 = 0; // median of the ratios of the pairs
    interval ci95;  // bootstrap interval of that median
    double min = 0; // smallest numerator / smallest denominator
    double p10 = 0; // 10th percentile of numerators / 10th percentile of denominators
};

// Numerators not negative, denominators positive, equal sizes, at least 2 pairs: else empty, and `why` (if given) says
// what is wrong.
[[nodiscard]] std::optional<ratio_summary> paired_ratio(std::span<const double> numerators,
                                                        std::span<const double> denominators,
                                                        std::uint64_t seed, std::string* why = nullptr);

// A/A within one row: |median of half A - median of half B| / median of all, in which even groups are A and odd
// groups are B (without groups: even and odd positions). No difference between rows smaller than this is called a
// difference. Needs 4 samples, both halves, and a positive median.
[[nodiscard]] std::optional<double> split_half_gap(std::span<const double> samples,
                                                   std::span<const std::uint32_t> group_of = {});

enum class verdict { less, same, more, cannot_decide };
[[nodiscard]] const char* to_string(verdict value);

// How the numerator stands to the denominator. `noise` is the relative gap below which nothing is called a difference
// (twin's gap, A/A gap). `less` and `more` need the interval, the minima and the p10 all beyond the noise on that
// side; `same` needs median, minima and p10 all within it; everything else is cannot_decide.
[[nodiscard]] verdict judge(const ratio_summary& ratio, double noise);

// Upper 95 % bound of a probability of which `trials` independent trials showed none: exact, 1 - 0.05^(1/trials),
// and the rule of three, 3 / trials. Empty for 0 trials. Both are at most 1.
[[nodiscard]] std::optional<double> zero_events_bound(std::uint64_t trials);
[[nodiscard]] std::optional<double> rule_of_three(std::uint64_t trials);

// What each thread of a team spent on the same number of operations.
struct thread_time {
    double begin_ns = 0; // steady clock, any common origin
    double end_ns = 0;
    double cpu_ns = 0; // CPU time of that thread between the two
};

struct thread_figures {
    double wall_ns_per_op_per_thread =
        0;                    // mean over threads of own duration / own operations: not divided by threads
    double cpu_ns_per_op = 0; // CPU of all threads / operations of all threads
    double operations_per_second = 0; // operations of all threads / (last end - first begin)
};

// Empty when there is no thread, ops_per_thread is 0, or a duration is not positive.
[[nodiscard]] std::optional<thread_figures> combine_threads(std::span<const thread_time> threads,
                                                            std::uint64_t ops_per_thread);

} // namespace timerbench::harness
