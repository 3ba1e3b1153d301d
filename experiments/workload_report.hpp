// What the workload experiment keeps of its runs, how it ranks the services, and how it prints them.
//
// CPU and memory of a service are those of its runs minus the mean of the runs without timers. Services that are no further apart than two runs
// without timers share a rank. A service that the generator could not keep to its rate with is not ranked.
#pragma once

#include "experiments/workload_run.hpp"
#include "harness/report.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace timerbench::experiments {

using harness::json;

struct workload_settings {
    workload base;
    std::uint64_t rounds = 0;
    std::uint64_t keep = 1'000;
    double worth_percent = 1;
    std::string simplest = "auto";

    [[nodiscard]] json point() const {
        return {{"rate", base.rate},
                {"timeout_ms", base.timeout / 1ms},
                {"hold_ms", base.hold / 1ms},
                {"cancel_share", base.cancel_share},
                {"threads", base.threads}};
    }
};

/// All runs of one service at the rate that was asked for.
struct seen_service {
    service_traits traits;
    std::function<workload_result(const workload&)> go;
    std::vector<double> cpu, memory, made;
    std::vector<double> late, from_intended, behind;
    std::uint64_t planned = 0, made_in_all = 0, missing = 0, fired_instead = 0;
    bool all_kept_up = true;
    std::string wrong;
    std::string skipped;

    void add(const workload_result& r) {
        cpu.push_back(r.cpu_percent);
        memory.push_back(r.memory_kb);
        made.push_back(r.made_a_second);
        late.insert(late.end(), r.late_ms.begin(), r.late_ms.end());
        from_intended.insert(from_intended.end(), r.from_intended_ms.begin(), r.from_intended_ms.end());
        behind.insert(behind.end(), r.behind_ms.begin(), r.behind_ms.end());
        planned += r.planned;
        made_in_all += r.made;
        all_kept_up = all_kept_up && r.kept_up();
        missing += r.missing;
        fired_instead += r.fired_instead;
        if (wrong.empty()) {
            wrong = r.wrong;
        }
    }
    [[nodiscard]] bool usable() const { return wrong.empty() && skipped.empty() && !cpu.empty(); }
};

[[nodiscard]] inline bool needs_no_explaining(const service_traits& t) {
    return !t.loop_driven() && t.arm_from == callable_from::any_thread &&
           t.cancel_from == callable_from::any_thread && t.cancel_frees && t.most_timers == 0 &&
           t.most_durations == 0 && t.threshold == duration{} && t.faults.empty() &&
           t.earliest == duration{} && t.latest == duration{};
}

/// Why the service cannot have so many timers; empty: it can.
[[nodiscard]] inline std::string too_many(const workload& w, const service_traits& t) {
    const double needed = 1.2 * w.outstanding(t.latest);
    if (t.most_timers == 0 || needed <= static_cast<double>(t.most_timers)) {
        return {};
    }
    return "some " + harness::format_number(needed, 0) +
           " timers are outstanding, and the service can have " + std::to_string(t.most_timers);
}

class workload_report {
  public:
    workload_report(harness::report& out, const workload_settings& s) : out_{out}, settings_{s} {}

    [[nodiscard]] seen_service& of(const std::string& name) {
        if (!seen_.contains(name)) {
            order_.push_back(name);
        }
        return seen_[name];
    }

    /// After the runs at the rate asked for.
    void rank() {
        const seen_service& floor = seen_.at(floor_name());
        floor_cpu_ = harness::mean(floor.cpu).value_or(0);
        floor_memory_ = harness::mean(floor.memory).value_or(0);
        noise_ = floor.cpu.empty() ? 0
                                   : *std::max_element(floor.cpu.begin(), floor.cpu.end()) -
                                         *std::min_element(floor.cpu.begin(), floor.cpu.end());
        for (const std::string& name : order_) {
            if (name != floor_name() && seen_.at(name).usable() && seen_.at(name).all_kept_up) {
                ranked_.push_back(name);
            }
        }
        std::stable_sort(ranked_.begin(), ranked_.end(),
                         [this](const auto& a, const auto& b) { return cpu_of(a) < cpu_of(b); });
        rest_ = order_;
        std::erase_if(rest_, [this](const std::string& name) {
            return name == floor_name() || std::find(ranked_.begin(), ranked_.end(), name) != ranked_.end();
        });
    }

