// What happens when 50 000 timeouts expire at once, to them and to a thread that only wants to arm another one?
//
// Two cases. herd: 50 000 timers with one deadline and callbacks that do nothing but read the clock. slow_callback: 1 000 timers, one of
// which, a quarter into the herd, keeps its driver for 1 ms. Measured are the lateness of each callback, how long the herd
// takes from the first callback to the last, and the arms of another thread, in quiet (herd armed, nothing due) and beside
// the herd: from 1 ms before the first callback to the last one. How that is done stands in herd_wave.hpp.
//
// "x quiet" divides a percentile of the arms beside the herd, from the intended time, by what an arm costs uncontended: the median of
// the calls in quiet, each alone, on the same service in the same visits. Both contain a clock reading. The row floor/no_timer has no
// herd and a service that does nothing: its ratios are what the machine takes from a thread that spins. A callback's clock
// reading is part of the herd's length: about 30 ns a timer.
//
// Where only its loop's thread may arm, no other thread can be held up: those cells say so. A service that can have fewer timers gets a
// smaller herd; one that is made for few durations gets one duration, so that deadlines differ by what arming takes. Both
// are noted. Visits of all services come in random order, one service alive at a time.
#include "experiments/herd_wave.hpp"
#include "experiments/itinerary.hpp"
#include "harness/environment.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"

#include <map>

namespace timerbench::experiments {
namespace {

using harness::json;

constexpr const char* herd_name = "herd";
constexpr const char* slow_name = "slow_callback";

/// All visits of one service in one case.
struct seen_herd {
    std::vector<double> late_ms, lasts_ms, spread_ms, quiet_ns, herd_ns, quiet_alone_ns, herd_alone_ns;
    std::uint64_t missing = 0;
    std::uint64_t waves = 0;
    double spacing_us = 0;
    std::size_t timers = 0;
    std::string wrong;
    std::string no_probe; // why there is no other thread

    void add(herd_result&& r) {
        const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
            to.insert(to.end(), from.begin(), from.end());
        };
        append(late_ms, r.late_ms);
        append(lasts_ms, r.lasts_ms);
        append(spread_ms, r.spread_ms);
        append(quiet_ns, r.quiet_ns);
        append(herd_ns, r.herd_ns);
        append(quiet_alone_ns, r.quiet_alone_ns);
        append(herd_alone_ns, r.herd_alone_ns);
        missing += r.missing;
        waves += r.waves;
        spacing_us = std::max(spacing_us, r.spacing_us);
        if (wrong.empty()) {
            wrong = std::move(r.wrong);
        }
    }
};

/// The series of one service in one case, sorted.
struct figures {
    harness::tail late, lasts, spread, quiet, herd, quiet_alone, herd_alone;
};

class herd_report {
  public:
    herd_report(harness::report& out, const herd_plan& plan, std::vector<herd_case> cases, std::uint64_t keep)
        : out_{out},
          plan_{plan},
          cases_{std::move(cases)},
          keep_{keep} {}

    void know(const std::string& service, const service_traits& traits) {
        order_.push_back(service);
        traits_.emplace(service, traits);
    }
    [[nodiscard]] seen_herd& of(const std::string& service, const herd_case& c) {
        return seen_[{service, c.name}];
    }

    /// Rows, tables, checks. Once.
    void finish() {
        for (const herd_case& c : cases_) {
            for (const std::string& service : order_) {
                add_rows(service, c);
            }
        }
        out_.parameter("latency", std::move(exact_));
        print_lateness();
        for (const herd_case& c : cases_) {
            print_arms(c);
        }
        for (const std::string& service : order_) {
            check(service);
        }
    }

  private:
    [[nodiscard]] bool floor(const std::string& service) const { return service == floor_entry::name; }
    [[nodiscard]] json point(const herd_case& c) const {
        return {{"kind", c.name}, {"timers", c.timers}, {"slow_callback_us", c.slow / 1us}};
    }

