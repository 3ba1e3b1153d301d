// ev_timer of libev with the calls that the common loops make: start, stop, run the loop once.
//
// As its users have it: the watcher is storage of the caller, set and started for each timeout, on one thread, and counts from the
// loop's cached time (ev_now), which each pass of the loop brings up to date. A pass makes a system call (epoll).
//
// Departs from it: nothing. `cancel` asks whether the watcher is active first, because ev_timer_stop does not say whether it was.
#pragma once

#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>

// libev's macros cast between its watchers in the manner of C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-aliasing"
#include <ev.h>

namespace timerbench::originals {

/// One loop; used by one thread at a time.
class libev_timers {
  public:
    class timer {
      public:
        explicit timer(libev_timers& service) : service_{service} {
            ev_init(&watcher_, &libev_timers::on_fire);
            watcher_.data = this;
        }
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { ev_timer_stop(service_.loop_, &watcher_); }

      private:
        friend class libev_timers;
        libev_timers& service_;
        ev_timer watcher_{};
        callback callback_{};
    };

    libev_timers() : loop_{ev_loop_new(EVFLAG_AUTO)} {
        if (loop_ == nullptr) {
            throw std::runtime_error{"ev_loop_new failed"};
        }
        ev_init(&wake_up_, [](struct ev_loop*, ev_timer*, int) {});
    }
    libev_timers(const libev_timers&) = delete;
    libev_timers& operator=(const libev_timers&) = delete;
    ~libev_timers() { ev_loop_destroy(loop_); }

    bool arm(timer& t, duration d, callback c) {
        t.callback_ = c;
        ev_timer_set(&t.watcher_, seconds_of(d), 0.);
        ev_timer_start(loop_, &t.watcher_);
        return true;
    }
    bool cancel(timer& t) {
        const bool armed = ev_is_active(&t.watcher_);
        ev_timer_stop(loop_, &t.watcher_);
        return armed;
    }
    std::size_t poll() { return run(EVRUN_NOWAIT); }
    std::size_t poll_until(time_point t) {
        const duration left = t - steady_time::now();
        if (left <= duration::zero()) {
            return poll();
        }
        refresh();
        ev_timer_set(&wake_up_, seconds_of(left), 0.);
        ev_timer_start(loop_, &wake_up_);
        const std::size_t ran = run(EVRUN_ONCE);
        ev_timer_stop(loop_, &wake_up_);
        return ran;
    }
    /// Brings the cached time up to date.
    void refresh() { ev_now_update(loop_); }
    void stop() {}

    [[nodiscard]] service_traits traits() const {
        service_traits t;
        t.resolution = std::chrono::microseconds{1};
        t.latest = std::chrono::milliseconds{1};
        t.driver = driven_by::caller_loop;
        t.arm_from = t.cancel_from = callable_from::loop_thread;
        return t;
    }

  private:
    [[nodiscard]] static double seconds_of(duration d) {
        return std::max(std::chrono::duration<double>{d}.count(), 0.);
    }
    std::size_t run(int flags) {
        const std::size_t before = fired_;
        ev_run(loop_, flags);
        return fired_ - before;
    }
    static void on_fire(struct ev_loop*, ev_timer* watcher, int) {
        auto& t = *static_cast<timer*>(watcher->data);
        ++t.service_.fired_;
        t.callback_.run(t.callback_.context);
    }

    struct ev_loop* loop_;
    ev_timer wake_up_{};
    std::size_t fired_ = 0;
};

struct libev_timer {
    static constexpr std::string_view name = "original/libev/timer";
    using service = libev_timers;
    [[nodiscard]] static std::unique_ptr<service> make() { return std::make_unique<service>(); }
};

} // namespace timerbench::originals
#pragma GCC diagnostic pop