    void finish(const std::vector<break_even_step>& steps, const std::string& simplest,
                const std::string& cheapest, std::optional<double> break_even_rate,
                const std::string& verdict) {
        for (const std::string& name : order_) {
            add_rows(name);
        }
        harness::row row;
        row.service = cheapest.empty() ? "all" : cheapest;
        row.case_point = settings_.point();
        row.case_point["against"] = simplest;
        row.case_point["worth_percent"] = settings_.worth_percent;
        row.metric = "break_even_rate";
        row.unit = "1/s";
        if (break_even_rate) {
            row.samples = {*break_even_rate};
        } else {
            row.skipped = verdict;
        }
        out_.add(std::move(row));
        out_.parameter("latency", std::move(exact_));
        json taken = json::array();
        for (const break_even_step& s : steps) {
            taken.push_back(
                {{"rate", s.rate}, {"simplest_percent", s.simplest}, {"cheapest_percent", s.cheapest}});
        }
        out_.parameter("break_even_runs", std::move(taken));
        out_.parameter("simplest", simplest);
        print_ranking();
        if (!steps.empty()) {
            print_steps(steps, simplest, cheapest);
        }
        out_.print("Break-even: " + verdict);
        for (const std::string& name : order_) {
            check(name);
        }
    }

    [[nodiscard]] const std::vector<std::string>& ranked() const noexcept { return ranked_; }
    /// CPU of the timers, % of a core.
    [[nodiscard]] double cpu_of(const std::string& name) const {
        return harness::mean(seen_.at(name).cpu).value_or(0) - floor_cpu_;
    }
    [[nodiscard]] double floor_cpu() const noexcept { return floor_cpu_; }
    [[nodiscard]] double noise() const noexcept { return noise_; }

  private:
    [[nodiscard]] static std::string floor_name() { return std::string{floor_entry::name}; }

    void add_rows(const std::string& name) {
        seen_service& s = seen_.at(name);
        const bool floor = name == floor_name();
        const auto plain = [&](const char* metric, const char* unit, std::vector<double> values,
                               double minus) {
            harness::row row;
            row.service = name;
            row.case_point = settings_.point();
            row.metric = metric;
            row.unit = unit;
            row.skipped = s.skipped;
            row.error = s.wrong;
            for (double& v : values) {
                v -= minus;
            }
            row.samples = std::move(values);
            if (!s.all_kept_up) {
                row.note = behind_note(s);
            }
            out_.add(std::move(row));
        };
        plain("timers_cpu", "%", s.cpu, floor ? 0 : floor_cpu_);
        plain("memory_growth", "kB", s.memory, floor ? 0 : floor_memory_);
        plain("requests_made", "1/s", s.made, 0);
        latency_row row{name, settings_.point(), "generator_behind", "ms", s.skipped, s.wrong, {}};
        behind_[name] = harness::tail{std::move(s.behind)};
        add_latencies(out_, exact_, row, behind_[name], settings_.keep, 1e-3);
        if (floor) {
            return;
        }
        late_[name] = harness::tail{std::move(s.late)};
        intended_[name] = harness::tail{std::move(s.from_intended)};
        if (row.skipped.empty() && settings_.base.cancel_share >= 1) {
            row.skipped = none_fires();
        }
        row.metric = "lateness";
        add_latencies(out_, exact_, row, late_[name], settings_.keep, 1e-3);
        row.metric = "lateness_from_intended";
        add_latencies(out_, exact_, row, intended_[name], settings_.keep, 1e-3);
    }

    [[nodiscard]] static std::string none_fires() { return "no timeout fires: every request is answered"; }
    [[nodiscard]] static std::string behind_note(const seen_service& s) {
        return "cannot keep up: behind for most of the window, or not all made (" +
               std::to_string(s.made_in_all) + " of " + std::to_string(s.planned) +
               " requests); its CPU is for those";
    }

    void print_ranking() {
        const workload& w = settings_.base;
        harness::text_table table{"Timers for " + std::to_string(w.rate) + " requests a second, timeout " +
                                      std::to_string(w.timeout / 1ms) + " ms, " +
                                      harness::format_number(100 * w.cancel_share, 1) + " % answered after " +
                                      std::to_string(w.hold / 1ms) + " ms, " + std::to_string(w.threads) +
                                      (w.threads == 1 ? " thread" : " threads") + ": ranked by CPU",
                                  {{"rank", ""},
                                   {"service", "", harness::align::left},
                                   {"CPU", "% of core"},
                                   {"memory", "kB"},
                                   {"late p50", "ms"},
                                   {"p99", "ms"},
                                   {"intended", "p99 ms"},
                                   {"behind p50", "ms"},
                                   {"p99", "ms"},
                                   {"max", "ms"}}};
        std::size_t shared = 0;
        for (std::size_t i = 0; i < ranked_.size(); ++i) {
            if (i > 0 && cpu_of(ranked_[i]) - cpu_of(ranked_[shared]) > noise_) {
                shared = i;
            }
            table.add_row(cells_of(ranked_[i], std::to_string(shared + 1)));
        }
        for (const std::string& name : rest_) {
            table.add_row(cells_of(name, "-"));
        }
        const seen_service& floor = seen_.at(floor_name());
        table.add_note("Without timers the same requests take " + harness::format_number(floor_cpu_, 2) +
                       " % of a core and " + harness::format_number(floor_memory_, 0) +
                       " kB, which are subtracted; " + std::to_string(floor.cpu.size()) +
                       " such runs lie within " + harness::format_number(noise_, 2) + " %.");
        table.add_note("Services no further apart than that share a rank. A figure below it, negative ones "
                       "too, is zero for all that this run can tell.");
        table.add_note("late: from the reading before the arm. intended: from the intended time of the "
                       "request. behind: how late the "
                       "generator came to a burst.");
        table.add_note("On average " + harness::format_number(w.outstanding(), 0) +
                       " timeouts are outstanding. memory: timers, and what is held for cancelled ones.");
        out_.print(table);
    }

