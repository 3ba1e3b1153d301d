// What happens after the timeout: a chain gateway -> A -> B -> store, an incident at the store, and what each policy of timeouts, cancellation and
// retries makes of it.
//
// Every way to cancel is crossed with every way to retry (aftermath_model.hpp names them). The simulated form runs them in virtual time with the
// timeouts on a service that a manual clock drives; what it decides repeats to the byte. The real form runs a few of them over loopback TCP at a smaller
// scale, and a simulation of those same parameters has to agree with it in goodput and attempts.
//
// Verified: every request ends exactly once; every nanosecond of work is useful, lost, or done for callers who had left; the service's counters balance;
// a small run, done twice, gives the same bytes.
#include "experiments/aftermath_loopback.hpp"
#include "experiments/aftermath_report.hpp"
#include "experiments/aftermath_simulation.hpp"
#include "harness/environment.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/progress.hpp"
#include "harness/report.hpp"

#include <deque>
#include <iostream>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace timerbench::experiments::aftermath {
namespace {

using std::chrono::milliseconds;

struct plan {
    std::vector<policy> policies;
    parameters full;  // the simulation's own scale
    parameters small; // the real form's
    std::uint64_t memory = 0;
    bool real = true;
};

struct wanted {
    std::uint64_t requests = 0;
    std::uint64_t rate = 0;
    std::uint64_t connections = 0;
    std::uint64_t upstream = 0;
    std::uint64_t line = 0;
    std::uint64_t work_ms = 10;
    std::uint64_t limit_ms = 3'000;
    std::uint64_t timeout_ms = 3'000;
    std::uint64_t incident_ms = 0;
    double slowdown = 10;
    double error_percent = 0.1;
    std::string policy = "all";
    std::uint64_t memory_mb = 1'024;
    std::uint64_t real_requests = 0;
    bool no_real = false;
};

[[nodiscard]] std::uint64_t given(std::uint64_t value, std::uint64_t otherwise) {
    return value != 0 ? value : otherwise;
}

[[nodiscard]] plan plan_of(const wanted& w, const harness::options& opts) {
    plan p;
    parameters& f = p.full;
    f.seed = opts.seed;
    f.rate = static_cast<double>(given(w.rate, opts.pick(10'000U, 1'000U)));
    f.requests = given(w.requests, opts.pick(1'000'000U, 100'000U));
    f.work[store] = milliseconds{w.work_ms};
    f.limit = milliseconds{w.limit_ms};
    f.timeout = milliseconds{w.timeout_ms};
    f.slowdown = w.slowdown;
    f.error_rate = w.error_percent / 100;
    f.size_for_rate();
    const auto number = [](std::uint64_t asked, std::uint32_t otherwise) {
        return asked != 0 ? static_cast<std::uint32_t>(asked) : otherwise;
    };
    f.connections[store] = number(w.connections, f.connections[store]);
    f.connections[1] = number(w.upstream, f.connections[1]);
    f.connections[2] = number(w.upstream, f.connections[2]);
    f.line = number(w.line, f.line);
    f.incident_at = f.span() / 5;
    f.incident_for = milliseconds{given(w.incident_ms, 10'000)};

    // A third of the time scale, and a store that a handful of connections serves.
    parameters& s = p.small;
    s = parameters{};
    s.seed = opts.seed;
    s.rate = 250;
    s.requests = given(w.real_requests, opts.pick(5'000U, 2'500U));
    s.limit = s.timeout = milliseconds{1'000};
    s.slowdown = w.slowdown;
    s.error_rate = w.error_percent / 100;
    s.first_backoff = milliseconds{20};
    s.longest_backoff = milliseconds{300};
    s.bin = milliseconds{100};
    s.size_for_rate();
    s.incident_at = s.span() / 5;
    s.incident_for = s.span() / 4;

    for (const policy& each : all_policies()) {
        if (w.policy == "all" || w.policy == name_of(each)) {
            p.policies.push_back(each);
        }
    }
    p.memory = w.memory_mb << 20U;
    p.real = !w.no_real;
    return p;
}

template <class Entry>
inline constexpr bool is_clocked = Entry::takes_clock;

template <class Entry>
[[nodiscard]] constexpr bool drives_real_form() {
    if constexpr (Entry::takes_clock) {
        return polled_on_time<typename Entry::service>;
    } else {
        return false;
    }
}

// The services that a manual clock drives, and the one of the real form: the first that the caller's loop drives.
[[nodiscard]] std::vector<std::string> clocked_names() {
    std::vector<std::string> names;
    listed_services::for_each([&]<class Entry>() {
        if constexpr (is_clocked<Entry>) {
            names.emplace_back(Entry::name);
        }
    });
    return names;
}
template <class F>
void with_loop_service(F&& f) {
    bool done = false;
    listed_services::for_each([&]<class Entry>() {
        if constexpr (drives_real_form<Entry>()) {
            if (!done) {
                done = true;
                f.template operator()<Entry>();
            }
        }
    });
}

[[nodiscard]] int refuse_input(const std::string& problem) {
    std::cerr << "bench_aftermath: " << problem << std::endl;
    return harness::exit_unusable_input;
}

// Narrows the services down to those that can be simulated. A line: what is wrong.
[[nodiscard]] std::string choose_services(harness::options& opts) {
    const std::vector<std::string> clocked = clocked_names();
    if (!opts.services_given) {
        with_loop_service([&]<class Entry>() { opts.services = {std::string{Entry::name}}; });
        return {};
    }
    for (const std::string& name : opts.services) {
        if (std::find(clocked.begin(), clocked.end(), name) == clocked.end()) {
            std::string all;
            for (const std::string& c : clocked) {
                all += (all.empty() ? "" : ", ") + c;
            }
            return "--service: '" + name + "' is not driven by a manual clock; give one of " + all;
        }
    }
    return {};
}

template <class Entry>
[[nodiscard]] std::string refuse_memory(const plan& p) {
    for (const policy& each : p.policies) {
        const std::uint64_t bytes = most_bytes(p.full, each, simulation<Entry>::timer_bytes());
        if (bytes > p.memory) {
            return "--requests " + std::to_string(p.full.requests) + " at --rate " +
                   harness::format_number(p.full.rate, 0) + " with " + name_of(each) + " may need " +
                   std::to_string((bytes >> 20U) + 1) + " MB for at most " +
                   std::to_string(most_calls(p.full, each)) + " calls at a time; the bound is --memory-mb " +
                   std::to_string(p.memory >> 20U) + ": raise it, or lower --rate, --line or --requests";
        }
    }
    return {};
}

template <class Entry>
[[nodiscard]] finished_run simulated(const parameters& with, const policy& by, bool small) {
    finished_run run;
    run.service = Entry::name;
    run.small = small;
    run.by = by;
    run.with = with;
    run.raw = simulate<Entry>(with, by);
    run.seen = figures_of(run.raw, with);
    return run;
}

// The real form: one thread a policy, and so many at a time that two cores are far from busy.
constexpr std::size_t most_at_once = 4;

// Both ends of every connection, and some that are being closed.
[[nodiscard]] std::uint64_t open_files(const parameters& p) {
    return 2 * std::uint64_t{p.connections[1] + p.connections[2] + p.connections[3]} + 64;
}

// Raises the soft limit as far as it is needed and may be. How many can be opened.
[[nodiscard]] std::uint64_t allowed_files(std::uint64_t wanted) {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    constexpr std::uint64_t others = 64;
    if (limit.rlim_cur < wanted + others) {
        limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted + others);
        static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
        static_cast<void>(getrlimit(RLIMIT_NOFILE, &limit));
    }
    return limit.rlim_cur > others ? limit.rlim_cur - others : 0;
}

// At the scale of the real form, which shows every kind of step.
template <class Entry>
void check_repeats(harness::report& out, const parameters& small, const policy& by) {
    const std::uint64_t first = simulate<Entry>(small, by).digest();
    const std::uint64_t second = simulate<Entry>(small, by).digest();
    out.check("the same seed gives the same bytes", std::string{Entry::name}, first == second,
              name_of(by) + ": " + std::to_string(first) +
                  (first == second ? " twice" : " and " + std::to_string(second)));
}

// Both forms of each policy; the real ones side by side, because they mostly wait. False: for some it could not be decided.
[[nodiscard]] bool run_real_form(harness::report& out, const parameters& small,
                                 const std::vector<policy>& real, std::deque<finished_run>& runs,
                                 harness::progress& line) {
    const std::uint64_t files = open_files(small);
    const std::size_t at_once =
        std::min<std::size_t>(most_at_once, allowed_files(most_at_once * files) / files);
    std::vector<std::pair<finished_run*, finished_run*>> pairs;
    with_loop_service([&]<class Entry>() {
        for (std::size_t first = 0; first < real.size(); first += std::max<std::size_t>(at_once, 1)) {
            const std::size_t last = std::min(real.size(), first + std::max<std::size_t>(at_once, 1));
            std::vector<std::thread> threads;
            for (std::size_t i = first; i < last && !harness::interrupted(); ++i) {
                line.step("loopback, " + name_of(real[i]));
                finished_run& model = runs.emplace_back(simulated<Entry>(small, real[i], true));
                finished_run& actual = runs.emplace_back();
                actual.service = Entry::name;
                actual.how = form::loopback;
                actual.small = true;
                actual.by = real[i];
                actual.with = small;
                pairs.emplace_back(&model, &actual);
                if (at_once == 0) {
                    actual.raw.open(small);
                    actual.raw.trouble =
                        "needs " + std::to_string(files) + " open files, more than may be had here";
                    continue;
                }
                threads.emplace_back([&actual] {
                    const auto service = Entry::make();
                    loopback<typename Entry::service> net{*service, actual.with, actual.by};
                    actual.raw = net.run();
                });
            }
            for (std::thread& t : threads) {
                t.join();
            }
        }
    });
    for (const auto& [model, actual] : pairs) {
        actual->seen = figures_of(actual->raw, small);
        add_rows(out, *model);
        add_rows(out, *actual);
    }
    return report_forms(out, {pairs.begin(), pairs.end()});
}

int run(int argc, char** argv) {
    harness::options opts;
    wanted w;
    harness::options_parser parser(
        "bench_aftermath",
        "What happens after the timeout? A chain gateway -> A -> B -> store through an incident, by policy. "
        "Services: "
        "those that a manual clock drives, by default the first that the caller's loop drives.",
        service_names());
    std::vector<std::string> choices{"all"};
    for (const policy& each : all_policies()) {
        choices.push_back(name_of(each));
    }
    parser.add_number("--requests", w.requests, 1'000, 20'000'000,
                      "users of a simulation; left out: 1000000, with --quick 100000");
    parser.add_number("--rate", w.rate, 1, 1'000'000, "users a second; left out: 10000, with --quick 1000");
    parser.add_number("--connections", w.connections, 1, 1'000'000,
                      "to the store; left out: twice what its mean work needs");
    parser.add_number("--upstream", w.upstream, 1, 10'000'000,
                      "connections to A and to B; left out: rate x timeout");
    parser.add_number("--line", w.line, 1, 100'000'000,
                      "how many may wait for a connection to one layer; left out: 10 x rate x timeout");
    parser.add_number("--work-ms", w.work_ms, 1, 60'000, "mean work of the store for a request");
    parser.add_number("--limit-ms", w.limit_ms, 10, 600'000, "how long a user waits");
    parser.add_number("--timeout-ms", w.timeout_ms, 10, 600'000,
                      "how long a layer waits, where it has a span of its own");
    parser.add_number("--incident-ms", w.incident_ms, 1, 3'600'000,
                      "how long the store is slow; left out: 10000. Begins after a fifth of the run");
    parser.add_real("--slowdown", w.slowdown, 1, 10'000, "by how much the store is slower");
    parser.add_real("--error-percent", w.error_percent, 0, 100,
                    "share of the store's answers that are errors worth a retry");
    parser.add_choice("--policy", w.policy, choices, "the only policy to run");
    parser.add_number("--memory-mb", w.memory_mb, 1, 1'000'000, "bound on a simulation's memory");
    parser.add_number("--real-requests", w.real_requests, 500, 100'000,
                      "users of each run of the real form; left out: 5000, with --quick 2500");
    parser.add_switch("--no-real", w.no_real, "leave the real form out");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    if (const std::string problem = choose_services(opts); !problem.empty()) {
        return refuse_input(problem);
    }
    const plan p = plan_of(w, opts);
    std::string problem = refuse(p.full);
    if (problem.empty()) {
        for_each_chosen(opts, [&]<class Entry>() {
            if constexpr (is_clocked<Entry>) {
                problem = problem.empty() ? refuse_memory<Entry>(p) : problem;
            }
        });
    }
    if (!problem.empty()) {
        return refuse_input(problem);
    }

    const harness::interrupt_guard interrupts;
    harness::report out("aftermath", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);
    out.parameter("simulated", p.full.to_json());
    out.parameter("memory_bound_mb", p.memory >> 20U);

    std::vector<policy> real;
    for (const policy& each : real_policies(opts.quick)) {
        if (p.real && std::find(p.policies.begin(), p.policies.end(), each) != p.policies.end()) {
            real.push_back(each);
        }
    }
    harness::progress line{p.policies.size() * opts.services.size() + real.size(),
                           isatty(STDERR_FILENO) == 1};
    std::deque<finished_run> runs; // stay where they are
    for_each_chosen(opts, [&]<class Entry>() {
        if constexpr (is_clocked<Entry>) {
            std::vector<const finished_run*> mine;
            for (const policy& each : p.policies) {
                if (harness::interrupted()) {
                    return;
                }
                std::string label{Entry::name};
                label += ", ";
                label += name_of(each);
                line.step(label);
                finished_run& done = runs.emplace_back(simulated<Entry>(p.full, each, false));
                add_rows(out, done);
                check_books(out, done, p.memory, simulation<Entry>::timer_bytes());
                done.raw.forget_details();
                mine.push_back(&done);
            }
            check_repeats<Entry>(out, p.small, mine.back()->by);
            print_runs(out, mine, std::string{Entry::name});
            if (const std::string judged = judge_extremes(out, mine); !judged.empty()) {
                out.print(judged);
            }
        }
    });

    bool decided = true;
    if (!real.empty() && !harness::interrupted()) {
        out.parameter("loopback", p.small.to_json());
        decided = run_real_form(out, p.small, real, runs, line);
    }
    const int code = out.finish();
    return code == harness::exit_fine && !decided ? harness::exit_cannot_decide : code;
}

} // namespace
} // namespace timerbench::experiments::aftermath

int main(int argc, char** argv) {
    return timerbench::experiments::aftermath::run(argc, argv);
}
