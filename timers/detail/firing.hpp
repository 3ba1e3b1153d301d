// How a service whose drivers run callbacks outside its locks lets a cancel wait for one of them.
//
// The state is in the timer: how many of its callbacks run, and whether a cancel waits for them. A driver raises the count under the
// lock that guards the timer, so whoever takes that lock afterwards and finds the timer unlinked also sees that it runs. Waiting
// itself goes through one gate of the service and costs nothing unless somebody waits.
#pragma once

#include "timers/detail/callback_scope.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace timerbench::detail {

/// Part of a timer.
struct firing_state {
    // Callbacks of this timer that are running. Raised by a driver under the lock that guards the timer, lowered under the
    // gate's mutex, read by anybody. Above one only where a service replaces a stuck driver.
    std::atomic<std::uint16_t> running{0};
    // Raised by a cancel that is going to wait, lowered by it before it returns, read by the callback's own re-arm. A
    // re-arm that still read false is caught by the second look that such a cancel takes at the timer.
    std::atomic<bool> cancel_begun{false};

    [[nodiscard]] bool is_running() const noexcept { return running.load(std::memory_order_acquire) != 0; }
};

/// Part of a service.
class firing_gate {
  public:
    /// The lock that guards the timer is held, and the timer is unlinked.
    static void begin(firing_state& state) noexcept { state.running.fetch_add(1, std::memory_order_relaxed); }

    /// Runs the callback and lets waiting cancels go on. No lock is held. `timer` is the handle that `state` belongs to;
    /// the callback may destroy it, provided its destructor calls callback_scope::forget. True if the callback threw.
    template <class Timer>
    bool run(const void* owner, Timer& timer, firing_state& state, callback c) {
        const callback_scope scope{owner, &timer};
        const bool threw = run_guarded(c);
        if (scope.timer() != nullptr) {
            const std::lock_guard lock{mutex_};
            state.running.fetch_sub(1, std::memory_order_release);
            if (waiting_ != 0) {
                ended_.notify_all();
            }
        }
        return threw;
    }

    /// Returns when no callback of the timer runs. Not inside a callback of the service.
    void await(const firing_state& state) {
        std::unique_lock lock{mutex_};
        ++waiting_;
        ended_.wait(lock, [&state] { return !state.is_running(); });
        --waiting_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable ended_;
    unsigned waiting_ = 0; // guarded by mutex_
};

} // namespace timerbench::detail
