// How a batch is timed and how large it is.
#pragma once

#include "experiments/service_cells.hpp"
#include "harness/optimiser.hpp"
#include "harness/thread_team.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace timerbench::originals {

/// Cost of one reading of the steady clock now, in ns: a loop of 1 000.
[[nodiscard]] inline double clock_cost_ns() {
    constexpr int readings = 1'000;
    const std::int64_t begin = harness::steady_ns();
    for (int i = 0; i < readings; ++i) {
        harness::do_not_optimize(std::chrono::steady_clock::now());
    }
    return static_cast<double>(harness::steady_ns() - begin) / readings;
}

struct batch_time {
    double wall_ns = 0; ///< of the caller, `work` alone
    double cpu_ns = 0;  ///< of the whole process, `work` and `afterwards`
};

/// Runs `work`, then `afterwards` (what the work put off).
template <class Work, class Afterwards>
[[nodiscard]] batch_time time_batch(Work&& work, Afterwards&& afterwards) {
    const std::int64_t cpu = harness::process_cpu_ns();
    const std::int64_t begin = harness::steady_ns();
    work();
    const std::int64_t end = harness::steady_ns();
    afterwards();
    return {static_cast<double>(end - begin), static_cast<double>(harness::process_cpu_ns() - cpu)};
}

/// A number of operations whose batch takes `at_least_ns`, found by doubling from `from`. `wall_of(n)` runs such a batch and
/// returns its wall time; it doubles as the warm-up.
template <class WallOf>
[[nodiscard]] std::size_t batch_size(std::size_t from, double at_least_ns, WallOf&& wall_of) {
    constexpr std::size_t most = std::size_t{1} << 24;
    std::size_t n = from;
    while (n < most && wall_of(n) < at_least_ns) {
        n *= 2;
    }
    return n;
}

} // namespace timerbench::originals
