// N waits of one thread: one after the other, each with a timeout that begins when its turn comes, against all of them under one deadline.
//
// Each of the N things answers at a time after the common start, or never:
// none      nobody answers: N timeouts against one
// just      the i-th comes after i times four fifths of a timeout, so that each answers just in time when its turn comes
// all       all answer at once: no difference
//
// On a manual clock, exact and for any N, and on the steady clock with condition variables and a thread that answers.
#pragma once

#include "experiments/waiting_ways.hpp"
#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <thread>

namespace timerbench::experiments {

enum class answers { none, just, all };
inline constexpr std::array all_answers{answers::none, answers::just, answers::all};
[[nodiscard]] constexpr std::string_view name_of(answers a) noexcept {
    return a == answers::none ? "none" : a == answers::just ? "just in time" : "all at once";
}

/// When the i-th (from 0) answers after the start; empty: never.
[[nodiscard]] constexpr std::optional<duration> answer_after(answers a, std::size_t i,
                                                             duration timeout) noexcept {
    switch (a) {
    case answers::none:
        return std::nullopt;
    case answers::just:
        return timeout * 4 / 5 * static_cast<duration::rep>(i + 1);
    case answers::all:
        return duration::zero();
    }
    return std::nullopt;
}

struct series_result {
    std::size_t answered = 0;
    duration lasted{};
};

/// On a manual clock: a wait moves the clock to its end.
[[nodiscard]] inline series_result series_on_manual_clock(std::size_t n, duration timeout, answers a,
                                                          bool one_deadline) {
    manual_time clock;
    const time_point begin = clock.now();
    const auto now = [&clock] { return clock.now(); };
    const auto wait = [&](std::size_t i, time_point until) {
        const std::optional<duration> after = answer_after(a, i, timeout);
        const time_point answered = after ? begin + *after : time_point::max();
        const time_point end = std::min(answered, until);
        if (end > clock.now()) {
            clock.shift(end - clock.now());
        }
        return answered <= until || answered <= clock.now();
    };
    series_result r;
    r.answered = one_deadline ? wait_under_one_deadline(n, timeout, wait, now)
                              : wait_one_by_one(n, timeout, wait, now);
    r.lasted = clock.now() - begin;
    return r;
}

/// On the steady clock. Starts a thread that answers, and joins it.
[[nodiscard]] inline series_result series_on_steady_clock(std::size_t n, duration timeout, answers a,
                                                          bool one_deadline) {
    std::deque<condition_wait> things(n);
    condition_wait enough; // notified when nobody waits any more
    const time_point begin = steady_time::now();
    std::thread answering{[&] {
        for (std::size_t i = 0; i < n; ++i) {
            const std::optional<duration> after = answer_after(a, i, timeout);
            if (!after || enough.wait_until(begin + *after)) {
                return;
            }
            things[i].notify();
        }
    }};
    const auto wait = [&](std::size_t i, time_point until) { return things[i].wait_until(until); };
    const auto now = [] { return steady_time::now(); };
    series_result r;
    r.answered = one_deadline ? wait_under_one_deadline(n, timeout, wait, now)
                              : wait_one_by_one(n, timeout, wait, now);
    r.lasted = steady_time::now() - begin;
    enough.notify();
    answering.join();
    return r;
}

} // namespace timerbench::experiments
