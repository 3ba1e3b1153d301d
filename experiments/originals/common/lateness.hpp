// Timers that fire, and when: the events under the experiment accuracy and under --verify.
//
// The arming thread keeps to a schedule (the loop's own thread does, between two passes, for a service that the caller's
// loop drives): it reads the clock, then arms. The callback reads the clock first of all. Lateness is the second reading minus
// (the first + duration). A library that measures from a clock reading of its loop's last pass is brought up to date between the
// two (`refresh`), so that the figure is the library's and not the age of that reading.
#pragma once

#include "experiments/accuracy_wave.hpp"
#include "experiments/service_cells.hpp"
#include "timers/clock.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <vector>

namespace timerbench::originals {

template <class Service>
class observed_timer {
  public:
    observed_timer(Service& service, duration d, std::atomic<std::size_t>& fired)
        : service_{service},
          duration_{d},
          fired_{fired},
          timer_{service} {}

    [[nodiscard]] bool arm() {
        own_reading_ = steady_time::now();
        if constexpr (requires { service_.refresh(); }) {
            service_.refresh();
        }
        return service_.arm(timer_, duration_, {&observed_timer::on_fire, this});
    }
    [[nodiscard]] bool cancel() { return service_.cancel(timer_); }

    [[nodiscard]] duration asked() const noexcept { return duration_; }
    /// How often it fired, and when the last time. To be asked after `fired` was seen raised, or when the service is quiet.
    [[nodiscard]] unsigned fires() const noexcept { return fires_.load(std::memory_order_acquire); }
    [[nodiscard]] duration lateness() const noexcept { return started_ - own_reading_ - duration_; }

  private:
    static void on_fire(void* context) {
        const time_point now = steady_time::now();
        auto& self = *static_cast<observed_timer*>(context);
        self.started_ = now;
        self.fires_.fetch_add(1, std::memory_order_release);
        self.fired_.fetch_add(1, std::memory_order_release);
    }

    Service& service_;
    duration duration_;
    // The driver raises both after it wrote `started_`, the arming thread reads them with acquire before it reads that.
    std::atomic<std::size_t>& fired_; // shared by all timers of a wave
    std::atomic<unsigned> fires_{0};
    time_point own_reading_{};
    time_point started_{};
    typename Service::timer timer_; // last: cancelled before what its callback writes is gone
};

/// Lets time pass until `t`; a loop is polled meanwhile. May return early.
template <class Service>
void pass_until(Service& service, time_point t) {
    if constexpr (loop_service<Service> || requires { service.poll_until(t); }) {
        service.poll_until(t);
    } else {
        experiments::sleep_until(t);
    }
}

/// Lets time pass until `fired` reaches `count`, at most until `end`. False if it did not.
template <class Service>
[[nodiscard]] bool await_fires(Service& service, const std::atomic<std::size_t>& fired, std::size_t count,
                               time_point end) {
    while (fired.load(std::memory_order_acquire) < count) {
        const time_point now = steady_time::now();
        if (now >= end) {
            return false;
        }
        pass_until(service, std::min(end, now + std::chrono::milliseconds{1}));
    }
    return true;
}

struct wave_result {
    std::vector<std::vector<duration>> lateness; ///< by the index of the duration
    std::size_t missing = 0;                     ///< events that were not armed or did not fire exactly once
};

/// Arms every event of the plan in its time and waits for all.
template <class Service>
[[nodiscard]] wave_result run_wave(Service& service, const experiments::wave_plan& plan, std::uint64_t seed) {
    const auto schedule = experiments::make_schedule(plan, seed);
    std::atomic<std::size_t> fired{0};
    std::deque<observed_timer<Service>> events;
    std::vector<std::size_t> which;
    for (const auto& intended : schedule) {
        const bool warm_up = intended.which == experiments::warm_up_index;
        which.push_back(intended.which);
        events.emplace_back(service, warm_up ? std::chrono::milliseconds{1} : plan.durations[intended.which],
                            fired);
    }
    wave_result result;
    result.lateness.resize(plan.durations.size());
    const time_point start = steady_time::now() + std::chrono::milliseconds{1};
    std::size_t armed = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const time_point due = start + schedule[i].offset;
        while (steady_time::now() < due) {
            pass_until(service, due);
        }
        armed += events[i].arm() ? 1 : 0;
    }
    const duration longest = *std::max_element(plan.durations.begin(), plan.durations.end());
    static_cast<void>(await_fires(service, fired, armed,
                                  steady_time::now() + longest + service.traits().latest + plan.patience));
    for (std::size_t i = 0; i < events.size(); ++i) {
        if (events[i].fires() != 1) {
            ++result.missing;
        } else if (which[i] < plan.durations.size()) {
            result.lateness[which[i]].push_back(events[i].lateness());
        }
    }
    return result;
}

} // namespace timerbench::originals
