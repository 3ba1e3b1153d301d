// How the tail experiment spreads its calls over time, without any service.
#pragma once

#include <algorithm>
#include <cstdint>

namespace timerbench::experiments {

/// Bursts of so many pairs, their mean distance, and how far the calls of a burst are apart.
struct pace {
    std::uint64_t pairs = 1;
    double gap_ns = 0;
    double spacing_ns = 0;
    [[nodiscard]] double busy_ns() const { return spacing_ns * 2 * static_cast<double>(pairs); }
};

/// A burst takes 40 % of the mean distance, less at low rates: calls are never more than 10 us apart.
[[nodiscard]] inline pace pace_of(std::uint64_t rate) {
    constexpr double gap_ns = 1'618'034;
    constexpr double busy_share = 0.4;
    constexpr double most_spacing_ns = 10'000;
    pace p;
    p.pairs = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(static_cast<double>(rate) * gap_ns / 1e9 + 0.5));
    p.gap_ns = 1e9 * static_cast<double>(p.pairs) / static_cast<double>(rate);
    p.spacing_ns = std::min(most_spacing_ns, busy_share * p.gap_ns / (2 * static_cast<double>(p.pairs)));
    return p;
}

} // namespace timerbench::experiments
