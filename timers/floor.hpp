// The floor of the harness: a service that keeps nothing. What an experiment reports for it is what the experiment itself
// costs: its loop, the call, the embedded timer.
//
// arm sets a flag in the timer, cancel takes it back. No clock is read, no lock taken, nothing fires, nothing is counted. It
// satisfies the concept, not the contract, and is not on the list of services.
#pragma once

#include "timers/service.hpp"

#include <array>
#include <utility>

namespace timerbench {

/// Any thread: timers share nothing.
class floor_service {
  public:
    class timer {
      public:
        explicit timer(floor_service&) noexcept {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;

      private:
        friend class floor_service;
        bool armed_ = false;
    };

    floor_service() = default;
    floor_service(const floor_service&) = delete;
    floor_service& operator=(const floor_service&) = delete;

    bool arm(timer& t, duration, callback) noexcept { // NOLINT: as every service
        t.armed_ = true;
        return true;
    }

    bool cancel(timer& t) noexcept { return std::exchange(t.armed_, false); } // NOLINT

    void stop() noexcept {} // NOLINT

    [[nodiscard]] timerbench::counters counters() const noexcept { return {}; }

    [[nodiscard]] service_traits traits() const noexcept {
        static constexpr std::array faults{
            fault{1, "never_fires", "Nothing fires, whatever its deadline."},
            fault{6, "stop_keeps_timers",
                  "An armed timer stays armed when the service stops, and arm goes on working."},
            fault{11, "counts_nothing", "All counters stay zero."},
        };
        return {.latest = duration::max(), .faults = faults};
    }
};

static_assert(timer_service<floor_service>);

} // namespace timerbench
