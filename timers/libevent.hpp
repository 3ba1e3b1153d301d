// libevent's timers. The base is run by a thread of the service (`libevent`) or by the caller's loop, then without locks
// (`libevent_per_thread`).
//
// How it works
//   A timer embeds a `struct event`; arm is event_add and cancel event_del, on libevent's binary heap. Three facts stand
//   beside each event under a lock of ours: whether it is armed, which decides between cancel and firing, whether
//   libevent may have it in its structures, and what to call. A cancel from elsewhere finds an activation that is
//   already on its way to us: it takes the armed mark away and then waits in event_del until that activation has passed,
//   so that neither a later arm nor the end of the timer meets it. Inside a callback nothing can be on its way, because
//   one thread runs all callbacks.
//   common: timers of one duration share a queue, in which libevent links them in constant time. A timer remembers the
//   queue of its last duration, a table finds that of another; from the 257th duration on timers go to the heap.
// What it costs
//   arm: a spin lock, libevent's mutex, a reading of the clock, O(log n) moves in the heap; a write to an eventfd when the
//   timer becomes the earliest and another thread sleeps in the loop. cancel: the same locks, O(log n), no reading.
//   Nothing is allocated per arm; libevent's array of pointers grows with the number of timers.
// What it is bad at
//   One mutex for all threads. A wait of the loop is two system calls, because libevent arms its timerfd each time.
// Where it departs from the library's defaults
//   By default libevent reads the coarse clock, and once per turn of the loop; both make timers early, and the `default`
//   variants show by how much. Ours reads the precise clock each time, and rounds up by what libevent cuts off.
//   Many programs use neither thread support nor the truth about cancel; libevent_direct.hpp is what such a use costs.
#pragma once

#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/libevent_support.hpp"
#include "timers/detail/running_set.hpp"
#include "timers/detail/third_party.hpp"
#include "timers/libevent_direct.hpp"
#include "timers/service.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <event2/event_struct.h>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

namespace timerbench {

/// With an own thread usable from any thread; driven by a loop only from the thread that polls, but for `counters`.
template <libevent_options Options>
class basic_libevent {
    using lock_type = detail::lock_if<Options.own_thread()>;
    using running_set = detail::running_set<lock_type>;

  public:
    /// The same duties by hand, to be measured beside this adapter.
    using direct = libevent_direct<Options>;

    class timer {
      public:
        explicit timer(basic_libevent& service) noexcept : service_{service} {
            event_assign(&event_, service.engine_->base.get(), -1, 0, &basic_libevent::on_event, this);
        }
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { service_.withdraw(*this, true); }

      private:
        friend class basic_libevent;
        basic_libevent& service_;
        event event_;
        // Guarded by the service's lock. `armed_` stays set when the service stops, and means nothing from then on.
        callback callback_;
        bool armed_ = false;
        bool in_base_ = false; // set before event_add, cleared by whoever then removes the event
        // The last duration that has a queue, and the queue; only arm. Unused without common timeouts.
        duration last_{};
        const timeval* common_ = nullptr;
    };

    /// Throws std::runtime_error when libevent cannot make a base, std::system_error when no thread can be started.
    basic_libevent() : engine_{std::make_unique<engine>()} {
        event_assign(&helper_, engine_->base.get(), -1, 0, &basic_libevent::on_helper, engine_->base.get());
        if constexpr (Options.own_thread()) {
            engine_->thread = detail::start_driver("tb_libevent", [base = engine_->base.get()] {
                event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY);
            });
        }
    }
    basic_libevent(const basic_libevent&) = delete;
    basic_libevent& operator=(const basic_libevent&) = delete;
    ~basic_libevent() {
        stop();
        if (fork_.in_child()) {
            // The epoll instance is the parent's too, and locks may be held for ever: nothing of it may be touched.
            (void)engine_.release();
            return;
        }
        event_del(&helper_);
    }