    [[nodiscard]] std::vector<harness::table_cell> cells_of(const std::string& name,
                                                            const std::string& rank) {
        const seen_service& s = seen_.at(name);
        std::vector<harness::table_cell> cells{harness::text(rank), harness::text(name)};
        if (s.fired_instead > 0) {
            cells.back().notes.push_back(
                std::to_string(s.fired_instead) +
                " timeouts fired before their requests could be answered: the generator was held up");
        }
        if (s.missing > 0) {
            cells.back().notes.push_back(std::to_string(s.missing) + " timeouts never fired");
        }
        if (!s.usable()) {
            cells.push_back(harness::absent(!s.skipped.empty() ? s.skipped
                                            : s.wrong.empty()  ? "not measured in this run"
                                                               : "error: " + s.wrong));
            return cells;
        }
        if (!s.all_kept_up) {
            cells.back().notes.push_back(behind_note(s));
        }
        cells.push_back(harness::number(cpu_of(name), 2));
        cells.push_back(harness::number(harness::mean(s.memory).value_or(0) - floor_memory_, 0));
        const bool fires = settings_.base.cancel_share < 1;
        cells.push_back(fires ? late_[name].cell(50, 3) : harness::absent(none_fires()));
        cells.push_back(fires ? late_[name].cell(99, 3) : harness::absent(none_fires()));
        cells.push_back(fires ? intended_[name].cell(99, 3) : harness::absent(none_fires()));
        for (const double percent : {50.0, 99.0, 100.0}) {
            cells.push_back(behind_[name].cell(percent, 3));
        }
        return cells;
    }

    void print_steps(const std::vector<break_even_step>& steps, const std::string& simplest,
                     const std::string& cheapest) {
        harness::text_table table{
            "The simplest service against the cheapest of its kind, at other rates (requests included)",
            {{"requests", "1/s"}, {simplest, "% of core"}, {cheapest, "% of core"}, {"saved", "% of core"}}};
        for (const break_even_step& s : steps) {
            table.add_row({harness::number(s.rate), harness::number(s.simplest, 2),
                           harness::number(s.cheapest, 2), harness::number(s.saved(), 2)});
        }
        out_.print(table);
    }

    void check(const std::string& name) {
        const seen_service& s = seen_.at(name);
        if (name == floor_name() || !s.usable()) {
            return;
        }
        const harness::tail& late = late_[name];
        const double allowed = std::chrono::duration<double, std::milli>(s.traits.earliest).count();
        const double earliest = late.empty() ? 0 : late.at(0);
        out_.check("nobody early beyond the traits", name, earliest >= std::min(allowed, 0.0),
                   "earliest " + harness::format_number(earliest, 6) + " ms of " +
                       std::to_string(late.size()) + ", traits " + harness::format_number(allowed, 6) +
                       " ms");
        if (s.traits.has_fault("lost_wakeup")) {
            out_.check("timeouts lost by design are reported", name, true,
                       std::to_string(s.missing) + " never fired");
        } else {
            out_.check("every timeout that was due fired", name, s.missing == 0,
                       std::to_string(s.missing) + " never fired");
        }
    }

    harness::report& out_;
    const workload_settings& settings_;
    std::vector<std::string> order_;
    std::map<std::string, seen_service> seen_;
    std::vector<std::string> ranked_;
    std::vector<std::string> rest_;
    std::map<std::string, harness::tail> late_, intended_, behind_;
    double floor_cpu_ = 0;
    double floor_memory_ = 0;
    double noise_ = 0;
    json exact_ = json::array();
};

} // namespace timerbench::experiments
