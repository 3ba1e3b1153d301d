// One wave of the accuracy experiment: one service, one environment, all durations at once, many timers in flight.
//
// A schedule says when each event is to be armed. An arming thread keeps to it with absolute sleeps (for a service that the
// caller's loop drives, the loop's own thread does, between two passes). An event is a sleep polled as a task:
//
//   read the clock (own reading), poll the sleep, which arms          on the arming thread
//   callback -> waker: read the clock (callback start), wake the task  on the driver
//   poll: read the clock (resumed), the sleep has elapsed              on the task's worker
//
// Three figures for each event: callback start and resumption minus (own reading + duration), and the generator's own lag, the
// own reading minus the intended time. The lag is kept apart, so that a stall of the arming thread is seen for what it
// is, and added back where latency is counted from the intended time: every event that a stall delayed then counts.
#pragma once

#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/executor.hpp"
#include "harness/interrupt.hpp"
#include "timers/timeout.hpp"
#include "timers/waiter_timed.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <time.h>
#include <vector>

namespace timerbench::experiments {

using namespace std::chrono_literals;

enum class surroundings { idle, cores_busy, service_busy };
inline constexpr surroundings all_surroundings[] = {surroundings::idle, surroundings::cores_busy,
                                                    surroundings::service_busy};

[[nodiscard]] inline const char* name_of(surroundings s) noexcept {
    switch (s) {
    case surroundings::idle:
        return "idle";
    case surroundings::cores_busy:
        return "cores_busy";
    case surroundings::service_busy:
        return "service_busy";
    }
    return "";
}

struct wave_plan {
    std::vector<duration> durations{1ms, 5ms, 10ms, 25ms, 100ms};
    std::uint64_t events = 2'000;       ///< of each duration
    std::uint64_t stall_ms = 0;         ///< the arming thread stands still so long in the middle of the wave
    std::uint64_t samples_kept = 2'000; ///< values of each row that go into the JSON
    std::size_t workers = 2;
    duration span = 900ms; ///< over which arms are spread: whole numbers of 10, 30 and 100 ms ticks
    duration lead = 30ms;  ///< before that: warm-up events, not recorded
    std::uint64_t warm_up = 60;
    std::uint64_t pairs_a_second = 100'000;
    duration patience =
        3s; ///< beyond the service's `latest`: how long nothing may move before events count as missing
};

inline constexpr duration phase_width = 10ms; ///< over which arming phases are spread and tested
inline constexpr std::size_t warm_up_index = 1'001;

/// One intended arm: when, counted from the wave's start, and the index of its duration.
struct intention {
    duration offset{};
    std::size_t which = 0;
};

/// Sorted by time. Each duration's arms are spread evenly over the span, each at a random point of its own stretch, so that their
/// phases are uniform over any slot that divides the span.
[[nodiscard]] inline std::vector<intention> make_schedule(const wave_plan& plan, std::uint64_t seed) {
    harness::random_source random{seed};
    std::vector<intention> all;
    for (std::uint64_t i = 0; i < plan.warm_up; ++i) {
        all.push_back({plan.lead * static_cast<duration::rep>(i) / static_cast<duration::rep>(plan.warm_up),
                       warm_up_index});
    }
    const double stretch = static_cast<double>(plan.span.count()) / static_cast<double>(plan.events);
    for (std::size_t d = 0; d < plan.durations.size(); ++d) {
        for (std::uint64_t i = 0; i < plan.events; ++i) {
            const double at = (static_cast<double>(i) + random.unit()) * stretch;
            all.push_back({plan.lead + duration{static_cast<duration::rep>(at)}, d});
        }
    }
    std::sort(all.begin(), all.end(),
              [](const intention& a, const intention& b) { return a.offset < b.offset; });
    return all;
}

struct observation {
    std::size_t which = 0;
    duration lag{};     ///< own reading minus intended time
    duration started{}; ///< callback start minus (own reading + duration)
    duration resumed{}; ///< the task's poll minus (own reading + duration)
    duration phase{};   ///< own reading modulo phase_width
};

struct wave_result {
    std::vector<observation> events;
    std::uint64_t missing = 0;
    std::uint64_t refused = 0;
    std::uint64_t pairs = 0;   ///< arm + cancel pairs that the load made
    double pairs_a_second = 0; ///< over the time that the load ran
    std::string wrong;         ///< why the wave must not be used; empty: it may
};

inline void sleep_until(time_point t) noexcept {
    const auto ns = t.time_since_epoch().count();
    timespec at{};
    at.tv_sec = ns / 1'000'000'000;
    at.tv_nsec = ns % 1'000'000'000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {}
}

/// Threads that do nothing but use a core each, for as long as the object lives.
class burners {
  public:
    explicit burners(unsigned n) {
        for (unsigned i = 0; i < n; ++i) {
            threads_.emplace_back([this] {
                while (!enough_.load(std::memory_order_relaxed)) {}
            });
        }
    }
    burners(const burners&) = delete;
    burners& operator=(const burners&) = delete;
    ~burners() {
        enough_.store(true, std::memory_order_relaxed);
        for (auto& t : threads_) {
            t.join();
        }
    }

