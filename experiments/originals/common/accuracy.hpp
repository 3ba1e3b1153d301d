// Experiment accuracy: lateness of timers of 1 to 100 ms on an otherwise idle machine, all durations in flight at once, armed at
// random points of evenly spread stretches so that no phase of a slot or tick is preferred. See lateness.hpp.
//
// A driver that sleeps for a slot and then works drifts slowly through its slots, from the same phase after each start; where it may
// fire early it does so in some phases only. Such a service is let run for a random time first, so that visits see all of them.
#pragma once

#include "experiments/originals/common/lateness.hpp"
#include "experiments/originals/common/program.hpp"
#include "harness/thread_team.hpp"

namespace timerbench::originals {

inline constexpr duration longest_drift = std::chrono::milliseconds{1'500};

/// Starts the driver and lets it drift.
template <class Service>
void drift(Service& service, std::uint64_t seed) {
    typename Service::timer first{service};
    static_cast<void>(service.arm(first, std::chrono::milliseconds{1}, experiments::no_callback));
    harness::random_source random{seed};
    experiments::sleep_until(steady_time::now() +
                             experiments::random_duration(random, duration::zero(), longest_drift));
}

template <class System>
void measure_accuracy(const arguments& given) {
    experiments::wave_plan plan;
    plan.events = given.pick(200, 1'000);
    // Whole numbers of ticks of 10, 30 and 100 ms.
    plan.span = std::chrono::milliseconds{given.pick(300, 900)};
    const auto service = System::make();
    if (const service_traits traits = service->traits();
        traits.earliest < duration::zero() && !traits.loop_driven()) {
        drift(*service, static_cast<std::uint64_t>(harness::steady_ns()));
    }
    const wave_result seen = run_wave(*service, plan, given.seed + given.round);
    for (std::size_t d = 0; d < plan.durations.size(); ++d) {
        row r{
            .service = std::string{System::name},
            .case_point =
                json_object{}.integer("duration_ms", plan.durations[d] / std::chrono::milliseconds{1}).str(),
            .metric = "callback_start",
            .unit = "ms",
            .single_events = true};
        for (const duration late : seen.lateness[d]) {
            r.samples.push_back(std::chrono::duration<double, std::milli>{late}.count());
        }
        if (seen.missing > 0) {
            r.error = std::to_string(seen.missing) + " timers of this visit did not fire exactly once";
        }
        print_line(line_of(r));
    }
    service->stop();
}

template <class System>
void add_accuracy(std::vector<cell>& cells, const arguments& given) {
    cells.push_back([&given] { measure_accuracy<System>(given); });
}

} // namespace timerbench::originals
