// A deadline kept by the wall clock and by the steady clock while somebody sets the wall clock: simulated, exact, the same every
// time.
//
// A world has two manual clocks over one time that passes. The steady one shows that time. The wall clock shows it too
// until the moment of the step, and from then on a time that is off by the step. Nothing is waited for: sleeping moves both
// clocks. Each way to keep a deadline is the loop that people write, over these clocks; its error is how much time really
// passed until it gave up, minus what was asked for. Negative: it gave up early.
//
// wall/wait_until       an absolute time on the wall clock, as pthread_cond_timedwait and sem_timedwait take it
// wall/sleep_rest       sleeps for what is left by the wall clock and looks again
// wall/poll_10ms        looks at the wall clock every 10 ms
// steady/wait_until     `deadline`, slept for in one piece
// steady/poll_10ms      `deadline`, looked at every 10 ms
// handed/time_of_day    handed to another machine as a time of day; there the wall clock is off by the step
// handed/remaining      handed to the same machine as the time that is left, which is 1 ms on its way
//
// Costs some dozens of uncontended locks a case. Left out: clocks that run fast or slow, and the slewing by which a well-behaved
// daemon avoids steps.
#pragma once

#include "timers/clock.hpp"
#include "timers/deadline.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace timerbench::experiments {

class stepped_world {
  public:
    /// The wall clock is set by `step` once `step_after` (not negative) has passed.
    stepped_world(duration step_after, duration step)
        : wall_{time_point{std::chrono::hours{24 * 365}}},
          step_at_{steady_.now() + step_after},
          step_{step} {}

    [[nodiscard]] time_point steady() const { return steady_.now(); }
    [[nodiscard]] time_point wall() const { return wall_.now(); }

    /// Lets `d` pass; nothing for what is not positive, except that a step due now is taken.
    void sleep(duration d) {
        const time_point end = saturating_add(steady_.now(), std::max(d, duration::zero()));
        if (!stepped_ && step_at_ <= end) {
            pass(step_at_ - steady_.now());
            wall_.shift(step_);
            stepped_ = true;
        }
        pass(end - steady_.now());
    }

    /// Lets time pass until the wall clock shows `t` or later, as a kernel waits on that clock: a step ends the wait.
    void sleep_until_wall(time_point t) {
        while (wall_.now() < t) {
            const duration left = t - wall_.now();
            sleep(stepped_ ? left : std::min(left, step_at_ - steady_.now()));
        }
    }

  private:
    void pass(duration d) {
        steady_.shift(d);
        wall_.shift(d);
    }

    manual_time steady_;
    manual_time wall_;
    time_point step_at_;
    duration step_;
    bool stepped_ = false;
};

struct deadline_way {
    const char* name;
    bool on_steady_clock; ///< Whether it is one that must not mind.
    bool handed;          ///< To another machine, whose wall clock is off from the beginning.
    void (*wait)(stepped_world& world, duration timeout);
};

inline constexpr duration look_every = std::chrono::milliseconds{10};
inline constexpr duration transit = std::chrono::milliseconds{1};

/// All ways, in the order of tables.
inline constexpr std::array deadline_ways{
    deadline_way{"wall/wait_until", false, false,
                 [](stepped_world& w, duration timeout) { w.sleep_until_wall(w.wall() + timeout); }},
    deadline_way{"wall/sleep_rest", false, false,
                 [](stepped_world& w, duration timeout) {
                     const time_point end = w.wall() + timeout;
                     for (time_point now = w.wall(); now < end; now = w.wall()) {
                         w.sleep(end - now);
                     }
                 }},
    deadline_way{"wall/poll_10ms", false, false,
                 [](stepped_world& w, duration timeout) {
                     const time_point end = w.wall() + timeout;
                     while (w.wall() < end) {
                         w.sleep(look_every);
                     }
                 }},
    deadline_way{"steady/wait_until", true, false,
                 [](stepped_world& w, duration timeout) {
                     const deadline d = deadline::in(timeout, w.steady());
                     while (!d.expired(w.steady())) {
                         w.sleep(d.remaining(w.steady()));
                     }
                 }},
    deadline_way{"steady/poll_10ms", true, false,
                 [](stepped_world& w, duration timeout) {
                     const deadline d = deadline::in(timeout, w.steady());
                     while (!d.expired(w.steady())) {
                         w.sleep(look_every);
                     }
                 }},
    deadline_way{"handed/time_of_day", false, true,
                 [](stepped_world& w, duration timeout) {
                     const time_point time_of_day = w.wall() + timeout; // as the caller's clock shows it
                     w.sleep(transit);
                     w.sleep_until_wall(time_of_day);
                 }},
    deadline_way{"handed/remaining", true, true,
                 [](stepped_world& w, duration timeout) {
                     const deadline callers = deadline::in(timeout, w.steady());
                     const std::optional<duration> sent = callers.to_remaining(w.steady());
                     w.sleep(transit);
                     const deadline callees = deadline::from_remaining(sent, w.steady());
                     while (!callees.expired(w.steady())) {
                         w.sleep(callees.remaining(w.steady()));
                     }
                 }},
};

/// How much later than asked for the wait ended, in time that really passed. `step_after` below `timeout`.
[[nodiscard]] inline duration deadline_error(const deadline_way& way, duration timeout, duration step_after,
                                             duration step) {
    stepped_world world{way.handed ? duration::zero() : step_after, step};
    const time_point begin = world.steady();
    way.wait(world, timeout);
    return world.steady() - begin - timeout;
}

/// The largest error that a way on the steady clock may have: what it sleeps at a time, or the way to the other machine.
[[nodiscard]] constexpr duration allowed_error(const deadline_way& way) noexcept {
    return way.handed ? transit : look_every;
}

} // namespace timerbench::experiments