  private:
    std::atomic<bool> enough_{false}; // set once by the owner; nothing is published through it
    std::vector<std::thread> threads_;
};

/// When the next burst of pairs is due, and how many pairs it has: 1 ms apart, at an even rate. Used by one thread.
class burst_pacer {
  public:
    static constexpr duration step = 1ms;
    explicit burst_pacer(std::uint64_t pairs_a_second) : per_step_{pairs_a_second / 1'000} {}

    void begin(time_point t) noexcept { first_ = next_ = t; }
    [[nodiscard]] time_point next() const noexcept { return next_; }
    /// Runs `pair` for every burst that is due; at most 20 bursts at once, those further behind are given up.
    template <class Pair>
    void run_due(time_point t, Pair&& pair) {
        if (t - next_ > 20 * step) {
            next_ = t - 20 * step;
        }
        while (next_ <= t) {
            for (std::uint64_t i = 0; i < per_step_; ++i) {
                pair();
            }
            done_ += per_step_;
            next_ += step;
        }
    }
    [[nodiscard]] std::uint64_t done() const noexcept { return done_; }
    [[nodiscard]] double rate(time_point end) const noexcept {
        const double seconds = std::chrono::duration<double>(end - first_).count();
        return seconds > 0 ? static_cast<double>(done_) / seconds : 0;
    }

  private:
    std::uint64_t per_step_;
    std::uint64_t done_ = 0;
    time_point first_{};
    time_point next_{};
};

/// What the pairs arm: far enough away never to fire, and one duration, as services with a queue per duration want it.
inline constexpr duration pair_duration = 60s;

template <class Service>
class event : public harness::task {
  public:
    event(Service& service, duration d, std::size_t which, std::atomic<std::uint64_t>& ended) noexcept
        : task{&event::poll_me},
          service_{service},
          duration_{d},
          which_{which},
          ended_{ended} {}

    /// Before the wave begins.
    void intend(time_point at) noexcept { intended_ = at; }
    [[nodiscard]] time_point intended() const noexcept { return intended_; }
    [[nodiscard]] std::size_t which() const noexcept { return which_; }
    [[nodiscard]] bool refused() const noexcept { return refused_; }

    /// Once finished.
    [[nodiscard]] observation seen() const noexcept {
        const time_point deadline = own_reading_ + duration_;
        return {which_, own_reading_ - intended_, started_ - deadline, resumed_ - deadline,
                own_reading_.time_since_epoch() % phase_width};
    }

  private:
    static harness::outcome poll_me(harness::task& self, const waker&) noexcept {
        const time_point reading = steady_time::now();
        auto& me = static_cast<event&>(self);
        const bool first = !me.nap_;
        if (first) {
            me.nap_.emplace(me.service_, me.duration_);
            me.own_reading_ = steady_time::now();
        } else {
            me.resumed_ = reading;
        }
        if (!me.nap_->poll(waker{&event::on_wake, &me})) {
            return harness::outcome::pending;
        }
        me.refused_ = first; // elapsed at its first poll: the service did not arm
        me.ended_.fetch_add(1, std::memory_order_relaxed);
        return harness::outcome::done;
    }