    bool arm(timer& t, duration d, callback c) {
        if (fork_.in_child()) {
            return false;
        }
        timeval tv{};
        const timeval* when = &tv;
        if (Options.common_queues && t.common_ != nullptr && t.last_ == d) {
            when = t.common_;
        } else {
            tv = detail::timeout_of<Options>(d);
        }
        {
            const std::lock_guard lock{lock_};
            if (stopped_ || running_.bars(&t)) {
                return false;
            }
            if constexpr (Options.common_queues) {
                if (when == &tv) {
                    if (const timeval* common = common_.find_or_make(engine_->base.get(), tv)) {
                        when = t.common_ = common;
                        t.last_ = d;
                    }
                }
            }
            t.callback_ = c;
            t.armed_ = true;
            t.in_base_ = true;
            armed_.add();
            pending_.add();
        }
        // From here on the callback may run and destroy the timer.
        if (event_add(&t.event_, when) == 0) [[likely]] {
            return true;
        }
        // Out of memory: libevent has not taken the event.
        const std::lock_guard lock{lock_};
        if (!stopped_) {
            armed_.subtract();
            pending_.subtract();
        }
        t.armed_ = t.in_base_ = false;
        return false;
    }

    bool cancel(timer& t) { return withdraw(t, false); }

    /// Driven by a loop: from the polling thread, or when nobody polls any more.
    void stop() {
        if (fork_.in_child()) {
            drop_pending();
            return;
        }
        if constexpr (Options.own_thread()) {
            const std::lock_guard once{stopping_};
            {
                const std::lock_guard lock{lock_};
                drop_pending();
            }
            if (engine_->thread.joinable()) {
                // An event, because a loopbreak before the loop has begun would be forgotten.
                event_active(&helper_, EV_TIMEOUT, 0);
                engine_->thread.join();
            }
        } else {
            drop_pending();
        }
    }

    /// Runs what is due; see `loop_service`.
    std::size_t poll() requires(!Options.own_thread()) { return turn(EVLOOP_NONBLOCK); }

    /// Runs what is due, waiting for it until `t` at most; see `loop_service`.
    std::size_t poll_until(time_point t) requires(!Options.own_thread()) {
        // Coarse clocks end a wait before its time: then the rest is waited for.
        for (time_point now = steady_now(); now < t; now = steady_now()) {
            const timeval left = detail::timeout_of<Options>(t - now);
            if (stopped_ || fork_.in_child() || event_add(&helper_, &left) != 0) {
                return 0;
            }
            const std::size_t ran = turn(0);
            event_del(&helper_);
            if (ran != 0) {
                return ran;
            }
        }
        return turn(EVLOOP_NONBLOCK);
    }

    [[nodiscard]] timerbench::counters counters() const {
        timerbench::counters c;
        if constexpr (Options.own_thread()) {
            if (!fork_.in_child()) {
                const std::lock_guard lock{lock_};
                c = totals();
                c.pending = stopped_ ? 0 : count_armed();
                return c;
            }
        }
        // Nobody else may walk what the loop's thread works on without a lock: its length is kept instead.
        c = totals();
        c.pending = pending_.get();
        return c;
    }

    [[nodiscard]] service_traits traits() const {
        service_traits t;
        t.resolution = std::chrono::microseconds{1};
        t.latest = std::chrono::microseconds{2};
        t.driver = Options.driver;
        if (!Options.own_thread()) {
            t.arm_from = t.cancel_from = callable_from::loop_thread;
        }
        t.allocates = "nothing once libevent's heap has grown to its high water mark";
        if (Options.common_queues) {
            t.allocates = "nothing but a queue for each new duration";
            t.most_durations = detail::common_timeouts::most;
        }
        if (Options.library_defaults) {
            const duration grain = detail::coarse_grain();
            t.resolution = grain;
            // The reading at arm is up to a grain old. Three more are allowed for ticks that come late.
            t.earliest = -4 * grain;
            // The reading at expiry is old too, and the wait is rounded up to whole milliseconds and may be repeated.
            t.latest = 2 * grain + std::chrono::milliseconds{1};
            t.faults = default_faults;
        }
        return t;
    }

  private:
    struct engine {
        detail::base_ptr base = detail::make_base(Options);
        std::thread thread;
    };
    struct nothing {};

    static constexpr std::array<fault, 2> default_faults{{
        {2, "early_by_coarse_clock",
         "Deadlines start from the coarse clock, which is one grain old at most (4 ms on most kernels) while "
         "the kernel ticks on "
         "time, and older when a virtual machine gets its ticks late."},
        {2, "early_by_cached_time",
         "A timer armed while callbacks run is early by as long as they have been running, because the time "
         "is read "
         "once for all of them."},
    }};

    static time_point steady_now() noexcept { return std::chrono::steady_clock::now(); }

