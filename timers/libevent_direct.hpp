// Hand-written use of libevent, to be measured beside the adapter in timers/libevent.hpp: what somebody who knows the
// library writes for the same duties without the interface of this project.
//
// The duties: an event in the caller's storage, a callback and a context, arm and cancel from any thread where the base has
// locks, the truth about whether cancel came in time, never early. Left out: counters, stop, refusing to arm, waiting for
// anything but what event_del waits for, exceptions (a callback must not throw), fork. With common timeouts each timer
// remembers the handle of its last duration, as a program would keep it for each kind of timeout; durations beyond 256
// are not caught.
//
// Calls on one timer are serialised by the caller. Timers are destroyed before the base.
#pragma once

#include "timers/detail/driver_thread.hpp"
#include "timers/detail/libevent_support.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <cstddef>
#include <event2/event_struct.h>
#include <thread>
#include <type_traits>
#include <utility>

namespace timerbench {

template <libevent_options Options>
class libevent_direct {
  public:
    class timer {
      public:
        explicit timer(libevent_direct& owner) noexcept : owner_{owner} {
            event_assign(&event_, owner.base_.get(), -1, 0, &libevent_direct::on_event, this);
        }
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { event_del(&event_); }

      private:
        friend class libevent_direct;
        libevent_direct& owner_;
        event event_;
        callback callback_;
        // Set by arm, taken by whoever of cancel and the loop's thread comes first. Acquire and release, because the winner goes
        // on to read or reuse callback_.
        std::conditional_t<Options.own_thread(), std::atomic<bool>, bool> armed_{false};
        duration last_{-1}; // negative durations are never remembered: all of them mean at once
        const timeval* common_ = nullptr;
    };

    libevent_direct() : base_{detail::make_base(Options)} {
        event_assign(&helper_, base_.get(), -1, 0, &libevent_direct::on_helper, base_.get());
        if constexpr (Options.own_thread()) {
            thread_ = detail::start_driver(
                "direct_libevent", [base = base_.get()] { event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY); });
        }
    }
    libevent_direct(const libevent_direct&) = delete;
    libevent_direct& operator=(const libevent_direct&) = delete;
    ~libevent_direct() {
        if constexpr (Options.own_thread()) {
            event_active(&helper_, EV_TIMEOUT, 0);
            thread_.join();
        }
        event_del(&helper_);
    }

    bool arm(timer& t, duration d, callback c) noexcept {
        timeval tv{};
        const timeval* when = &tv;
        if (!Options.common_queues || t.last_ != d) {
            tv = detail::timeout_of<Options>(d);
        }
        if constexpr (Options.common_queues) {
            if (t.last_ != d) {
                t.common_ = event_base_init_common_timeout(base_.get(), &tv);
                t.last_ = t.common_ != nullptr ? d : duration{-1};
            }
            when = t.common_ != nullptr ? t.common_ : &tv;
        }
        t.callback_ = c;
        t.armed_ = true;
        return event_add(&t.event_, when) == 0;
    }

    bool cancel(timer& t) noexcept {
        const bool withdrawn = take(t);
        event_del(&t.event_);
        return withdrawn;
    }

    std::size_t poll() noexcept requires(!Options.own_thread()) { return turn(EVLOOP_NONBLOCK); }

    std::size_t poll_until(time_point t) noexcept requires(!Options.own_thread()) {
        for (time_point now = std::chrono::steady_clock::now(); now < t;
             now = std::chrono::steady_clock::now()) {
            const timeval left = detail::timeout_of<Options>(t - now);
            event_add(&helper_, &left);
            const std::size_t ran = turn(0);
            event_del(&helper_);
            if (ran != 0) {
                return ran;
            }
        }
        return turn(EVLOOP_NONBLOCK);
    }

  private:
    std::size_t turn(int flags) noexcept {
        ran_ = 0;
        event_base_loop(base_.get(), flags | EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
        return ran_;
    }

    static bool take(timer& t) noexcept {
        if constexpr (Options.own_thread()) {
            return t.armed_.exchange(false, std::memory_order_acq_rel);
        } else {
            return std::exchange(t.armed_, false);
        }
    }

    static void on_event(evutil_socket_t, short, void* arg) {
        timer& t = *static_cast<timer*>(arg);
        if (take(t)) {
            const callback c = t.callback_;
            if constexpr (!Options.own_thread()) {
                ++t.owner_.ran_;
            }
            c.run(c.context); // may destroy t
        }
    }

    static void on_helper(evutil_socket_t, short, void* base) {
        if constexpr (Options.own_thread()) {
            event_base_loopbreak(static_cast<event_base*>(base));
        }
    }

    detail::base_ptr base_;
    event helper_; // ends the own thread's loop, or bounds a wait of the caller's
    std::size_t ran_ = 0;
    std::thread thread_;
};

} // namespace timerbench