    void add_rows(const std::string& service, const herd_case& c) {
        seen_herd& s = of(service, c);
        figures& f = figures_[{service, c.name}];
        f.late = harness::tail{std::move(s.late_ms)};
        f.lasts = harness::tail{std::move(s.lasts_ms)};
        f.spread = harness::tail{std::move(s.spread_ms)};
        f.quiet = harness::tail{std::move(s.quiet_ns)};
        f.herd = harness::tail{std::move(s.herd_ns)};
        f.quiet_alone = harness::tail{std::move(s.quiet_alone_ns)};
        f.herd_alone = harness::tail{std::move(s.herd_alone_ns)};
        latency_row row{service, point(c), "callback_start", "ms", {}, s.wrong, note_of(service, c)};
        if (!floor(service)) {
            add_latencies(out_, exact_, row, f.late, keep_, 1e-3);
            row.metric = "herd_lasts";
            add_latencies(out_, exact_, row, f.lasts, keep_, 1e-3);
        }
        row.skipped = s.no_probe;
        row.unit = "ns";
        for (const auto& [metric, series] : {std::pair{"arm_quiet", &f.quiet},
                                             {"arm_beside_herd", &f.herd},
                                             {"arm_quiet_alone", &f.quiet_alone},
                                             {"arm_beside_herd_alone", &f.herd_alone}}) {
            row.metric = metric;
            add_latencies(out_, exact_, row, *series, keep_, 1);
        }
        for (const double percent : {99.0, 99.9}) {
            harness::row ratio;
            ratio.service = service;
            ratio.case_point = point(c);
            ratio.metric = percent == 99.0 ? "arm_p99_ratio" : "arm_p999_ratio";
            ratio.unit = "1";
            ratio.skipped = s.no_probe;
            ratio.error = s.wrong;
            if (const auto x = times_quiet(f, percent)) {
                ratio.samples = {*x};
            } else if (ratio.skipped.empty() && ratio.error.empty()) {
                ratio.skipped =
                    "fewer than " + std::to_string(harness::events_needed(percent)) + " arms beside the herd";
            }
            out_.add(std::move(ratio));
        }
    }

    [[nodiscard]] static std::optional<double> times_quiet(const figures& f, double percent) {
        if (f.quiet_alone.empty() || !f.herd.carries(percent) || f.quiet_alone.at(50) <= 0) {
            return std::nullopt;
        }
        return f.herd.at(percent) / f.quiet_alone.at(50);
    }

    [[nodiscard]] std::string note_of(const std::string& service, const herd_case& c) {
        const seen_herd& s = of(service, c);
        std::string note;
        if (!floor(service) && s.timers != c.timers) {
            note = std::to_string(s.timers) + " timers instead of " + std::to_string(c.timers) +
                   ": the service can have no more";
        }
        return note;
    }

    [[nodiscard]] harness::table_cell label(const std::string& service, const herd_case& c) {
        harness::table_cell cell = harness::text(service);
        if (const std::string note = note_of(service, c); !note.empty()) {
            cell.notes.push_back(note);
        }
        if (traits_.at(service).most_durations > 0) {
            cell.notes.push_back("one duration, not one deadline: deadlines follow the arms, over the time "
                                 "that the herd takes to be armed");
        }
        const seen_herd& s = of(service, c);
        if (s.missing > 0) {
            cell.notes.push_back(std::to_string(s.missing) + " callbacks never came (" + c.name + ")");
        }
        return cell;
    }

