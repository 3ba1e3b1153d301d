// --verify: before anything of a system is timed, three things that it has to do. A timer fires, and not before it may; a
// cancelled one does not, which the firing of a later one proves; a hundred timers of 1 to 30 ms are none of them early.
#pragma once

#include "experiments/originals/common/lateness.hpp"
#include "experiments/originals/common/lines.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace timerbench::originals {

[[nodiscard]] inline std::string in_ms(duration d) {
    const double ms = std::chrono::duration<double, std::milli>{d}.count();
    char text[32];
    std::snprintf(text, sizeof text, "%+.3f ms", ms);
    return text;
}

/// patience: beyond the service's `latest`, how long something may take.
template <class System>
[[nodiscard]] std::vector<check> verify(duration patience = std::chrono::seconds{3}) {
    using service_type = typename System::service;
    constexpr duration first_after = std::chrono::milliseconds{20};
    const std::string name{System::name};
    const auto service = System::make();
    const service_traits traits = service->traits();
    const duration patient = traits.latest + patience;
    std::vector<check> found;
    {
        std::atomic<std::size_t> fired{0};
        observed_timer<service_type> one{*service, first_after, fired};
        const bool armed = one.arm();
        const bool came =
            armed && await_fires(*service, fired, 1, steady_time::now() + first_after + patient);
        const bool early = came && one.lateness() < traits.earliest;
        found.push_back(
            {"a timeout fires", name, came && !early,
             !armed  ? "it could not be armed"
             : !came ? "it did not fire within " + in_ms(first_after + patient)
                     : "20 ms, lateness " + in_ms(one.lateness()) + ", may be " + in_ms(traits.earliest)});
    }
    {
        std::atomic<std::size_t> fired{0};
        std::atomic<std::size_t> later_fired{0};
        observed_timer<service_type> cancelled{*service, first_after, fired};
        // Fires after the cancelled one would have, whatever the tick.
        const duration later = first_after + std::chrono::milliseconds{20} + traits.latest - traits.earliest;
        observed_timer<service_type> sentinel{*service, later, later_fired};
        const bool armed = cancelled.arm() && sentinel.arm();
        const bool withdrawn = cancelled.cancel();
        const bool came =
            armed && await_fires(*service, later_fired, 1, steady_time::now() + later + patient);
        found.push_back({"a cancelled timeout does not fire", name,
                         withdrawn && came && cancelled.fires() == 0,
                         !withdrawn              ? "cancel did not find it armed"
                         : !came                 ? "the later one did not fire"
                         : cancelled.fires() > 0 ? "it fired"
                                                 : "a later one fired, it did not"});
    }
    {
        experiments::wave_plan plan;
        plan.durations.clear();
        for (int ms = 1; ms <= 30; ++ms) {
            plan.durations.push_back(std::chrono::milliseconds{ms});
        }
        plan.events = 4; // of each: 120 in all
        plan.span = std::chrono::milliseconds{100};
        plan.warm_up = 0;
        plan.patience = patience;
        const wave_result seen = run_wave(*service, plan, 1);
        std::size_t early = 0;
        duration earliest = duration::max();
        for (const auto& of_one : seen.lateness) {
            for (const duration late : of_one) {
                earliest = std::min(earliest, late);
                early += late < traits.earliest ? 1 : 0;
            }
        }
        found.push_back({"no early fire beyond the documented bound", name, early == 0 && seen.missing == 0,
                         seen.missing > 0 ? std::to_string(seen.missing) + " of 120 did not fire exactly once"
                                          : std::to_string(early) + " of 120 early, earliest " +
                                                in_ms(earliest) + ", may be " + in_ms(traits.earliest)});
    }
    service->stop();
    return found;
}

} // namespace timerbench::originals