    // On the driver, as the first thing in the callback but for the lock of the timeout.
    static void on_wake(void* self) {
        auto& me = *static_cast<event*>(self);
        me.started_ = steady_time::now();
        me.self_waker()();
    }

    Service& service_;
    duration duration_;
    std::size_t which_;
    std::atomic<std::uint64_t>& ended_; // both workers count; the main thread reads it for progress only
    time_point intended_{};
    // Written by the polling side, but for `started_`, which the driver writes before its wake.
    time_point own_reading_{};
    time_point started_{};
    time_point resumed_{};
    bool refused_ = false;
    std::optional<sleep<Service>> nap_;
};

/// Arms the events of one list in their time, and runs the pairs, whoever's thread it is on.
template <class Service>
class generator {
  public:
    generator(Service& service, std::uint64_t pairs_a_second)
        : service_{service},
          timer_{service},
          pacer_{pairs_a_second},
          paced_{pairs_a_second > 0} {}

    void add(event<Service>& e) { events_.push_back(&e); }

    /// Before `run_due`, once. `stall` from `stall_at` on: this thread stands still.
    void begin(harness::executor& executor, time_point start, time_point stall_at, duration stall) {
        executor_ = &executor;
        stall_at_ = stall_at;
        stall_ = stall;
        pacer_.begin(start);
    }

    /// Arms what is due and runs the bursts that are due. Returns when the next of either is.
    time_point run_due(bool arms, bool pairs) {
        time_point next = time_point::max();
        if (arms) {
            while (next_ < events_.size() && events_[next_]->intended() <= steady_time::now()) {
                executor_->poll_here(*events_[next_]);
                ++next_;
                if (stall_ > duration::zero() && steady_time::now() >= stall_at_) {
                    sleep_until(steady_time::now() + stall_);
                    stall_ = duration::zero();
                }
            }
            if (next_ < events_.size()) {
                next = events_[next_]->intended();
            }
        }
        if (pairs && paced_) {
            pacer_.run_due(steady_time::now(), [this] {
                good_ += service_.arm(timer_, pair_duration, no_callback) && service_.cancel(timer_) ? 1 : 0;
            });
            next = std::min(next, pacer_.next());
        }
        return next;
    }

    [[nodiscard]] const burst_pacer& pacer() const noexcept { return pacer_; }
    [[nodiscard]] std::uint64_t good_pairs() const noexcept { return good_; }

  private:
    Service& service_;
    typename Service::timer timer_;
    burst_pacer pacer_;
    bool paced_;
    std::vector<event<Service>*> events_;
    std::size_t next_ = 0;
    std::uint64_t good_ = 0;
    harness::executor* executor_ = nullptr;
    time_point stall_at_{};
    duration stall_{};
};

/// A service's loop with the generator between its passes.
template <loop_service Service>
class generating_loop {
  public:
    generating_loop(Service& service, generator<Service>& work) : service_{service}, work_{work} {}

    std::size_t poll() {
        if (go_.load(std::memory_order_acquire)) {
            work_.run_due(true, true);
        }
        return service_.poll();
    }
    std::size_t poll_until(time_point t) {
        if (go_.load(std::memory_order_acquire)) {
            t = std::min(t, work_.run_due(true, true));
        }
        return service_.poll_until(t);
    }
    void go() noexcept { go_.store(true, std::memory_order_release); }

