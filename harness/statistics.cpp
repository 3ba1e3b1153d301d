#include "harness/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace timerbench::harness {

std::uint64_t random_source::next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
}

std::uint64_t random_source::below(std::uint64_t bound) {
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<wide>(next()) * bound) >> 64);
}

double random_source::unit() {
    return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

std::string refuse_samples(std::span<const double> samples, bool positive_only) {
    if (samples.empty())
        return "no samples";
    for (std::size_t i = 0; i < samples.size(); ++i) {
        if (!std::isfinite(samples[i]))
            return "sample " + std::to_string(i) + " is not finite";
        if (positive_only && samples[i] <= 0)
            return "sample " + std::to_string(i) + " is zero or negative";
    }
    return {};
}

namespace {

bool usable(std::span<const double> samples, std::size_t at_least = 1) {
    return samples.size() >= at_least && refuse_samples(samples).empty();
}

std::vector<double> sorted_copy(std::span<const double> samples) {
    std::vector<double> sorted(samples.begin(), samples.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted;
}

// a + (b - a) * t without overflow of b - a for huge values of opposite sign.
double between(double a, double b, double t) {
    if (a == b)
        return a;
    return a * (1 - t) + b * t;
}

// Median of a multiset given as how often each order statistic of `sorted` occurs; `total` elements in all.
double median_of_counts(const std::vector<double>& sorted, const std::vector<std::uint32_t>& counts,
                        std::uint64_t total) {
    const std::uint64_t low_rank = (total - 1) / 2;
    const std::uint64_t high_rank = total / 2;
    std::uint64_t seen = 0;
    double low = 0;
    bool have_low = false;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        seen += counts[i];
        if (!have_low && seen > low_rank) {
            low = sorted[i];
            have_low = true;
        }
        if (seen > high_rank)
            return between(low, sorted[i], 0.5);
    }
    return low;
}

interval middle_95(std::vector<double>& medians) {
    std::sort(medians.begin(), medians.end());
    return {percentile_of_sorted(medians, 2.5), percentile_of_sorted(medians, 97.5)};
}

} // namespace

double percentile_of_sorted(std::span<const double> sorted, double percent) {
    const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
    const auto below = std::min(static_cast<std::size_t>(rank), sorted.size() - 1);
    const auto above = std::min(below + 1, sorted.size() - 1);
    return between(sorted[below], sorted[above], rank - static_cast<double>(below));
}

std::optional<double> percentile(std::span<const double> samples, double percent) {
    if (!usable(samples) || !(percent >= 0 && percent <= 100))
        return std::nullopt;
    return percentile_of_sorted(sorted_copy(samples), percent);
}

std::optional<double> median(std::span<const double> samples) {
    return percentile(samples, 50);
}

std::optional<double> mean(std::span<const double> samples) {
    if (!usable(samples))
        return std::nullopt;
    const auto n = static_cast<double>(samples.size());
    double sum = 0;
    for (const double value : samples)
        sum += value / n;
    return std::isfinite(sum) ? std::optional(sum) : std::nullopt;
}

std::optional<double> standard_deviation(std::span<const double> samples) {
    const auto centre = mean(samples);
    if (!centre || samples.size() < 2)
        return std::nullopt;
    double squares = 0;
    for (const double value : samples)
        squares += (value - *centre) * (value - *centre);
    const double result = std::sqrt(squares / static_cast<double>(samples.size() - 1));
    return std::isfinite(result) ? std::optional(result) : std::nullopt;
}

std::optional<double> minimum(std::span<const double> samples) {
    if (!usable(samples))
        return std::nullopt;
    return *std::min_element(samples.begin(), samples.end());
}

std::optional<double> maximum(std::span<const double> samples) {
    if (!usable(samples))
        return std::nullopt;
    return *std::max_element(samples.begin(), samples.end());
}

outlier_counts count_outliers(std::span<const double> samples) {
    outlier_counts counts;
    if (!usable(samples, 4))
        return counts;
    const auto sorted = sorted_copy(samples);
    const double q1 = percentile_of_sorted(sorted, 25);
    const double q3 = percentile_of_sorted(sorted, 75);
    const double reach = 1.5 * (q3 - q1);
    for (const double value : sorted) {
        counts.low += value < q1 - reach ? 1 : 0;
        counts.high += value > q3 + reach ? 1 : 0;
    }
    return counts;
}

std::optional<interval> median_interval(std::span<const double> samples, std::uint64_t seed,
                                        std::size_t resamples) {
    if (!usable(samples, 2))
        return std::nullopt;
    const auto sorted = sorted_copy(samples);
    random_source random(seed);
    std::vector<std::uint32_t> counts(sorted.size());
    std::vector<double> medians(std::max(resamples, default_resamples));
    for (double& result : medians) {
        std::fill(counts.begin(), counts.end(), 0U);
        for (std::size_t i = 0; i < sorted.size(); ++i)
            ++counts[static_cast<std::size_t>(random.below(sorted.size()))];
        result = median_of_counts(sorted, counts, sorted.size());
    }
    return middle_95(medians);
}

std::optional<interval> grouped_median_interval(std::span<const double> samples,
                                                std::span<const std::uint32_t> group_of, std::uint64_t seed,
                                                std::size_t resamples) {
    if (!usable(samples, 2) || group_of.size() != samples.size())
        return std::nullopt;

    // Order statistics, and for each group the ranks of its members.
    std::vector<std::size_t> by_value(samples.size());
    for (std::size_t i = 0; i < by_value.size(); ++i)
        by_value[i] = i;
    std::stable_sort(by_value.begin(), by_value.end(),
                     [&](std::size_t a, std::size_t b) { return samples[a] < samples[b]; });
    std::vector<std::uint32_t> names(group_of.begin(), group_of.end());
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.size() < 2)
        return std::nullopt;
    std::vector<double> sorted(samples.size());
    std::vector<std::vector<std::size_t>> ranks(names.size());
    for (std::size_t rank = 0; rank < by_value.size(); ++rank) {
        sorted[rank] = samples[by_value[rank]];
        const auto name = std::lower_bound(names.begin(), names.end(), group_of[by_value[rank]]);
        ranks[static_cast<std::size_t>(name - names.begin())].push_back(rank);
    }

    random_source random(seed);
    std::vector<std::uint32_t> counts(sorted.size());
    std::vector<double> medians(std::max(resamples, default_resamples));
    for (double& result : medians) {
        std::fill(counts.begin(), counts.end(), 0U);
        std::uint64_t total = 0;
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const auto& group = ranks[static_cast<std::size_t>(random.below(ranks.size()))];
            for (const std::size_t rank : group)
                ++counts[rank];
            total += group.size();
        }
        result = median_of_counts(sorted, counts, total);
    }
    return middle_95(medians);
}

