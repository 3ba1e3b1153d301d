// One wave of the herd experiment: many timers with one deadline, and another thread that arms meanwhile.
//
//   arm the herd | quiet: the herd is armed, nothing is due | deadline: the herd fires | wait for the last callback
//
// The other thread, the probe, arms and cancels a timer of its own all the while, open-loop: each arm has an intended time, and its
// latency runs from there, so that an arm that blocks while the herd is served is charged to all arms that were to be made meanwhile. What
// belongs to the quiet time and what to the herd is decided afterwards, by the intended time and the times of the callbacks.
//
// The deadline is put as far ahead as arming will take, by what it took before, plus the quiet time. A wave whose herd was not
// armed in time is thrown away and tried again with more time.
#pragma once

#include "experiments/herd_plan.hpp"
#include "experiments/latency_rows.hpp"
#include "experiments/service_cells.hpp"
#include "harness/interrupt.hpp"
#include "harness/open_loop.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <vector>

namespace timerbench::experiments {

using harness::punctual_clock;
using namespace std::chrono_literals;

/// What the probe's arms run towards: never reached.
inline constexpr duration probe_duration = 60s;

/// When each timer of the herd is due and when its callback began.
struct herd_member {
    time_point deadline{};
    // Written by the callback before `fired` is raised, read by the main thread after it has seen the count.
    time_point started{};
    std::atomic<std::uint64_t>* fired = nullptr;
    duration slow{};

    static void run(void* context) {
        auto& me = *static_cast<herd_member*>(context);
        me.started = steady_time::now();
        if (me.slow > duration::zero()) {
            while (steady_time::now() - me.started < me.slow) {}
        }
        me.fired->fetch_add(1, std::memory_order_release);
    }
};

/// Arms and cancels one timer over and over, on a thread of its own.
template <class Service>
class probe {
  public:
    /// Room for `most` arms is made beforehand and touched; later ones are made, but not recorded.
    probe(Service& service, duration spacing, std::size_t most, std::uint64_t seed)
        : service_{service},
          seed_{seed},
          seen_(most) {
        thread_ = std::thread{[this, spacing] { work(spacing); }};
    }
    probe(const probe&) = delete;
    probe& operator=(const probe&) = delete;
    ~probe() { stop(); }

