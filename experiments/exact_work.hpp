// What bench_exact counts: fixed operations of one service on a manual clock, and what they did to the heap and to the deadlines.
//
// How it works. Each case makes a service on a clock of its own and does the same calls in the same order. Time moves only by
// `pass`, which returns when every driver sleeps again (a loop is polled until it has nothing to run), so whatever drivers do lies
// between the same two calls in each run. The first pair is never counted: it starts the driver, and what a new thread
// costs the C library depends on the threads that were there before. A case is meant to run on a thread of its own, so that what a
// service keeps for each thread is new each time.
//
// What it costs. About 150 steps of 10 ms and 15 000 pairs a case, some 10 ms; a service that starts a thread for each timer
// takes a hundred times as long.
//
// What it is bad at. Threads of a service that race with each other reach the heap in another order each time, and may find
// another number of blocks free: cases in which timers fire are not for services whose callbacks overlap. A thread's stack is
// not heap, but what comes with it is, and the C library keeps stacks for reuse: `fix_stack_size` makes that the same everywhere.
#pragma once

#include "experiments/service_cells.hpp"
#include "harness/alloc_counter.hpp"
#include "harness/interrupt.hpp"
#include "harness/statistics.hpp"
#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pthread.h>

namespace timerbench::experiments::exact {

using std::chrono::milliseconds;

inline constexpr duration step = milliseconds{10};
inline constexpr std::size_t pairs_per_step = 100;
inline constexpr std::uint64_t operations = 2'000;
inline constexpr duration armed_for = std::chrono::seconds{1};
/// After so many pairs what was armed first is past its deadline, and pools have their size.
inline constexpr std::uint64_t warm_up_pairs =
    static_cast<std::uint64_t>((armed_for + milliseconds{100}) / step) * pairs_per_step;
inline constexpr std::size_t window_size = 200;
inline constexpr std::size_t fires = 500;
inline constexpr std::size_t fire_durations = 20; ///< 100 to 119 ms in whole milliseconds.
inline constexpr std::size_t foreign_cancels = 200;
inline constexpr std::size_t random_fires = 1'000;
/// Most timers that any case has armed at the same time.
inline constexpr std::size_t most_armed = 1'000;

/// Gives all threads that are started from now on a stack of 1 MiB, whatever `ulimit -s` says. Of stacks the C library keeps
/// 40 MiB for reuse, and a thread that finds none allocates.
inline void fix_stack_size() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 20);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

/// One figure of a case: which state of the service, which metric.
struct figure {
    std::string
        state; ///< "fresh" from the second pair on, "steady" after the warm-up; empty where a case has one state.
    std::string metric;
    std::uint64_t value = 0;

    friend bool operator==(const figure&, const figure&) = default;
};

struct findings {
    std::vector<figure> figures;
    std::string error; ///< Why the figures must not be used; empty if they may.
    counters after;    ///< At the end, in quiet.

    [[nodiscard]] bool same_as(const findings& other) const {
        return figures == other.figures && error == other.error;
    }
};

/// A service on its clock, with the books of what was asked of it.
template <class Entry>
class stage {
  public:
    using service = typename Entry::template service_on<manual_time>;
    using timer = typename service::timer;

    stage() : service_{Entry::make_on(clock_)}, before_{service_->counters()} {}

    [[nodiscard]] service& subject() noexcept { return *service_; }
    [[nodiscard]] const manual_time& clock() const noexcept { return clock_; }

    void arm(timer& t, duration d, callback c = no_callback) {
        ++expected_.armed;
        good_ += service_->arm(t, d, c) ? 1 : 0;
    }
    void cancel(timer& t) {
        ++expected_.cancelled;
        good_ += service_->cancel(t) ? 1 : 0;
    }
    /// What callbacks and their calls add to the books.
    void expect(const expected_work& more) {
        expected_.armed += more.armed;
        expected_.cancelled += more.cancelled;
        expected_.fired += more.fired;
    }

    void pass(duration d) {
        clock_.advance(d);
        if constexpr (requires { service_->poll(); }) {
            while (service_->poll() > 0) {}
        }
    }
    void settle() {
        catch_up(*service_);
        clock_.settle();
    }

    /// `n` pairs, each of them `pair(i)`, at `pairs_per_step` a step.
    template <class Pair>
    void paced(std::uint64_t n, Pair&& pair) {
        for (std::uint64_t i = 0; i < n && !harness::interrupted(); ++i) {
            pair(i);
            if (i % pairs_per_step == pairs_per_step - 1) {
                pass(step);
            }
        }
        settle();
    }

    /// Counts the heap traffic of `body`, which leaves every driver asleep.
    template <class Body>
    void count(const std::string& state, Body&& body) {
        const harness::alloc_window window;
        body();
        const harness::alloc_counts c = window.counts();
        found_.figures.push_back({state, "allocations", c.allocations});
        found_.figures.push_back({state, "bytes", c.requested_bytes});
    }
    void found(const std::string& metric, std::uint64_t value) {
        found_.figures.push_back({"", metric, value});
    }
    void fail(const std::string& reason) {
        if (found_.error.empty()) {
            found_.error = reason;
        }
    }

