// What do clocks do to deadlines, leases and the order of commits?
//
// deadline  a timeout kept by the wall clock and by the steady clock while somebody sets the wall clock: how far off its end is. Simulated
//           on manual clocks, exact (clocks_deadline.hpp).
// watch     the same for real, as a check: every service and every wait of this project runs while the wall clock that this process
//           sees is set by 1, 5 and 3600 s, 200 times a second. Nothing may wait against it or read it, and every timeout must keep its
//           time. Specimens that do use the wall clock must be caught, or the check proves nothing (clocks_paths.hpp).
// lease     a lease whose holder is paused: what the store accepts from it afterwards, without and with a fencing token. Simulated on a
//           manual clock, seeded (clocks_lease.hpp).
// commit    commit-wait on an interval clock: order violations without and with the wait, and what the wait costs. Simulated on a manual
//           clock, seeded (clocks_commit.hpp).
//
// The simulations give the same rows for the same seed on every machine. Only the watch runs services and takes --service.
#include "experiments/clocks_commit.hpp"
#include "experiments/clocks_deadline.hpp"
#include "experiments/clocks_lease.hpp"
#include "experiments/clocks_paths.hpp"
#include "experiments/clocks_rules.hpp"
#include "experiments/latency_rows.hpp"
#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/interrupt.hpp"
#include "harness/open_loop.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"

#include <iostream>
#include <map>

