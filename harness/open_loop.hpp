// Open-loop load and the tail of a latency distribution: when operations are meant to happen, how one is timed from that moment,
// and which percentiles so many events can carry.
//
// An operation has an intended time that no earlier operation moves. Its latency runs from there to its end, so that a stall of the
// thread that makes the load, or a call that blocks, is charged to every operation that it held up and not only to the
// one that was running. Beside it stands the call alone, which such a stall hides. Intended times come in bursts with random gaps, so
// that their phases are uniform over any tick and no service meets all of them at the same point of its own.
//
// Costs: two clock readings an operation, one of which is in both figures. Waiting spins for the last 150 us: a sleep that ends on time is
// a matter of luck. Bad at: more spinning threads than cores.
#pragma once

#include "harness/json.hpp"
#include "harness/statistics.hpp"
#include "harness/text_table.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <time.h>
#include <utility>
#include <vector>

namespace timerbench::harness {

// Sleeps until a moment of the steady clock. Set the thread's timer slack to 1 ns first if that matters.
inline void sleep_until_ns(std::int64_t t_ns) noexcept {
    timespec at{};
    at.tv_sec = t_ns / 1'000'000'000;
    at.tv_nsec = t_ns % 1'000'000'000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {}
}

// The steady clock, and a wait that ends on it to the reading. All in nanoseconds.
class punctual_clock {
  public:
    static constexpr std::int64_t spin_ns = 150'000;

    [[nodiscard]] static std::int64_t now() noexcept {
        return std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}.count();
    }
    // Returns the first reading that is not before `t_ns`.
    static std::int64_t wait_until(std::int64_t t_ns) noexcept {
        std::int64_t reading = now();
        if (t_ns - reading > spin_ns) {
            sleep_until_ns(t_ns - spin_ns);
            reading = now();
        }
        while (reading < t_ns) {
            reading = now();
        }
        return reading;
    }
};

// The beginnings of bursts, one after the other: the gaps are random, uniform between busy_ns and 2 x mean_ns - busy_ns, so that
// a burst of that length never reaches into the next one, and the mean gap is mean_ns. Equal seeds give equal times.
class burst_times {
  public:
    // 0 <= busy_ns <= mean_ns, mean_ns > 0.
    burst_times(std::int64_t origin_ns, double mean_ns, double busy_ns, std::uint64_t seed)
        : random_{seed},
          origin_ns_{origin_ns},
          busy_ns_{busy_ns},
          spread_ns_{2 * (mean_ns - busy_ns)},
          at_{random_.unit() * (busy_ns + spread_ns_)} {}
    [[nodiscard]] std::int64_t next() {
        const std::int64_t result = origin_ns_ + static_cast<std::int64_t>(at_);
        at_ += busy_ns_ + random_.unit() * spread_ns_;
        return result;
    }

  private:
    random_source random_;
    std::int64_t origin_ns_;
    double busy_ns_;
    double spread_ns_;
    double at_; // since the origin
};

struct timed_call {
    double from_intended_ns = 0;
    double alone_ns = 0;
};

// Waits for the intended time, if that is still to come, and runs `operation`.
template <class Clock, class Operation>
[[nodiscard]] timed_call call_at(Clock& clock, std::int64_t intended_ns, Operation&& operation) {
    const std::int64_t begin = clock.wait_until(intended_ns);
    operation();
    const std::int64_t end = clock.now();
    return {static_cast<double>(end - intended_ns), static_cast<double>(end - begin)};
}

// How many single events a percentile needs, so that about ten lie beyond it.
[[nodiscard]] inline std::size_t events_needed(double percent) {
    return static_cast<std::size_t>(1000.0 / (100.0 - percent) + 0.5);
}

// A sorted series of single events.
class tail {
  public:
    tail() = default;
    explicit tail(std::vector<double> values) : sorted_{std::move(values)} {
        std::sort(sorted_.begin(), sorted_.end());
    }
    [[nodiscard]] bool empty() const { return sorted_.empty(); }
    [[nodiscard]] std::size_t size() const { return sorted_.size(); }
    [[nodiscard]] const std::vector<double>& sorted() const { return sorted_; }

    // Whether there are events enough. The median and the extremes need one.
    [[nodiscard]] bool carries(double percent) const {
        return !empty() &&
               (percent == 50 || percent == 0 || percent == 100 || size() >= events_needed(percent));
    }
    // Precondition: not empty.
    [[nodiscard]] double at(double percent) const { return percentile_of_sorted(sorted_, percent); }

    // The figure divided by `unit`, or the reason why there is none.
    [[nodiscard]] table_cell cell(double percent, int decimals, double unit = 1) const {
        if (empty()) {
            return absent("no event");
        }
        if (!carries(percent)) {
            return absent("this percentile needs " + std::to_string(events_needed(percent)) +
                          " events, and there were fewer");
        }
        return number(at(percent) / unit, decimals);
    }

    // At most `most` (2 or more) values, evenly spaced order statistics with the smallest and the largest.
    [[nodiscard]] std::vector<double> kept(std::size_t most) const {
        std::vector<double> result;
        const std::size_t n = std::min(size(), most);
        for (std::size_t i = 0; i < n; ++i) {
            result.push_back(sorted_[n == size() ? i : i * (size() - 1) / (n - 1)]);
        }
        return result;
    }

    // n, min, p50, max, and the percentiles that the series carries.
    [[nodiscard]] json to_json() const {
        json result{{"n", size()}};
        if (!empty()) {
            const std::pair<const char*, double> all[] = {{"min", 0},  {"p50", 50},     {"p90", 90},
                                                          {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99},
                                                          {"max", 100}};
            for (const auto& [name, percent] : all) {
                if (carries(percent)) {
                    result[name] = at(percent);
                }
            }
        }
        return result;
    }

  private:
    std::vector<double> sorted_;
};

// Chi-square of times modulo `width_ns` against uniform over `bins` equal parts.
[[nodiscard]] inline double chi_square_of_phases(std::span<const std::int64_t> times_ns,
                                                 std::int64_t width_ns, std::size_t bins) {
    if (times_ns.empty()) {
        return 0;
    }
    std::vector<double> count(bins, 0);
    for (const std::int64_t t : times_ns) {
        count[static_cast<std::size_t>(t % width_ns) * bins / static_cast<std::size_t>(width_ns)] += 1;
    }
    const double expected = static_cast<double>(times_ns.size()) / static_cast<double>(bins);
    double sum = 0;
    for (const double c : count) {
        sum += (c - expected) * (c - expected) / expected;
    }
    return sum;
}
// For 20 parts: 19 degrees of freedom, exceeded by one uniform series in a thousand.
inline constexpr std::size_t phase_parts = 20;
inline constexpr double phase_chi_square_bound = 43.82;

} // namespace timerbench::harness