  private:
    Service& service_;
    generator<Service>& work_;
    // Set once by the main thread after generator::begin, which it publishes to the loop's thread.
    std::atomic<bool> go_{false};
};

/// Runs one wave over a fresh service. Balanced books are looked at in quiet, before the timers are destroyed.
template <class Entry>
[[nodiscard]] wave_result run_wave(const wave_plan& plan, surroundings where,
                                   const std::vector<intention>& schedule, ledger& books) {
    using service = typename Entry::service;
    wave_result result;
    service_team<Entry> team{plan.workers};
    const std::uint64_t pairs_a_second = where == surroundings::service_busy ? plan.pairs_a_second : 0;
    std::atomic<std::uint64_t> ended{0};
    std::deque<generator<service>> generators;
    for (std::size_t i = 0; i < team.size(); ++i) {
        generators.emplace_back(team[i], pairs_a_second / team.size());
    }
    // Before the events: an armed timer may wake its event's task, and so a worker, until the event is gone. The executor
    // is stopped by then.
    std::optional<harness::executor> executor;
    std::deque<event<service>> events;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const std::size_t which = schedule[i].which;
        const duration d = which < plan.durations.size() ? plan.durations[which] : 1ms;
        events.emplace_back(team.of(i % plan.workers), d, which, ended);
        generators[i % team.size()].add(events.back());
    }

    [[maybe_unused]] auto loops = [&] {
        if constexpr (loop_service<service>) {
            std::deque<generating_loop<service>> made;
            for (std::size_t i = 0; i < team.size(); ++i) {
                made.emplace_back(team[i], generators[i]);
            }
            return made;
        } else {
            return 0;
        }
    }();
    if constexpr (loop_service<service>) {
        std::vector<harness::loop> refs;
        for (auto& l : loops) {
            refs.push_back(harness::loop_of(l));
        }
        executor.emplace(refs);
    } else {
        executor.emplace(plan.workers);
    }
    std::optional<burners> fire;
    if (where == surroundings::cores_busy) {
        fire.emplace(harness::usable_cpus());
    }

    const time_point start = steady_time::now() + 5ms;
    for (std::size_t i = 0; i < events.size(); ++i) {
        events[i].intend(start + schedule[i].offset);
        executor->adopt(events[i], i % plan.workers);
    }
    for (auto& g : generators) {
        g.begin(*executor, start, start + plan.lead + plan.span / 2,
                std::chrono::milliseconds{plan.stall_ms});
    }

    std::thread arms;
    std::thread pairs;
    std::atomic<bool> pairs_enough{false}; // set once by the main thread; nothing is published through it
    if constexpr (loop_service<service>) {
        for (auto& l : loops) {
            l.go();
        }
    } else {
        arms = std::thread{[&g = generators.front()] {
            prctl(PR_SET_TIMERSLACK, 1UL);
            // The next arm is never far away, and the end of time once there is none.
            for (time_point next{}; next != time_point::max() && !harness::interrupted();) {
                sleep_until(next);
                next = g.run_due(true, false);
            }
        }};
    }
    // The pairs of a service that any thread may use come from a generator of their own, on a thread of their own.
    std::optional<generator<service>> load;
    if (!loop_service<service> && pairs_a_second > 0) {
        load.emplace(team[0], pairs_a_second);
        load->begin(*executor, start, {}, {});
        pairs = std::thread{[&load, &pairs_enough] {
            prctl(PR_SET_TIMERSLACK, 1UL);
            while (!pairs_enough.load(std::memory_order_relaxed)) {
                sleep_until(load->run_due(false, true));
            }
        }};
    }

    const duration patience = team[0].traits().latest + plan.patience +
                              std::chrono::milliseconds{plan.stall_ms} +
                              *std::max_element(plan.durations.begin(), plan.durations.end());
    std::uint64_t moved = 0;
    for (time_point last = steady_time::now(); ended.load(std::memory_order_relaxed) < events.size();) {
        std::this_thread::sleep_for(5ms);
        if (const std::uint64_t at = ended.load(std::memory_order_relaxed); at != moved) {
            moved = at;
            last = steady_time::now();
        }
        if (steady_time::now() - last > patience || harness::interrupted()) {
            break;
        }
    }
    pairs_enough.store(true, std::memory_order_relaxed);
    for (std::thread* t : {&arms, &pairs}) {
        if (t->joinable()) {
            t->join();
        }
    }
    executor->stop();
    const time_point end = steady_time::now();
    fire.reset();