namespace timerbench::experiments {
namespace {

using harness::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A name of a table as a key of rows.
[[nodiscard]] std::string key_of(const char* group, std::string name) {
    std::erase(name, ',');
    std::replace(name.begin(), name.end(), ' ', '_');
    return std::string{group} + "/" + name;
}

void add_value(harness::report& out, const std::string& name, const json& point, const char* metric,
               const char* unit, double value, const std::string& error = {}) {
    harness::row row;
    row.service = name;
    row.case_point = point;
    row.metric = metric;
    row.unit = unit;
    row.samples = {value};
    row.error = error;
    out.add(std::move(row));
}

// ---- deadlines ----

struct deadline_plan {
    duration timeout{};
    duration step_after{};
    std::vector<std::uint64_t> steps_s;
};

[[nodiscard]] std::vector<std::int64_t> signed_steps(const deadline_plan& plan) {
    std::vector<std::int64_t> all;
    for (const std::uint64_t s : plan.steps_s) {
        all.push_back(static_cast<std::int64_t>(s));
        all.push_back(-static_cast<std::int64_t>(s));
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

void run_deadlines(harness::report& out, const deadline_plan& plan) {
    const std::vector<std::int64_t> steps = signed_steps(plan);
    std::vector<harness::column> columns{{"deadline kept by", "", harness::align::left}};
    for (const std::int64_t s : steps) {
        columns.push_back({(s > 0 ? "+" : "") + std::to_string(s) + " s", "ms"});
    }
    harness::text_table table{"Error of a timeout of " + harness::format_number(in_ms(plan.timeout), 0) +
                                  " ms when the wall clock is set after " +
                                  harness::format_number(in_ms(plan.step_after), 0) + " ms, by",
                              columns};
    duration worst_steady{};
    duration worst_wall{};
    std::string broken;
    for (const deadline_way& way : deadline_ways) {
        std::vector<harness::table_cell> cells{harness::text(way.name)};
        for (const std::int64_t s : steps) {
            const duration error = deadline_error(way, plan.timeout, plan.step_after, seconds{s});
            const duration size = std::max(error, -error);
            (way.on_steady_clock ? worst_steady : worst_wall) =
                std::max(way.on_steady_clock ? worst_steady : worst_wall, size);
            if (way.on_steady_clock && (error < duration::zero() || error > allowed_error(way))) {
                broken =
                    std::string{way.name} + " is off by " + harness::format_number(in_ms(error), 3) + " ms";
            }
            add_value(out, way.name,
                      {{"kind", "deadline"},
                       {"step_s", s},
                       {"timeout_ms", plan.timeout / milliseconds{1}},
                       {"step_after_ms", plan.step_after / milliseconds{1}}},
                      "error", "ms", in_ms(error));
            cells.push_back(harness::number(in_ms(error), 0));
        }
        table.add_row(std::move(cells));
    }
    table.add_note("Time that really passed until it gave up, minus what was asked for; negative: gave up "
                   "early. Manual clocks: exact.");
    table.add_note("handed/...: to another machine, whose wall clock is off from the beginning; the message "
                   "takes 1 ms.");
    out.print(table);
    out.check("a deadline on the steady clock does not mind", "", broken.empty(),
              broken.empty() ? "off by at most " + harness::format_number(in_ms(worst_steady), 3) + " ms"
                             : broken);
    out.check("the same steps throw a deadline on the wall clock off", "", worst_wall >= milliseconds{100},
              "by up to " + harness::format_number(in_ms(worst_wall), 0) + " ms");
}

// ---- the watch ----

void report_watch(harness::report& out, const std::vector<watched_path>& paths) {
    harness::text_table table{
        "While the wall clock is set by 1, 5, 3600 s forth and back, 200 times a second",
        {{"path", "", harness::align::left},
         {"wall clock:", "readings"},
         {"", "waits"},
         {"read by", "libraries"},
         {"timeouts", "n"},
         {"earliest", "ms"},
         {"latest", "ms"},
         {"verdict", "", harness::align::left}}};
    std::string not_caught;
    std::uint64_t specimens = 0;
    for (const watched_path& p : paths) {
        const json point{{"kind", "watch"}};
        add_value(out, p.name, point, "wall_readings", "1", static_cast<double>(p.clocks.readings));
        add_value(out, p.name, point, "wall_readings_by_libraries", "1",
                  static_cast<double>(p.clocks.elsewhere));
        add_value(out, p.name, point, "wall_waits", "1", static_cast<double>(p.clocks.waits));
        harness::row row;
        row.service = p.name;
        row.case_point = point;
        row.metric = "lateness";
        row.unit = "ms";
        row.single_events = true;
        row.samples = p.late_ms;
        row.skipped = p.late_ms.empty() ? "nothing fired" : "";
        out.add(std::move(row));

        const auto [low, high] = std::minmax_element(p.late_ms.begin(), p.late_ms.end());
        const double earliest = p.late_ms.empty() ? 0 : *low;
        const double latest = p.late_ms.empty() ? 0 : *high;
        std::string use = wall_clock_use(p.clocks);
        std::string effect = clock_effect(earliest, latest, p.allowed_early_ms, p.allowed_late_ms);
        if (p.missing > 0) {
            effect = std::to_string(p.missing) + " timeouts never came";
        }
        harness::table_cell name = harness::text(p.name);
        if (p.clocks.elsewhere > 0) {
            name.notes.push_back(p.clocks.reader + " reads it for purposes of its own; its waits do not");
        }
        table.add_row({name, harness::number(p.clocks.readings), harness::number(p.clocks.waits),
                       harness::number(p.clocks.elsewhere),
                       harness::number(static_cast<std::uint64_t>(p.late_ms.size())),
                       harness::number(earliest, 2), harness::number(latest, 2),
                       harness::text(!use.empty()      ? (p.specimen ? "caught" : "uses the wall clock")
                                     : !effect.empty() ? "disturbed"
                                     : p.specimen      ? "not caught"
                                                       : "steady")});
        if (p.specimen) {
            ++specimens;
            not_caught += use.empty() ? (not_caught.empty() ? "" : ", ") + p.name : "";
            continue;
        }
        const std::string why = !use.empty() ? use : effect;
        out.check("no path that waits uses the wall clock", p.name, why.empty(),
                  why.empty() ? std::to_string(p.late_ms.size()) + " timeouts kept their time" : why);
    }
    table.add_note("Each path runs from making its service to destroying it: timers of 1 to 29 ms, one "
                   "cancelled, and a scope with a deadline where any thread may arm.");
    table.add_note(
        "specimen/...: use the wall clock on purpose and must be caught. Their waits are cut short, "
        "so that none lasts for hours.");
    out.print(table);
    out.check("a path that uses the wall clock would be caught", "", not_caught.empty(),
              not_caught.empty() ? "all " + std::to_string(specimens) + " specimens were"
                                 : "not caught: " + not_caught);
}

// ---- leases ----

void run_leases(harness::report& out, const lease_plan& plan, std::uint64_t trials) {
    harness::text_table table{"A lease of " + harness::format_number(in_ms(plan.ttl), 0) +
                                  " ms whose holder may be paused for " +
                                  harness::format_number(in_ms(plan.pause), 0) +
                                  " ms on average: " + std::to_string(trials) + " trials",
                              {{"protection", "", harness::align::left},
                               {"leases", "n"},
                               {"expired", "in use"},
                               {"writes", "arrived"},
                               {"stale", "arrived"},
                               {"stale", "accepted"},
                               {"of these:", "overwrote"},
                               {"refused", "n"},
                               {"rightful", "refused"}}};
    std::map<std::string, lease_counts> seen;
    for (const lease_guard& guard : lease_guards) {
        if (harness::interrupted()) {
            return;
        }
        const lease_counts c = simulate_leases(plan, guard, trials, out.opts().seed);
        seen[guard.name] = c;
        const json point{{"kind", "lease"},
                         {"ttl_ms", plan.ttl / milliseconds{1}},
                         {"pause_ms", plan.pause / milliseconds{1}},
                         {"pause_chance", plan.pause_chance},
                         {"trials", trials}};
        const std::pair<const char*, std::uint64_t> figures[] = {
            {"leases", c.leases},
            {"expired_in_use", c.outlived},
            {"writes", c.writes},
            {"stale", c.stale},
            {"stale_accepted", c.stale_accepted},
            {"overwrites", c.overwrites},
            {"refused", c.rejected},
            {"rightful_refused", c.rightful_rejected},
        };
        std::vector<harness::table_cell> cells{harness::text(guard.name)};
        for (const auto& [metric, n] : figures) {
            add_value(out, key_of("lease", guard.name), point, metric, "1", static_cast<double>(n));
            cells.push_back(harness::number(n));
        }
        table.add_row(std::move(cells));
    }
    table.add_note(
        "stale: arrives after the lease was granted to another. overwrote: accepted over what a newer "
        "holder had written. Stale writes that a token lets pass came before the newer holder's first.");
    table.add_note(
        "token on grant: the store hears of the token when the lease is granted, so that those are "
        "refused too.");
    out.print(table);
    const lease_counts& bare = seen["nothing"];
    const lease_counts& clock = seen["own clock"];
    // Fewer or shorter pauses than this may well do no harm.
    const bool pauses_enough =
        plan.pause >= plan.ttl && static_cast<double>(bare.writes) * plan.pause_chance >= 1'000;
    out.check("pauses outlast leases, and what comes then is accepted without a token", "",
              !pauses_enough || (bare.overwrites > 0 && clock.overwrites > 0),
              std::to_string(bare.overwrites) + " overwrites, with a look at the clock before each write " +
                  std::to_string(clock.overwrites) + (pauses_enough ? "" : "; too few pauses to tell"));
    std::uint64_t with_token = 0;
    std::uint64_t rightful = 0;
    for (const lease_guard& guard : lease_guards) {
        with_token += guard.token ? seen[guard.name].overwrites : 0;
        rightful += seen[guard.name].rightful_rejected;
    }
    out.check("a fencing token stops every overwrite", "", with_token == 0,
              std::to_string(with_token) + " overwrites with a token");
    out.check("a store that learns of grants accepts nothing stale", "",
              seen["token on grant"].stale_accepted == 0,
              std::to_string(seen["token on grant"].stale_accepted) + " stale writes accepted");
    out.check("no rightful write is refused", "", rightful == 0, std::to_string(rightful) + " refused");
}

// ---- commit-wait ----

void run_commits(harness::report& out, const commit_plan& plan, const std::vector<std::uint64_t>& largest_us,
                 std::uint64_t keep) {
    std::vector<harness::column> columns{{"policy", "", harness::align::left}};
    for (const std::uint64_t us : largest_us) {
        columns.push_back(
            {"u <= " + harness::format_number(static_cast<double>(us) / 1e3, 1) + " ms:", "violations"});
        columns.push_back({"", "per 1000"});
        columns.push_back({"wait", "mean ms"});
        columns.push_back({"p99", "ms"});
    }
    harness::text_table table{
        "Order of commits on an interval clock of uncertainty u: " + std::to_string(plan.commits) +
            " commits on " + std::to_string(plan.machines) + " machines",
        columns};
    json exact = json::array();
    std::uint64_t wrong_with_wait = 0;
    std::uint64_t wrong_without = 0;
    std::uint64_t wrong_understated = 0;
    std::string cost;
    for (const commit_policy& policy : commit_policies) {
        std::vector<harness::table_cell> cells{harness::text(policy.name)};
        for (const std::uint64_t us : largest_us) {
            if (harness::interrupted()) {
                return;
            }
            const duration largest = std::chrono::microseconds{us};
            commit_result r = simulate_commits(plan, policy, largest, out.opts().seed);
            const json point{
                {"kind", "commit"},
                {"uncertainty_us", us},
                {"commits", plan.commits},
                {"message_us", plan.message / std::chrono::microseconds{1}},
                {"replication_us", policy.overlapped ? plan.replication / std::chrono::microseconds{1} : 0}};
            const std::string name = key_of("commit", policy.name);
            add_value(out, name, point, "violations", "1", static_cast<double>(r.violations));
            const double mean = harness::mean(r.wait_ms).value_or(0);
            add_value(out, name, point, "mean_wait", "ms", mean);
            const harness::tail waits{std::move(r.wait_ms)};
            add_latencies(out, exact, {name, point, "wait", "ms", {}, {}, {}}, waits, keep, 1e-6);
            const double pairs = static_cast<double>(std::max<std::uint64_t>(r.pairs, 1));
            cells.push_back(harness::number(r.violations));
            cells.push_back(harness::number(1000 * static_cast<double>(r.violations) / pairs, 2));
            cells.push_back(harness::number(mean, 2));
            cells.push_back(waits.cell(99, 2));
            if (policy.in_order) {
                wrong_with_wait += r.violations;
            } else if (policy.wait == commit_policy::no_wait) {
                wrong_without += r.violations;
            } else {
                wrong_understated += r.violations;
            }
            if (policy.in_order && !policy.overlapped && policy.wait == commit_policy::what_is_left) {
                // Twice the uncertainty, which lies between a seventh of its largest and that; 1 % for clocks that drift meanwhile.
                const double low = 2 * in_ms(largest) / interval_clock::floor_share;
                if (mean < 0.99 * low || mean > 2.02 * in_ms(largest)) {
                    cost = harness::format_number(mean, 3) + " ms on average for an uncertainty of at most " +
                           harness::format_number(in_ms(largest), 3) + " ms";
                }
            }
        }
        table.add_row(std::move(cells));
    }
    table.add_note("u grows from a seventh of its largest to that, over the 30 s between two "
                   "synchronisations. Published for "
                   "TrueTime: 1 to 7 ms (Corbett et al., OSDI 2012).");
    table.add_note(
        "violation: who had heard of a commit got no larger timestamp. The client is back within " +
        harness::format_number(in_ms(plan.message), 1) +
        " ms. wait: beyond what the commit takes anyhow; overlapped: with " +
        harness::format_number(in_ms(plan.replication), 1) + " ms of replication.");
    table.add_note("understated: machines claim a quarter of their uncertainty.");
    out.print(table);
    out.parameter("latency", std::move(exact));
    out.check("commit-wait keeps the order", "", wrong_with_wait == 0,
              std::to_string(wrong_with_wait) + " violations");
    // The clock must be able to err by more than the client takes to come back.
    const bool enough =
        plan.commits >= 10'000 && *std::max_element(largest_us.begin(), largest_us.end()) >= 5'000;
    const char* const remark =
        enough ? " violations" : " violations; too few commits or too good a clock to tell";
    out.check("without the wait the order is violated", "", !enough || wrong_without > 0,
              std::to_string(wrong_without) + remark);
    out.check("the wait costs twice the uncertainty", "", cost.empty(), cost);
    out.check("an uncertainty that is understated is found out", "", !enough || wrong_understated > 0,
              std::to_string(wrong_understated) + remark);
}

// ---- command line ----

int run(int argc, char** argv) {
    harness::options opts;
    std::uint64_t timeout_ms = 3'000;
    std::uint64_t step_after_ms = 1'000;
    deadline_plan deadlines{.timeout = {}, .step_after = {}, .steps_s = {1, 5, 3'600}};
    std::uint64_t trials = 0;
    std::uint64_t ttl_ms = 3'000;
    std::uint64_t pause_ms = 5'000;
    lease_plan leases;
    std::uint64_t commits = 0;
    std::vector<std::uint64_t> uncertainties{1'000, 7'000, 50'000};
    std::uint64_t keep = 1'000;
    harness::options_parser parser(
        "bench_clocks", "What do clocks do to deadlines, leases and the order of commits?", service_names());
    parser.add_number("--timeout-ms", timeout_ms, 1, 86'400'000, "the timeout that is kept by either clock");
    parser.add_number("--step-after-ms", step_after_ms, 0, 86'399'999,
                      "when the wall clock is set; before the timeout is up");
    parser.add_numbers("--steps-s", deadlines.steps_s, 1, 86'400, "by how many seconds, forth and back");
    parser.add_number("--trials", trials, 1, 10'000'000,
                      "leases in a row; left out: 100000, with --quick 10000");
    parser.add_number("--ttl-ms", ttl_ms, 1, 86'400'000, "of a lease");
    parser.add_number("--pause-ms", pause_ms, 1, 86'400'000, "of its holder, on average");
    parser.add_real("--pause-chance", leases.pause_chance, 0, 1,
                    "of a pause before the look at the clock, and again between it and the write");
    parser.add_number("--commits", commits, 1, 10'000'000, "left out: 100000, with --quick 20000");
    parser.add_numbers("--uncertainty-us", uncertainties, 1, 10'000'000, "of the interval clock, at most");
    parser.add_number("--keep", keep, 2, 1'000'000,
                      "values of each row in the JSON, evenly spaced order statistics");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    if (step_after_ms >= timeout_ms) {
        std::cerr << "bench_clocks: --step-after-ms: '" << step_after_ms
                  << "' is not before the timeout is up; give 0 to " << timeout_ms - 1 << '\n';
        return harness::exit_unusable_input;
    }
    deadlines.timeout = milliseconds{timeout_ms};
    deadlines.step_after = milliseconds{step_after_ms};
    leases.ttl = milliseconds{ttl_ms};
    leases.pause = milliseconds{pause_ms};
    trials = trials != 0 ? trials : opts.pick(100'000U, 10'000U);
    const commit_plan plan{.commits = commits != 0 ? commits : opts.pick(100'000U, 20'000U)};

    const harness::interrupt_guard interrupts;
    harness::report out("clocks", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    out.parameter("timeout_ms", timeout_ms);
    out.parameter("step_after_ms", step_after_ms);
    out.parameter("trials", trials);
    out.parameter("commits", plan.commits);
    out.parameter("machines", plan.machines);
    run_deadlines(out, deadlines);
    report_watch(out, watch_all(opts));
    run_leases(out, leases, trials);
    run_commits(out, plan, uncertainties, keep);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
