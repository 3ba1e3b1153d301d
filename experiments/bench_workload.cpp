// My requests, my timeout, my share of timeouts that fire: what does each service take for it, and from which rate on does it matter?
//
// Requests come open-loop at a fixed rate from a number of threads; each arms a timeout. A share of them is answered after a while and
// cancels it, the others let it fire. For each service: the CPU time that its timers take, the memory, how late the timeouts fire,
// and how far the generator was behind. How a run goes stands in workload_run.hpp; each has a process of its own.
//
// CPU is that of the whole process in the window, as a share of one core, minus that of the same requests without timers (floor/no_timer:
// sleeping, reading the clock, keeping the requests). Several runs without timers show how much two equal runs differ: services that
// are no further apart than that share a rank. Memory is resident memory (no files') at the end of the window, minus the same: timers in use,
// what is held for cancelled ones, threads, tables. Lateness counts from the reading just before the arm; from the intended time of
// the request too, because a generator that is held up by the service makes its own lateness look good.
//
// The simplest service is the first of the list that needs no explaining: exact, no limits, frees on cancel, callable from any thread,
// driven by a thread of its own, without a fault. It is run against the cheapest of its kind (driven by a thread of its own, without a fault) at
// other rates, until the difference crosses the share of a core that is worth something to you. The break-even rate is interpolated
// between the two runs around it.
#include "experiments/itinerary.hpp"
#include "experiments/workload_report.hpp"
#include "experiments/workload_run.hpp"
#include "harness/environment.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"

#include <cstdio>
#include <optional>

