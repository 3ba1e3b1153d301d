// Experiments arm_cancel and allocs: one timer of 1 s armed and cancelled, over and over, as in bench_arm_cancel's article case
// (the same loop: a service that the caller's loop drives is polled after every 64 pairs inside the timed region).
//
// wall: the caller, in the loop alone. process_cpu: the whole process, from the loop's begin until what the loop put off is done.
// Who puts work off could look cheap for as long as the queue holds: such systems come in a second regime too, bursts of 100 pairs
// each millisecond, of which only the bursts count; there process_cpu is the bursts' wall time plus the CPU of the other threads,
// because between two bursts the caller sleeps.
#pragma once

#include "experiments/accuracy_wave.hpp"
#include "experiments/arm_cancel_work.hpp"
#include "experiments/originals/common/program.hpp"
#include "experiments/originals/common/timing.hpp"
#include "harness/alloc_counter.hpp"

#include <array>
#include <memory>
#include <optional>
#include <string>

namespace timerbench::originals {

using experiments::catch_up;

inline constexpr std::array<std::size_t, 3> populations{0, 10'000, 1'000'000};
inline constexpr duration article_duration = std::chrono::seconds{1};
inline constexpr std::size_t fewest_pairs = 1'000;
inline constexpr double least_batch_ns = 2e6;
inline constexpr std::size_t pairs_per_burst = 100;
inline constexpr std::size_t bursts_per_sample = 25;

[[nodiscard]] inline std::string article_case(std::size_t population, bool paced) {
    json_object point;
    point.text("kind", "article").integer("population", static_cast<std::int64_t>(population));
    point.integer("duration_ms", article_duration / std::chrono::milliseconds{1});
    point.text("regime", paced ? "paced" : "saturating");
    if (paced) {
        point.integer("pairs_per_ms", pairs_per_burst);
    }
    return point.str();
}

/// Whether a caller that never pauses can get ahead of the service.
template <class Service>
[[nodiscard]] bool puts_off(const service_traits& traits) {
    return deferring_service<Service> || traits.cancelled_held_to_deadline;
}

/// The two rows of one regime.
struct cost_rows {
    row wall;
    row cpu;

    cost_rows(std::string_view name, const std::string& point)
        : wall{.service = std::string{name}, .case_point = point, .metric = "arm_cancel", .unit = "ns/op"},
          cpu{.service = std::string{name}, .case_point = point, .metric = "process_cpu", .unit = "ns/op"} {}

    void add(double wall_ns, double cpu_ns, double pairs) {
        wall.samples.push_back(wall_ns / pairs);
        cpu.samples.push_back(cpu_ns / pairs);
        wall.clock_ns.push_back(clock_cost_ns());
        cpu.clock_ns.push_back(wall.clock_ns.back());
    }
    void fail(const std::string& why) { wall.error = cpu.error = why; }
    void skip(const std::string& why) { wall.skipped = cpu.skipped = why; }
    void note(const std::string& text) { wall.note = cpu.note = text; }
    void print() const {
        print_line(line_of(wall));
        print_line(line_of(cpu));
    }
};

[[nodiscard]] inline std::string wrong_calls(std::uint64_t good, std::uint64_t expected) {
    return "wrong work: " + std::to_string(good) + " of " + std::to_string(expected) +
           " calls of arm and cancel did what they should";
}

template <class Service>
void sample_saturating(Service& service, typename Service::timer& timer, std::size_t samples,
                       cost_rows& rows) {
    std::uint64_t good = 0;
    const auto run = [&](std::size_t pairs) {
        return time_batch([&] { good = experiments::run_article(service, timer, article_duration, pairs); },
                          [&] { catch_up(service); });
    };
    const std::size_t pairs =
        batch_size(fewest_pairs, least_batch_ns, [&](std::size_t n) { return run(n).wall_ns; });
    std::optional<std::size_t> most_backlog;
    for (std::size_t i = 0; i < samples; ++i) {
        const batch_time took =
            time_batch([&] { good = experiments::run_article(service, timer, article_duration, pairs); },
                       [&] {
                           if (const auto queued = experiments::backlog_of(service)) {
                               most_backlog = std::max(most_backlog.value_or(0), *queued);
                           }
                           catch_up(service);
                       });
        if (good != 2 * pairs) {
            rows.fail(wrong_calls(good, 2 * pairs));
            return;
        }
        rows.add(took.wall_ns, took.cpu_ns, static_cast<double>(pairs));
    }
    if (most_backlog) {
        rows.note("work is put off: up to " + std::to_string(*most_backlog) + " entries queued after " +
                  std::to_string(pairs) + " pairs without a pause");
    }
}

template <class Service>
void sample_paced(Service& service, typename Service::timer& timer, std::size_t samples, cost_rows& rows) {
    constexpr std::size_t pairs = pairs_per_burst * bursts_per_sample;
    for (std::size_t i = 0; i < samples; ++i) {
        std::uint64_t good = 0;
        std::int64_t in_bursts = 0;
        const std::int64_t others = experiments::cpu_of_others_ns();
        time_point next = steady_time::now();
        for (std::size_t burst = 0; burst < bursts_per_sample; ++burst) {
            const std::int64_t begin = harness::steady_ns();
            good += experiments::run_article(service, timer, article_duration, pairs_per_burst);
            in_bursts += harness::steady_ns() - begin;
            next += std::chrono::milliseconds{1};
            experiments::sleep_until(next);
        }
        catch_up(service);
        if (good != 2 * pairs) {
            rows.fail(wrong_calls(good, 2 * pairs));
            return;
        }
        const auto rest = static_cast<double>(experiments::cpu_of_others_ns() - others);
        rows.add(static_cast<double>(in_bursts), static_cast<double>(in_bursts) + std::max(rest, 0.0),
                 static_cast<double>(pairs));
    }
    rows.note("timed in the bursts; process_cpu is the bursts plus the CPU of the other threads");
}

template <class System>
void measure_arm_cancel(const arguments& given, std::size_t size) {
    using service_type = typename System::service;
    cost_rows saturating{System::name, article_case(size, false)};
    const auto service = System::make();
    const service_traits traits = service->traits();
    if (traits.most_timers > 0 && size >= traits.most_timers) {
        saturating.skip("holds at most " + std::to_string(traits.most_timers) + " timers at a time here");
        saturating.print();
        return;
    }
    {
        experiments::population<service_type> others{*service, size, given.seed, traits.most_durations};
        catch_up(*service);
        typename service_type::timer timer{*service};
        const std::size_t samples = given.pick(5, 10);
        if (others.armed() != size) {
            saturating.fail("the service armed " + std::to_string(others.armed()) + " of " +
                            std::to_string(size) + " others");
        } else {
            sample_saturating(*service, timer, samples, saturating);
        }
        saturating.print();
        if (puts_off<service_type>(traits) && saturating.wall.error.empty()) {
            cost_rows paced{System::name, article_case(size, true)};
            sample_paced(*service, timer, samples, paced);
            paced.print();
        }
    }
    service->stop();
}

template <class System>
void add_arm_cancel(std::vector<cell>& cells, const arguments& given) {
    for (const std::size_t size : populations) {
        cells.push_back([&given, size] { measure_arm_cancel<System>(given, size); });
    }
}

/// Allocations of the whole process over a fixed number of pairs, after as many to warm up.
template <class System>
void measure_allocs(const arguments& given) {
    const std::string point = json_object{}
                                  .text("kind", "article")
                                  .integer("duration_ms", article_duration / std::chrono::milliseconds{1})
                                  .str();
    row count{
        .service = std::string{System::name}, .case_point = point, .metric = "allocations", .unit = "1/op"};
    row bytes{.service = std::string{System::name}, .case_point = point, .metric = "bytes", .unit = "B/op"};
    if (const auto counting = harness::alloc_counting(); !counting.available) {
        count.skipped = bytes.skipped = counting.reason;
    } else {
        const std::size_t pairs = given.pick(10'000, 100'000);
        const auto service = System::make();
        {
            typename System::service::timer timer{*service};
            std::uint64_t good = experiments::run_article(*service, timer, article_duration, pairs);
            catch_up(*service);
            harness::alloc_counts seen;
            {
                const harness::alloc_window window;
                good += experiments::run_article(*service, timer, article_duration, pairs);
                catch_up(*service);
                seen = window.counts();
            }
            if (good != 4 * pairs) {
                count.error = bytes.error = wrong_calls(good, 4 * pairs);
            }
            count.samples = {static_cast<double>(seen.allocations) / static_cast<double>(pairs)};
            bytes.samples = {static_cast<double>(seen.requested_bytes) / static_cast<double>(pairs)};
        }
        service->stop();
    }
    print_line(line_of(count));
    print_line(line_of(bytes));
}

template <class System>
void add_allocs(std::vector<cell>& cells, const arguments& given) {
    cells.push_back([&given] { measure_allocs<System>(given); });
}

} // namespace timerbench::originals
