// The timing wheel of per_thread_wheel.hpp for a thread that has an event loop of its own: no driver, no lock, no clock reading.
//
// How it works. One object belongs to one loop. `poll` reads the clock once, moves the wheel on and runs what is due; `arm` counts from the
// time that the last poll read. `next_expiry` says how long the loop may sleep in its own epoll or queue; a loop without one calls
// `poll_until`.
//
// What it costs. A pair of arm and cancel is a link and an unlink. No allocation; a cancelled timer holds nothing; 78 KB a wheel.
//
// What it is bad at. It is as punctual as its loop: a callback that runs for 50 ms delays everything by 50 ms. Nothing may be called from another
// thread.
//
// Never early with a cached time. One tick is added to every deadline as an allowance for the age of the cached time. A poll that finds
// it to be older notes the timers armed meanwhile as bad, and they are put off by the difference when they come due.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/list.hpp"
#include "timers/detail/stall_log.hpp"
#include "timers/detail/tick_length.hpp"
#include "timers/detail/tick_wheel.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

namespace timerbench {

struct per_thread_wheel_loop_options {
    std::int64_t tick_ns = 1'000'000; ///< 1 000 to 1 000 000 000.
};

/// Every call but `counters` is made by the thread of the loop.
template <class Clock>
class per_thread_wheel_loop {
  public:
    /// One cache line.
    class alignas(64) timer : private detail::list_link {
      public:
        explicit timer(per_thread_wheel_loop& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { service_.cancel(*this); }

      private:
        friend class per_thread_wheel_loop;
        friend class detail::list<timer>;
        friend class detail::tick_wheel<timer>;

        std::uint64_t tick = 0;
        callback callback_;
        per_thread_wheel_loop& service_;
        std::uint32_t epoch_ = 0; // the poll that the timer counts from; `exact` once it was put off
    };
    static_assert(sizeof(timer) == 64);

    /// Throws std::invalid_argument for a tick out of range.
    explicit per_thread_wheel_loop(Clock& clock, per_thread_wheel_loop_options options = {})
        : clock_{clock},
          tick_{checked(options.tick_ns)},
          zero_{clock.now()},
          cached_{zero_} {}
    per_thread_wheel_loop(const per_thread_wheel_loop&) = delete;
    per_thread_wheel_loop& operator=(const per_thread_wheel_loop&) = delete;
    ~per_thread_wheel_loop() { stop(); }

    [[nodiscard]] service_traits traits() const noexcept {
        return {.resolution = tick_.length(),
                .latest = 2 * tick_.length(),
                .driver = driven_by::caller_loop,
                .arm_from = callable_from::loop_thread,
                .cancel_from = callable_from::loop_thread,
                .manual_clock = true,
                .drives_after_fork = true};
    }

    /// Counts from the time of the last poll, plus one tick.
    bool arm(timer& t, duration d, callback c) noexcept {
        if (stopped_) {
            return false;
        }
        t.callback_ = c;
        t.epoch_ = epoch_;
        if (!relied_on_) {
            relied_on_ = true;
        }
        wheel_.insert(t, tick_at_or_after(saturating_add(cached_ + tick_.length(), d)));
        add(armed_, 1);
        add(pending_, 1);
        return true;
    }

    bool cancel(timer& t) noexcept {
        if (!t.linked()) {
            return false;
        }
        wheel_.remove(t);
        add(cancelled_, 1);
        add(pending_, -1);
        return true;
    }

    std::size_t poll() {
        look_at_clock();
        wheel_.advance(tick_.whole(cached_ - zero_));
        const std::uint64_t before = fired_.load(std::memory_order_relaxed);
        while (timer* t = wheel_.pop_due()) {
            if (put_off(*t)) [[unlikely]] {
                continue;
            }
            add(fired_, 1);
            add(pending_, -1);
            const detail::callback_scope scope{this, t};
            if (detail::run_guarded(t->callback_)) {
                add(threw_, 1);
            }
        }
        if (pending_.load(std::memory_order_relaxed) == 0) {
            stalls_.clear();
        }
        return fired_.load(std::memory_order_relaxed) - before;
    }