    void print_lateness() {
        std::vector<harness::column> columns{{"service", "", harness::align::left}};
        for (const herd_case& c : cases_) {
            const std::string name = c.name == std::string{herd_name} ? "herd:" : "slow one:";
            columns.push_back({name, "waves"});
            columns.push_back({"late p50", "ms"});
            columns.push_back({"p99", "ms"});
            columns.push_back({"max", "ms"});
            columns.push_back({"lasts", "ms"});
        }
        std::string title = "Lateness of the herd";
        for (const herd_case& c : cases_) {
            title += (&c == &cases_.front() ? ": " : "; ") + std::to_string(c.timers) + " timers due at once";
            if (c.slow > duration::zero()) {
                title += ", one callback of " +
                         harness::format_number(static_cast<double>(c.slow.count()) / 1e6, 1) +
                         " ms among them";
            }
        }
        harness::text_table table{title, columns};
        for (const std::string& service : order_) {
            if (floor(service)) {
                continue;
            }
            std::vector<harness::table_cell> cells;
            for (const herd_case& c : cases_) {
                harness::table_cell name = label(service, c);
                if (cells.empty()) {
                    cells.push_back(name);
                } else {
                    for (const std::string& n : name.notes) {
                        if (std::find(cells.front().notes.begin(), cells.front().notes.end(), n) ==
                            cells.front().notes.end()) {
                            cells.front().notes.push_back(n);
                        }
                    }
                }
                const seen_herd& s = of(service, c);
                const figures& f = figures_[{service, c.name}];
                if (!s.wrong.empty()) {
                    cells.push_back(harness::absent("error: " + s.wrong));
                    cells.resize(cells.size() + 4);
                    continue;
                }
                cells.push_back(harness::number(s.waves));
                for (const double percent : {50.0, 99.0, 100.0}) {
                    cells.push_back(f.late.cell(percent, 2));
                }
                cells.push_back(f.lasts.cell(50, 2));
            }
            table.add_row(std::move(cells));
        }
        table.add_note(
            "late: callback start minus deadline. lasts: first callback to last, median of the waves.");
        out_.print(table);
    }

    void print_arms(const herd_case& c) {
        harness::text_table table{
            std::string{"Another thread's arm while the herd is served, from the intended time: "} + c.name,
            {{"service", "", harness::align::left},
             {"quiet alone", "p50 ns"},
             {"p99.9", "ns"},
             {"herd: arms", "n"},
             {"p50", "ns"},
             {"p99", "ns"},
             {"p99.9", "ns"},
             {"max", "ns"},
             {"x quiet", "p99"},
             {"", "p99.9"}}};
        for (const std::string& service : order_) {
            const seen_herd& s = of(service, c);
            const figures& f = figures_[{service, c.name}];
            std::vector<harness::table_cell> cells{harness::text(service)};
            if (s.spacing_us > 1.5 * std::chrono::duration<double, std::micro>(plan_.spacing).count()) {
                cells.front().notes.push_back("an arm every " + harness::format_number(s.spacing_us, 0) +
                                              " us: it is too slow for more");
            }
            if (!s.wrong.empty() || !s.no_probe.empty()) {
                cells.push_back(harness::absent(s.wrong.empty() ? s.no_probe : "error: " + s.wrong));
                table.add_row(std::move(cells));
                continue;
            }
            cells.push_back(f.quiet_alone.cell(50, 0));
            cells.push_back(f.quiet.cell(99.9, 0));
            cells.push_back(harness::number(static_cast<std::uint64_t>(f.herd.size())));
            for (const double percent : {50.0, 99.0, 99.9, 100.0}) {
                cells.push_back(f.herd.cell(percent, 0));
            }
            for (const double percent : {99.0, 99.9}) {
                const auto x = times_quiet(f, percent);
                cells.push_back(x ? harness::number(*x, *x < 100 ? 1 : 0) : f.herd.cell(percent, 0));
            }
            table.add_row(std::move(cells));
        }
        table.add_note("quiet: the herd is armed and nothing is due; alone: of the call itself, which is "
                       "what an arm costs uncontended. x quiet: by that.");
        table.add_note(std::string{floor_entry::name} +
                       ": no herd, and arms that do nothing: what the machine does to a thread that spins.");
        out_.print(table);
    }

    void check(const std::string& service) {
        if (floor(service)) {
            return;
        }
        const service_traits& t = traits_.at(service);
        std::uint64_t missing = 0;
        double earliest = 0;
        for (const herd_case& c : cases_) {
            missing += of(service, c).missing;
            const harness::tail& late = figures_[{service, c.name}].late;
            earliest = std::min(earliest, late.empty() ? 0.0 : late.at(0));
        }
        const double allowed = std::chrono::duration<double, std::milli>(t.earliest).count();
        out_.check("nobody early beyond the traits", service, earliest >= std::min(allowed, 0.0),
                   "earliest " + harness::format_number(earliest, 6) + " ms, traits " +
                       harness::format_number(allowed, 6) + " ms");
        if (t.has_fault("lost_wakeup")) {
            out_.check("events lost by design are reported", service, true,
                       std::to_string(missing) + " never came");
        } else {
            out_.check("every callback came", service, missing == 0, std::to_string(missing) + " never came");
        }
    }