std::optional<ratio_summary> paired_ratio(std::span<const double> numerators,
                                          std::span<const double> denominators, std::uint64_t seed,
                                          std::string* why) {
    const auto refused = [&](std::string reason) -> std::optional<ratio_summary> {
        if (why)
            *why = std::move(reason);
        return std::nullopt;
    };
    if (numerators.size() != denominators.size())
        return refused(std::to_string(numerators.size()) + " samples against " +
                       std::to_string(denominators.size()));
    if (const auto reason = refuse_samples(numerators); !reason.empty())
        return refused("numerators: " + reason);
    for (std::size_t i = 0; i < numerators.size(); ++i)
        if (numerators[i] < 0)
            return refused("numerators: sample " + std::to_string(i) + " is negative");
    if (const auto reason = refuse_samples(denominators, true); !reason.empty())
        return refused("denominators: " + reason);
    if (numerators.size() < 2)
        return refused("fewer than 2 pairs");

    std::vector<double> ratios(numerators.size());
    for (std::size_t i = 0; i < ratios.size(); ++i)
        ratios[i] = numerators[i] / denominators[i];
    if (const auto reason = refuse_samples(ratios); !reason.empty())
        return refused("ratios: " + reason);
    ratio_summary summary;
    summary.n = ratios.size();
    summary.p50 = *median(ratios);
    summary.ci95 = *median_interval(ratios, seed);
    summary.min = *minimum(numerators) / *minimum(denominators);
    summary.p10 = *percentile(numerators, 10) / *percentile(denominators, 10);
    if (!std::isfinite(summary.min) || !std::isfinite(summary.p10))
        return refused("ratios: not finite");
    return summary;
}

