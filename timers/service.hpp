// The vocabulary that every timer service speaks, and the contract each of them is tested against.
//
// A service owns storage for timers, a notion of time, and whatever drives it. A timer is the caller's handle with
// at most one outstanding deadline. Nothing here is virtual: experiments are templates over the service, so that
// no indirect call stands between a measurement and the operation it measures.
//
// The contract
//  1. A timer fires at most once per arm; exactly once if it is not cancelled and the service keeps running.
//  2. Never early: the callback starts at or after the deadline on the steady clock. The deadline is the clock
//     reading that `arm` takes plus the duration.
//  3. `cancel` returning true means that the callback will never run. A timer that has expired but whose callback has
//     not begun counts as armed: cancel withdraws it and returns true. False means that it has run, is running, or
//     was idle. Called outside any callback of the service, cancel returns only when the callback is not running,
//     so that the timer may then be destroyed. Called inside a callback of the service it never waits; false may
//     then mean "running on another driver", and such a timer must not be destroyed there. The caller of cancel
//     holds no lock that the callback takes.
//  4. A callback may arm, cancel and destroy any timer, its own included. It runs with no lock of the service held.
//  5. Calls on one timer are serialised by the caller, except a foreign cancel or destroy against the callback's own
//     re-arm: cancel wins, and the timer is idle when it returns.
//  6. Destroying an armed timer cancels it. Stopping a service drops what is pending; no callback runs afterwards,
//     and nothing leaks. A timer lives no longer than its service.
//  7. Zero and negative durations fire at the service's next opportunity, never inline in `arm`. Durations up to the
//     type's maximum saturate: they never overflow, fire early or hurt other timers.
//  8. A timer armed by a thread that has exited still fires, unless the traits say that a loop of the caller drives it.
//  9. Only the steady clock stands in a path that waits.
// 10. A callback that throws does not take the driver down: the exception is swallowed and counted.
// 11. armed = cancelled + fired + dropped + pending, always. Destroying an armed timer counts as cancelled.
//
// A service that breaks a clause by design lists a fault in its traits.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace timerbench {

using duration = std::chrono::nanoseconds;
using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;

/// What a timer runs when it fires. Trivially copyable, so that arming allocates nothing.
/// `run` must not be null when a timer is armed. If it throws, the exception is swallowed and counted.
struct callback {
    void (*run)(void* context) = nullptr;
    void* context = nullptr;
};

/// Totals since the service was made. `counters()` may be called from any thread at any time; while other threads
/// work the figures may belong to slightly different instants, in quiet they are exact.
struct counters {
    std::uint64_t armed = 0;
    std::uint64_t fired = 0;     ///< Callbacks begun.
    std::uint64_t cancelled = 0; ///< Withdrawn by `cancel` or by destroying the timer.
    std::uint64_t dropped = 0;   ///< Withdrawn by `stop`.
    std::uint64_t pending = 0;   ///< Counted from the structure itself, not derived from the others.
    std::uint64_t threw = 0;     ///< Callbacks that ended in an exception; they count as fired too.

    [[nodiscard]] constexpr bool balanced() const noexcept {
        return armed == cancelled + fired + dropped + pending;
    }
};

/// A clause of the contract that a service breaks by design.
struct fault {
    int clause;            ///< Number of the clause, see above.
    std::string_view name; ///< A stable key, for example "early_by_truncation".
    std::string_view what; ///< One sentence with the bound.
};

enum class driven_by {
    own_thread,  ///< A thread of the service waits and fires.
    caller_loop, ///< The caller's thread fires inside `poll` and `poll_until`.
};

enum class callable_from {
    any_thread,
    loop_thread, ///< Only the thread that polls the service.
};

/// What a service is by construction. Reports print it, tests and experiments obey it.
struct service_traits {
    duration resolution{}; ///< The slot or tick; the clock's own step where there is none.
    duration
        earliest{}; ///< Earliest start of a callback relative to its deadline; negative for early services.
    duration
        latest{}; ///< Latest start by construction, on an idle machine, without the time to wake a thread.
    bool cancel_frees = true; ///< Whether cancel frees the storage at once.
    driven_by driver = driven_by::own_thread;
    callable_from arm_from = callable_from::any_thread;
    callable_from cancel_from = callable_from::any_thread;
    std::string_view allocates = "nothing"; ///< What an arm allocates, in words.
    bool callback_may_call = true;          ///< Whether a callback may call the service at all.
    bool fifo = false; ///< Whether timers with one and the same deadline fire in the order of their arms.
    bool manual_clock = false; ///< Whether the service can be driven by `manual_time`.
    /// Whether a forked child may arm, provided `pause_for_fork` and `resume` stood around the fork. Without them, and for
    /// every other service, `arm` returns false in the child.
    bool drives_after_fork = false;
    /// Largest number of different durations that the service was made for; 0: any.
    std::size_t most_durations = 0;
    /// Largest number of timers that can be armed at the same time, beyond which `arm` may return false; 0: any.
    std::size_t most_timers = 0;
    /// Whether a cancelled timer holds memory until the deadline that it had: rate x timeout in all, without a bound.
    bool cancelled_held_to_deadline = false;
    /// Whether callbacks of different timers may ever run at the same time, be it only after a stall or above the threshold.
    bool callbacks_overlap = false;
    /// Whether they do so in the ordinary course, because several threads of the service's own fire what is below the threshold.
    bool several_drivers = false;
    /// Durations strictly above this take another path; zero: there is no such threshold.
    duration threshold{};
    std::span<const fault> faults{};

