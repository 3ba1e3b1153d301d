// What the accuracy experiment keeps of its waves, and how it prints it.
//
// Every figure is computed from all events at full resolution. The JSON rows hold milliseconds cut to 1 us (away from
// zero where negative, so that an early event stays early) and at most wave_plan::samples_kept values each: where there
// are more events, evenly spaced order statistics, smallest and largest included. The exact figures of all events
// stand in the parameter "lateness", those counted from the intended time too.
#pragma once

#include "experiments/accuracy_wave.hpp"
#include "harness/report.hpp"
#include "harness/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace timerbench::experiments {

inline constexpr const char* limit_name = "limit/clock_nanosleep";
inline constexpr const char* waiter_name = "limit/waiter_timed";

struct figures {
    std::size_t n = 0;
    std::size_t early = 0;
    double min = 0, p10 = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0; // ms
};

/// Sorts. Empty input gives n = 0.
[[nodiscard]] inline figures figures_of(std::vector<double>& ms) {
    figures f;
    f.n = ms.size();
    if (ms.empty()) {
        return f;
    }
    std::sort(ms.begin(), ms.end());
    f.early = static_cast<std::size_t>(std::lower_bound(ms.begin(), ms.end(), 0.0) - ms.begin());
    f.min = ms.front();
    f.p10 = harness::percentile_of_sorted(ms, 10);
    f.p50 = harness::percentile_of_sorted(ms, 50);
    f.p90 = harness::percentile_of_sorted(ms, 90);
    f.p99 = harness::percentile_of_sorted(ms, 99);
    f.p999 = harness::percentile_of_sorted(ms, 99.9);
    f.max = ms.back();
    return f;
}

/// At most `most` (2 or more) values of a sorted series, cut to 1 us.
[[nodiscard]] inline std::vector<double> kept_of(const std::vector<double>& sorted, std::size_t most) {
    const auto cut = [](double ms) {
        const double us = ms < 0 ? std::floor(ms * 1e3) : std::round(ms * 1e3);
        return us / 1e3;
    };
    std::vector<double> kept;
    const std::size_t n = std::min(sorted.size(), most);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t at = n == sorted.size() ? i : i * (sorted.size() - 1) / (n - 1);
        kept.push_back(cut(sorted[at]));
    }
    return kept;
}

/// Chi-square of phases against uniform over `bins` equal parts of `phase_width`.
[[nodiscard]] inline double chi_square(const std::vector<duration>& phases, std::size_t bins) {
    std::vector<double> count(bins, 0);
    for (const duration p : phases) {
        count[static_cast<std::size_t>(p.count()) * bins / static_cast<std::size_t>(phase_width.count())] +=
            1;
    }
    const double expected = static_cast<double>(phases.size()) / static_cast<double>(bins);
    double sum = 0;
    for (const double c : count) {
        sum += (c - expected) * (c - expected) / expected;
    }
    return phases.empty() ? 0 : sum;
}
inline constexpr std::size_t phase_bins = 20;
inline constexpr double chi_square_95 = 30.14; ///< 95 % point for 19 degrees of freedom

/// All that was seen of one service in one environment at one duration, over all rounds.
struct seen_series {
    std::vector<double> started, resumed, from_intended; // ms
    figures started_figures, resumed_figures, from_intended_figures;
};

/// All that belongs to one service in one environment.
struct seen_place {
    std::map<std::size_t, seen_series> by_duration;
    std::vector<double> lag; // ms
    figures lag_figures;
    std::vector<duration> phases;
    std::uint64_t missing = 0;
    std::uint64_t waves = 0;
    double pairs_a_second = 0; // the slowest wave's
    std::string wrong;
    std::string skipped;
};

struct service_facts {
    service_traits traits;
    bool is_limit = false;
};

class accuracy_report {
  public:
    accuracy_report(harness::report& out, const wave_plan& plan) : out_{out}, plan_{plan} {}

    void know(const std::string& service, const service_facts& facts) {
        order_.push_back(service);
        facts_.emplace(service, facts);
    }

