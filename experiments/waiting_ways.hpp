// Ways in which a thread waits for one thing, with a bound.
//
// condition_wait   a condition variable and a flag, as every monitor has them
// future_wait      std::future::wait_for
// futex_wait       a word of memory: looks at it for a while first (the spin), then parks in the kernel
//
// All keep one absolute deadline: a wait that ends for no reason goes on towards the same point of time, so that spurious wake-ups
// neither shorten it nor make it last longer. Each has `wait_until(t)` (true: notified; false: `t` has passed), `notify()`,
// `poke()`, which wakes the waiter without having anything for it, and `reset()`, with nobody inside.
//
// One waiter and one notifier at a time. What they cost is what bench_waiting measures.
#pragma once

#include "timers/clock.hpp"
#include "timers/deadline.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <linux/futex.h>
#include <mutex>
#include <string>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace timerbench::experiments {

/// The loop of a bounded wait. `ready()`: whether what is waited for is there; `park(until)`: sleeps until then, or less; `now()`: the
/// clock. Whether it was there in the end: also when that turns out only after the time is up.
template <class Ready, class Park, class Now>
[[nodiscard]] bool wait_bounded(time_point until, Ready&& ready, Park&& park, Now&& now) {
    while (!ready()) {
        if (now() >= until) {
            return ready();
        }
        park(until);
    }
    return true;
}

class condition_wait {
  public:
    [[nodiscard]] bool wait_until(time_point until) {
        std::unique_lock lock{mutex_};
        return wait_bounded(
            until, [this] { return notified_; }, [&](time_point t) { changed_.wait_until(lock, t); },
            [] { return steady_time::now(); });
    }
    void notify() {
        {
            const std::lock_guard lock{mutex_};
            notified_ = true;
        }
        changed_.notify_one();
    }
    void poke() { changed_.notify_one(); }
    void reset() { notified_ = false; }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool notified_ = false; // guarded by mutex_
};

class future_wait {
  public:
    [[nodiscard]] bool wait_until(time_point until) {
        return wait_bounded(
            until, [this] { return future_.wait_for(duration::zero()) == std::future_status::ready; },
            [this](time_point t) { future_.wait_for(t - steady_time::now()); },
            [] { return steady_time::now(); });
    }
    void notify() { promise_.set_value(); }
    /// Nobody can wake the waiter of a future but by its result.
    void poke() {}
    void reset() {
        promise_ = std::promise<void>{};
        future_ = promise_.get_future();
    }

  private:
    std::promise<void> promise_;
    std::future<void> future_ = promise_.get_future();
};

/// Looks at the word for `Spin_us` microseconds before it parks. A spin that is longer than what is left of the time ends with it.
template <int Spin_us>
class futex_wait {
  public:
    static constexpr duration spin = std::chrono::microseconds{Spin_us};

    [[nodiscard]] bool wait_until(time_point until) {
        const auto ready = [this] { return word_.load(std::memory_order_acquire) == set; };
        if constexpr (Spin_us > 0) {
            if (ready()) {
                return true;
            }
            const time_point begin = steady_time::now();
            const time_point enough = std::min(until, saturating_add(begin, spin));
            for (time_point t = begin; t < enough; t = steady_time::now()) {
                relax();
                if (ready()) {
                    return true;
                }
            }
        }
        return wait_bounded(
            until, ready, [this](time_point t) { park(t); }, [] { return steady_time::now(); });
    }
    void notify() {
        if (word_.exchange(set, std::memory_order_acq_rel) == parked) {
            wake();
        }
    }
    void poke() { wake(); }
    void reset() { word_.store(empty, std::memory_order_relaxed); }

  private:
    static constexpr std::uint32_t empty = 0, parked = 1, set = 2;

    static void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
    void park(time_point t) {
        std::uint32_t expected = empty;
        if (!word_.compare_exchange_strong(expected, parked, std::memory_order_acq_rel) &&
            expected != parked) {
            return;
        }
        const auto ns = t.time_since_epoch().count();
        const timespec at{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
        const bool forever = t == time_point::max();
        // Absolute, on the monotonic clock. Whatever ends it, the loop around it looks at the word and the clock.
        syscall(SYS_futex, address(), FUTEX_WAIT_BITSET_PRIVATE, parked, forever ? nullptr : &at, nullptr,
                FUTEX_BITSET_MATCH_ANY);
    }
    void wake() {
        syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }
    [[nodiscard]] std::uint32_t* address() {
        return reinterpret_cast<std::uint32_t*>(&word_);
    }

    // Changed by the waiter from empty to parked before it parks, by the notifier to set. A notifier that finds `parked` makes the
    // system call; a waiter that parks after the notifier finds that the word is not `parked`, and does not sleep.
    std::atomic<std::uint32_t> word_{empty};
    static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
                  std::atomic<std::uint32_t>::is_always_lock_free);
};

/// Empty where a wait that nobody ended lasted as long as was asked, give or take `slack` of lateness, else how it did not.
[[nodiscard]] inline std::string wrong_length(duration asked, duration lasted, duration slack) {
    const auto ms = [](duration d) {
        return std::to_string(std::chrono::duration<double, std::milli>{d}.count()) + " ms";
    };
    if (lasted < asked) {
        return "early: lasted " + ms(lasted) + " of " + ms(asked);
    }
    if (lasted - asked > slack) {
        return "too long: lasted " + ms(lasted) + " instead of " + ms(asked);
    }
    return {};
}

/// Waits for `n` things one after the other, each with a timeout of its own that begins when its turn comes. `wait(i, until)` is
/// a bounded wait for the i-th. How many were there.
template <class Wait, class Now>
[[nodiscard]] std::size_t wait_one_by_one(std::size_t n, duration timeout, Wait&& wait, Now&& now) {
    std::size_t there = 0;
    for (std::size_t i = 0; i < n; ++i) {
        there += wait(i, deadline::in(timeout, now()).when()) ? 1 : 0;
    }
    return there;
}

/// The same under one deadline for all.
template <class Wait, class Now>
[[nodiscard]] std::size_t wait_under_one_deadline(std::size_t n, duration timeout, Wait&& wait, Now&& now) {
    const deadline all = deadline::in(timeout, now());
    std::size_t there = 0;
    for (std::size_t i = 0; i < n; ++i) {
        there += wait(i, all.when()) ? 1 : 0;
    }
    return there;
}

} // namespace timerbench::experiments
