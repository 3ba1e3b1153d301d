// A window of time in which nothing is due, and what a process spends in it all the same.
//
// Pure arithmetic, so that it can be tested: the reading of clocks and counters is the experiment's. Costs nothing worth
// mentioning.
#pragma once

#include "harness/process_status.hpp"
#include "harness/statistics.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

namespace timerbench::experiments {

/// How long a window must be to see the slowest tick several times: at least `least`, and `ticks` steps of the service.
[[nodiscard]] constexpr duration idle_window(duration least, duration resolution, int ticks) noexcept {
    return std::max(least, resolution * ticks);
}

/// What was read at one end of a window.
struct idle_reading {
    harness::sleep_counts sleeps;
    std::int64_t process_cpu_ns = 0;
    std::int64_t caller_cpu_ns = 0;
    std::int64_t wall_ns = 0;
};

struct idle_rates {
    double wakeups_a_second = 0;
    double cpu_us_a_second = 0;
};

/// What the service did between two readings. A service with threads of its own: all but the calling thread, which only slept. A
/// service that the caller's loop drives: the whole process, less the `waits` sleeps that the caller asked for; each sleep
/// beyond those was broken off by the service. The window must have a length.
[[nodiscard]] constexpr idle_rates rates_between(const idle_reading& begin, const idle_reading& end,
                                                 bool loop_driven, std::uint64_t waits) noexcept {
    const std::uint64_t others = end.sleeps.others - begin.sleeps.others;
    const std::uint64_t caller = end.sleeps.caller - begin.sleeps.caller;
    const std::uint64_t of_loop = caller > waits ? caller - waits : 0;
    const std::int64_t process_ns = end.process_cpu_ns - begin.process_cpu_ns;
    const std::int64_t caller_ns = end.caller_cpu_ns - begin.caller_cpu_ns;
    const double seconds = static_cast<double>(end.wall_ns - begin.wall_ns) * 1e-9;
    const std::int64_t cpu_ns = loop_driven ? process_ns : std::max<std::int64_t>(process_ns - caller_ns, 0);
    return {static_cast<double>(others + (loop_driven ? of_loop : 0)) / seconds,
            static_cast<double>(cpu_ns) * 1e-3 / seconds};
}

/// `n` durations between `low` (above zero) and `high`, as many per factor of two near either end: minutes and hours alike. The
/// first is `high`. `steps` above 0: at so many different durations only, ends included (one step: `high`).
[[nodiscard]] inline std::vector<duration> far_out(std::size_t n, duration low, duration high,
                                                   std::uint64_t seed, std::size_t steps = 0) {
    harness::random_source random{seed};
    const double ratio = static_cast<double>(high.count()) / static_cast<double>(low.count());
    std::vector<duration> all;
    all.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
        double at = i == 0 ? 1.0 : random.unit();
        if (steps > 0) {
            const auto last = static_cast<double>(steps - 1);
            at = last > 0 ? std::round(at * last) / last : 1.0;
        }
        const double ns = static_cast<double>(low.count()) * std::pow(ratio, at);
        all.push_back(std::clamp(duration{static_cast<duration::rep>(ns)}, low, high));
    }
    return all;
}

} // namespace timerbench::experiments