std::optional<double> split_half_gap(std::span<const double> samples,
                                     std::span<const std::uint32_t> group_of) {
    if (!usable(samples, 4) || (!group_of.empty() && group_of.size() != samples.size()))
        return std::nullopt;
    std::vector<double> even;
    std::vector<double> odd;
    for (std::size_t i = 0; i < samples.size(); ++i)
        (((group_of.empty() ? i : group_of[i]) % 2 == 0) ? even : odd).push_back(samples[i]);
    const auto all = median(samples);
    if (even.empty() || odd.empty() || !(*all > 0))
        return std::nullopt;
    const double gap = std::fabs(*median(even) - *median(odd)) / *all;
    return std::isfinite(gap) ? std::optional(gap) : std::nullopt;
}

const char* to_string(verdict value) {
    switch (value) {
    case verdict::less:
        return "less";
    case verdict::same:
        return "same";
    case verdict::more:
        return "more";
    case verdict::cannot_decide:
        break;
    }
    return "cannot decide";
}

verdict judge(const ratio_summary& ratio, double noise) {
    const double low = 1 - noise;
    const double high = 1 + noise;
    const auto below = [&](double value) { return value < low; };
    const auto above = [&](double value) { return value > high; };
    const auto within = [&](double value) { return value >= low && value <= high; };
    if (below(ratio.ci95.high) && below(ratio.min) && below(ratio.p10))
        return verdict::less;
    if (above(ratio.ci95.low) && above(ratio.min) && above(ratio.p10))
        return verdict::more;
    if (within(ratio.p50) && within(ratio.min) && within(ratio.p10))
        return verdict::same;
    return verdict::cannot_decide;
}

std::optional<double> zero_events_bound(std::uint64_t trials) {
    if (trials == 0)
        return std::nullopt;
    // 1 - 0.05^(1/N) loses its digits for large N when written that way.
    return -std::expm1(std::log(0.05) / static_cast<double>(trials));
}

std::optional<double> rule_of_three(std::uint64_t trials) {
    if (trials == 0)
        return std::nullopt;
    return std::min(1.0, 3.0 / static_cast<double>(trials));
}

std::optional<thread_figures> combine_threads(std::span<const thread_time> threads,
                                              std::uint64_t ops_per_thread) {
    if (threads.empty() || ops_per_thread == 0)
        return std::nullopt;
    const auto count = static_cast<double>(threads.size());
    const auto ops = static_cast<double>(ops_per_thread);
    double wall = 0;
    double cpu = 0;
    double begin = threads.front().begin_ns;
    double end = threads.front().end_ns;
    for (const thread_time& one : threads) {
        const double duration = one.end_ns - one.begin_ns;
        if (!(duration > 0) || !(one.cpu_ns > 0) || !std::isfinite(duration) || !std::isfinite(one.cpu_ns))
            return std::nullopt;
        wall += duration / ops / count;
        cpu += one.cpu_ns / ops / count;
        begin = std::min(begin, one.begin_ns);
        end = std::max(end, one.end_ns);
    }
    return thread_figures{wall, cpu, count * ops / ((end - begin) * 1e-9)};
}

} // namespace timerbench::harness
