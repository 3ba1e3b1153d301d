// A timer whose owner may go away at any moment, also while its callback runs and also because of it.
//
// A service's `cancel` waits for a running callback, but not when it is called inside a callback of that service: false may then mean "running on
// another driver", and the timer must not be destroyed. Work that is resumed by callbacks cannot know which case it is in. Here the
// callback says on which thread it runs, and `disarm` has the service wait where it did not:
//
//   the callback has not begun        cancel withdraws it
//   it runs on this very thread       it led to the disarm: it is told that its timer is gone and touches nothing afterwards
//   it runs on another thread         cancel waits for it; inside a callback a second cancel does, as if it were made outside
//
// It is the service that waits, not this, because its driver touches the timer also after the callback has returned. The callback must not wait
// for the thread that disarms, as for every timer.
#pragma once

#include "timers/detail/callback_scope.hpp"
#include "timers/service.hpp"

#include <atomic>
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

    /// Afterwards the callback touches nothing of this object or its owner. Repeatable; one cancel in all, or two inside a callback.
    void disarm() noexcept {
        if (service_ == nullptr) {
            return;
        }
        if (!service_->cancel(*timer_)) {
            if (runner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
                *gone_ = true;
            } else if (callback_scope::inside_any()) {
                // Nothing is taken from the traits: a service that runs its callbacks one after the other may have a second driver too.
                const callback_scope::outside here;
                (void)service_->cancel(*timer_);
            }
        }
        service_ = nullptr;
        timer_.reset();
    }

  private:
    static void on_fire(void* at) {
        auto& self = *static_cast<watched_timer*>(at);
        bool gone = false;
        self.gone_ = &gone;
        self.runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
        self.callback_.run(self.callback_.context);
        if (!gone) {
            self.runner_.store(std::thread::id{}, std::memory_order_relaxed);
        }
    }

    Service* service_ = nullptr; // null: nothing to disarm
    callback callback_;
    bool* gone_ = nullptr; // on the callback's stack; touched by the thread that runs it alone
    // The thread that is inside the callback. Whoever disarms compares it with its own id, and only the thread that wrote its id sees it
    // equal; it orders nothing else. What the callback did is ordered before the end of the disarm by the service's cancel.
    std::atomic<std::thread::id> runner_{};
    std::optional<typename Service::timer> timer_;
};

} // namespace timerbench::detail
