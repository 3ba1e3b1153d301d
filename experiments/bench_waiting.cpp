// What does it cost to wait with a bound?
//
// outstanding  1, 100, 10 000 waits at a time: CPU and memory of a wait, wake-up latency, overshoot of those that time out. A thread for
//              each that waits on a condition variable, a future, a futex with a spin before the park; a thread that is made for each
//              wait; a timer service with one worker that resumes what has waited (waiting_cells.hpp). Each in a process of its own.
// handoff      one wait, notified 1 to 100 us after it began: what a spin before the park gains and costs (waiting_handoff.hpp)
// poked        one wait that is woken for nothing, thousands of times a second: it must last as long as it was asked to
// series       N waits one after the other, each with its own timeout, against N under one deadline (waiting_series.hpp)
//
// What cannot be had is no failure: a cell for which the system gives too few threads says which one it refused and why, and a service
// that only its loop's thread may arm, or that holds fewer timers, says that.
#include "experiments/latency_rows.hpp"
#include "experiments/service_cells.hpp"
#include "experiments/waiting_cells.hpp"
#include "experiments/waiting_handoff.hpp"
#include "experiments/waiting_series.hpp"
#include "harness/environment.hpp"
#include "harness/forked.hpp"
#include "harness/interrupt.hpp"
#include "harness/open_loop.hpp"
#include "harness/options.hpp"
#include "harness/progress.hpp"
#include "harness/report.hpp"

#include <array>
#include <functional>
#include <map>
#include <unistd.h>