    /// Sleeps where `poll` has nothing to do.
    std::size_t poll_until(time_point t) {
        for (;;) {
            if (const std::size_t ran = poll(); ran != 0 || cached_ >= t) {
                return ran;
            }
            std::mutex alone;
            std::unique_lock lock{alone};
            typename Clock::parker parker{clock_};
            parker.wait_until(lock, std::min(t, next_expiry().value_or(t)));
        }
    }

    /// When the loop should poll next, if nothing else wakes it; empty when nothing is armed.
    [[nodiscard]] std::optional<time_point> next_expiry() noexcept {
        const auto tick = wheel_.next_event();
        if (!tick) {
            return std::nullopt;
        }
        return *tick >= tick_.whole(time_point::max() - zero_)
                   ? time_point::max()
                   : zero_ + tick_.length() * static_cast<std::int64_t>(*tick);
    }

    void stop() noexcept {
        stopped_ = true;
        wheel_.expire_all();
        while (wheel_.pop_due() != nullptr) {
            add(dropped_, 1);
            add(pending_, -1);
        }
    }

    /// From any thread. What is pending is counted where nodes enter and leave the wheel.
    [[nodiscard]] timerbench::counters counters() const noexcept {
        const auto read = [](const counter& c) { return c.load(std::memory_order_relaxed); };
        return {.armed = read(armed_),
                .fired = read(fired_),
                .cancelled = read(cancelled_),
                .dropped = read(dropped_),
                .pending = read(pending_),
                .threw = read(threw_)};
    }

  private:
    using counter = std::atomic<std::uint64_t>;

    static constexpr std::uint32_t exact = 0; // no poll has this number

    static void add(counter& c, int n) noexcept {
        c.store(c.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(n), std::memory_order_relaxed);
    }

    static duration checked(std::int64_t tick_ns) {
        if (tick_ns < 1'000 || tick_ns > 1'000'000'000) {
            throw std::invalid_argument{
                "per_thread_wheel_loop: the tick must be 1000 to 1000000000 ns, not " +
                std::to_string(tick_ns)};
        }
        return duration{tick_ns};
    }

    [[nodiscard]] std::uint64_t tick_at_or_after(time_point t) const noexcept {
        return tick_.covering(std::max(t - zero_, duration{}));
    }

    void look_at_clock() {
        const time_point now = clock_.now();
        if (relied_on_ && now - cached_ > tick_.length()) {
            stalls_.note(epoch_, now - cached_ - tick_.length());
        }
        epoch_ = epoch_ + 1 == exact ? exact + 1 : epoch_ + 1;
        cached_ = now;
        relied_on_ = false;
    }

    // Whether a due timer was armed from a cached time that was too old, and was put back.
    bool put_off(timer& t) noexcept {
        if (stalls_.empty() || t.epoch_ == exact) [[likely]] {
            return false;
        }
        const duration excess = stalls_.excess(t.epoch_);
        t.epoch_ = exact;
        if (excess == duration{}) {
            return false;
        }
        const std::uint64_t due = t.tick + tick_.covering(excess);
        if (due <= wheel_.now()) {
            return false;
        }
        wheel_.insert(t, due);
        return true;
    }

    Clock& clock_;
    const detail::tick_length tick_;
    const time_point zero_; // tick 0
    time_point cached_;     // what the last poll read
    std::uint32_t epoch_ = exact + 1;
    bool relied_on_ = false; // something was armed since the last poll
    bool stopped_ = false;
    // Written by the loop's thread alone, so that a load and a store make an increment; read by any thread as mere figures, which
    // order nothing.
    counter armed_{0};
    counter fired_{0};
    counter cancelled_{0};
    counter dropped_{0};
    counter threw_{0};
    counter pending_{0};
    detail::stall_log stalls_;
    detail::tick_wheel<timer> wheel_;
};

static_assert(loop_service<per_thread_wheel_loop<steady_time>> &&
              loop_service<per_thread_wheel_loop<manual_time>>);

} // namespace timerbench