    std::uint64_t good = 0;
    const auto add_pairs = [&](const generator<service>& g) {
        result.pairs += g.pacer().done();
        result.pairs_a_second += g.pacer().rate(end);
        good += g.good_pairs();
    };
    for (const auto& g : generators) {
        add_pairs(g);
    }
    if (load) {
        add_pairs(*load);
    }
    result.events.reserve(events.size());
    for (const auto& e : events) {
        if (!e.finished()) {
            ++result.missing;
        } else if (e.refused()) {
            ++result.refused;
        } else if (e.which() != warm_up_index) {
            result.events.push_back(e.seen());
        }
    }
    const counters quiet = team.counters();
    books.look(Entry::name, quiet);
    if (result.refused > 0) {
        result.wrong = std::to_string(result.refused) + " arms were refused by a running service";
    } else if (good != result.pairs) {
        result.wrong = std::to_string(result.pairs - good) + " of " + std::to_string(result.pairs) +
                       " arm + cancel pairs of the load did not return true twice";
    } else if (!harness::interrupted()) {
        result.wrong = wrong_work({}, quiet,
                                  {.armed = events.size() + result.pairs,
                                   .cancelled = result.pairs,
                                   .fired = events.size() - result.missing});
    }
    return result;
}

/// What no service takes part in: a thread that knows the schedule's deadlines beforehand and waits for each by `wait(deadline)`.
/// In `service_busy` the pacing thread runs with empty pairs.
template <class Wait>
[[nodiscard]] wave_result run_waits(const wave_plan& plan, surroundings where,
                                    const std::vector<intention>& schedule, Wait wait) {
    wave_result result;
    std::optional<burners> fire;
    if (where == surroundings::cores_busy) {
        fire.emplace(harness::usable_cpus());
    }
    const time_point start = steady_time::now() + 5ms;
    struct deadline {
        time_point at;
        std::size_t which;
    };
    std::vector<deadline> deadlines;
    for (const intention& i : schedule) {
        deadlines.push_back(
            {start + i.offset + (i.which < plan.durations.size() ? plan.durations[i.which] : 1ms), i.which});
    }
    std::sort(deadlines.begin(), deadlines.end(),
              [](const deadline& a, const deadline& b) { return a.at < b.at; });
    result.events.resize(deadlines.size());
    std::atomic<bool> enough{false}; // set once by the main thread
    std::thread pairs;
    if (where == surroundings::service_busy) {
        pairs = std::thread{[&] {
            prctl(PR_SET_TIMERSLACK, 1UL);
            burst_pacer pacer{plan.pairs_a_second};
            pacer.begin(start);
            while (!enough.load(std::memory_order_relaxed)) {
                pacer.run_due(steady_time::now(), [] {});
                sleep_until(pacer.next());
            }
        }};
    }
    std::thread sleeper{[&] {
        prctl(PR_SET_TIMERSLACK, 1UL);
        for (std::size_t i = 0; i < deadlines.size() && !harness::interrupted(); ++i) {
            // Sleeping until a moment that has passed gives up the processor all the same.
            if (steady_time::now() < deadlines[i].at) {
                wait(deadlines[i].at);
            }
            result.events[i] = {deadlines[i].which, {}, steady_time::now() - deadlines[i].at, {}, {}};
        }
    }};
    sleeper.join();
    enough.store(true, std::memory_order_relaxed);
    if (pairs.joinable()) {
        pairs.join();
    }
    std::erase_if(result.events, [](const observation& o) { return o.which == warm_up_index; });
    return result;
}

/// The limit: clock_nanosleep, absolute, slack 1 ns.
[[nodiscard]] inline wave_result run_limit(const wave_plan& plan, surroundings where,
                                           const std::vector<intention>& schedule) {
    return run_waits(plan, where, schedule, [](time_point deadline) { sleep_until(deadline); });
}

/// The waiter that times itself on a condition variable, slack 1 ns; nobody ever leaves it a permit.
[[nodiscard]] inline wave_result run_waiter(const wave_plan& plan, surroundings where,
                                            const std::vector<intention>& schedule) {
    waiter_timed<steady_time> waiter;
    return run_waits(plan, where, schedule,
                     [&waiter](time_point deadline) { (void)waiter.wait_until(deadline); });
}

} // namespace timerbench::experiments