    void stop() {
        enough_.store(true, std::memory_order_relaxed);
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    // Once stopped.
    [[nodiscard]] std::span<const probe_arm> seen() const noexcept { return {seen_.data(), recorded_}; }
    [[nodiscard]] std::uint64_t pairs() const noexcept { return pairs_; }
    [[nodiscard]] std::uint64_t good() const noexcept { return good_; }
    [[nodiscard]] double spacing_us() const noexcept { return spacing_us_; }

  private:
    void work(duration least) {
        prctl(PR_SET_TIMERSLACK, 1UL);
        typename Service::timer timer{service_};
        const auto pair = [&] {
            const bool armed = service_.arm(timer, probe_duration, no_callback);
            good_ += armed && service_.cancel(timer) ? 1 : 0;
            ++pairs_;
        };
        // At a third of what the service can do, so that a quiet one keeps up.
        constexpr int samples = 40;
        double each = std::numeric_limits<double>::max();
        for (int batch = 0; batch < 8; ++batch) { // the best one: others may have lost the processor
            const std::int64_t begin = punctual_clock::now();
            for (int i = 0; i < samples; ++i) {
                pair();
            }
            each = std::min(each, static_cast<double>(punctual_clock::now() - begin) / samples);
        }
        const double gap = std::max(static_cast<double>(least.count()), 3 * each);
        spacing_us_ = gap / 1e3;
        punctual_clock clock;
        harness::burst_times times{punctual_clock::now(), gap, 0, seed_};
        while (!enough_.load(std::memory_order_relaxed)) {
            const std::int64_t intended = times.next();
            bool armed = false;
            const auto c =
                call_at(clock, intended, [&] { armed = service_.arm(timer, probe_duration, no_callback); });
            good_ += armed && service_.cancel(timer) ? 1 : 0;
            ++pairs_;
            if (recorded_ < seen_.size()) {
                seen_[recorded_++] = {intended, static_cast<float>(c.from_intended_ns),
                                      static_cast<float>(c.alone_ns)};
            }
        }
    }

    Service& service_;
    std::uint64_t seed_;
    std::atomic<bool> enough_{false}; // set once by the owner; nothing is published through it
    // Of the probe's thread until it is joined.
    std::vector<probe_arm> seen_;
    std::size_t recorded_ = 0;
    std::uint64_t pairs_ = 0;
    std::uint64_t good_ = 0;
    double spacing_us_ = 0;
    std::thread thread_;
};

/// Lets time pass: in the service's loop, where there is one.
template <class Service>
void pass_until(Service& service, time_point t) {
    if constexpr (loop_service<Service>) {
        service.poll_until(t);
    } else {
        harness::sleep_until_ns(t.time_since_epoch().count());
    }
}

/// Arms of the probe in a visit: some visits take longer than their budget.
[[nodiscard]] inline std::size_t room_for(const herd_plan& plan, const herd_case& what) {
    return static_cast<std::size_t>((3 * what.budget + 1s) / plan.spacing);
}

/// One visit: a fresh service, waves until the budget is spent. `with_probe`: another thread may arm.
template <class Entry>
[[nodiscard]] herd_result run_herd(const herd_plan& plan, const herd_case& what, std::size_t timers,
                                   bool with_probe, std::uint64_t seed, ledger& books) {
    using service = typename Entry::service;
    herd_result result;
    const auto owner = Entry::make();
    service& s = *owner;
    const service_traits traits = s.traits();
    std::atomic<std::uint64_t> fired{0}; // raised by callbacks, which publish their member with it
    std::vector<herd_member> members(timers);
    for (herd_member& m : members) {
        m.fired = &fired;
    }
    if (what.slow > duration::zero()) {
        members[timers / 4].slow = what.slow;
    }
    timer_block<service> herd{s, timers};
    std::uint64_t armed_in_all = 0;
    std::uint64_t cancelled_in_all = 0;

    // What arming takes.
    const std::size_t sample = std::min<std::size_t>(timers, 500);
    time_point begin = steady_time::now();
    for (std::size_t i = 0; i < sample; ++i) {
        armed_in_all += s.arm(herd[i], probe_duration, no_callback) ? 1 : 0;
    }
    const double each_ns =
        static_cast<double>((steady_time::now() - begin).count()) / static_cast<double>(sample);
    for (std::size_t i = 0; i < sample; ++i) {
        cancelled_in_all += s.cancel(herd[i]) ? 1 : 0;
    }
    if (armed_in_all != sample || cancelled_in_all != sample) {
        result.wrong = "the service armed " + std::to_string(armed_in_all) + " and cancelled " +
                       std::to_string(cancelled_in_all) + " of " + std::to_string(sample) + " timers";
        return result;
    }
    duration arming{static_cast<duration::rep>(2 * each_ns * static_cast<double>(timers)) + 2'000'000};

    prctl(PR_SET_TIMERSLACK, 1UL);
    std::optional<probe<service>> other;
    if (with_probe) {
        other.emplace(s, plan.spacing, room_for(plan, what), seed);
    }
    std::vector<wave_times> waves;
    const time_point visit_end = steady_time::now() + what.budget;
    const auto more = [&] {
        return result.wrong.empty() && !harness::interrupted() &&
               (steady_time::now() < visit_end || (result.waves < plan.least_waves && result.too_late < 8));
    };
    // The first wave warms up and is not recorded.
    for (bool warm_up = true; more(); warm_up = false) {
        fired.store(0, std::memory_order_relaxed);
        begin = steady_time::now();
        const time_point deadline = begin + arming + plan.quiet;
        std::uint64_t armed = 0;
        for (std::size_t i = 0; i < timers; ++i) {
            herd_member& m = members[i];
            // A service made for few durations gets one, and so as many deadlines as there are clock readings.
            const time_point reading = steady_time::now();
            const duration d = traits.most_durations > 0 ? deadline - begin : deadline - reading;
            m.deadline = reading + d;
            m.started = {};
            armed += s.arm(herd[i], d, {&herd_member::run, &m}) ? 1 : 0;
        }
        const time_point all_armed = steady_time::now();
        armed_in_all += armed;
        if (armed != timers) {
            result.wrong =
                "the service armed " + std::to_string(armed) + " of " + std::to_string(timers) + " timers";
        }
        const time_point last_deadline = members.back().deadline;
        const time_point give_up =
            std::max(last_deadline, all_armed) + traits.latest + what.slow + plan.patience;
        time_point look = deadline;
        while (fired.load(std::memory_order_acquire) < armed && steady_time::now() < give_up &&
               !harness::interrupted()) {
            pass_until(s, look);
            look = std::max(look, steady_time::now()) + 1ms;
        }
        const std::uint64_t missing = armed - fired.load(std::memory_order_acquire);
        if (missing > 0) {
            // Whatever did not come is withdrawn, so that every timer is idle again.
            for (std::size_t i = 0; i < timers; ++i) {
                cancelled_in_all += s.cancel(herd[i]) ? 1 : 0;
            }
        }
        const bool in_time = all_armed < deadline - plan.settled;
        arming = std::max(arming / 2, 3 * (all_armed - begin) / 2 + duration{2ms});
        if (!in_time) {
            result.too_late += 1;
            arming *= 2;
        }
        if (warm_up || !in_time || harness::interrupted() || !result.wrong.empty()) {
            continue;
        }
        result.missing += missing;
        ++result.waves;
        time_point first = time_point::max();
        time_point last{};
        for (herd_member& m : members) {
            if (m.started == time_point{}) {
                continue; // never came
            }
            first = std::min(first, m.started);
            last = std::max(last, m.started);
            result.late_ms.push_back(
                std::chrono::duration<double, std::milli>(m.started - m.deadline).count());
        }
        if (first != time_point::max()) {
            result.lasts_ms.push_back(std::chrono::duration<double, std::milli>(last - first).count());
            result.spread_ms.push_back(
                std::chrono::duration<double, std::milli>(last_deadline - members.front().deadline).count());
            const time_point served = std::max(first - plan.margin, members.front().deadline);
            waves.push_back({all_armed + plan.settled,
                             std::min(members.front().deadline, served) - plan.margin, served, last});
        }
    }
    std::uint64_t pairs = 0;
    if (other) {
        other->stop();
        pairs = other->pairs();
        sort_out(result, other->seen(), waves);
        result.spacing_us = other->spacing_us();
        if (result.wrong.empty() && other->good() != pairs) {
            result.wrong = std::to_string(pairs - other->good()) + " of " + std::to_string(pairs) +
                           " pairs of the other thread did not return true twice";
        }
    }
    if (result.wrong.empty() && result.waves == 0 && !harness::interrupted()) {
        result.wrong = std::to_string(timers) + " timers could not be armed before they were due, in " +
                       std::to_string(result.too_late) + " tries";
    }
    if constexpr (!is_floor<Entry>) {
        catch_up(s);
        const counters quiet = s.counters();
        books.look(Entry::name, quiet);
        if (result.wrong.empty()) {
            result.wrong = wrong_work({}, quiet,
                                      {.armed = armed_in_all + pairs,
                                       .cancelled = cancelled_in_all + pairs,
                                       .fired = armed_in_all - cancelled_in_all});
        }
    }
    return result;
}

/// The floor: the probe over a service that keeps nothing, with no herd. The same division of time as in a wave.
[[nodiscard]] inline herd_result run_without_herd(const herd_plan& plan, const herd_case& what,
                                                  std::uint64_t seed) {
    herd_result result;
    floor_service s;
    prctl(PR_SET_TIMERSLACK, 1UL);
    probe<floor_service> other{s, plan.spacing, room_for(plan, what), seed};
    std::vector<wave_times> waves;
    const time_point end = steady_time::now() + what.budget;
    while (steady_time::now() < end && !harness::interrupted()) {
        const time_point begin = steady_time::now();
        const time_point turn = begin + plan.quiet;
        const time_point last = turn + plan.quiet / 5;
        harness::sleep_until_ns((last + plan.settled).time_since_epoch().count());
        waves.push_back({begin + plan.settled, turn - plan.margin, turn, last});
        ++result.waves;
    }
    other.stop();
    sort_out(result, other.seen(), waves);
    result.spacing_us = other.spacing_us();
    return result;
}

} // namespace timerbench::experiments
