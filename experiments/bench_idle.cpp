// What does a timer service cost while nothing is due?
//
// A window of real time in which no timer fires: how often did a thread of the service wake up, and how much CPU did it use, per
// second? What a service that ticks for nothing costs a battery, a container's CPU share, and every other process. Cases:
//
// none      nothing armed (any more: one timer has fired before, so that a driver that is started late is there),
// one       one timer, 24 h away,
// many      10 000 timers, spread over 2 min to 24 h, as many per factor of two: deadlines in minutes and in hours.
//
// A wake-up is counted when the thread goes back to sleep: the kernel's voluntary context switches of all threads but the
// calling one, ended ones included, over a window of at least six ticks of the service. The calling thread sleeps. For a service that the
// caller's loop drives it polls, asking for one wait a second: those waits are not counted, any wait that the service breaks off
// is, and the CPU is the whole process's. The row floor/wait shows what the asked-for waits cost alone.
//
// Before the window, the service gets two ticks (20 to 250 ms) to take up what was armed. Threads are those of the process
// but the calling one. The work is verified by the counters around the window: nothing may fire, all must be pending. One service is
// alive at a time, the cases come in random order.
#include "experiments/fire_plan.hpp"
#include "experiments/idle_window.hpp"
#include "experiments/service_cells.hpp"
#include "experiments/stage.hpp"
#include "harness/environment.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/process_status.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"

#include <array>

