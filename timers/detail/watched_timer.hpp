// A timer whose owner may go away at any moment, also while its callback runs and also because of it.
//
// A service's `cancel` waits for a running callback, but not when it is called inside a callback of that service: false may then mean "running on
// another driver", and the timer must not be destroyed. Work that is resumed by callbacks cannot know which case it is in. Here the
// callback says itself when it begins and when it has touched the timer for the last time, and `disarm` waits for that where `cancel` did not:
//
//   the callback has not begun        cancel withdraws it
//   it runs on this very thread       it led to the disarm: it is told that its timer is gone and touches nothing afterwards
//   it runs on another thread         cancel waits for it or, inside a callback, disarm does
//
// So the callback must not wait for the thread that disarms, as for every timer.
#pragma once

#include "timers/detail/callback_scope.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

namespace timerbench::detail {

/// `arm` and `disarm` are serialised by the owner; the callback may run at any time between them.
template <timer_service Service>
class watched_timer {
  public:
    watched_timer() noexcept = default;
    watched_timer(const watched_timer&) = delete;
    watched_timer& operator=(const watched_timer&) = delete;
    ~watched_timer() { disarm(); }

    /// Once. `c` runs at most once, on the service's driver, perhaps before this returns; it must not lead to a disarm before that. False, and nothing is to be disarmed: the service refused. Throws
    /// what the service's `arm` throws.
    [[nodiscard]] bool arm(Service& service, duration d, callback c) {
        callback_ = c;
        timer_.emplace(service);
        if (!service.arm(*timer_, d, callback{&watched_timer::on_fire, this})) {
            timer_.reset();
            return false;
        }
        service_ = &service;
        return true;
    }

    /// Afterwards the callback touches nothing of this object or its owner. Repeatable; one cancel in all.
    void disarm() noexcept {
        if (service_ == nullptr) {
            return;
        }
        if (!service_->cancel(*timer_)) {
            let_callback_go();
        }
        service_ = nullptr;
        timer_.reset();
    }

  private:
    void let_callback_go() noexcept {
        if (over_.load(std::memory_order_acquire)) {
            return;
        }
        if (runner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
            *gone_ = true;
            return;
        }
        // Outside callbacks cancel has waited: the service was stopped and dropped it. Inside one nothing is taken from the traits: also a
        // service that runs its callbacks one after the other may have a second driver, for long durations or in place of a stuck one.
        if (!callback_scope::inside_any()) {
            return;
        }
        using clock = std::chrono::steady_clock;
        const auto begun_by = clock::now() + time_to_begin;
        while (!over_.load(std::memory_order_acquire)) {
            const bool begun = runner_.load(std::memory_order_relaxed) != std::thread::id{};
            if (!begun && service_->counters().dropped != 0 && clock::now() > begun_by) {
                return;
            }
            std::this_thread::yield();
        }
    }

    static void on_fire(void* at) {
        auto& self = *static_cast<watched_timer*>(at);
        bool gone = false;
        self.gone_ = &gone;
        self.runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
        self.callback_.run(self.callback_.context);
        if (!gone) {
            self.over_.store(true, std::memory_order_release);
        }
    }

    // Inside a callback of a service that was stopped meanwhile, a timer that was dropped looks like one whose callback has begun and
    // not come to its first line. So long after the stop it was dropped.
    static constexpr std::chrono::milliseconds time_to_begin{100};

    Service* service_ = nullptr; // null: nothing to disarm
    callback callback_;
    bool* gone_ = nullptr; // on the callback's stack; touched by the thread that runs it alone
    // Written by the callback's thread. Whoever disarms compares it with its own id: only the thread that wrote its id sees it equal.
    std::atomic<std::thread::id> runner_{};
    // Set by the callback as the last that it does to this object; its release pairs with the acquire of the disarm that then frees it.
    std::atomic<bool> over_{false};
    std::optional<typename Service::timer> timer_;
};

} // namespace timerbench::detail