    [[nodiscard]] bool failed() const noexcept { return !found_.error.empty(); }

    /// At the end, in quiet, with the timers still alive.
    [[nodiscard]] findings close() {
        if (good_ != expected_.armed + expected_.cancelled) {
            fail("wrong work: not all, but " + std::to_string(good_) +
                 " of the calls of arm and cancel returned true");
        }
        found_.after = service_->counters();
        fail(wrong_work(before_, found_.after, expected_));
        return std::move(found_);
    }

    /// From here on `good` calls more are known to have returned true.
    void credit(std::uint64_t good) { good_ += good; }

  private:
    manual_time clock_;
    std::unique_ptr<service> service_;
    counters before_;
    expected_work expected_;
    std::uint64_t good_ = 0;
    findings found_;
};

/// One timer is armed and cancelled.
template <class Entry>
findings arm_cancel(std::uint64_t /*seed*/) {
    stage<Entry> s;
    timer_block<typename stage<Entry>::service> timers{s.subject(), 1};
    const auto pair = [&](std::uint64_t) {
        s.arm(timers[0], armed_for);
        s.cancel(timers[0]);
    };
    pair(0);
    s.settle();
    s.count("fresh", [&] { s.paced(operations, pair); });
    s.paced(warm_up_pairs, pair);
    s.count("steady", [&] { s.paced(operations, pair); });
    return s.close();
}

/// Of `window_size` outstanding timers the oldest or a random one is cancelled and armed anew.
template <class Entry, bool Random>
findings window(std::uint64_t seed) {
    stage<Entry> s;
    harness::random_source random{seed};
    timer_block<typename stage<Entry>::service> timers{s.subject(), window_size};
    s.paced(window_size, [&](std::uint64_t i) { s.arm(timers[i], armed_for); });
    std::uint64_t oldest = 0;
    const auto pair = [&](std::uint64_t) {
        auto& t = timers[Random ? random.below(window_size) : oldest++ % window_size];
        s.cancel(t);
        s.arm(t, armed_for);
    };
    s.count("fresh", [&] { s.paced(operations, pair); });
    s.paced(warm_up_pairs, pair);
    s.count("steady", [&] { s.paced(operations, pair); });
    return s.close();
}

/// How many different durations a case may use where it would like to use `wanted`.
[[nodiscard]] inline std::size_t durations_allowed(const service_traits& t, std::size_t wanted) {
    return t.most_durations == 0 ? wanted : std::min(wanted, t.most_durations);
}

struct shot_count {
    // Raised by drivers. The sampling thread reads it when every driver sleeps; it is atomic because callbacks of
    // some services overlap.
    std::atomic<std::uint64_t> n{0};
    static void record(void* context) {
        static_cast<shot_count*>(context)->n.fetch_add(1, std::memory_order_relaxed);
    }
};

/// Moves time on until `count` has reached `n`, for 20 s of the manual clock at most.
template <class Stage>
[[nodiscard]] bool await_fires(Stage& s, const shot_count& count, std::uint64_t n) {
    for (duration passed{}; count.n < n && passed < std::chrono::seconds{20} && !harness::interrupted();
         passed += step) {
        s.pass(step);
    }
    s.settle();
    return count.n == n;
}

/// Timers are armed, and all fire. Three times: the first is fresh, the third steady.
template <class Entry>
findings arm_fire(std::uint64_t /*seed*/) {
    stage<Entry> s;
    shot_count fired;
    timer_block<typename stage<Entry>::service> timers{s.subject(), fires};
    const std::size_t durations = durations_allowed(s.subject().traits(), fire_durations);
    const auto wave = [&] {
        if (s.failed()) {
            return; // some may still be armed
        }
        fired.n = 0;
        for (std::size_t i = 0; i < fires; ++i) {
            s.arm(timers[i], milliseconds{100 + i % durations}, {&shot_count::record, &fired});
        }
        if (!await_fires(s, fired, fires)) {
            s.fail("only " + std::to_string(fired.n) + " of " + std::to_string(fires) +
                   " timers fired within 20 s");
        }
        s.expect({.fired = fires});
    };
    s.arm(timers[0], armed_for);
    s.cancel(timers[0]);
    s.settle();
    s.count("fresh", wave);
    wave();
    s.count("steady", wave);
    return s.close();
}

/// Cancelling what has fired already: each call returns false.
template <class Entry>
findings late_cancel(std::uint64_t /*seed*/) {
    stage<Entry> s;
    shot_count fired;
    timer_block<typename stage<Entry>::service> timers{s.subject(), fires};
    for (std::size_t i = 0; i < fires; ++i) {
        s.arm(timers[i], milliseconds{100}, {&shot_count::record, &fired});
    }
    if (!await_fires(s, fired, fires)) {
        s.fail("only " + std::to_string(fired.n) + " of " + std::to_string(fires) +
               " timers fired within 20 s");
    }
    s.expect({.fired = fires});
    std::uint64_t withdrawn = 0;
    s.count("", [&] {
        for (std::size_t i = 0; i < fires; ++i) {
            withdrawn += s.subject().cancel(timers[i]) ? 1 : 0;
        }
        s.settle();
    });
    if (withdrawn != 0) {
        s.fail("cancel withdrew " + std::to_string(withdrawn) + " timers that had fired");
    }
    return s.close();
}