namespace timerbench::experiments {
namespace {

using harness::json;

constexpr auto child_limit = std::chrono::minutes{2};
constexpr duration poked_for = 30ms;
constexpr duration poked_slack = 1s;
constexpr std::array handoff_delays{1us, 5us, 25us, 100us};

/// Calls `f.template operator()<Way>(name, fresh)` for each way in which threads wait.
template <class F>
void for_each_way(F&& f) {
    f.template operator()<condition_wait>("condition_variable", false);
    f.template operator()<future_wait>("future", false);
    f.template operator()<futex_wait<0>>("futex/spin_0us", false);
    f.template operator()<futex_wait<1>>("futex/spin_1us", false);
    f.template operator()<futex_wait<10>>("futex/spin_10us", false);
    f.template operator()<futex_wait<50>>("futex/spin_50us", false);
    f.template operator()<condition_wait>("thread_per_wait", true);
}

template <class Way>
inline constexpr bool is_middle_spin =
    std::is_same_v<Way, futex_wait<1>> || std::is_same_v<Way, futex_wait<10>>;
inline constexpr std::size_t quick_threads = 1'000;

[[nodiscard]] waiting_plan plan_for(std::size_t waits, bool quick, std::size_t most_threads) {
    waiting_plan p;
    p.waits = waits;
    p.most_threads = most_threads;
    p.notified = quick ? 100 : 1'000;
    p.timed_out = quick ? 6 : 200;
    p.between = quick ? 100us : 200us;
    p.idle = quick ? 20ms : 300ms;
    p.settle = waits < 100 ? 200us : waits < 2'000 ? 2ms : 50ms;
    p.shortest = waits < 2'000 ? 5ms : 20ms;
    p.spread = waits == 1 ? duration::zero() : duration{waits < 2'000 ? 20ms : quick ? 100ms : 400ms};
    return p;
}

/// Runs it in a process of its own. What it returns must be read as: {"skipped"} or its own text.
[[nodiscard]] json in_child(harness::function_ref<json()> body, std::string& error) {
    const auto guarded = [&body]() -> std::string {
        try {
            return body().dump();
        } catch (const cannot_measure& problem) {
            return json{{"skipped", problem.why}}.dump();
        } catch (const std::bad_alloc&) {
            return json{{"skipped", "not enough memory"}}.dump();
        }
    };
    const harness::forked_result result = harness::run_in_child(guarded, child_limit);
    error = result.error;
    return error.empty() ? json::parse(result.output) : json::object();
}

struct outstanding_cell {
    std::string name;
    std::size_t waits = 0;
    std::string skipped;
    std::string error;
    std::string note;
    double allowed_early_ms = 0;
    bool loses = false;
    std::function<json()> measure; // in a child
    waiting_figures figures;
    harness::tail wake_up, overshoot;

    [[nodiscard]] json point() const { return {{"kind", "outstanding"}, {"waits", waits}}; }
    void run() {
        const json read = in_child([this] { return measure(); }, error);
        if (!error.empty()) {
            return;
        }
        if (read.contains("skipped")) {
            skipped = read.at("skipped").get<std::string>();
            return;
        }
        figures = waiting_figures::from_json(read);
        error = figures.wrong;
        wake_up = harness::tail{std::move(figures.wake_up_us)};
        overshoot = harness::tail{std::move(figures.overshoot_ms)};
    }
};

struct handoff_cell {
    std::string name;
    duration delay{};
    std::string skipped;
    std::string error;
    std::function<json()> measure;
    std::uint64_t late = 0;
    harness::tail wake_up, cpu;

    [[nodiscard]] json point() const { return {{"kind", "handoff"}, {"delay_us", delay / 1us}}; }
    void run() {
        const json read = in_child([this] { return measure(); }, error);
        if (!error.empty()) {
            return;
        }
        if (read.contains("skipped")) {
            skipped = read.at("skipped").get<std::string>();
            return;
        }
        error = read.at("wrong").get<std::string>();
        late = read.at("late").get<std::uint64_t>();
        wake_up = harness::tail{read.at("wake_up_us").get<std::vector<double>>()};
        cpu = harness::tail{read.at("cpu_us").get<std::vector<double>>()};
    }
};

class waiting_report {
  public:
    waiting_report(harness::report& out, std::uint64_t keep) : out_{out}, keep_{keep} {}

    void outstanding(const std::vector<outstanding_cell>& cells, std::size_t waits) {
        harness::text_table table{std::to_string(waits) +
                                      (waits == 1 ? " wait at a time" : " waits at a time"),
                                  {{"way", "", harness::align::left},
                                   {"CPU", "us/wait"},
                                   {"idle CPU", "us/s"},
                                   {"RSS", "B/wait"},
                                   {"page tables", "B/wait"},
                                   {"stack", "KiB/wait"},
                                   {"wake-up p50", "us"},
                                   {"p90", "us"},
                                   {"max", "us"},
                                   {"overshoot p50", "ms"},
                                   {"max", "ms"}}};
        std::uint64_t lists = 0;
        for (const outstanding_cell& c : cells) {
            if (c.waits != waits) {
                continue;
            }
            add_rows(c);
            lists = std::max(lists, c.figures.futex_lists);
            harness::table_cell name = harness::text(c.name);
            if (c.figures.missing > 0) {
                name.notes.push_back(std::to_string(c.figures.missing) + " timeouts never came, by design");
            }
            if (!c.skipped.empty() || !c.error.empty()) {
                table.add_row({name, c.error.empty() ? harness::absent(c.skipped)
                                                     : harness::table_cell{"error", {"error: " + c.error}}});
                continue;
            }
            const waiting_figures& f = c.figures;
            table.add_row({name, harness::number(f.cpu_us, 1), harness::number(f.idle_us_a_second, 0),
                           harness::number(f.rss, 0), harness::number(f.page_tables, 0),
                           harness::number(f.stack / 1024, 0), c.wake_up.cell(50, 1), c.wake_up.cell(90, 1),
                           c.wake_up.cell(100, 1), c.overshoot.cell(50, 3), c.overshoot.cell(100, 3)});
        }
        table.add_note(
            "CPU: of all that has to do with one wait that is notified, notifier included. idle CPU: of all "
            "waits together, while nothing happens.");
        table.add_note(
            "RSS: grown by, with the touched part of stacks; stack: address space set aside. Kernel stacks "
            "(16 KiB a thread on x86-64) are in neither.");
        if (lists > 0) {
            table.add_note(
                "The kernel keeps a process's waits on private futexes (all but std::future's) in " +
                std::to_string(lists) + " lists here, and searches one of them for each wake-up.");
        }
        table.add_note("overshoot: of waits that time out. A service resumes waits on one worker thread.");
        out_.print(table);
    }

    void handoff(const std::vector<handoff_cell>& cells) {
        std::vector<harness::column> columns{{"way", "", harness::align::left}};
        for (const duration d : handoff_delays) {
            columns.push_back({"after " + std::to_string(d / 1us) + " us:", "wake-up us"});
            columns.push_back({"", "p90 us"});
            columns.push_back({"", "CPU us"});
        }
        harness::text_table table{
            "One wait, notified soon after it began: wake-up latency and the waiter's CPU", columns};
        std::string last;
        std::vector<harness::table_cell> cells_of_row;
        for (const handoff_cell& c : cells) {
            if (c.name != last) {
                if (!cells_of_row.empty()) {
                    table.add_row(std::move(cells_of_row));
                }
                cells_of_row = {harness::text(c.name)};
                last = c.name;
            }
            std::string skipped = c.skipped;
            if (skipped.empty() && c.wake_up.empty()) {
                skipped = "the notifier was never on time: both threads must run at once";
            }
            const latency_row row{c.name,
                                  c.point(),
                                  "wake_up",
                                  "us",
                                  skipped,
                                  c.error,
                                  c.late > 0 ? std::to_string(c.late) + " rounds left out" : ""};
            add_latencies(out_, exact_, row, c.wake_up, keep_, 1e-3);
            latency_row cpu = row;
            cpu.metric = "waiter_cpu";
            add_latencies(out_, exact_, cpu, c.cpu, keep_, 1e-3);
            if (!skipped.empty() || !c.error.empty()) {
                cells_of_row.push_back(harness::absent(c.error.empty() ? skipped : "error: " + c.error));
                cells_of_row.resize(cells_of_row.size() + 2);
                continue;
            }
            cells_of_row.push_back(c.wake_up.cell(50, 1));
            cells_of_row.push_back(c.wake_up.cell(90, 1));
            cells_of_row.push_back(c.cpu.cell(50, 1));
        }
        table.add_row(std::move(cells_of_row));
        table.add_note(
            "medians but for p90. A spin catches what comes before it ends, without a system call; what "
            "comes later has cost it all of the spin.");
        out_.print(table);
    }

    void finish() { out_.parameter("latency", std::move(exact_)); }

  private:
    void add_rows(const outstanding_cell& c) {
        const std::tuple<const char*, const char*, double> plain[] = {
            {"cpu", "us/wait", c.figures.cpu_us}, {"idle_cpu", "us/s", c.figures.idle_us_a_second},
            {"rss", "B", c.figures.rss},          {"page_tables", "B", c.figures.page_tables},
            {"stack", "B", c.figures.stack},
        };
        for (const auto& [metric, unit, value] : plain) {
            harness::row row;
            row.service = c.name;
            row.case_point = c.point();
            row.metric = metric;
            row.unit = unit;
            row.samples = {value};
            row.skipped = c.skipped;
            row.error = c.error;
            out_.add(std::move(row));
        }
        latency_row row{c.name, c.point(), "wake_up", "us", c.skipped, c.error, {}};
        add_latencies(out_, exact_, row, c.wake_up, keep_, 1e-3);
        row.metric = "overshoot";
        row.unit = "ms";
        add_latencies(out_, exact_, row, c.overshoot, keep_, 1e-6);
        if (!c.skipped.empty() || !c.error.empty()) {
            return; // an error fails the run by its row
        }
        const std::string waits = std::to_string(c.waits) + " waits";
        const double earliest = c.overshoot.empty() ? 0 : c.overshoot.at(0);
        out_.check("no wait ends before its deadline, " + waits, c.name,
                   earliest >= std::min(c.allowed_early_ms, 0.0),
                   "earliest " + harness::format_number(earliest, 6) + " ms");
        out_.check("every wait ends, " + waits, c.name, c.figures.missing == 0 || c.loses,
                   std::to_string(c.figures.missing) + " did not" + (c.loses ? ", by design" : ""));
    }

    harness::report& out_;
    std::uint64_t keep_;
    json exact_ = json::array();
};

/// Every way under a planted notifier that has nothing to tell.
void run_poked(harness::report& out) {
    harness::text_table table{"A wait of " + std::to_string(poked_for / 1ms) +
                                  " ms that is woken for nothing every " + std::to_string(poke_every / 1us) +
                                  " us",
                              {{"way", "", harness::align::left},
                               {"woken", "times"},
                               {"lasted", "ms"},
                               {"verdict", "", harness::align::left}}};
    const char* const what = "a wait that is woken for nothing lasts as long as was asked";
    for_each_way([&]<class Way>(const char* name, bool fresh) {
        if (fresh || harness::interrupted()) {
            return; // the same wait as another's
        }
        std::string error;
        const json read = in_child(
            [] {
                const poked_figures f = measure_poked<Way>(poked_for);
                return json{{"lasted_ns", f.lasted.count()}, {"pokes", f.pokes}, {"notified", f.notified}};
            },
            error);
        harness::row row;
        row.service = name;
        row.case_point = {{"kind", "poked"}, {"asked_ms", poked_for / 1ms}};
        row.metric = "lasted";
        row.unit = "ms";
        row.error = error;
        if (error.empty() && read.contains("skipped")) {
            row.skipped = read.at("skipped").get<std::string>();
        }
        if (!row.error.empty() || !row.skipped.empty()) {
            table.add_row({harness::text(name), harness::absent(error.empty() ? row.skipped : error)});
            out.add(std::move(row));
            return;
        }
        const duration lasted{read.at("lasted_ns").get<duration::rep>()};
        const auto pokes = read.at("pokes").get<std::uint64_t>();
        std::string wrong = wrong_length(poked_for, lasted, poked_slack);
        if (read.at("notified").get<bool>()) {
            wrong = "returned as if it had been notified";
        } else if (pokes < 3) {
            wrong = "was woken " + std::to_string(pokes) + " times only: no trial";
        }
        row.samples = {std::chrono::duration<double, std::milli>{lasted}.count()};
        out.add(std::move(row));
        table.add_row({harness::text(name), harness::number(pokes),
                       harness::number(std::chrono::duration<double, std::milli>{lasted}.count(), 2),
                       harness::text(wrong.empty() ? "as asked" : wrong)});
        out.check(what, name, wrong.empty(),
                  wrong.empty() ? "woken " + std::to_string(pokes) + " times" : wrong);
    });
    table.add_note("By a notification without a change where that can be had, and by a signal.");
    out.print(table);
}

void run_series(harness::report& out, duration manual_timeout, duration real_timeout,
                const std::vector<std::uint64_t>& waits, std::uint64_t most_real) {
    harness::text_table table{
        "N waits of one thread, each with its own timeout in turn, or all under one deadline",
        {{"clock", "", harness::align::left},
         {"answers", "", harness::align::left},
         {"N", ""},
         {"timeout", "ms"},
         {"one by one", "ms"},
         {"answered", "n"},
         {"one deadline", "ms"},
         {"answered", "n"},
         {"ratio", ""}}};
    std::string wrong;
    std::uint64_t cases = 0;
    const auto one_case = [&](bool manual, answers a, std::size_t n, duration timeout) {
        std::vector<harness::table_cell> cells{
            harness::text(manual ? "manual" : "steady"), harness::text(std::string{name_of(a)}),
            harness::number(std::uint64_t{n}),
            harness::number(std::chrono::duration<double, std::milli>{timeout}.count(), 0)};
        double lasted_ms[2] = {};
        for (const bool one : {false, true}) {
            const series_result expected = series_on_manual_clock(n, timeout, a, one);
            const series_result r = manual ? expected : series_on_steady_clock(n, timeout, a, one);
            lasted_ms[one ? 1 : 0] = std::chrono::duration<double, std::milli>{r.lasted}.count();
            const std::string name = one ? "one_deadline" : "one_by_one";
            harness::row row;
            row.service = name;
            row.case_point = {{"kind", "series"},
                              {"clock", manual ? "manual" : "steady"},
                              {"answers", std::string{name_of(a)}},
                              {"waits", n},
                              {"timeout_ms", timeout / 1ms}};
            row.metric = "lasted";
            row.unit = "ms";
            row.samples = {lasted_ms[one ? 1 : 0]};
            out.add(row);
            row.metric = "answered";
            row.unit = "1";
            row.samples = {static_cast<double>(r.answered)};
            out.add(std::move(row));
            cells.push_back(harness::number(lasted_ms[one ? 1 : 0], manual ? 0 : 1));
            cells.push_back(harness::number(std::uint64_t{r.answered}));
            ++cases;
            // Nobody answers: no luck is involved but the machine's.
            if (a == answers::none &&
                (r.lasted < expected.lasted || (one && r.lasted > timeout + poked_slack))) {
                wrong = name + " of " + std::to_string(n) + " lasted " +
                        harness::format_number(lasted_ms[one ? 1 : 0], 1) + " ms";
            }
        }
        cells.push_back(lasted_ms[1] > 0 ? harness::number(lasted_ms[0] / lasted_ms[1], 1)
                                         : harness::text("-"));
        table.add_row(std::move(cells));
    };
    for (const bool manual : {true, false}) {
        for (const answers a : all_answers) {
            if (manual) {
                for (const std::uint64_t n : waits) {
                    one_case(true, a, n, manual_timeout);
                }
            } else {
                for (std::uint64_t n = 1; n <= most_real && !harness::interrupted(); n *= 10) {
                    one_case(false, a, n, real_timeout);
                }
            }
        }
    }
    table.add_note("none: nobody answers. just in time: the i-th answers after i times 4/5 of a timeout. One "
                   "by one lasts up to N "
                   "timeouts; under one deadline what is not there by then has failed.");
    out.print(table);
    out.check("N waits under one deadline last one timeout, one by one N", "", wrong.empty(),
              wrong.empty() ? std::to_string(cases) + " cases" : wrong);
}

/// Every cell that there is, also those that cannot be measured, with the reason.
[[nodiscard]] std::vector<outstanding_cell>
all_cells(const harness::options& opts, const std::vector<std::uint64_t>& waits, std::size_t most_threads) {
    std::vector<outstanding_cell> cells;
    for (const std::uint64_t n : waits) {
        const waiting_plan plan = plan_for(n, opts.quick, most_threads);
        for_each_way([&]<class Way>(const char* name, bool fresh) {
            outstanding_cell c;
            c.name = name;
            c.waits = n;
            if (opts.quick && n > quick_threads && is_middle_spin<Way>) {
                c.skipped = "left out of a --quick run: with so many waits the spin is over long before, see "
                            "spin_0us and "
                            "spin_50us";
            } else {
                c.measure = [plan, fresh] { return measure_threads<Way>(plan, fresh).to_json(); };
            }
            cells.push_back(std::move(c));
        });
        for_each_chosen(opts, [&]<class Entry>() {
            outstanding_cell c;
            c.name = Entry::name;
            c.waits = n;
            const service_traits traits = Entry::make()->traits();
            c.allowed_early_ms = std::chrono::duration<double, std::milli>{traits.earliest}.count();
            c.loses = traits.has_fault("lost_wakeup");
            if constexpr (loop_service<typename Entry::service>) {
                c.skipped =
                    "only the thread of its loop may arm: that thread waits in the loop, not for one thing";
            } else {
                if (traits.most_timers > 0 && n > traits.most_timers) {
                    c.skipped =
                        "holds at most " + std::to_string(traits.most_timers) + " timers at a time here";
                } else {
                    c.measure = [plan] { return measure_service<Entry>(plan).to_json(); };
                }
            }
            cells.push_back(std::move(c));
        });
    }
    return cells;
}

[[nodiscard]] std::vector<handoff_cell> handoff_cells(std::uint64_t rounds, duration budget) {
    std::vector<handoff_cell> cells;
    for_each_way([&]<class Way>(const char* name, bool fresh) {
        if (fresh) {
            return;
        }
        for (const duration delay : handoff_delays) {
            handoff_cell c;
            c.name = name;
            c.delay = delay;
            c.measure = [delay, rounds, budget] {
                const handoff_figures f = measure_handoff<Way>(delay, rounds, budget);
                return json{
                    {"wake_up_us", f.wake_up_us}, {"cpu_us", f.cpu_us}, {"late", f.late}, {"wrong", f.wrong}};
            };
            cells.push_back(std::move(c));
        }
    });
    return cells;
}

int run(int argc, char** argv) {
    harness::options opts;
    std::vector<std::uint64_t> waits{1, 100, 10'000};
    std::uint64_t most_threads = 20'000;
    std::uint64_t timeout_ms = 3'000;
    std::uint64_t keep = 1'000;
    harness::options_parser parser("bench_waiting", "What does it cost to wait with a bound?",
                                   service_names());
    parser.add_numbers("--waits", waits, 1, 100'000, "waits at a time");
    parser.add_number("--most-threads", most_threads, 1, 1'000'000,
                      "threads at a time; a cell that needs more is left out and says so");
    parser.add_number("--timeout-ms", timeout_ms, 1, 86'400'000,
                      "of each wait of the series on the manual clock");
    parser.add_number("--keep", keep, 2, 1'000'000,
                      "values of each row in the JSON, evenly spaced order statistics");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());

    const harness::interrupt_guard interrupts;
    harness::report out("waiting", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    out.parameter("waits", waits);
    out.parameter("most_threads", most_threads);
    out.parameter("timeout_ms", timeout_ms);
    describe_services(out);

    std::vector<outstanding_cell> cells = all_cells(opts, waits, most_threads);
    std::vector<handoff_cell> soon = handoff_cells(opts.pick(2'000U, 100U), opts.pick<duration>(3s, 100ms));
    std::vector<std::pair<std::string, std::function<void()>>> visits;
    for (outstanding_cell& c : cells) {
        if (c.skipped.empty()) {
            visits.emplace_back(c.name + ", " + std::to_string(c.waits) + " waits", [&c] { c.run(); });
        }
    }
    for (handoff_cell& c : soon) {
        visits.emplace_back(c.name + ", handoff", [&c] { c.run(); });
    }
    harness::random_source random{opts.seed};
    random.shuffle(visits);
    {
        harness::progress line{visits.size(), isatty(STDERR_FILENO) == 1};
        for (const auto& [label, go] : visits) {
            if (harness::interrupted()) {
                break;
            }
            line.step(label);
            go();
        }
    }
    if (!harness::interrupted()) {
        waiting_report tables{out, keep};
        for (const std::uint64_t n : waits) {
            tables.outstanding(cells, n);
        }
        tables.handoff(soon);
        tables.finish();
        run_poked(out);
        run_series(out, std::chrono::milliseconds{timeout_ms}, 20ms, waits, opts.pick(100U, 10U));
    }
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
