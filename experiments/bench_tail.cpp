// How long does a single arm or cancel take in the worst of a hundred, of a thousand, of ten thousand cases?
//
// Each thread keeps a window of outstanding timers of 60 s (none fires) and works open-loop: bursts of pairs with random gaps, cancel
// the oldest, arm it anew, each call with an intended time of its own a few microseconds after the one before. A call is measured
// twice: from its intended time to its end, so that a call that blocks or a thread that loses its processor is charged to
// all calls that it held up; and alone, from its own beginning, which hides that. Between bursts, 60 % of the time, the thread
// sleeps (in its service's loop, where there is one), so that drivers find a processor. The gaps make the phases uniform over any
// tick, and the bursts of several threads meet each other by chance.
//
// Contention is what the threads of one case have in common: one service where any thread may arm, else one loop a thread, which is
// the design's own answer. A service that cannot keep to the rate gets a tenth or a hundredth of it, and its row says so.
//
// The first milliseconds of a run are not recorded. Each figure contains one clock reading, and from the intended time another
// half of one: the row floor/no_timer, whose calls do nothing, shows what both cost, and what the machine takes from everybody.
// Runs of all services and cases come in random order, one service alive at a time.
#include "experiments/itinerary.hpp"
#include "experiments/latency_rows.hpp"
#include "experiments/service_cells.hpp"
#include "experiments/tail_pace.hpp"
#include "harness/environment.hpp"
#include "harness/interrupt.hpp"
#include "harness/open_loop.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <sys/prctl.h>
#include <thread>

namespace timerbench::experiments {
namespace {

using harness::json;
using harness::punctual_clock;

constexpr duration armed_for = std::chrono::seconds{60};
constexpr std::int64_t warm_up_ns = 20'000'000;
constexpr std::int64_t phase_width_ns = 10'000'000;

struct plan {
    std::vector<std::uint64_t> threads;
    std::uint64_t rate = 80'000; ///< pairs a second of each thread
    std::uint64_t window = 256;  ///< outstanding timers of each thread
    std::uint64_t run_ms = 0;
    std::uint64_t rounds = 0;
    std::uint64_t keep = 1'000;

    [[nodiscard]] json point(std::uint64_t n) const {
        return {{"threads", n},
                {"pairs_a_second", rate},
                {"window", window},
                {"more_threads_than_cores", n > harness::usable_cpus()}};
    }
};

/// Nanoseconds in 32 bits; what is longer than four seconds counts as that.
using series = std::vector<std::uint32_t>;
[[nodiscard]] std::uint32_t in_32_bits(double ns) {
    return static_cast<std::uint32_t>(std::min(ns, 4.29e9));
}

struct latencies {
    series from_intended;
    series alone;

