// A waiter that times itself: the thread that waits for something waits no longer than its own deadline, on a condition
// variable. What the JDK's parkNanos and Future.get do, and every timed wait for a lock or a result. Not a timer service:
// there is no timer to arm, nothing to cancel, and nobody who fires.
//
// How it works
//   notify leaves a permit and wakes the waiter; wait_for takes the permit, waiting for it until one absolute deadline at
//   the most. A wait that ends for no reason goes on towards the same deadline, so that spurious wake-ups neither shorten
//   nor lengthen it. A permit that is there already is taken without a look at the clock.
// What it costs
//   The wait itself: a system call that arms a kernel timer and gives up the processor, and another to come back; notify: a
//   lock and a system call if somebody waits. No memory, no thread of its own, no queue, no slot to be late for.
// What it is bad at
//   It takes the caller's thread: a thousand timeouts at a time are a thousand threads that wait. What is waited for is not
//   withdrawn when the time is up. One waiter at a time.
// Where it departs from its sources
//   A permit as park has it, not the result of a computation; no interruption.
#pragma once

#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <mutex>
#include <utility>

namespace timerbench {

/// `Clock` is a clock_source.
template <class Clock>
class waiter_timed {
  public:
    /// The clock outlives the waiter.
    explicit waiter_timed(Clock& clock = steady()) : clock_{clock} {}
    waiter_timed(const waiter_timed&) = delete;
    waiter_timed& operator=(const waiter_timed&) = delete;

    /// Takes the permit: true at once if there is one, else when `notify` leaves one, false when `d` has passed since the
    /// call without one. Never false early. Zero and negative durations do not wait; the largest wait for ever. One
    /// thread at a time, any thread.
    [[nodiscard]] bool wait_for(duration d) {
        std::unique_lock lock{mutex_};
        if (std::exchange(permit_, false)) {
            return true;
        }
        return d > duration::zero() && wait(lock, saturating_add(clock_.now(), d));
    }

    /// The same until a time on this waiter's clock; `time_point::max()` is never reached.
    [[nodiscard]] bool wait_until(time_point deadline) {
        std::unique_lock lock{mutex_};
        if (std::exchange(permit_, false)) {
            return true;
        }
        return clock_.now() < deadline && wait(lock, deadline);
    }

    /// Leaves a permit, of which there is at most one, and wakes the waiter. Any thread, callbacks of a service included; also
    /// while nobody waits.
    void notify() {
        const std::lock_guard lock{mutex_};
        permit_ = true;
        if (waiting_ != nullptr) {
            waiting_->wake();
        }
    }

  private:
    bool wait(std::unique_lock<std::mutex>& lock, time_point deadline) {
        // On the stack, because a manual clock waits for every parker there is to be parked.
        typename Clock::parker parker{clock_};
        waiting_ = &parker;
        do {
            parker.wait_until(lock, deadline);
        } while (!permit_ && clock_.now() < deadline);
        waiting_ = nullptr;
        return std::exchange(permit_, false);
    }

    Clock& clock_;
    std::mutex mutex_;
    bool permit_ = false;                       // guarded by mutex_
    typename Clock::parker* waiting_ = nullptr; // of the thread that waits, if any; guarded by mutex_
};

} // namespace timerbench
