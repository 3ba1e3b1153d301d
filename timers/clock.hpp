// The clocks that our own services take as a template parameter, and how their drivers wait on them.
//
// A clock gives `now()` and a `parker`, which a driver thread waits on. On `steady_time` a parker is a condition variable that
// waits on the monotonic clock. On `manual_time` time stands still until somebody advances it, and `advance` returns only
// when every driver has looked at the new time and gone back to sleep: all callbacks due by then have returned.
#pragma once

#include "timers/service.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace timerbench {

/// A clock for services: `now()`, and a `parker` type constructed from the clock.
///
/// A parker belongs to one driver thread. Both calls are made with the driver's mutex held:
///   wait_until(lock, t)   Returns with the lock held once `now() >= t`, once `wake` was called since the last return,
///                         or for no reason at all. `time_point::max()` waits for a wake.
///   wake()                Ends the current wait, or the next one if there is none.
template <class C>
concept clock_source = requires(C clock, const C constant, typename C::parker parker,
                                std::unique_lock<std::mutex> lock, time_point t) {
    requires std::constructible_from<typename C::parker, C&>;
    { constant.now() } -> std::same_as<time_point>;
    { parker.wait_until(lock, t) } -> std::same_as<void>;
    { parker.wake() } -> std::same_as<void>;
    { C::is_manual } -> std::convertible_to<bool>;
};

/// The machine's steady clock.
class steady_time {
  public:
    static constexpr bool is_manual = false;

    [[nodiscard]] static time_point now() noexcept {
        return std::chrono::time_point_cast<duration>(std::chrono::steady_clock::now());
    }

    class parker {
      public:
        explicit parker(steady_time&) noexcept {}

        void wait_until(std::unique_lock<std::mutex>& lock, time_point t) {
            if (t == time_point::max()) {
                wakeup_.wait(lock, [this] { return awake_; });
            } else if (!awake_) {
                wakeup_.wait_until(lock, t);
            }
            awake_ = false;
        }

        void wake() noexcept {
            awake_ = true;
            wakeup_.notify_one();
        }

      private:
        std::condition_variable wakeup_;
        bool awake_ = false; // guarded by the driver's mutex
    };
};

/// A clock that moves only when it is told to. Thread-safe. Lock order: a driver's mutex before this clock's own.
class manual_time {
  public:
    static constexpr bool is_manual = true;
    class parker;

    /// Starts at an arbitrary point well after the epoch, at no round number of any tick.
    explicit manual_time(time_point start = time_point{std::chrono::hours{24} +
                                                       std::chrono::microseconds{3'217}})
        : now_{start} {}
    manual_time(const manual_time&) = delete;
    manual_time& operator=(const manual_time&) = delete;

    [[nodiscard]] time_point now() const {
        const std::lock_guard lock{mutex_};
        return now_;
    }

    /// Moves time on by `d` (not negative) and returns when every driver sleeps again with nothing due. Not from inside
    /// a callback, and not while one is stuck: it would wait for ever.
    void advance(duration d) {
        shift(d);
        settle();
    }

    /// Moves time on without waiting for anybody.
    void shift(duration d) {
        const std::lock_guard lock{mutex_};
        now_ = saturating_add(now_, d);
        for (parker* p : parkers_) {
            p->wakeup_.notify_all();
        }
    }

    /// Returns when every driver sleeps with nothing due at the present time.
    void settle() {
        std::unique_lock lock{mutex_};
        settled_.wait(lock, [this] {
            return std::all_of(parkers_.begin(), parkers_.end(),
                               [](const parker* p) { return p->parked_ && !p->awake_ && !p->due(); });
        });
    }

    class parker {
      public:
        explicit parker(manual_time& clock) : clock_{clock} {
            const std::lock_guard lock{clock_.mutex_};
            clock_.parkers_.push_back(this);
        }
        parker(const parker&) = delete;
        parker& operator=(const parker&) = delete;
        ~parker() {
            const std::lock_guard lock{clock_.mutex_};
            std::erase(clock_.parkers_, this);
            clock_.settled_.notify_all();
        }

        void wait_until(std::unique_lock<std::mutex>& driver_lock, time_point t) {
            {
                std::unique_lock lock{clock_.mutex_};
                // The driver's mutex is given up only after this clock's is held, so a wake in between is not lost.
                driver_lock.unlock();
                until_ = t;
                parked_ = true;
                clock_.settled_.notify_all();
                wakeup_.wait(lock, [this] { return awake_ || due(); });
                parked_ = false;
                awake_ = false;
            }
            driver_lock.lock();
        }

        void wake() {
            const std::lock_guard lock{clock_.mutex_};
            awake_ = true;
            wakeup_.notify_all();
        }

      private:
        friend class manual_time;

        // The end of the time line stands for "until woken". The clock's mutex is held.
        [[nodiscard]] bool due() const noexcept {
            return until_ <= clock_.now_ && until_ != time_point::max();
        }

        manual_time& clock_;
        std::condition_variable wakeup_;
        // Guarded by the clock's mutex.
        time_point until_{};
        bool parked_ = false;
        bool awake_ = false;
    };

  private:
    mutable std::mutex mutex_;
    std::condition_variable settled_;
    time_point now_;               // guarded by mutex_
    std::vector<parker*> parkers_; // guarded by mutex_
};

/// The one steady clock of the process, for services that are made without naming a clock.
inline steady_time& steady() noexcept {
    static steady_time clock;
    return clock;
}

static_assert(clock_source<steady_time> && clock_source<manual_time>);

} // namespace timerbench