    void add(const harness::timed_call& c) {
        from_intended.push_back(in_32_bits(c.from_intended_ns));
        alone.push_back(in_32_bits(c.alone_ns));
    }
    void append(const latencies& other) {
        from_intended.insert(from_intended.end(), other.from_intended.begin(), other.from_intended.end());
        alone.insert(alone.end(), other.alone.begin(), other.alone.end());
    }
};

struct run_result {
    latencies arm;
    latencies cancel;
    std::uint64_t rate = 0;           ///< that the service kept to
    std::uint64_t window = 0;         ///< timers of each thread
    std::vector<std::int64_t> bursts; ///< recorded ones' intended times
    std::string wrong;
};

/// What one thread does and sees. Filled by its thread, read after the join.
struct part {
    latencies arm;
    latencies cancel;
    std::vector<std::int64_t> bursts;
    std::uint64_t filled = 0;
    std::uint64_t planned = 0; ///< pairs
    std::uint64_t made = 0;    ///< pairs
    std::uint64_t good = 0;    ///< calls that returned true
};

/// Sleeps, in the service's loop where there is one.
template <class Service>
void idle_until(Service& service, std::int64_t t_ns) {
    if constexpr (loop_service<Service>) {
        while (punctual_clock::now() < t_ns) {
            service.poll_until(time_point{duration{t_ns}});
        }
    } else if (punctual_clock::now() < t_ns) {
        harness::sleep_until_ns(t_ns);
    }
}

/// From `start_ns` on, `run_ns` long after the warm-up.
template <class Service>
void work(part& me, Service& service, timer_block<Service>& window, const pace& p, std::int64_t start_ns,
          std::int64_t run_ns, std::uint64_t seed) {
    punctual_clock clock;
    harness::burst_times times{start_ns, p.gap_ns, p.busy_ns(), seed};
    const std::int64_t end_ns = start_ns + warm_up_ns + run_ns;
    const std::int64_t give_up_ns = end_ns + std::max<std::int64_t>(run_ns / 4, 50'000'000);
    std::size_t oldest = 0;
    for (std::int64_t burst = times.next(); burst < end_ns; burst = times.next()) {
        me.planned += p.pairs;
        if (clock.now() > give_up_ns || harness::interrupted()) {
            continue;
        }
        const bool recorded = burst >= start_ns + warm_up_ns;
        if (recorded) {
            me.bursts.push_back(burst);
        }
        idle_until(service, burst - punctual_clock::spin_ns);
        double at = static_cast<double>(burst - start_ns);
        const auto next = [&] {
            const auto intended = start_ns + static_cast<std::int64_t>(at);
            at += p.spacing_ns;
            return intended;
        };
        for (std::uint64_t i = 0; i < p.pairs; ++i) {
            auto& timer = window[oldest];
            oldest = oldest + 1 == window.size() ? 0 : oldest + 1;
            const auto cancelled = call_at(clock, next(), [&] { me.good += service.cancel(timer) ? 1 : 0; });
            const auto armed = call_at(
                clock, next(), [&] { me.good += service.arm(timer, armed_for, no_callback) ? 1 : 0; });
            if (recorded) {
                me.cancel.add(cancelled);
                me.arm.add(armed);
            }
        }
        me.made += p.pairs;
        poll_once(service);
    }
}

/// One run at one rate. `kept_up` false: the service was too slow for it, and nothing else counts.
template <class Entry>
run_result run_at(const plan& what, std::uint64_t threads, std::uint64_t rate, std::uint64_t window,
                  std::uint64_t seed, ledger& books, bool& kept_up) {
    using service = typename Entry::service;
    const pace p = pace_of(rate);
    service_team<Entry> team{threads};
    std::deque<part> parts(threads);
    std::deque<timer_block<service>> windows;
    for (std::uint64_t t = 0; t < threads; ++t) {
        windows.emplace_back(team.of(t), window);
    }
    // Threads count themselves ready once their window is full; the main thread then publishes the start.
    std::atomic<std::uint64_t> ready{0};
    std::atomic<std::int64_t> start_ns{0};
    std::vector<std::thread> workers;
    for (std::uint64_t t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
            prctl(PR_SET_TIMERSLACK, 1UL);
            part& me = parts[t];
            service& mine = team.of(t);
            for (std::uint64_t i = 0; i < window; ++i) {
                me.filled += mine.arm(windows[t][i], armed_for, no_callback) ? 1 : 0;
            }
            poll_once(mine);
            const auto expected =
                static_cast<std::size_t>(static_cast<double>(rate * what.run_ms) / 1e3 * 1.1) + 1'000;
            for (latencies* l : {&me.arm, &me.cancel}) {
                for (series* values : {&l->from_intended, &l->alone}) {
                    values->resize(expected); // touched now, not between two calls
                    values->clear();
                }
            }
            ready.fetch_add(1, std::memory_order_release);
            std::int64_t at = 0;
            while ((at = start_ns.load(std::memory_order_acquire)) == 0) {
                idle_until(mine, punctual_clock::now() + 200'000);
            }
            work(me, mine, windows[t], p, at, static_cast<std::int64_t>(what.run_ms) * 1'000'000,
                 seed * 1'000 + t);
        });
    }
    while (ready.load(std::memory_order_acquire) < threads) {
        harness::sleep_until_ns(punctual_clock::now() + 200'000);
    }
    start_ns.store(punctual_clock::now() + 2'000'000, std::memory_order_release);
    for (auto& w : workers) {
        w.join();
    }

    run_result result;
    result.rate = rate;
    result.window = window;
    std::uint64_t planned = 0;
    std::uint64_t made = 0;
    std::uint64_t good = 0;
    std::uint64_t filled = 0;
    for (const part& one : parts) {
        planned += one.planned;
        made += one.made;
        good += one.good;
        filled += one.filled;
        result.arm.append(one.arm);
        result.cancel.append(one.cancel);
        result.bursts.insert(result.bursts.end(), one.bursts.begin(), one.bursts.end());
    }
    kept_up = made == planned || harness::interrupted();
    if constexpr (!is_floor<Entry>) {
        for (std::size_t i = 0; i < team.size(); ++i) {
            catch_up(team[i]);
        }
        const counters quiet = team.counters();
        books.look(Entry::name, quiet);
        if (filled != threads * window) {
            result.wrong = "the service armed " + std::to_string(filled) + " of " +
                           std::to_string(threads * window) + " timers";
        } else if (good != 2 * made) {
            result.wrong = std::to_string(2 * made - good) + " of " + std::to_string(2 * made) +
                           " calls did not return true";
        } else {
            result.wrong = wrong_work({}, quiet, {.armed = filled + made, .cancelled = made});
        }
    }
    return result;
}

template <class Entry>
run_result run_case(const plan& what, std::uint64_t threads, const service_traits& traits, std::uint64_t seed,
                    ledger& books) {
    std::uint64_t window = what.window;
    if (traits.most_timers > 0) {
        // An idle timer that was just cancelled may not be free at once.
        window = std::min<std::uint64_t>(window, traits.most_timers / (2 * threads));
    }
    for (std::uint64_t rate = what.rate; rate > 0; rate /= 10) {
        bool kept_up = false;
        run_result result = run_at<Entry>(what, threads, rate, window, seed, books, kept_up);
        if (kept_up || !result.wrong.empty()) {
            return result;
        }
        if (rate * 100 <= what.rate) {
            break;
        }
    }
    run_result none;
    none.wrong = "cannot keep to a hundredth of " + std::to_string(what.rate) + " pairs a second";
    return none;
}

// ---- report ----

struct seen_case {
    latencies arm;
    latencies cancel;
    std::uint64_t rate = 0; // the lowest of the rounds
    std::uint64_t window = 0;
    std::string wrong;
    std::string skipped;

    void add(run_result&& r) {
        if (rate != 0 && r.rate != rate) {
            // Rounds at different rates are not put together: the lower one stands.
            if (r.rate > rate) {
                return;
            }
            arm = {};
            cancel = {};
        }
        rate = r.rate;
        window = r.window;
        arm.append(r.arm);
        cancel.append(r.cancel);
        if (wrong.empty()) {
            wrong = std::move(r.wrong);
        }
    }
};

[[nodiscard]] harness::tail tail_of(const series& s) {
    return harness::tail{{s.begin(), s.end()}};
}

constexpr double shown_percents[] = {50, 90, 99, 99.9, 99.99, 100};

void print_table(harness::report& out, json& exact, const plan& what, std::uint64_t threads,
                 const std::string& call, const std::vector<std::string>& names,
                 std::map<std::pair<std::string, std::uint64_t>, seen_case>& seen) {
    const bool crowded = threads > harness::usable_cpus();
    harness::text_table table{
        call + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") +
            (crowded ? " (more than cores)" : "") + ": ns from the intended time, and of the call alone",
        {{"service", "", harness::align::left},
         {"intended", "p50"},
         {"", "p90"},
         {"", "p99"},
         {"", "p99.9"},
         {"", "p99.99"},
         {"", "max"},
         {"alone", "p50"},
         {"", "p99"},
         {"", "p99.9"},
         {"", "max"}}};
    for (const std::string& name : names) {
        const seen_case& s = seen[{name, threads}];
        const latencies& l = call == "arm" ? s.arm : s.cancel;
        const harness::tail intended = tail_of(l.from_intended);
        const harness::tail alone = tail_of(l.alone);
        latency_row row{name, what.point(threads), call + "_from_intended", "ns", s.skipped, s.wrong, {}};
        harness::table_cell label = harness::text(name);
        if (s.rate != 0 && s.rate != what.rate && s.wrong.empty()) {
            row.note = "at " + std::to_string(s.rate) + " pairs a second of each thread: too slow for " +
                       std::to_string(what.rate);
        }
        if (s.window != 0 && s.window != what.window && s.wrong.empty()) {
            row.note += (row.note.empty() ? "" : "; ") + std::string{"a window of "} +
                        std::to_string(s.window) + " timers a thread: the service can have no more";
        }
        if (!row.note.empty()) {
            label.notes.push_back(row.note);
        }
        add_latencies(out, exact, row, intended, what.keep, 1);
        row.metric = call + "_alone";
        add_latencies(out, exact, row, alone, what.keep, 1);
        std::vector<harness::table_cell> cells{label};
        if (!s.skipped.empty() || !s.wrong.empty()) {
            cells.push_back(harness::absent(s.skipped.empty() ? "error: " + s.wrong : s.skipped));
        } else {
            for (const double percent : shown_percents) {
                cells.push_back(intended.cell(percent, 0));
            }
            for (const double percent : {50.0, 99.0, 99.9, 100.0}) {
                cells.push_back(alone.cell(percent, 0));
            }
        }
        table.add_row(std::move(cells));
    }
    table.add_note(std::string{floor_entry::name} +
                   ": calls that do nothing: the clock readings, and what the machine takes.");
    out.print(table);
}

int run(int argc, char** argv) {
    harness::options opts;
    plan what;
    harness::options_parser parser(
        "bench_tail", "How long does an arm or a cancel take in the worst of many cases?", service_names());
    parser.add_numbers("--threads", what.threads, 1, 64,
                       "numbers of threads; default 1,2,4, with --quick 1,2");
    parser.add_number("--rate", what.rate, 100, 1'000'000,
                      "pairs of cancel and arm a second, of each thread");
    parser.add_number("--window", what.window, 1, 100'000, "outstanding timers of each thread");
    parser.add_number("--run-ms", what.run_ms, 1, 60'000, "length of a run; left out: 650");
    parser.add_number("--rounds", what.rounds, 1, 1'000, "runs of each case; left out: 3, with --quick 1");
    parser.add_number("--keep", what.keep, 2, 1'000'000,
                      "values of each row in the JSON, evenly spaced order statistics");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    if (what.threads.empty()) {
        what.threads = opts.pick<std::vector<std::uint64_t>>({1, 2, 4}, {1, 2});
    }
    std::sort(what.threads.begin(), what.threads.end());
    what.threads.erase(std::unique(what.threads.begin(), what.threads.end()), what.threads.end());
    what.run_ms = what.run_ms != 0 ? what.run_ms : 650;
    what.rounds = what.rounds != 0 ? what.rounds : opts.pick(3U, 1U);

    const harness::interrupt_guard interrupts;
    harness::report out("tail", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    out.parameter("threads", what.threads);
    out.parameter("pairs_a_second_and_thread", what.rate);
    out.parameter("window", what.window);
    out.parameter("run_ms", what.run_ms);
    out.parameter("rounds", what.rounds);
    out.parameter("spacing_ns", pace_of(what.rate).spacing_ns);
    out.parameter("pairs_in_a_burst", pace_of(what.rate).pairs);
    describe_services(out);

    ledger books;
    std::map<std::pair<std::string, std::uint64_t>, seen_case> seen;
    std::vector<std::int64_t> bursts;
    std::vector<std::string> names;
    itinerary runs;
    const auto add = [&]<class Entry>() {
        const std::string name{Entry::name};
        names.push_back(name);
        const service_traits traits = Entry::make()->traits();
        for (const std::uint64_t n : what.threads) {
            if (traits.most_timers > 0 && traits.most_timers < 2 * n) {
                seen[{name, n}].skipped = std::to_string(n) + " threads need " + std::to_string(2 * n) +
                                          " timers, and the service can have " +
                                          std::to_string(traits.most_timers);
                continue;
            }
            for (std::uint64_t round = 0; round < what.rounds; ++round) {
                runs.add(name + ", " + std::to_string(n) + " threads", [&, name, traits, n, round] {
                    run_result r = run_case<Entry>(what, n, traits, opts.seed + round, books);
                    if (is_floor<Entry>) {
                        bursts.insert(bursts.end(), r.bursts.begin(), r.bursts.end());
                    }
                    seen[{name, n}].add(std::move(r));
                });
            }
        }
    };
    add.operator()<floor_entry>();
    for_each_chosen(opts, add);
    runs.run(opts.seed);

    json exact = json::array();
    for (const std::uint64_t n : what.threads) {
        for (const char* call : {"arm", "cancel"}) {
            print_table(out, exact, what, n, call, names, seen);
        }
    }
    out.parameter("latency", std::move(exact));
    out.print("From the intended time: a call that blocks, or a thread that loses its processor, is charged "
              "to every call that was to be "
              "made meanwhile.\nThe call alone: from its own beginning. Services that a loop drives have one "
              "loop for each thread.");
    check_phases(out, bursts, phase_width_ns);
    books.report_to(out);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
