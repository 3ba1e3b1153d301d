// One fresh service and the time it lives in: a manual clock where the service takes one, the machine's steady clock otherwise.
//
// On the manual clock time stands still between two calls of `pass_until`, which returns when every callback due by then has
// returned: what happens is the structure's work alone, and repeats. On the steady clock the same call sleeps. A loop that
// the caller drives is polled by the calling thread meanwhile. One thread uses a stage.
#pragma once

#include "experiments/service_cells.hpp"
#include "harness/interrupt.hpp"
#include "timers/clock.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <time.h>

namespace timerbench::experiments {

/// Sleeps on the steady clock until `t`; returns early within 50 ms of an interrupt.
inline void sleep_through(time_point t) noexcept {
    while (!harness::interrupted()) {
        const time_point now = steady_time::now();
        if (now >= t) {
            return;
        }
        const auto ns = std::min(t, now + std::chrono::milliseconds{50}).time_since_epoch().count();
        const timespec until{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    }
}

template <class Entry, bool Manual = Entry::takes_clock>
class stage {
  public:
    using service = typename Entry::service;
    static constexpr bool is_manual = false;
    static constexpr const char* clock_name = "steady";

    [[nodiscard]] service& subject() { return *service_; }
    [[nodiscard]] static time_point now() noexcept { return steady_time::now(); }

    void pass_until(time_point t) {
        if constexpr (loop_service<service>) {
            while (now() < t && !harness::interrupted()) {
                service_->poll_until(std::min(t, now() + std::chrono::milliseconds{50}));
            }
        } else {
            sleep_through(t);
        }
    }

    /// The driver has taken up what was handed to it, and the loop has nothing to run.
    void settle() { catch_up(*service_); }

  private:
    std::unique_ptr<service> service_ = Entry::make();
};

template <class Entry>
class stage<Entry, true> {
  public:
    using service = typename Entry::template service_on<manual_time>;
    static constexpr bool is_manual = true;
    static constexpr const char* clock_name = "manual";

    [[nodiscard]] service& subject() { return *service_; }
    [[nodiscard]] time_point now() const { return clock_.now(); }

    void pass_until(time_point t) {
        if (const duration d = t - clock_.now(); d > duration::zero()) {
            clock_.shift(d);
        }
        settle();
    }

    /// Also: every driver sleeps.
    void settle() {
        catch_up(*service_);
        clock_.settle();
    }

  private:
    manual_time clock_;
    std::unique_ptr<service> service_ = Entry::make_on(clock_);
};

template <class Entry>
using subject_of = typename stage<Entry>::service;

/// Counts callbacks: `shared` where several drivers make them, else `alone`, which is cheaper.
struct alignas(64) fired_count {
    // Raised by drivers, read by the measuring thread. It only says how far things are; what was done is read from the service's
    // counters. A load and a store make an increment where one driver makes all callbacks, because the service itself orders them then. (A second
    // one that a stall of seconds, or a duration above the threshold, brings in does not come into what is staged here.)
    std::atomic<std::uint64_t> n{0};

    static void alone(void* context) {
        auto& count = static_cast<fired_count*>(context)->n;
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    static void shared(void* context) {
        static_cast<fired_count*>(context)->n.fetch_add(1, std::memory_order_relaxed);
    }
    [[nodiscard]] callback counting(const service_traits& traits) {
        return {traits.several_drivers ? &fired_count::shared : &fired_count::alone, this};
    }
    [[nodiscard]] std::uint64_t now() const noexcept { return n.load(std::memory_order_relaxed); }
};

/// Lets time pass until `count` callbacks have run, at first until `due` and then for as long as `patience` allows. False if
/// they did not all run.
template <class Entry>
[[nodiscard]] bool pass_until_fired(stage<Entry>& where, const fired_count& fired, std::uint64_t count,
                                    time_point due, duration patience) {
    const duration step = std::max<duration>(patience / 200, std::chrono::milliseconds{1});
    where.pass_until(due);
    for (time_point t = due + step; fired.now() < count && t <= due + patience && !harness::interrupted();
         t += step) {
        where.pass_until(t);
    }
    return fired.now() >= count;
}

} // namespace timerbench::experiments