namespace timerbench::experiments {
namespace {

constexpr std::int64_t phase_width_ns = 10'000'000;
constexpr double most_outstanding = 4e6;
constexpr std::uint64_t most_rate = 5'000'000;

/// One line on standard error. The exit code.
int refuse(const std::string& what) {
    std::fprintf(stderr, "bench_workload: %s\n", what.c_str());
    return harness::exit_unusable_input;
}

int run(int argc, char** argv) {
    harness::options opts;
    workload_settings s;
    std::uint64_t timeout_ms = 500;
    std::uint64_t hold_ms = 50;
    std::uint64_t window_ms = 0;
    harness::options_parser parser(
        "bench_workload",
        "My request rate, my timeout, my share of timeouts that fire: what does each service take for it?",
        service_names());
    std::vector<std::string> choices{"auto"};
    for (const std::string& name : service_names()) {
        choices.push_back(name);
    }
    parser.add_number("--rate", s.base.rate, 1, most_rate, "requests a second, of all threads");
    parser.add_number("--timeout", timeout_ms, 1, 600'000, "of each request, ms");
    parser.add_real("--cancel-share", s.base.cancel_share, 0, 1,
                    "share of the requests that are answered and cancel their timeout");
    parser.add_number("--hold", hold_ms, 0, 600'000,
                      "how long an answered request takes, ms; below the timeout");
    parser.add_number("--threads", s.base.threads, 1, 64, "threads that the requests come from");
    parser.add_number("--window-ms", window_ms, 1, 600'000,
                      "measured time of a run, after one timeout's length; left out: 3000, with --quick 550");
    parser.add_number("--rounds", s.rounds, 1, 1'000, "runs of each service; left out: 3, with --quick 1");
    parser.add_real("--worth", s.worth_percent, 0.01, 1'000,
                    "share of a core in % that is worth leaving the simplest service for");
    parser.add_choice("--simplest", s.simplest, choices,
                      "the service to compare with; auto: the first that needs no explaining, by its traits");
    parser.add_number("--keep", s.keep, 2, 1'000'000,
                      "values of each row in the JSON, evenly spaced order statistics");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    s.base.timeout = std::chrono::milliseconds{timeout_ms};
    s.base.hold = std::chrono::milliseconds{hold_ms};
    s.base.window = std::chrono::milliseconds{window_ms != 0 ? window_ms : opts.pick(3'000U, 550U)};
    s.base.seed = opts.seed;
    s.rounds = s.rounds != 0 ? s.rounds : opts.pick(3U, 1U);
    if (s.base.hold >= s.base.timeout && s.base.cancel_share > 0) {
        return refuse("--hold: '" + std::to_string(hold_ms) + "' ms is not below the timeout of " +
                      std::to_string(timeout_ms) + " ms; an answered request ends before its timeout");
    }
    if (s.base.outstanding() > most_outstanding) {
        return refuse("--rate: '" + std::to_string(s.base.rate) + "' makes " +
                      harness::format_number(s.base.outstanding(), 0) +
                      " outstanding timeouts with this timeout; give a rate or a timeout for at most " +
                      harness::format_number(most_outstanding, 0));
    }

    const harness::interrupt_guard interrupts;
    harness::report out("workload", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    out.parameter("workload", s.point());
    out.parameter("window_ms", s.base.window / 1ms);
    out.parameter("rounds", s.rounds);
    out.parameter("worth_percent", s.worth_percent);
    describe_services(out);

    ledger books;
    workload_report lines{out, s};
    itinerary runs;
    const auto plan_runs = [&](const std::string& name, std::uint64_t times) {
        for (std::uint64_t round = 0; round < times; ++round) {
            runs.add(name, [&, name, round] {
                workload w = s.base;
                w.seed += round % s.rounds;
                const workload_result r = lines.of(name).go(w);
                if (harness::interrupted()) {
                    return;
                }
                lines.of(name).add(r);
                if (name != floor_entry::name && r.wrong.empty()) {
                    books.look(name, r.quiet);
                }
            });
        }
    };
    const std::string floor{floor_entry::name};
    lines.of(floor).go = run_workload<floor_entry>;
    plan_runs(floor, std::max<std::uint64_t>(3, s.rounds));
    std::string simplest = s.simplest == "auto" ? "" : s.simplest;
    listed_services::for_each([&]<class Entry>() {
        if (simplest.empty() && why_unavailable<typename Entry::service>().empty() &&
            needs_no_explaining(Entry::make()->traits())) {
            simplest = Entry::name;
        }
    });
    std::vector<std::string> names;
    for_each_chosen(opts, [&]<class Entry>() {
        const std::string name{Entry::name};
        names.push_back(name);
        seen_service& seen = lines.of(name);
        seen.traits = Entry::make()->traits();
        seen.go = run_workload<Entry>;
        seen.skipped = too_many(s.base, seen.traits);
        if (seen.skipped.empty()) {
            plan_runs(name, s.rounds);
        }
    });
    runs.run(opts.seed);
    lines.rank();

    // The cheapest of the simplest one's kind.
    std::string cheapest;
    for (const std::string& name : lines.ranked()) {
        const service_traits& t = lines.of(name).traits;
        if (cheapest.empty() && name != simplest && !t.loop_driven() && t.faults.empty() &&
            t.most_durations == 0 && t.most_timers == 0) {
            cheapest = name;
        }
    }
    const bool has_simplest =
        std::find(lines.ranked().begin(), lines.ranked().end(), simplest) != lines.ranked().end();
    std::vector<break_even_step> steps;
    std::optional<double> break_even_rate;
    std::string verdict;
    if (simplest.empty()) {
        verdict = "no service of the list is simple; name one with --simplest.";
    } else if (!has_simplest) {
        verdict = "the simplest service, '" + simplest + "', was not measured in this run.";
    } else if (cheapest.empty()) {
        verdict = "no other service of its kind was measured beside '" + simplest + "'.";
    } else if (!harness::interrupted()) {
        const auto one = [&](const std::string& name, const workload& w, std::string& problem) {
            const workload_result r = lines.of(name).go(w);
            if (!r.wrong.empty()) {
                problem = "'" + name + "' cannot be measured, " + r.wrong;
            } else if (!r.kept_up()) {
                problem = "'" + name + "' cannot keep up";
            } else {
                books.look(name, r.quiet);
            }
            return r.cpu_percent / static_cast<double>(s.rounds);
        };
        const auto with_rate = [&](std::uint64_t rate) {
            workload w = s.base;
            w.rate = rate;
            return w;
        };
        steps.push_back({s.base.rate, lines.cpu_of(simplest) + lines.floor_cpu(),
                         lines.cpu_of(cheapest) + lines.floor_cpu()});
        const break_even found = find_break_even(
            steps, s.worth_percent, lines.noise(),
            [&](std::uint64_t rate) {
                return rate <= most_rate && with_rate(rate).outstanding() <= most_outstanding;
            },
            [&](std::uint64_t rate, std::string& problem) -> std::optional<break_even_step> {
                workload w = with_rate(rate);
                break_even_step step{rate, 0, 0};
                for (std::uint64_t round = 0; round < s.rounds && problem.empty(); ++round, ++w.seed) {
                    step.simplest += one(simplest, w, problem);
                    if (problem.empty()) {
                        step.cheapest += one(cheapest, w, problem);
                    }
                }
                return problem.empty() ? std::optional{step} : std::nullopt;
            });
        break_even_rate = found.rate;
        const std::string worth = harness::format_number(s.worth_percent, 2) + " % of a core";
        const std::string pair = "'" + cheapest + "', the cheapest of its kind";
        verdict = found.rate ? "below about " + harness::format_number(*found.rate, 0) +
                                   " requests a second the simplest service, '" + simplest +
                                   "', is as good:\n" + pair + ", saves less than " + worth + "."
                             : worth + " saved by " + pair + ", over the simplest, '" + simplest + "':\n" +
                                   found.why + ".";
        if (!found.rising || lines.noise() > s.worth_percent) {
            verdict += "\nWhat is saved does not grow with the rate in this run, or equal runs differ by "
                       "more than that: the machine is "
                       "too noisy to tell.";
        }
    }
    lines.finish(steps, simplest, cheapest, break_even_rate, verdict);

    // The intended times of every run's first round.
    std::vector<std::int64_t> bursts;
    for (std::uint64_t t = 0; t < s.base.threads; ++t) {
        harness::burst_times times{0, burst_gap_ns(s.base), 0, s.base.seed * 1'000 + t};
        const std::int64_t end = (s.base.timeout + s.base.window).count();
        for (std::int64_t at = times.next(); at < end; at = times.next()) {
            bursts.push_back(at);
        }
    }
    check_phases(out, bursts, phase_width_ns);
    books.report_to(out);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
