// A row: one service x case x metric with its samples. The sampler makes rows, an experiment may make its own, the
// report stores, prints and writes them. Figures (median, interval, ...) are derived from the samples on demand and
// never stored beside them.
#pragma once

#include "harness/json.hpp"
#include "harness/statistics.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace timerbench::harness {

struct row {
    std::string service;
    json case_point = json::object(); // the case: one point of the experiment's parameter space
    std::string metric;
    std::string unit; // "ns/op", "1/op", "B", "ms", ...

    std::vector<double> samples;
    // Parallel to samples, or empty: cost of one steady_clock::now() measured right beside that sample, in ns.
    std::vector<double> clock_ns;
    // Parallel to samples, or empty: which visit of this cell gave the sample (0, 1, ...), and when in the whole run
    // that visit came (a number that grows by 1 with every visit of any cell).
    std::vector<std::uint32_t> visit_index;
    std::vector<std::uint32_t> visit_order;

    // Samples are single events, not batches: p90, p99 and p99.9 are reported where there are enough of them.
    bool single_events = false;
    // The value of the first batch of the run, before warm-up. Not among the samples.
    std::optional<double> first_pass;

    std::string note;    // printed as a footnote
    std::string skipped; // why there is nothing to measure; samples are then ignored
    std::string error;   // why what was measured must not be used; samples are then ignored
};

struct row_summary {
    std::size_t n = 0;
    double min = 0, p10 = 0, p50 = 0, max = 0, mean = 0;
    std::optional<double> p90, p99, p999; // single events only: at least 100, 1 000, 10 000 of them
    std::optional<interval> ci95; // of the median; whole visits are resampled where visit_index is known
    std::optional<double> stddev;
    outlier_counts outliers;
    std::optional<double> aa_gap;             // split_half_gap
    std::optional<ratio_summary> clock_ratio; // samples / neighbouring clock costs
};

// Empty when the row is skipped or in error, has no samples or a sample that is not finite.
[[nodiscard]] std::optional<row_summary> summarise(const row& value, std::uint64_t seed);

// How row a stands to row b: medians per visit, each divided by the clock cost beside it where both rows have it,
// paired by visit index. Empty if either row has no usable samples or fewer than 2 visits in common.
[[nodiscard]] std::optional<ratio_summary> compare_rows(const row& a, const row& b, std::uint64_t seed);

// Whether the order of visiting matters: the median of a / b over pairs of visits in which a came first, and over
// those in which b came first. Empty unless both kinds occur.
struct order_effect {
    double a_first = 0, b_first = 0;
    std::size_t n_a_first = 0, n_b_first = 0;
};
[[nodiscard]] std::optional<order_effect> compare_orders(const row& a, const row& b);

// Same service, case and metric.
[[nodiscard]] bool same_place(const row& a, const row& b);

} // namespace timerbench::harness