    harness::report& out_;
    const herd_plan& plan_;
    std::vector<herd_case> cases_;
    std::uint64_t keep_;
    std::vector<std::string> order_;
    std::map<std::string, service_traits> traits_;
    std::map<std::pair<std::string, std::string>, seen_herd> seen_;
    std::map<std::pair<std::string, std::string>, figures> figures_;
    json exact_ = json::array();
};

int run(int argc, char** argv) {
    harness::options opts;
    std::uint64_t herd = 50'000;
    std::uint64_t beside = 1'000;
    std::uint64_t slow_us = 1'000;
    std::uint64_t budget_ms = 0;
    std::uint64_t rounds = 0;
    std::uint64_t keep = 1'000;
    harness::options_parser parser(
        "bench_herd",
        "What happens when 50 000 timeouts expire at once, to them and to another thread's arm?",
        service_names());
    parser.add_number("--herd", herd, 2, 1'000'000, "timers with one deadline");
    parser.add_number("--beside", beside, 2, 1'000'000,
                      "timers due together with the slow callback, itself included");
    parser.add_number("--slow-us", slow_us, 1, 1'000'000, "how long the slow callback takes");
    parser.add_number("--budget-ms", budget_ms, 1, 600'000,
                      "waves of a visit begin until then; left out: 2000, with --quick 700; half of it for "
                      "the slow callback");
    parser.add_number("--rounds", rounds, 1, 1'000,
                      "visits of each service in each case; left out: 3, with --quick 1");
    parser.add_number("--keep", keep, 2, 1'000'000,
                      "values of each row in the JSON, evenly spaced order statistics");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    const duration budget = std::chrono::milliseconds{budget_ms != 0 ? budget_ms : opts.pick(2'000U, 700U)};
    rounds = rounds != 0 ? rounds : opts.pick(3U, 1U);

    const harness::interrupt_guard interrupts;
    harness::report out("herd", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    const herd_plan plan;
    const std::vector<herd_case> cases{{herd_name, herd, {}, budget},
                                       {slow_name, beside, std::chrono::microseconds{slow_us}, budget / 2}};
    out.parameter("herd", herd);
    out.parameter("timers_beside_slow_callback", beside);
    out.parameter("slow_callback_us", slow_us);
    out.parameter("budget_ms", budget / 1ms);
    out.parameter("rounds", rounds);
    out.parameter("quiet_ms", plan.quiet / 1ms);
    out.parameter("probe_spacing_us", plan.spacing / 1us);
    describe_services(out);

    ledger books;
    herd_report lines{out, plan, cases, keep};
    itinerary visits;
    lines.know(std::string{floor_entry::name}, {});
    for (const herd_case& c : cases) {
        for (std::uint64_t round = 0; round < rounds; ++round) {
            visits.add(std::string{floor_entry::name}, [&, c, round] {
                lines.of(std::string{floor_entry::name}, c).add(run_without_herd(plan, c, opts.seed + round));
            });
        }
    }
    for_each_chosen(opts, [&]<class Entry>() {
        const std::string name{Entry::name};
        const service_traits traits = Entry::make()->traits();
        lines.know(name, traits);
        const bool with_probe =
            traits.arm_from == callable_from::any_thread && traits.cancel_from == callable_from::any_thread;
        for (const herd_case& c : cases) {
            seen_herd& seen = lines.of(name, c);
            seen.timers = c.timers;
            if (traits.most_timers > 0) {
                // Some are left for the other thread.
                seen.timers = std::min(c.timers, traits.most_timers -
                                                     std::min<std::size_t>(traits.most_timers / 8, 100));
            }
            if (!with_probe) {
                seen.no_probe = "only the loop's thread may arm: no other thread meets the herd";
            }
            for (std::uint64_t round = 0; round < rounds; ++round) {
                visits.add(name + ", " + c.name, [&, name, c, round, with_probe, timers = seen.timers] {
                    lines.of(name, c).add(
                        run_herd<Entry>(plan, c, timers, with_probe, opts.seed + round, books));
                });
            }
        }
    });
    visits.run(opts.seed);
    lines.finish();
    books.report_to(out);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