    void add(const std::string& service, surroundings where, const wave_result& wave) {
        seen_place& place = places_[{service, where}];
        const auto ms = [](duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
        for (const observation& o : wave.events) {
            seen_series& s = place.by_duration[o.which];
            s.started.push_back(ms(o.started));
            s.resumed.push_back(ms(o.resumed));
            s.from_intended.push_back(ms(o.resumed + o.lag));
            place.lag.push_back(ms(o.lag));
            place.phases.push_back(o.phase);
        }
        place.missing += wave.missing;
        place.pairs_a_second =
            place.waves == 0 ? wave.pairs_a_second : std::min(place.pairs_a_second, wave.pairs_a_second);
        ++place.waves;
        if (place.wrong.empty()) {
            place.wrong = wave.wrong;
        }
    }
    void skip(const std::string& service, surroundings where, const std::string& why) {
        places_[{service, where}].skipped = why;
    }

    /// Rows, tables and checks. Once, at the end.
    void finish() {
        json_ = harness::json::array();
        for (const surroundings where : all_surroundings) {
            for (const std::string& service : order_) {
                rows_of(service, where);
            }
        }
        out_.parameter("lateness", std::move(json_));
        print_summary();
        for (const surroundings where : all_surroundings) {
            print_lateness(where);
        }
        print_generator();
        for (const std::string& service : order_) {
            check(service);
        }
        check_control();
    }

  private:
    [[nodiscard]] bool limit(const std::string& service) const { return facts_.at(service).is_limit; }

    [[nodiscard]] harness::json point_of(surroundings where, std::size_t which) const {
        return {{"environment", name_of(where)}, {"duration_ms", plan_.durations[which].count() / 1'000'000}};
    }

    [[nodiscard]] std::vector<std::size_t> indices() const {
        std::vector<std::size_t> all(plan_.durations.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = i;
        }
        return all;
    }

    void rows_of(const std::string& service, surroundings where) {
        seen_place& place = places_[{service, where}];
        for (const std::size_t which : indices()) {
            seen_series& s = place.by_duration[which];
            s.started_figures = figures_of(s.started);
            s.resumed_figures = figures_of(s.resumed);
            s.from_intended_figures = figures_of(s.from_intended);
            const auto one = [&](const char* metric, const std::vector<double>& sorted, const figures& f) {
                harness::row row;
                row.service = service;
                row.case_point = point_of(where, which);
                row.metric = metric;
                row.unit = "ms";
                row.single_events = true;
                row.skipped = place.skipped;
                row.error = place.wrong;
                row.samples = kept_of(sorted, plan_.samples_kept);
                if (sorted.size() > plan_.samples_kept) {
                    row.note = std::to_string(plan_.samples_kept) + " evenly spaced order statistics of " +
                               std::to_string(sorted.size()) + " events";
                }
                out_.add(std::move(row));
                exact(service, where, which, metric, f);
            };
            one("callback_start", s.started, s.started_figures);
            if (!limit(service)) {
                one("task_resumption", s.resumed, s.resumed_figures);
                exact(service, where, which, "task_resumption_from_intended", s.from_intended_figures);
            }
        }
        place.lag_figures = figures_of(place.lag);
        if (!limit(service)) {
            harness::row row;
            row.service = service;
            row.case_point = {{"environment", name_of(where)}};
            row.metric = "generator_lag";
            row.unit = "ms";
            row.single_events = true;
            row.skipped = place.skipped;
            row.error = place.wrong;
            row.samples = kept_of(place.lag, plan_.samples_kept);
            out_.add(std::move(row));
        }
    }

    void exact(const std::string& service, surroundings where, std::size_t which, const char* metric,
               const figures& f) {
        if (f.n == 0) {
            return;
        }
        harness::json entry{{"service", service}};
        entry.update(point_of(where, which));
        entry.update({{"metric", metric},
                      {"n", f.n},
                      {"early", f.early},
                      {"min", f.min},
                      {"p10", f.p10},
                      {"p50", f.p50},
                      {"p90", f.p90},
                      {"p99", f.p99},
                      {"p99.9", f.p999},
                      {"max", f.max}});
        json_.push_back(std::move(entry));
    }

    [[nodiscard]] static harness::table_cell ms(double value) { return harness::number(value, 3); }
    [[nodiscard]] static std::string ms_text(double value) { return harness::format_number(value, 3); }

    [[nodiscard]] harness::table_cell name_cell(const std::string& service, const seen_place& place) const {
        harness::table_cell cell = harness::text(service);
        if (place.missing > 0) {
            cell.notes.push_back(std::to_string(place.missing) + " events never came");
        }
        return cell;
    }

    [[nodiscard]] static std::string why_none(const seen_place& place) {
        if (!place.skipped.empty()) {
            return place.skipped;
        }
        return place.wrong.empty() ? "no event in this run" : "error: " + place.wrong;
    }

    // The bound that the design of a service promises: its latest start by construction, and what the machine adds.
    [[nodiscard]] double bound_of(const std::string& service, surroundings where, std::size_t which) {
        const double latest =
            std::chrono::duration<double, std::milli>(facts_.at(service).traits.latest).count();
        return latest + places_[{limit_name, where}].by_duration[which].started_figures.p90;
    }

    [[nodiscard]] harness::table_cell bound_cell(const std::string& service) {
        std::size_t cells = 0;
        std::size_t reached = 0;
        for (const surroundings where :
             {surroundings::idle, surroundings::cores_busy, surroundings::service_busy}) {
            for (const std::size_t which : indices()) {
                const figures& f = places_[{service, where}].by_duration[which].started_figures;
                cells += f.n > 0 ? 1 : 0;
                reached += f.n > 0 && f.p90 <= bound_of(service, where, which) ? 1 : 0;
            }
        }
        return harness::text(std::to_string(reached) + " of " + std::to_string(cells));
    }

    void print_summary() {
        harness::text_table table{"Lateness of callback start, all durations together",
                                  {{"service", "", harness::align::left},
                                   {"idle p50", "ms"},
                                   {"p99", "ms"},
                                   {"max", "ms"},
                                   {"cores busy p50", "ms"},
                                   {"p99", "ms"},
                                   {"max", "ms"},
                                   {"service busy p50", "ms"},
                                   {"p99", "ms"},
                                   {"max", "ms"},
                                   {"early", "events"},
                                   {"of", "events"},
                                   {"earliest", "ms"},
                                   {"by traits", "ms"},
                                   {"p90 within", "latest + limit"}}};
        for (const std::string& service : order_) {
            std::vector<harness::table_cell> cells{harness::text(service)};
            for (const surroundings where :
                 {surroundings::idle, surroundings::cores_busy, surroundings::service_busy}) {
                seen_place& place = places_[{service, where}];
                std::vector<double> all;
                for (const auto& [which, s] : place.by_duration) {
                    all.insert(all.end(), s.started.begin(), s.started.end());
                }
                const figures f = figures_of(all);
                for (const double value : {f.p50, f.p99, f.max}) {
                    cells.push_back(f.n > 0 && place.wrong.empty() ? ms(value)
                                                                   : harness::absent(why_none(place)));
                }
            }
            const early_facts e = early_of(service);
            cells.push_back(harness::number(static_cast<std::uint64_t>(e.early)));
            cells.push_back(harness::number(static_cast<std::uint64_t>(e.n)));
            cells.push_back(e.n > 0 ? ms(e.earliest) : harness::absent("no event in this run"));
            cells.push_back(limit(service) ? harness::text("")
                                           : ms(std::chrono::duration<double, std::milli>(
                                                    facts_.at(service).traits.earliest)
                                                    .count()));
            cells.push_back(limit(service) ? harness::text("") : bound_cell(service));
            table.add_row(std::move(cells));
        }
        table.add_note("Lateness: callback start minus (the harness's clock reading just before the arm + "
                       "duration). Negative is "
                       "early; early events are counted at full clock resolution.");
        table.add_note("p90 within: in how many of the cells below 90 % of the callbacks start within the "
                       "latest start by construction (for a slotted service one slot) plus the p90 of the "
                       "limit row in the same environment.");
        out_.print(table);
    }

    void print_lateness(surroundings where) {
        std::string title = "Lateness, environment " + std::string{name_of(where)};
        title += where == surroundings::idle         ? ": nothing else runs"
                 : where == surroundings::cores_busy ? ": one burning thread per core"
                                                     : ": " + std::to_string(plan_.pairs_a_second) +
                                                           " arm + cancel pairs a second on the same service";
        harness::text_table table{title,
                                  {{"asked", "ms"},
                                   {"service", "", harness::align::left},
                                   {"events", "n"},
                                   {"callback min", "ms"},
                                   {"p10", "ms"},
                                   {"p50", "ms"},
                                   {"p90", "ms"},
                                   {"p99", "ms"},
                                   {"p99.9", "ms"},
                                   {"max", "ms"},
                                   {"early", "n"},
                                   {"task p50", "ms"},
                                   {"p90", "ms"},
                                   {"p99", "ms"},
                                   {"max", "ms"},
                                   {"callback p90 <=", "latest + limit p90", harness::align::left}}};
        for (const std::size_t which : indices()) {
            for (const std::string& service : order_) {
                seen_place& place = places_[{service, where}];
                const seen_series& s = place.by_duration[which];
                const figures& f = s.started_figures;
                std::vector<harness::table_cell> cells{
                    harness::text(std::to_string(plan_.durations[which].count() / 1'000'000)),
                    name_cell(service, place)};
                if (f.n == 0 || !place.wrong.empty()) {
                    cells.push_back(harness::absent(why_none(place)));
                    table.add_row(std::move(cells));
                    continue;
                }
                cells.push_back(harness::number(static_cast<std::uint64_t>(f.n)));
                for (const double value : {f.min, f.p10, f.p50, f.p90, f.p99, f.p999, f.max}) {
                    cells.push_back(ms(value));
                }
                cells.push_back(harness::number(static_cast<std::uint64_t>(f.early)));
                const figures& r = s.resumed_figures;
                for (const double value : {r.p50, r.p90, r.p99, r.max}) {
                    cells.push_back(limit(service) ? harness::text("") : ms(value));
                }
                if (!limit(service)) {
                    const double bound = bound_of(service, where, which);
                    cells.push_back(harness::text((f.p90 <= bound ? "reached: " : "missed: ") +
                                                  ms_text(f.p90) + " / " + ms_text(bound)));
                }
                table.add_row(std::move(cells));
            }
        }
        table.add_note(
            "callback: start of the callback. task: the executor polls the task that waited. Both from the "
            "harness's own reading just before the arm.");
        table.add_note("latest: the latest start by construction, from the traits; for a slotted service "
                       "one slot. p99.9 of fewer than "
                       "10 000 events rests on a handful of them.");
        table.add_note(std::string{limit_name} +
                       ": one thread that knows the same deadlines beforehand and sleeps until each, "
                       "absolute, slack 1 ns.");
        table.add_note(std::string{waiter_name} +
                       ": the same by a timed wait on a condition variable: a waiter that times itself, "
                       "with no timer to arm or cancel.");
        out_.print(table);
    }

    void print_generator() {
        harness::text_table table{
            "The generator: how far the arming thread was behind its schedule, and what that hides",
            {{"environment", "", harness::align::left},
             {"service", "", harness::align::left},
             {"lag p50", "ms"},
             {"p99", "ms"},
             {"max", "ms"},
             {"task p99", "from own reading, ms"},
             {"task p99", "from intended, ms"},
             {"task max", "from intended, ms"},
             {"chi-square", "arms mod 10 ms"},
             {"pairs", "1/s"}}};
        for (const surroundings where :
             {surroundings::idle, surroundings::cores_busy, surroundings::service_busy}) {
            for (const std::string& service : order_) {
                if (limit(service)) {
                    continue;
                }
                const seen_place& place = places_[{service, where}];
                std::vector<harness::table_cell> cells{harness::text(name_of(where)), harness::text(service)};
                if (place.lag.empty()) {
                    cells.push_back(harness::absent(why_none(place)));
                    table.add_row(std::move(cells));
                    continue;
                }
                std::vector<double> own;
                std::vector<double> intended;
                for (const auto& [which, s] : place.by_duration) {
                    own.insert(own.end(), s.resumed.begin(), s.resumed.end());
                    intended.insert(intended.end(), s.from_intended.begin(), s.from_intended.end());
                }
                const figures o = figures_of(own);
                const figures i = figures_of(intended);
                for (const double value : {place.lag_figures.p50, place.lag_figures.p99,
                                           place.lag_figures.max, o.p99, i.p99, i.max}) {
                    cells.push_back(ms(value));
                }
                cells.push_back(harness::number(chi_square(place.phases, phase_bins), 1));
                cells.push_back(where == surroundings::service_busy ? harness::number(place.pairs_a_second, 0)
                                                                    : harness::text(""));
                if (where == surroundings::service_busy && facts_.at(service).traits.loop_driven()) {
                    cells.back().notes.push_back(
                        "arms and pairs run on the loops' own threads, between passes");
                }
                table.add_row(std::move(cells));
            }
        }
        table.add_note("Where the generator stalls, the figures from its own reading look better than life: "
                       "those from the intended "
                       "time count every event that a stall delayed.");
        table.add_note("chi-square: phases of the arms' clock readings over " + std::to_string(phase_bins) +
                       " parts of 10 ms; at most " + harness::format_number(chi_square_95, 1) +
                       " is uniform at 95 %. The schedule's own phases are a check of this run.");
        out_.print(table);
    }

    struct early_facts {
        std::size_t n = 0;
        std::size_t early = 0;
        double earliest = 0;
    };
    [[nodiscard]] early_facts early_of(const std::string& service) {
        early_facts e;
        for (const surroundings where : all_surroundings) {
            for (const auto& [which, s] : places_[{service, where}].by_duration) {
                const figures& f = s.started_figures;
                if (f.n > 0) {
                    e.earliest = e.n == 0 ? f.min : std::min(e.earliest, f.min);
                    e.n += f.n;
                    e.early += f.early;
                }
            }
        }
        return e;
    }

    void check(const std::string& service) {
        const early_facts e = early_of(service);
        if (e.n == 0) {
            return;
        }
        const service_traits& t = facts_.at(service).traits;
        const double allowed = std::chrono::duration<double, std::milli>(t.earliest).count();
        out_.check("nobody early beyond the traits", service, e.earliest >= std::min(allowed, 0.0),
                   std::to_string(e.early) + " of " + std::to_string(e.n) + " early, earliest " +
                       harness::format_number(e.earliest, 6) + " ms, traits " +
                       harness::format_number(allowed, 6) + " ms");
        if (limit(service)) {
            return;
        }
        std::uint64_t missing = 0;
        for (const surroundings where : all_surroundings) {
            missing += places_[{service, where}].missing;
        }
        if (t.has_fault("lost_wakeup")) {
            out_.check("events lost by design are reported", service, true,
                       std::to_string(missing) + " never came");
        } else {
            out_.check("every event came", service, missing == 0, std::to_string(missing) + " never came");
        }
    }

    // A service that is early by design shows that an early fire would be seen. With few events it may not be early.
    void check_control() {
        constexpr std::size_t enough = 10'000;
        early_facts all;
        for (const std::string& service : order_) {
            if (facts_.at(service).traits.earliest < duration::zero()) {
                const early_facts e = early_of(service);
                all.n += e.n;
                all.early += e.early;
            }
        }
        if (all.n >= enough) {
            out_.check("early fires of services that are early by design are seen", "", all.early > 0,
                       std::to_string(all.early) + " of " + std::to_string(all.n));
        }
    }

    harness::report& out_;
    const wave_plan& plan_;
    std::vector<std::string> order_;
    std::map<std::string, service_facts> facts_;
    std::map<std::pair<std::string, surroundings>, seen_place> places_;
    harness::json json_;
};

} // namespace timerbench::experiments