/// A callback cancels another timer. Twice; the second is counted.
template <class Entry>
findings cancel_in_callback(std::uint64_t /*seed*/) {
    using service = typename stage<Entry>::service;
    struct canceller {
        service* where;
        typename service::timer* whom;
        shot_count* fired;
        shot_count* withdrawn;
        static void run(void* context) {
            const canceller& self = *static_cast<canceller*>(context);
            if (self.where->cancel(*self.whom)) {
                shot_count::record(self.withdrawn);
            }
            shot_count::record(self.fired);
        }
    };
    stage<Entry> s;
    shot_count fired;
    shot_count withdrawn;
    timer_block<service> timers{s.subject(), 2 * foreign_cancels};
    std::vector<canceller> cancellers;
    for (std::size_t i = 0; i < foreign_cancels; ++i) {
        cancellers.push_back({&s.subject(), &timers[foreign_cancels + i], &fired, &withdrawn});
    }
    const auto wave = [&] {
        if (s.failed()) {
            return; // some may still be armed
        }
        fired.n = 0;
        withdrawn.n = 0;
        for (std::size_t i = 0; i < foreign_cancels; ++i) {
            s.arm(timers[foreign_cancels + i], armed_for);
            s.arm(timers[i], milliseconds{100}, {&canceller::run, &cancellers[i]});
        }
        if (!await_fires(s, fired, foreign_cancels) || withdrawn.n != foreign_cancels) {
            s.fail(std::to_string(fired.n) + " callbacks ran and withdrew " + std::to_string(withdrawn.n) +
                   " timers; " + std::to_string(foreign_cancels) + " expected of both");
        }
        s.credit(withdrawn.n);
        s.expect({.cancelled = foreign_cancels, .fired = foreign_cancels});
    };
    wave();
    s.count("", wave);
    return s.close();
}

/// Timers of random durations, most below 100 ms and some up to 1 s, while time moves on in uneven steps: how many never fire, and how many fire when
/// the clock is still before their deadline, that is the reading at the arm plus the duration.
template <class Entry>
findings random_durations(std::uint64_t seed) {
    struct shot {
        const manual_time* clock = nullptr;
        time_point deadline{};
        // Written by whoever runs the callback, read when every driver sleeps: the clock's mutex lies between.
        std::uint64_t fired = 0;
        std::uint64_t early = 0;
        static void run(void* context) {
            shot& self = *static_cast<shot*>(context);
            ++self.fired;
            self.early += self.clock->now() < self.deadline ? 1 : 0;
        }
    };
    constexpr duration short_below = milliseconds{100};
    constexpr duration long_below = std::chrono::seconds{1}; // one in ten
    constexpr duration longest_step = std::chrono::microseconds{2'500};
    constexpr std::size_t at_a_time = 50;
    stage<Entry> s;
    harness::random_source random{seed};
    const service_traits traits = s.subject().traits();
    const auto uneven = [&] { return random_duration(random, std::chrono::microseconds{10}, longest_step); };
    std::vector<duration> durations(durations_allowed(traits, random_fires));
    for (std::size_t i = 0; i < durations.size(); ++i) {
        durations[i] = random_duration(random, duration::zero(), i % 10 == 9 ? long_below : short_below);
    }
    std::vector<shot> shots(random_fires);
    timer_block<typename stage<Entry>::service> timers{s.subject(), random_fires};
    const time_point begin = s.clock().now();
    for (std::size_t i = 0; i < random_fires; ++i) {
        const duration d = durations[i % durations.size()];
        shots[i].clock = &s.clock();
        shots[i].deadline = s.clock().now() + d;
        s.arm(timers[i], d, {&shot::run, &shots[i]});
        if (i % at_a_time == at_a_time - 1) {
            s.pass(uneven());
        }
    }
    while (s.clock().now() - begin < long_below + random_fires / at_a_time * longest_step &&
           !harness::interrupted()) {
        s.pass(uneven());
    }
    // Whatever has not fired a second after the latest time that the service gives itself is lost.
    for (duration late{};
         late < std::min<duration>(traits.latest, std::chrono::minutes{1}) + std::chrono::seconds{1} &&
         !harness::interrupted();
         late += step) {
        s.pass(step);
    }
    s.settle();
    std::uint64_t lost = 0;
    std::uint64_t early = 0;
    for (const shot& each : shots) {
        lost += each.fired == 0 ? 1 : 0;
        early += each.early;
        if (each.fired > 1) {
            s.fail("a timer fired " + std::to_string(each.fired) + " times");
        }
    }
    s.expect({.fired = random_fires - lost});
    s.found("fires_lost", lost);
    s.found("early_fires", early);
    return s.close();
}

} // namespace timerbench::experiments::exact
