// What a measurement of waits is asked for, the readings that it takes and the figures that it gives. See waiting_cells.hpp.
//
// Figures travel as JSON from the process that measures to the one that reports. Reading takes tens of microseconds.
#pragma once

#include "experiments/service_cells.hpp"
#include "experiments/waiting_threads.hpp"
#include "harness/json.hpp"
#include "harness/process_status.hpp"
#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <time.h>
#include <vector>

namespace timerbench::experiments {

using namespace std::chrono_literals;

struct waiting_plan {
    std::size_t waits = 1;
    std::size_t notified = 100; ///< waits that are notified one by one, over all rounds
    std::size_t timed_out = 20; ///< waits of the second phase, at least
    duration shortest = 5ms;    ///< timeout of the second phase
    duration spread{};          ///< over which timeouts of the second phase lie beyond the shortest
    std::size_t different = 64; ///< timeouts of the second phase, at most
    duration between = 200us;   ///< two notifications
    duration settle = 1ms;      ///< until what has begun to wait is parked
    duration idle = 50ms;       ///< the window in which nothing happens
    std::size_t most_threads = 1'000'000;
    duration patience = 20s; ///< for anything that has to come
};

/// As many rounds as it takes to see `events` of them.
[[nodiscard]] constexpr std::size_t rounds_for(std::size_t events, std::size_t waits) noexcept {
    return std::max<std::size_t>((events + waits - 1) / std::max<std::size_t>(waits, 1), 1);
}

/// The timeout of the i-th wait of the second phase.
[[nodiscard]] constexpr duration timeout_of(std::size_t i, const waiting_plan& plan) noexcept {
    const std::size_t steps = std::max<std::size_t>(std::min(plan.different, plan.waits), 1);
    const auto at = static_cast<duration::rep>(i % steps);
    return plan.shortest + plan.spread * at / static_cast<duration::rep>(steps);
}

inline constexpr duration far_away = 60s;

/// A measurement that cannot be made here: a cell without figures, no failure.
struct cannot_measure {
    std::string why;
};

// ---- readings ----

struct memory_reading {
    double resident = 0;
    double page_tables = 0;
};
[[nodiscard]] inline memory_reading read_memory() {
    std::ifstream file{"/proc/self/status"};
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto resident = harness::read_resident_memory();
    if (!resident) {
        throw cannot_measure{"resident memory cannot be read: neither /proc/self/smaps_rollup nor statm"};
    }
    return {static_cast<double>(resident->bytes),
            1024 * static_cast<double>(harness::status_field(text, "VmPTE").value_or(0))};
}

/// In how many lists the kernel keeps the waits on private futexes of this process; 0: in the lists that all processes share, or
/// the kernel does not say. Many waits in few lists make each wake-up a search.
[[nodiscard]] inline std::uint64_t futex_lists() noexcept {
    constexpr int futex_hash = 78, get_slots = 2; // PR_FUTEX_HASH, Linux 6.16
    const int slots = prctl(futex_hash, get_slots, 0UL, 0UL, 0UL);
    return slots > 0 ? static_cast<std::uint64_t>(slots) : 0;
}

[[nodiscard]] inline std::int64_t own_cpu_ns() noexcept {
    return read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/// Sleeps in short steps until it holds. False: not within `patience`.
template <class Condition>
[[nodiscard]] bool poll_until(duration patience, Condition&& holds) {
    const time_point give_up = steady_time::now() + patience;
    while (!holds()) {
        if (steady_time::now() > give_up) {
            return false;
        }
        std::this_thread::sleep_for(50us);
    }
    return true;
}

/// Sleeps until what has begun to wait is parked: for `settle`, and then until the other threads use less than a fifth of a processor
/// in two windows of 5 ms in a row; 2 s at the most.
inline void settle_down(duration settle, std::size_t waits) {
    std::this_thread::sleep_for(settle);
    const time_point enough = steady_time::now() + 2s;
    for (int calm = 0; waits >= 1'000 && calm < 2 && steady_time::now() < enough;) {
        const std::int64_t cpu = cpu_of_others_ns();
        std::this_thread::sleep_for(5ms);
        calm = cpu_of_others_ns() - cpu < 1'000'000 ? calm + 1 : 0;
    }
}

[[nodiscard]] inline double us_between(time_point begin, time_point end) noexcept {
    return std::chrono::duration<double, std::micro>{end - begin}.count();
}

/// What a process of its own found out.
struct waiting_figures {
    std::vector<double> wake_up_us;
    std::vector<double> overshoot_ms;
    double cpu_us = 0;
    double idle_us_a_second = 0;
    double rss = 0;
    double page_tables = 0;
    double stack = 0;
    std::uint64_t early = 0;
    std::uint64_t missing = 0;
    std::uint64_t futex_lists = 0;
    std::string wrong;

    [[nodiscard]] harness::json to_json() const {
        return {{"wake_up_us", wake_up_us},
                {"overshoot_ms", overshoot_ms},
                {"cpu_us", cpu_us},
                {"idle_us_a_second", idle_us_a_second},
                {"rss", rss},
                {"page_tables", page_tables},
                {"stack", stack},
                {"early", early},
                {"missing", missing},
                {"futex_lists", futex_lists},
                {"wrong", wrong}};
    }
    void late(duration d) {
        early += d < duration::zero() ? 1 : 0;
        overshoot_ms.push_back(std::chrono::duration<double, std::milli>{d}.count());
    }
    [[nodiscard]] static waiting_figures from_json(const harness::json& j) {
        waiting_figures f;
        f.wake_up_us = j.at("wake_up_us").get<std::vector<double>>();
        f.overshoot_ms = j.at("overshoot_ms").get<std::vector<double>>();
        f.cpu_us = j.at("cpu_us");
        f.idle_us_a_second = j.at("idle_us_a_second");
        f.rss = j.at("rss");
        f.page_tables = j.at("page_tables");
        f.stack = j.at("stack");
        f.early = j.at("early");
        f.missing = j.at("missing");
        f.futex_lists = j.at("futex_lists");
        f.wrong = j.at("wrong");
        return f;
    }
};

/// Idle CPU and memory while everything is outstanding.
class still_life {
  public:
    still_life() {
        static_cast<void>(read_memory()); // its code and buffers, which are not to be taken for what waits
        before_ = read_memory();
    }
    void look(waiting_figures& f, const waiting_plan& plan, std::size_t threads) const {
        const memory_reading after = read_memory();
        const auto n = static_cast<double>(plan.waits);
        f.rss = (after.resident - before_.resident) / n;
        f.page_tables = (after.page_tables - before_.page_tables) / n;
        f.futex_lists = futex_lists();
        f.stack = static_cast<double>(threads) * static_cast<double>(stack_size()) / n;
        const std::int64_t cpu = cpu_of_others_ns();
        const time_point begin = steady_time::now();
        std::this_thread::sleep_for(plan.idle);
        const double seconds = us_between(begin, steady_time::now()) * 1e-6;
        f.idle_us_a_second =
            static_cast<double>(std::max<std::int64_t>(cpu_of_others_ns() - cpu, 0)) * 1e-3 / seconds;
    }

  private:
    memory_reading before_;
};

} // namespace timerbench::experiments
