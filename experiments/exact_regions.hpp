// What scripts/instructions counts under callgrind: the caller's path of arm and cancel, and nothing else.
//
// How it works. The service runs on a manual clock that stands still inside a region, so its driver sleeps there: the caller
// meets nobody, and executes the same instructions each time. Each step is one region of `region_pairs` pairs; between two
// regions time moves on by `step` and the driver does its work, uncounted. Before each region of the one-timer case a timer
// is armed and cancelled uncounted, because that arm may be the one that wakes a driver. Warmed up for longer than the
// timers are armed, so that what is counted is the steady state. The same is done around `floor_service`, which keeps
// nothing: what remains after subtracting it is the service.
//
// What it is bad at. The clock reading in the figures is that of the manual clock, a lock and a load, not the machine's. A service
// that talks to other threads on every call, or that starts a thread for a timer, has no path that repeats.
#pragma once

#include "experiments/arm_cancel_work.hpp"
#include "experiments/exact_work.hpp"
#include "harness/counted_region.hpp"
#include "timers/floor.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace timerbench::experiments::exact {

inline constexpr std::size_t region_pairs = 100;
inline constexpr std::size_t regions = 20;
inline constexpr std::uint64_t region_operations = region_pairs * regions;
inline constexpr std::size_t region_warm_up_steps = (armed_for + milliseconds{100}) / step;
inline constexpr std::size_t region_warm_up_pairs = 50; ///< a step

enum class region_case { arm_cancel, window_oldest, window_random };

/// `pass(d)` moves time on. Returns how many calls of arm and cancel did what they should; `region_calls` of them if all did.
template <class Service, class Pass>
[[nodiscard]] std::uint64_t region_arm_cancel(Service& service, Pass&& pass) {
    timer_block<Service> timers{service, 1};
    std::uint64_t good = 0;
    for (std::size_t i = 0; i < region_warm_up_steps; ++i) {
        good += run_article(service, timers[0], armed_for, region_warm_up_pairs);
        pass(step);
    }
    for (std::size_t i = 0; i < regions; ++i) {
        // Wakes the driver if an arm does, and lets it fall asleep over a deadline that none of the region's comes before.
        good += done([&] { return service.arm(timers[0], armed_for, no_callback); });
        pass(duration::zero());
        good += done([&] { return service.cancel(timers[0]); });
        pass(duration::zero());
        harness::counted_region([&] { good += run_article(service, timers[0], armed_for, region_pairs); });
        pass(step);
    }
    return good - 2 * regions;
}

template <class Service, class Pass>
[[nodiscard]] std::uint64_t region_window(Service& service, Pass&& pass, bool random, std::uint64_t seed) {
    experiments::window<Service> outstanding{
        service, window_size, {random, armed_for, armed_for, false}, seed};
    script warm_up{region_warm_up_pairs};
    script counted{region_pairs};
    if (outstanding.fill() != window_size) {
        return 0;
    }
    std::uint64_t good = 0;
    for (std::size_t i = 0; i < region_warm_up_steps; ++i) {
        // So many that even a random choice comes round to each timer long before it is due.
        outstanding.prepare(warm_up, false);
        good += run_pairs(service, outstanding.timers(), warm_up);
        pass(step);
    }
    for (std::size_t i = 0; i < regions; ++i) {
        outstanding.prepare(counted, false);
        harness::counted_region([&] { good += run_pairs(service, outstanding.timers(), counted); });
        pass(step);
    }
    return good;
}

inline constexpr std::uint64_t region_calls =
    2 * (region_warm_up_steps * region_warm_up_pairs + region_operations);

template <class Service, class Pass>
[[nodiscard]] std::uint64_t run_region(region_case which, Service& service, Pass&& pass, std::uint64_t seed) {
    const std::uint64_t good = which == region_case::arm_cancel
                                   ? region_arm_cancel(service, pass)
                                   : region_window(service, pass, which == region_case::window_random, seed);
    timerbench_region_ended();
    return good;
}

/// One pass over one case of one service. Returns what went wrong, or nothing.
template <class Entry>
[[nodiscard]] std::string region_of(region_case which, std::uint64_t seed) {
    manual_time clock;
    const auto service = Entry::make_on(clock);
    const auto pass = [&](duration d) {
        clock.advance(d);
        poll_once(*service);
    };
    const std::uint64_t good = run_region(which, *service, pass, seed);
    if (good != region_calls) {
        return "wrong work: " + std::to_string(good) + " of " + std::to_string(region_calls) +
               " calls of arm and cancel returned true";
    }
    return {};
}

/// The same around nothing.
inline void empty_region(region_case which, std::uint64_t seed) {
    floor_service nothing;
    (void)run_region(
        which, nothing, [](duration) {}, seed);
}

} // namespace timerbench::experiments::exact