namespace timerbench::experiments {
namespace {

using harness::json;
using harness::visit;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr duration low = std::chrono::minutes{2};
constexpr duration high = std::chrono::hours{24};
constexpr duration slice = seconds{1}; // the longest wait that a loop is asked for
constexpr duration first_after = milliseconds{1};
constexpr std::size_t poll_every = 64;
constexpr const char* floor_name = "floor/wait";

const std::vector<std::string> all_metrics{"wakeups", "cpu", "threads"};

struct plan {
    duration window{};
    int ticks = 0;
    std::uint64_t many = 10'000;
};

enum class population_kind { none, one, many };
constexpr std::array all_kinds{population_kind::none, population_kind::one, population_kind::many};
[[nodiscard]] const char* name_of(population_kind k) {
    return k == population_kind::none ? "none" : k == population_kind::one ? "one" : "many";
}

[[nodiscard]] json point_of(population_kind k, std::size_t timers, duration window) {
    return {{"kind", name_of(k)}, {"timers", timers}, {"window_ms", window / milliseconds{1}}};
}

[[nodiscard]] idle_reading read_now() {
    idle_reading r;
    r.sleeps = harness::read_sleep_counts();
    r.caller_cpu_ns = read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    r.process_cpu_ns = read_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    r.wall_ns = read_clock_ns(CLOCK_MONOTONIC);
    return r;
}

/// Waits until `end`, in waits of at most a second; `wait(until)` must return at that time or before. Returns how many times it
/// was to sleep until the time that was asked for.
template <class Wait>
[[nodiscard]] std::uint64_t wait_in_slices(time_point end, Wait&& wait) {
    std::uint64_t waits = 0;
    while (steady_time::now() < end && !harness::interrupted()) {
        const time_point until = std::min(end, steady_time::now() + slice);
        ++waits;
        while (steady_time::now() < until && !harness::interrupted()) {
            wait(until);
        }
    }
    return waits;
}

void sleep_once(time_point until) noexcept {
    const auto ns = until.time_since_epoch().count();
    const timespec at{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

void record(visit& v, const idle_rates& rates, std::optional<std::uint64_t> threads) {
    v.value("wakeups", "1/s", rates.wakeups_a_second);
    v.value("cpu", "us/s", rates.cpu_us_a_second);
    if (threads) {
        v.value("threads", "1", static_cast<double>(*threads - 1));
    } else {
        v.skip_metric("threads", "/proc/self/status cannot be read");
    }
}

void run_floor(visit& v, duration window) {
    // Once before, so that the code has been touched.
    static_cast<void>(wait_in_slices(steady_time::now() + milliseconds{5}, sleep_once));
    const idle_reading begin = read_now();
    const std::uint64_t waits = wait_in_slices(steady_time::now() + window, sleep_once);
    if (!harness::interrupted()) {
        record(v, rates_between(begin, read_now(), true, waits), harness::read_thread_count());
    }
}

template <class Entry>
void run_visit(visit& v, std::size_t n, duration window) {
    using on_steady = stage<Entry, false>;
    using service_type = typename on_steady::service;
    on_steady where;
    service_type& service = where.subject();
    const service_traits traits = service.traits();
    fired_count fired;
    timer_block<service_type> timers{service, n + 1};
    std::uint64_t good = service.arm(timers[n], first_after, fired.counting(traits)) ? 1 : 0;
    const time_point due = steady_time::now() + first_after + traits.latest;
    for (time_point t = due; fired.now() == 0 && t < due + seconds{20} && !harness::interrupted();
         t += milliseconds{10}) {
        where.pass_until(t);
    }
    const std::vector<duration> durations =
        far_out(n, low, high, v.seed(), traits.most_durations > 0 ? traits.most_durations / 2 : 0);
    for (std::size_t i = 0; i < n; ++i) {
        good += service.arm(timers[i], durations[i], no_callback) ? 1 : 0;
        if (i % poll_every == poll_every - 1) {
            poll_once(service);
        }
    }
    where.settle();
    where.pass_until(steady_time::now() +
                     std::clamp<duration>(2 * traits.resolution, milliseconds{20}, milliseconds{250}));
    const counters before = service.counters();
    const auto threads = harness::read_thread_count();

    const idle_reading begin = read_now();
    const time_point end = steady_time::now() + window;
    std::uint64_t waits = 0;
    if constexpr (loop_service<service_type>) {
        waits = wait_in_slices(end, [&](time_point until) { service.poll_until(until); });
    } else {
        sleep_through(end);
    }
    const idle_reading close = read_now();
    if (harness::interrupted()) {
        return;
    }
    const counters after = service.counters();
    if (good != n + 1) {
        return v.fail("the service armed " + std::to_string(good) + " of " + std::to_string(n + 1) +
                      " timers");
    }
    if (after.fired != 1 || fired.now() != 1 || after.pending != n || before.fired != 1 ||
        before.pending != n) {
        return v.fail("wrong work: " + to_string(before) + " before the window and " + to_string(after) +
                      " after it; expected fired 1 and pending " + std::to_string(n));
    }
    record(v, rates_between(begin, close, traits.loop_driven(), waits), threads);
    v.check("armed = cancelled + fired + dropped + pending", after.balanced(), to_string(after));
}

void print_table(harness::report& out, const plan& p, const std::vector<std::string>& names,
                 const std::map<std::string, std::vector<json>>& points,
                 const std::map<std::string, std::string>& notes) {
    harness::text_table table{"While nothing is due: wake-ups and CPU of the service, per second",
                              {{"service", "", harness::align::left},
                               {"nothing armed", "wake-ups"},
                               {"", "CPU us"},
                               {"one", "wake-ups"},
                               {"", "CPU us"},
                               {std::to_string(p.many), "wake-ups"},
                               {"", "CPU us"},
                               {"", "threads"}}};
    for (const std::string& name : names) {
        harness::table_cell head = harness::text(name);
        if (const auto note = notes.find(name); note != notes.end() && !note->second.empty()) {
            head.notes.push_back(note->second);
        }
        std::vector<harness::table_cell> cells{head};
        const auto add = [&](const json& point, const char* metric) {
            cells.push_back(harness::figure(out.find(name, point, metric), harness::statistic::p50,
                                            std::string_view{metric} == "threads" ? 0 : 1, out.opts().seed));
        };
        for (const json& point : points.at(name)) {
            add(point, "wakeups");
            add(point, "cpu");
        }
        if (name != floor_name) {
            add(points.at(name).back(), "threads");
        }
        table.add_row(std::move(cells));
    }
    table.add_note("one: 24 h away. " + std::to_string(p.many) +
                   ": spread over 2 min to 24 h. None of them fires in the window of " +
                   std::to_string(p.window / milliseconds{1}) + " ms (more where a tick is long).");
    table.add_note("A loop of the caller's is asked for one wait a second; " + std::string{floor_name} +
                   " is what those cost alone. threads: the service's own.");
    out.print(table);
}

int run(int argc, char** argv) {
    harness::options opts;
    plan p;
    std::uint64_t window_ms = 0;
    std::uint64_t rounds = 0;
    harness::options_parser parser("bench_idle", "What does a timer service cost while nothing is due?",
                                   service_names());
    parser.add_number(
        "--window-ms", window_ms, 1, 600'000,
        "length of a window at least; left out: 2000, with --quick 400; longer for services with long "
        "ticks");
    parser.add_number("--timers", p.many, 2, 1'000'000, "timers of the last case");
    parser.add_number("--rounds", rounds, 1, 100, "windows of each case; left out: 2, with --quick 1");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    p.window = milliseconds{window_ms != 0 ? window_ms : opts.pick(2'000U, 400U)};
    p.ticks = opts.pick(20, 4);

    const harness::interrupt_guard interrupts;
    harness::report out("idle", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);

    std::vector<harness::cell> cells;
    std::vector<std::string> names{floor_name};
    std::map<std::string, std::vector<json>> points;
    std::map<std::string, std::string> notes;
    const json floor_point{{"kind", "floor"}, {"window_ms", p.window / milliseconds{1}}};
    points[floor_name] = {floor_point};
    cells.push_back({floor_name, floor_point, [&p](visit& v) { run_floor(v, p.window); }, true, all_metrics});
    for_each_chosen(opts, [&]<class Entry>() {
        const std::string name{Entry::name};
        const service_traits traits = Entry::make()->traits();
        const bounded_timers many = within_limit(traits, p.many);
        const duration window = idle_window(p.window, traits.resolution, p.ticks);
        names.push_back(name);
        notes[name] = many.note;
        if (traits.most_durations > 0) {
            notes[name] += (many.note.empty() ? "" : "; ") + std::to_string(traits.most_durations / 2) +
                           " different durations: made for at most " + std::to_string(traits.most_durations);
        }
        for (const population_kind k : all_kinds) {
            const std::size_t n = k == population_kind::none ? 0 : k == population_kind::one ? 1 : many.count;
            points[name].push_back(point_of(k, n, window));
            cells.push_back({name, points[name].back(),
                             [n, window](visit& v) { run_visit<Entry>(v, n, window); }, false, all_metrics});
        }
    });
    // A service's own warm-up stands in its visits.
    harness::sampler samples({.seed = opts.seed, .warm_up_rounds = 0});
    samples.run(cells, static_cast<std::uint32_t>(rounds != 0 ? rounds : opts.pick(2U, 1U)));
    out.parameter("window_ms", p.window / milliseconds{1});
    out.parameter("ticks_in_a_window", p.ticks);
    out.parameter("timers", p.many);
    out.parameter("sampler", samples.parameters());
    out.add(samples);
    print_table(out, p, names, points, notes);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