    [[nodiscard]] constexpr bool loop_driven() const noexcept { return driver == driven_by::caller_loop; }
    [[nodiscard]] constexpr bool has_fault(std::string_view name) const noexcept {
        for (const fault& f : faults) {
            if (f.name == name) {
                return true;
            }
        }
        return false;
    }
};

/// A timer service. `S::timer` is constructed from the service, is neither copyable nor movable, and is storage that
/// the caller embeds.
///
///   arm(timer, duration, callback) -> bool   The timer must be idle. False: nothing was armed, because the service
///                                            has stopped, runs in a forked child without a driver, or a foreign
///                                            cancel of this timer has begun.
///   cancel(timer) -> bool                    See clause 3.
///   stop()                                   Leaves every timer idle; idempotent; not from inside a callback.
template <class S>
concept timer_service = requires(S service, const S constant, typename S::timer timer, duration d,
                                 callback c) {
    requires std::constructible_from<typename S::timer, S&>;
    requires !std::copyable<typename S::timer>;
    { service.arm(timer, d, c) } -> std::same_as<bool>;
    { service.cancel(timer) } -> std::same_as<bool>;
    { service.stop() } -> std::same_as<void>;
    { constant.counters() } -> std::same_as<counters>;
    { constant.traits() } -> std::same_as<service_traits>;
};

/// A service that the caller's loop drives. One object is one loop: one thread polls it.
///
///   poll()            Runs what is due and returns how many callbacks ran. Never blocks. A timer armed by a callback
///                     of this pass runs in a later one.
///   poll_until(t)     The same, but blocks until a callback has run or `t` has passed.
template <class S>
concept loop_service = timer_service<S> && requires(S service, time_point t) {
    { service.poll() } -> std::same_as<std::size_t>;
    { service.poll_until(t) } -> std::same_as<std::size_t>;
};

/// A service that hands work to its driver to be done later.
///
///   backlog()   Entries handed over and not yet taken up by the driver.
///   drain()     Returns when the driver has taken up all that was handed over before the call.
template <class S>
concept deferring_service = timer_service<S> && requires(S service, const S constant) {
    { constant.backlog() } -> std::same_as<std::size_t>;
    { service.drain() } -> std::same_as<void>;
};

/// A service with a race left in it and a way to hold that race's window open.
///
///   hold_window(d)   Each arm then stays in the window for `d`; zero closes it again. Any thread, any time.
template <class S>
concept seamed_service = timer_service<S> && requires(S service, duration d) {
    { service.hold_window(d) } -> std::same_as<void>;
};

/// A service whose threads can be taken away around a fork.
///
///   pause_for_fork()  When it returns no thread of the service exists or touches its data. Other threads must not
///                     call the service between this and the fork.
///   resume()          In parent and child; what is pending fires at its time or at once if that has passed.
template <class S>
concept forkable_service = timer_service<S> && requires(S service) {
    { service.pause_for_fork() } -> std::same_as<void>;
    { service.resume() } -> std::same_as<void>;
};

/// `from + d`, at the ends of the time line instead of beyond them.
[[nodiscard]] constexpr time_point saturating_add(time_point from, duration d) noexcept {
    duration sum{};
    duration::rep count{};
    if (__builtin_add_overflow(from.time_since_epoch().count(), d.count(), &count)) {
        sum = d.count() > 0 ? duration::max() : duration::min();
    } else {
        sum = duration{count};
    }
    return time_point{sum};
}

/// Number of whole steps of `step` (positive) that reach at least `t`: exact multiples stay, fractions round up.
[[nodiscard]] constexpr std::int64_t ceil_ticks(duration t, duration step) noexcept {
    const std::int64_t whole = t.count() / step.count();
    return whole + (t.count() % step.count() > 0 ? 1 : 0);
}

} // namespace timerbench
