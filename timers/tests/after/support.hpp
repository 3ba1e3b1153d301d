// A service and a clock that count what is asked of them, and an operation that somebody else ends.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/coroutine.hpp"
#include "timers/service.hpp"

#if defined(TIMERBENCH_COUNTS_ALLOCATIONS)
#include "harness/alloc_counter.hpp"
#endif

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace timerbench::testing {

using namespace std::chrono_literals;

/// Fires when the test says so. One thread.
class counting_service {
  public:
    class timer {
      public:
        explicit timer(counting_service& service) : service_{service} { ++service_.timers_made; }
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            ++service_.timers_gone;
            service_.destroyed_armed += service_.withdraw(*this) ? 1 : 0;
        }

      private:
        friend counting_service;
        counting_service& service_;
        callback callback_;
        duration asked_{};
    };

    bool arm(timer& t, duration d, callback c) {
        ++arms;
        if (throws) {
            throw std::bad_alloc{};
        }
        if (refuses) {
            return false;
        }
        t.callback_ = c;
        t.asked_ = d;
        armed_.push_back(&t);
        return true;
    }

    bool cancel(timer& t) {
        ++cancels;
        return withdraw(t);
    }

    void stop() {
        refuses = true;
        armed_.clear();
    }

    [[nodiscard]] timerbench::counters counters() const { return {}; }
    [[nodiscard]] service_traits traits() const { return {}; }

    /// Fires the timer that was armed first.
    void fire() {
        ASSERT_FALSE(armed_.empty());
        timer* const t = armed_.front();
        armed_.erase(armed_.begin());
        t->callback_.run(t->callback_.context);
    }

    [[nodiscard]] bool idle() const { return armed_.empty(); }
    /// Of the timer that was armed first.
    [[nodiscard]] duration asked() const { return armed_.at(0)->asked_; }
    [[nodiscard]] bool untouched() const { return timers_made == 0 && arms == 0 && cancels == 0; }

    bool refuses = false;
    bool throws = false;
    int arms = 0;
    int cancels = 0;
    int timers_made = 0;
    int timers_gone = 0;
    int destroyed_armed = 0;

  private:
    bool withdraw(timer& t) { return std::erase(armed_, &t) != 0; }

    std::vector<timer*> armed_ = reserved();
    static std::vector<timer*> reserved() {
        std::vector<timer*> v;
        v.reserve(64);
        return v;
    }
};
static_assert(timer_service<counting_service>);

/// Stands still and counts how often it is read. One thread.
class counting_clock {
  public:
    static constexpr bool is_manual = true;
    [[nodiscard]] time_point now() const {
        ++readings;
        return at;
    }
    class parker {
      public:
        explicit parker(counting_clock&) {}
        void wait_until(std::unique_lock<std::mutex>&, time_point) {}
        void wake() {}
    };

    time_point at{std::chrono::hours{1}};
    mutable int readings = 0;
};
static_assert(clock_source<counting_clock>);

/// What an operation throws that was stopped.
struct stopped_error : std::runtime_error {
    stopped_error() : std::runtime_error{"stopped"} {}
};

/// An operation that waits for `finish`, from any thread, or for the stop of a token.
class event {
  public:
    /// What a stop does.
    enum class on_stop { ends, ends_with_value, is_noted };

    explicit event(std::stop_token token = {}, on_stop how = on_stop::ends)
        : token_{std::move(token)},
          how_{how} {}
    event(const event&) = delete;
    event& operator=(const event&) = delete;

    /// Resumes the coroutine here. False: it had ended.
    bool finish(int value) { return end(value); }

    [[nodiscard]] bool saw_stop() const { return saw_stop_; }
    [[nodiscard]] bool started() const { return started_; }

    [[nodiscard]] bool await_ready() {
        const std::lock_guard lock{mutex_};
        return ended_;
    }
    [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiter) {
        started_ = true;
        callback_.emplace(token_, stop{*this});
        const std::lock_guard lock{mutex_};
        if (ended_) {
            return false;
        }
        waiter_ = waiter;
        return true;
    }
    int await_resume() {
        callback_.reset();
        const std::lock_guard lock{mutex_};
        if (!value_) {
            throw stopped_error{};
        }
        return *value_;
    }

  private:
    struct stop {
        event& self;
        void operator()() const {
            self.saw_stop_ = true;
            if (self.how_ == on_stop::ends) {
                self.end(std::nullopt);
            } else if (self.how_ == on_stop::ends_with_value) {
                self.end(-1);
            }
        }
    };

    bool end(std::optional<int> value) {
        std::coroutine_handle<> waiter;
        {
            const std::lock_guard lock{mutex_};
            if (std::exchange(ended_, true)) {
                return false;
            }
            value_ = value;
            waiter = std::exchange(waiter_, nullptr);
        }
        if (waiter) {
            waiter.resume();
        }
        return true;
    }

    const std::stop_token token_;
    const on_stop how_;
    std::atomic<bool> saw_stop_{false}; // set by whoever stops, read by the test
    std::atomic<bool> started_{false};  // set by the coroutine, read by the test
    std::mutex mutex_;                  // guards the three below
    bool ended_ = false;
    std::optional<int> value_;
    std::coroutine_handle<> waiter_;
    std::optional<std::stop_callback<stop>> callback_;
};

/// Has its value when it is asked.
struct ready_value {
    int value = 0;
    [[nodiscard]] bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept { ADD_FAILURE() << "it was ready"; }
    [[nodiscard]] int await_resume() const noexcept { return value; }
    void request_stop() const noexcept { ADD_FAILURE() << "it was ready"; }
};

/// A coroutine that nobody owns: it starts at once and frees itself at its end.
struct detached {
    struct promise_type {
        detached get_return_object() const noexcept { return {}; }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }
    };
};

/// Waits for `condition`, ten seconds at most.
template <class Condition>
[[nodiscard]] bool eventually(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) {
            return false;
        }
        std::this_thread::sleep_for(200us);
    }
    return true;
}

} // namespace timerbench::testing