    bool withdraw(timer& t, bool destroying) {
        if (fork_.in_child()) {
            return take(t);
        }
        bool withdrawn = false;
        bool in_base = false;
        {
            std::unique_lock lock{lock_};
            withdrawn = take(t);
            if constexpr (Options.own_thread()) {
                if (running_.running(&t)) {
                    if (!detail::callback_scope::inside(this)) {
                        running_.await(lock, &t);
                    } else if (destroying) { // inside its own callback: there is one driver
                        running_.forget(&t);
                        detail::callback_scope::forget(&t);
                    }
                }
            }
            // Only now: the callback that was waited for may have been in the middle of an arm.
            in_base = std::exchange(t.in_base_, false);
        }
        if (in_base) {
            event_del(&t.event_);
        }
        return withdrawn;
    }

    // The lock is held.
    bool take(timer& t) noexcept {
        if (!std::exchange(t.armed_, false) || stopped_) {
            return false;
        }
        cancelled_.add();
        pending_.subtract();
        return true;
    }

    // The lock is held. Timers are not visited: their marks lose their meaning, and events that libevent still has leave
    // with their timers.
    void drop_pending() noexcept {
        stopped_ = true;
        dropped_.add(pending_.get());
        pending_.set(0);
    }

    static void on_event(evutil_socket_t, short, void* arg) {
        timer& t = *static_cast<timer*>(arg);
        t.service_.fire(t);
    }

    void fire(timer& t) noexcept {
        callback c;
        typename running_set::record running;
        {
            const std::lock_guard lock{lock_};
            t.in_base_ = false;
            if (stopped_ || !std::exchange(t.armed_, false)) {
                return; // cancelled or stopped while on its way
            }
            c = t.callback_;
            fired_.add();
            pending_.subtract();
            running_.begin(running, &t);
        }
        // The timer may be gone as soon as the callback has begun.
        ++ran_;
        bool threw = false;
        {
            const detail::callback_scope scope{this, &t};
            threw = detail::run_guarded(c);
        }
        const std::lock_guard lock{lock_};
        running_.end(running);
        if (threw) {
            threw_.add();
        }
    }

    // Ends the own thread's loop. In a loop of the caller's the event only bounds a wait.
    static void on_helper(evutil_socket_t, short, void* base) {
        if constexpr (Options.own_thread()) {
            event_base_loopbreak(static_cast<event_base*>(base));
        }
    }

    // One turn of the loop, so that what callbacks arm for now has to wait for the next.
    std::size_t turn(int flags) {
        if (stopped_ || fork_.in_child()) {
            return 0;
        }
        ran_ = 0;
        event_base_loop(engine_->base.get(), flags | EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
        return ran_;
    }

    [[nodiscard]] timerbench::counters totals() const noexcept {
        return {.armed = armed_.get(),
                .fired = fired_.get(),
                .cancelled = cancelled_.get(),
                .dropped = dropped_.get(),
                .threw = threw_.get()};
    }

    // The lock is held, and libevent's is taken inside it, in this order everywhere.
    [[nodiscard]] std::uint64_t count_armed() const {
        std::uint64_t n = 0;
        event_base_foreach_event(
            engine_->base.get(),
            [](const event_base*, const event* e, void* count) {
                if (event_get_callback(e) == &basic_libevent::on_event &&
                    static_cast<const timer*>(event_get_callback_arg(e))->armed_) {
                    ++*static_cast<std::uint64_t*>(count);
                }
                return 0;
            },
            &n);
        return n;
    }

    std::unique_ptr<engine> engine_;
    event helper_;
    detail::fork_guard fork_;
    std::mutex stopping_; // held while the own thread is joined
    std::size_t ran_ = 0; // callbacks in this turn; only the thread that runs them

    // Never taken inside libevent's own lock. Guards all below, and what the timers say of themselves.
    mutable lock_type lock_;
    [[no_unique_address]] std::conditional_t<Options.common_queues, detail::common_timeouts, nothing> common_;
    running_set running_;
    detail::tally armed_;
    detail::tally fired_;
    detail::tally cancelled_;
    detail::tally dropped_;
    detail::tally threw_;
    detail::tally pending_;
    bool stopped_ = false;
};

static_assert(timer_service<basic_libevent<libevent_options{}>>);
static_assert(loop_service<basic_libevent<libevent_options{.driver = driven_by::caller_loop}>>);

} // namespace timerbench
