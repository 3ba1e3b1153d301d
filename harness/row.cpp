#include "harness/row.hpp"

#include <algorithm>
#include <map>

namespace timerbench::harness {

namespace {

bool has_figures(const row& value) {
    return value.skipped.empty() && value.error.empty() && refuse_samples(value.samples).empty();
}

struct visit_figure {
    double value = 0;
    std::uint32_t order = 0;
};

// The median of each visit; with `normalised` each sample is first divided by its neighbouring clock cost.
std::map<std::uint32_t, visit_figure> per_visit(const row& value, bool normalised) {
    std::map<std::uint32_t, std::vector<double>> grouped;
    std::map<std::uint32_t, std::uint32_t> order;
    const bool indexed = value.visit_index.size() == value.samples.size();
    const bool ordered = value.visit_order.size() == value.samples.size();
    for (std::size_t i = 0; i < value.samples.size(); ++i) {
        const auto visit = indexed ? value.visit_index[i] : static_cast<std::uint32_t>(i);
        grouped[visit].push_back(normalised ? value.samples[i] / value.clock_ns[i] : value.samples[i]);
        order[visit] = ordered ? value.visit_order[i] : 0;
    }
    std::map<std::uint32_t, visit_figure> figures;
    for (const auto& [visit, samples] : grouped)
        if (const auto middle = median(samples))
            figures[visit] = {*middle, order[visit]};
    return figures;
}

struct pair_of_visits {
    visit_figure a, b;
};

std::vector<pair_of_visits> pair_up(const row& a, const row& b) {
    std::vector<pair_of_visits> pairs;
    if (!has_figures(a) || !has_figures(b))
        return pairs;
    const auto clocked = [](const row& r) {
        return r.clock_ns.size() == r.samples.size() && refuse_samples(r.clock_ns, true).empty();
    };
    const bool normalised = clocked(a) && clocked(b);
    const auto of_b = per_visit(b, normalised);
    for (const auto& [visit, figure] : per_visit(a, normalised))
        if (const auto other = of_b.find(visit); other != of_b.end())
            pairs.push_back({figure, other->second});
    return pairs;
}

} // namespace

std::optional<row_summary> summarise(const row& value, std::uint64_t seed) {
    if (!has_figures(value))
        return std::nullopt;
    const auto middle = mean(value.samples);
    if (!middle)
        return std::nullopt;
    std::vector<double> sorted = value.samples;
    std::sort(sorted.begin(), sorted.end());
    row_summary summary;
    summary.n = sorted.size();
    summary.min = sorted.front();
    summary.max = sorted.back();
    summary.p10 = percentile_of_sorted(sorted, 10);
    summary.p50 = percentile_of_sorted(sorted, 50);
    summary.mean = *middle;
    if (value.single_events) {
        if (summary.n >= 100)
            summary.p90 = percentile_of_sorted(sorted, 90);
        if (summary.n >= 1000)
            summary.p99 = percentile_of_sorted(sorted, 99);
        if (summary.n >= 10'000)
            summary.p999 = percentile_of_sorted(sorted, 99.9);
    }
    const bool indexed = value.visit_index.size() == value.samples.size();
    if (indexed)
        summary.ci95 = grouped_median_interval(value.samples, value.visit_index, seed);
    if (!summary.ci95)
        summary.ci95 = median_interval(value.samples, seed);
    summary.stddev = standard_deviation(value.samples);
    summary.outliers = count_outliers(value.samples);
    if (indexed)
        summary.aa_gap = split_half_gap(value.samples, value.visit_index);
    if (!summary.aa_gap)
        summary.aa_gap = split_half_gap(value.samples);
    if (!value.clock_ns.empty())
        summary.clock_ratio = paired_ratio(value.samples, value.clock_ns, seed);
    return summary;
}

std::optional<ratio_summary> compare_rows(const row& a, const row& b, std::uint64_t seed) {
    std::vector<double> numerators;
    std::vector<double> denominators;
    for (const auto& pair : pair_up(a, b)) {
        numerators.push_back(pair.a.value);
        denominators.push_back(pair.b.value);
    }
    return paired_ratio(numerators, denominators, seed);
}

std::optional<order_effect> compare_orders(const row& a, const row& b) {
    std::vector<double> a_first;
    std::vector<double> b_first;
    for (const auto& pair : pair_up(a, b)) {
        if (pair.a.order == pair.b.order || !(pair.b.value > 0))
            continue;
        (pair.a.order < pair.b.order ? a_first : b_first).push_back(pair.a.value / pair.b.value);
    }
    const auto forwards = median(a_first);
    const auto backwards = median(b_first);
    if (!forwards || !backwards)
        return std::nullopt;
    return order_effect{*forwards, *backwards, a_first.size(), b_first.size()};
}

bool same_place(const row& a, const row& b) {
    return a.service == b.service && a.metric == b.metric && a.case_point == b.case_point;
}

} // namespace timerbench::harness
