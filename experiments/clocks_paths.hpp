// The paths that wait, each run under a watch of the wall clock: every chosen service, every wait of this project, and specimens that
// use the wall clock on purpose.
//
// A service runs from being made to being destroyed: timers of 1 to 29 ms, one that is cancelled, and, where any thread may arm, a scope
// with a deadline. Every other path waits three times for 17 ms. Meanwhile the clock is set some times in each. Takes as
// long as the timers do, some 50 ms a path. One source file of a binary includes it, see clocks_watch.hpp.
#pragma once

#include "experiments/clocks_rules.hpp"
#include "experiments/clocks_watch.hpp"
#include "experiments/service_cells.hpp"
#include "experiments/stage.hpp"
#include "experiments/waiting_ways.hpp"
#include "harness/interrupt.hpp"
#include "timers/deadline.hpp"
#include "timers/scope.hpp"
#include "timers/waiter_timed.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <stop_token>
#include <string>
#include <vector>

namespace timerbench::experiments {

[[nodiscard]] inline double in_ms(duration d) {
    return std::chrono::duration<double, std::milli>{d}.count();
}

struct watched_path {
    std::string name;
    bool specimen = false; ///< Uses the wall clock on purpose.
    seen_clocks clocks;
    std::vector<double> late_ms;
    double allowed_early_ms = 0;
    double allowed_late_ms = 0;
    std::uint64_t missing = 0;
};

struct watched_fire {
    time_point due{};
    // Written by the driver once, read by the main thread until it is not zero; the value is all that is passed on.
    std::atomic<std::int64_t> at_ns{0};
    static void run(void* context) {
        static_cast<watched_fire*>(context)->at_ns.store(steady_time::now().time_since_epoch().count(),
                                                         std::memory_order_relaxed);
    }
};

inline constexpr std::size_t watched_timers = 8;
inline constexpr duration watched_wait = std::chrono::milliseconds{17};

/// Makes the service, lets timers fire, cancels one, enters a scope with a deadline, destroys all of it.
template <class Entry>
[[nodiscard]] watched_path watch_service() {
    watched_path path;
    path.name = std::string{Entry::name};
    clock_watch watch;
    {
        stage<Entry, false> where;
        auto& service = where.subject();
        using service_type = typename Entry::service;
        const service_traits traits = service.traits();
        path.allowed_early_ms = std::min(in_ms(traits.earliest), 0.0);
        path.allowed_late_ms = in_ms(traits.latest);
        std::deque<watched_fire> fires(watched_timers);
        timer_block<service_type> timers{service, watched_timers + 1};
        static_cast<void>(service.arm(timers[watched_timers], std::chrono::seconds{30}, no_callback));
        time_point last{};
        for (std::size_t i = 0; i < watched_timers; ++i) {
            const duration d = std::chrono::milliseconds{1 + 4 * static_cast<int>(i)};
            fires[i].due = steady_time::now() + d;
            last = std::max(last, fires[i].due);
            static_cast<void>(service.arm(timers[i], d, {&watched_fire::run, &fires[i]}));
        }
        const auto all_fired = [&] {
            return std::all_of(fires.begin(), fires.end(), [](const watched_fire& f) {
                return f.at_ns.load(std::memory_order_relaxed) != 0;
            });
        };
        const time_point give_up = last + traits.latest + std::chrono::seconds{2};
        for (time_point t = last; !all_fired() && t < give_up && !harness::interrupted();
             t += std::chrono::milliseconds{2}) {
            where.pass_until(t);
        }
        static_cast<void>(service.cancel(timers[watched_timers]));
        for (const watched_fire& f : fires) {
            if (const std::int64_t at = f.at_ns.load(std::memory_order_relaxed); at != 0) {
                path.late_ms.push_back(in_ms(time_point{duration{at}} - f.due));
            } else if (!traits.has_fault("lost_wakeup")) {
                ++path.missing;
            }
        }
        if (traits.arm_from == callable_from::any_thread && traits.cancel_from == callable_from::any_thread) {
            const deadline until = deadline::in(watched_wait);
            scope<service_type> work{service, until};
            waiter_timed<steady_time> stopped;
            {
                const std::stop_callback tell{work.token(), [&stopped] { stopped.notify(); }};
                if (stopped.wait_for(watched_wait + traits.latest + std::chrono::seconds{2})) {
                    path.late_ms.push_back(in_ms(steady_time::now() - until.when()));
                } else if (!traits.has_fault("lost_wakeup")) {
                    ++path.missing;
                }
            }
        }
    }
    path.clocks = watch.end();
    return path;
}

/// A wait of the calling thread; `wait(until)` returns when that time has come.
template <class Wait>
[[nodiscard]] watched_path watch_wait(const char* name, bool specimen, Wait&& wait) {
    watched_path path;
    path.name = name;
    path.specimen = specimen;
    clock_watch watch;
    for (int i = 0; i < 3; ++i) {
        const time_point until = steady_time::now() + watched_wait;
        wait(until);
        path.late_ms.push_back(in_ms(steady_time::now() - until));
    }
    path.clocks = watch.end();
    return path;
}

template <class Way>
[[nodiscard]] watched_path watch_way(const char* name) {
    Way way;
    return watch_wait(name, false, [&way](time_point until) { static_cast<void>(way.wait_until(until)); });
}

[[nodiscard]] inline std::chrono::system_clock::time_point in_a_while() {
    return std::chrono::system_clock::now() + watched_wait;
}

/// Waits that use the wall clock, each in another way. They look for themselves, so that none of them lasts for hours.
inline void add_specimens(std::vector<watched_path>& paths) {
    paths.push_back(watch_wait("specimen/cv_on_wall_clock", true, [](time_point) {
        std::mutex mutex;
        std::condition_variable never;
        std::unique_lock lock{mutex};
        const auto end = in_a_while();
        while (std::chrono::system_clock::now() < end) {
            never.wait_until(lock, end);
        }
    }));
    paths.push_back(watch_wait("specimen/polls_wall_clock", true, [](time_point) {
        const auto end = in_a_while();
        while (std::chrono::system_clock::now() < end) {
            sleep_through(steady_time::now() + std::chrono::milliseconds{1});
        }
    }));
    paths.push_back(watch_wait("specimen/nanosleep_on_wall_clock", true, [](time_point until) {
        timespec at{};
        while (steady_time::now() < until) {
            clock_gettime(CLOCK_REALTIME, &at);
            clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, nullptr);
        }
    }));
    paths.push_back(watch_wait("specimen/futex_on_wall_clock", true, [](time_point until) {
        std::uint32_t word = 0;
        timespec at{};
        while (steady_time::now() < until) {
            syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &at, nullptr,
                    FUTEX_BITSET_MATCH_ANY);
        }
    }));
    paths.push_back(watch_wait("specimen/timerfd_on_wall_clock", true, [](time_point until) {
        const int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
        if (fd >= 0) {
            close(fd);
        }
        sleep_through(until);
    }));
}

[[nodiscard]] inline std::vector<watched_path> watch_all(const harness::options& opts) {
    std::vector<watched_path> paths;
    for_each_chosen(opts, [&]<class Entry>() {
        if (!harness::interrupted()) {
            paths.push_back(watch_service<Entry>());
        }
    });
    paths.push_back(watch_wait("waiter_timed", false, [](time_point until) {
        waiter_timed<steady_time> waiter;
        static_cast<void>(waiter.wait_until(until));
    }));
    paths.push_back(watch_wait("deadline", false, [](time_point until) {
        for (const deadline d = deadline::at(until); !d.expired();) {
            sleep_through(steady_time::now() +
                          std::min<duration>(d.remaining(), std::chrono::milliseconds{2}));
        }
    }));
    paths.push_back(watch_way<condition_wait>("wait/condition_variable"));
    paths.push_back(watch_way<future_wait>("wait/future"));
    paths.push_back(watch_way<futex_wait<0>>("wait/futex"));
    paths.push_back(watch_way<futex_wait<50>>("wait/futex_spin_50us"));
    add_specimens(paths);
    return paths;
}

} // namespace timerbench::experiments
