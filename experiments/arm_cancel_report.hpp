// The cases of bench_arm_cancel, and what its report prints of them: a table per case, the adapters against direct use of
// their libraries, and the numbers to reach. Rows are found in the report by service, case and metric; nothing here measures.
#pragma once

#include "experiments/service_cells.hpp"
#include "harness/report.hpp"
#include "harness/row.hpp"
#include "harness/statistics.hpp"
#include "harness/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace timerbench::experiments {

inline constexpr const char* saturated_note = "saturated: the queue is longer after than before";

/// One point of the parameter space of bench_arm_cancel.
struct arm_cancel_case {
    std::uint64_t population = 0;
    bool window = false; ///< Else the article's one timer.
    bool random_victim = false;
    duration low{}; ///< low == high: one duration.
    duration high{};
    bool earliest = false; ///< The new deadline is earlier than all others.
    bool above_threshold = false;
    std::uint64_t pairs_per_ms = 0; ///< 0: saturating.

    [[nodiscard]] bool random_durations() const { return low != high && !earliest; }
    /// Whether the direct use of a library is measured beside its adapter.
    [[nodiscard]] bool with_direct() const {
        return pairs_per_ms == 0 && !above_threshold && population < 100'000 && !random_durations();
    }
    /// Whether a cancel of what another thread armed is measured too.
    [[nodiscard]] bool with_foreign_cancel() const {
        return window && !random_victim && low == high && !earliest && !above_threshold && pairs_per_ms == 0;
    }
};

[[nodiscard]] inline std::vector<arm_cancel_case> all_cases(const std::vector<std::uint64_t>& populations,
                                                            bool quick) {
    using std::chrono::seconds;
    constexpr seconds beyond{20 * 60};
    std::vector<arm_cancel_case> cases;
    // Paced with nobody else and, in a full run, with the most others whose set-up is not dear.
    std::uint64_t paced_population = populations.front();
    for (const std::uint64_t n : populations) {
        paced_population = quick || n >= 100'000 ? paced_population : n;
    }
    for (const std::uint64_t n : populations) {
        const bool main_only = quick && n >= 100'000;
        const bool everything = !quick || n == populations.front();
        cases.push_back({.population = n, .low = seconds{1}, .high = seconds{1}, .earliest = true});
        if (!main_only) {
            cases.push_back({.population = n, .low = seconds{1}, .high = seconds{1}});
        }
        cases.push_back({.population = n, .window = true, .low = seconds{3}, .high = seconds{3}});
        if (!main_only) {
            cases.push_back({.population = n,
                             .window = true,
                             .random_victim = true,
                             .low = seconds{3},
                             .high = seconds{3}});
            cases.push_back({.population = n, .window = true, .low = seconds{1}, .high = seconds{60}});
            cases.push_back({.population = n,
                             .window = true,
                             .random_victim = true,
                             .low = seconds{1},
                             .high = seconds{60}});
        }
        if (everything) {
            cases.push_back(
                {.population = n, .window = true, .low = seconds{10}, .high = seconds{60}, .earliest = true});
            cases.push_back({.population = n, .low = beyond, .high = beyond, .above_threshold = true});
            cases.push_back(
                {.population = n, .window = true, .low = beyond, .high = beyond, .above_threshold = true});
        }
        if (n == populations.front() || n == paced_population) {
            for (const std::uint64_t pace : {100, 1'000}) {
                cases.push_back({.population = n,
                                 .window = true,
                                 .low = seconds{3},
                                 .high = seconds{3},
                                 .pairs_per_ms = pace});
            }
            cases.push_back({.population = n,
                             .low = seconds{1},
                             .high = seconds{1},
                             .earliest = true,
                             .pairs_per_ms = 1'000});
        }
    }
    return cases;
}

[[nodiscard]] inline harness::json to_json(const arm_cancel_case& c, std::uint64_t window_size) {
    const auto milliseconds = [](duration d) {
        return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
    };
    harness::json point = {{"kind", c.window ? "window" : "article"}};
    if (c.window) {
        point["window"] = window_size;
        point["cancel"] = c.random_victim ? "random" : "oldest";
    }
    point["population"] = c.population;
    if (c.random_durations()) {
        point["duration_ms"] =
            std::to_string(milliseconds(c.low)) + ".." + std::to_string(milliseconds(c.high));
    } else {
        point["duration_ms"] = milliseconds(c.high);
    }
    point["deadline"] = c.earliest ? "earliest" : "latest";
    point["regime"] = c.pairs_per_ms > 0 ? "paced" : "saturating";
    if (c.pairs_per_ms > 0) {
        point["pairs_per_ms"] = c.pairs_per_ms;
    }
    return point;
}

/// One line for people.
[[nodiscard]] inline std::string title_of(const arm_cancel_case& c, std::uint64_t window_size) {
    const auto in_seconds = [](duration d) {
        return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count()) + " s";
    };
    std::string title = c.window ? "window of " + std::to_string(window_size) + ", cancel " +
                                       (c.random_victim ? "a random one" : "the oldest") + ", arm anew"
                                 : std::string{"article: arm and cancel one timer"};
    title += ", " + (c.random_durations() ? in_seconds(c.low) + " to " + in_seconds(c.high)
                                          : (c.window && c.earliest ? "up to " : "") + in_seconds(c.high));
    title += c.above_threshold ? " (above the threshold)" : "";
    title += c.earliest ? ", the earliest deadline" : ", not the earliest deadline";
    title += "; " + std::to_string(c.population) + " others";
    title += c.pairs_per_ms > 0 ? "; paced, " + std::to_string(c.pairs_per_ms) + " pairs a ms"
                                : "; saturating loop";
    return title;
}

/// The relative gap below which nothing in one case is called a difference.
struct noise_of_case {
    double gap = 0;
    std::string text;
};

[[nodiscard]] inline noise_of_case noise_in(const harness::report& out, const harness::json& point) {
    noise_of_case noise;
    std::string widest;
    double own = 0;
    for (const harness::row& r : out.rows()) {
        if (r.case_point == point && r.metric == "arm_cancel") {
            const auto summary = harness::summarise(r, out.opts().seed);
            if (summary && summary->aa_gap && *summary->aa_gap > own) {
                own = *summary->aa_gap;
                widest = r.service;
            }
        }
    }
    const harness::row* original = out.find("coarse_slot", point, "arm_cancel");
    const harness::row* twin = out.find("twin", point, "arm_cancel");
    std::string twin_text = "twin not measured";
    if (original != nullptr && twin != nullptr) {
        if (const auto ratio = harness::compare_rows(*twin, *original, out.opts().seed)) {
            noise.gap = std::abs(ratio->p50 - 1);
            twin_text = "twin's gap " + harness::format_number(noise.gap * 100, 1) + " %";
            if (const auto orders = harness::compare_orders(*twin, *original)) {
                twin_text += " (" + harness::format_number(orders->a_first, 3) + " when it comes first, " +
                             harness::format_number(orders->b_first, 3) + " when coarse_slot does)";
            }
        }
    }
    noise.text = "No smaller difference is called one: " + twin_text + ", a row's own A/A gap (up to " +
                 harness::format_number(own * 100, 1) + " %" + (widest.empty() ? "" : ", " + widest) + ").";
    return noise;
}

/// Ratio of a row to the reference with the verdict on it; noise is the twin's gap and both rows' own A/A.
[[nodiscard]] inline harness::table_cell against(const harness::row& r, const harness::row* reference,
                                                 double twin_gap, std::uint64_t seed) {
    if (reference == nullptr || harness::same_place(r, *reference)) {
        return harness::text(reference == nullptr ? "-" : "1");
    }
    const auto ratio = harness::compare_rows(r, *reference, seed);
    if (!ratio) {
        return harness::text("-");
    }
    double noise = twin_gap;
    for (const harness::row* each : {&r, reference}) {
        if (const auto summary = harness::summarise(*each, seed); summary && summary->aa_gap) {
            noise = std::max(noise, *summary->aa_gap);
        }
    }
    return harness::text(harness::format_number(ratio->p50, 2) + " " +
                         harness::to_string(harness::judge(*ratio, noise)));
}

/// Adapter against direct use in one case: both figures, and whether the adapter stays within 20 % or half a clock reading.
struct adapter_gap {
    harness::ratio_summary ratio;
    double clocks = 0;
    [[nodiscard]] bool within() const { return ratio.p50 <= 1.2 || clocks <= 0.5; }
    /// Beyond both limits with the whole interval.
    [[nodiscard]] bool beyond() const { return ratio.ci95.low > 1.2 && clocks > 0.5; }
};

[[nodiscard]] inline std::optional<adapter_gap> gap_of(const harness::report& out, const std::string& service,
                                                       const harness::json& point) {
    const harness::row* adapter = out.find(service, point, "arm_cancel");
    const harness::row* direct = out.find(direct_name(service), point, "arm_cancel");
    if (adapter == nullptr || direct == nullptr) {
        return std::nullopt;
    }
    const auto ratio = harness::compare_rows(*adapter, *direct, out.opts().seed);
    const auto a = harness::summarise(*adapter, out.opts().seed);
    const auto d = harness::summarise(*direct, out.opts().seed);
    if (!ratio || !a || !d || !a->clock_ratio || !d->clock_ratio) {
        return std::nullopt;
    }
    return adapter_gap{*ratio, a->clock_ratio->p50 - d->clock_ratio->p50};
}

inline void print_floor(harness::report& out) {
    const std::uint64_t seed = out.opts().seed;
    harness::text_table table{
        "Floor: the smallest things, in this run",
        {{"", "", harness::align::left}, {"p50 [95 %]", "ns"}, {"min", "ns"}, {"", "x clock"}}};
    for (const harness::row& r : out.rows()) {
        if (r.service.starts_with("floor/")) {
            table.add_row({harness::text(r.service), harness::figure_with_interval(&r, 2, seed),
                           harness::figure(&r, harness::statistic::min, 2, seed),
                           harness::figure(&r, harness::statistic::clock_p50, 2, seed)});
        }
    }
    table.add_note("clock: one steady_clock::now(), timed beside each sample.");
    out.print(table);
}

inline void print_case(harness::report& out, const arm_cancel_case& c, std::uint64_t window_size) {
    using harness::statistic;
    const harness::json point = to_json(c, window_size);
    const std::uint64_t seed = out.opts().seed;
    std::vector<const harness::row*> rows;
    for (const harness::row& r : out.rows()) {
        if (r.case_point == point && (r.metric == "arm_cancel" || r.metric == "all")) {
            rows.push_back(&r);
        }
    }
    if (rows.empty()) {
        return;
    }
    const auto usable = [&](const harness::row* r) { return harness::summarise(*r, seed).has_value(); };
    const auto first = std::find_if(rows.begin(), rows.end(), usable);
    const harness::row* reference = first == rows.end() ? nullptr : *first;
    const noise_of_case noise = noise_in(out, point);
    const bool singles = c.window && c.pairs_per_ms == 0;

    std::vector<harness::column> columns{{"service", "", harness::align::left},
                                         {"caller p50 [95 %]", "ns/pair"},
                                         {"min", "ns/pair"},
                                         {"", "x clock"},
                                         {"rest CPU", "ns/pair"},
                                         {"queue at end", "entries"}};
    if (singles) {
        columns.push_back({"cancel", "ns"});
        columns.push_back({"arm", "ns"});
        columns.push_back({"rest: cancel", "ns"});
        columns.push_back({"rest: arm", "ns"});
        if (c.with_foreign_cancel()) {
            columns.push_back({"cancel, armed elsewhere", "ns"});
        }
    } else {
        columns.push_back({"first batch", "ns/pair"});
    }
    columns.push_back({"against", reference == nullptr ? "-" : reference->service, harness::align::left});

    harness::text_table table{title_of(c, window_size), std::move(columns)};
    for (const harness::row* r : rows) {
        const auto other = [&](const char* metric) { return out.find(r->service, point, metric); };
        const auto rest = [&](const char* metric) {
            const harness::row* found = other(metric);
            return found == nullptr ? harness::text("-") : harness::figure(found, statistic::mean, 1, seed);
        };
        const harness::row* queue = other("arm_cancel_backlog");
        std::vector<harness::table_cell> cells{
            harness::text(r->service),
            harness::figure_with_interval(r, 1, seed),
            usable(r) ? harness::number(*harness::minimum(r->samples), 1) : harness::text("-"),
            usable(r) ? harness::figure(r, statistic::clock_p50, 2, seed) : harness::text("-"),
            rest("arm_cancel_rest_cpu"),
            queue == nullptr ? harness::text("none") : harness::figure(queue, statistic::p50, 0, seed)};
        cells[3].notes.clear(); // the first figure carries the row's notes
        if (singles) {
            for (const char* metric : {"cancel", "arm"}) {
                cells.push_back(usable(r) ? harness::figure(other(metric), statistic::p50, 1, seed)
                                          : harness::text("-"));
            }
            cells.push_back(rest("cancel_rest_cpu"));
            cells.push_back(rest("arm_rest_cpu"));
            if (c.with_foreign_cancel()) {
                const harness::row* foreign = other("cancel_foreign");
                cells.push_back(foreign != nullptr && usable(r)
                                    ? harness::figure(foreign, statistic::p50, 1, seed)
                                    : harness::text("-"));
            }
        } else {
            cells.push_back(r->first_pass ? harness::number(*r->first_pass, 1) : harness::text("-"));
        }
        cells.push_back(against(*r, reference, noise.gap, seed));
        table.add_row(std::move(cells));
    }
    table.add_note(noise.text);
    for (const harness::row* r : rows) {
        if (const auto gap = gap_of(out, r->service, point)) {
            table.add_note(r->service + " : " + direct_name(r->service) + " = " +
                           harness::format_number(gap->ratio.p50, 2) + " [" +
                           harness::format_number(gap->ratio.ci95.low, 2) + " " +
                           harness::format_number(gap->ratio.ci95.high, 2) + "], " +
                           harness::format_number(gap->clocks, 2) + " x clock apart.");
        }
    }
    out.print(table);
}

/// "reached" or by how much it was not.
[[nodiscard]] inline harness::table_cell verdict_on(double value, double limit, const std::string& unit) {
    return harness::text(value <= limit ? "reached"
                                        : "missed by " + harness::format_number(value - limit, 2) + unit);
}

/// What a service of this project is to cost at most, in clock readings. Zero: not asked for.
struct target {
    const char* service;
    double article = 0;          ///< One timer, be it the earliest or not.
    double oldest = 0;           ///< The window, its oldest cancelled, one duration.
    double random_durations = 0; ///< The same with random durations.
    double random_victim = 0;    ///< A random one cancelled, whatever the durations.
    double foreign_cancel = 0;   ///< A cancel alone, of what another thread armed.
};

inline constexpr target targets[]{
    {.service = "coarse_slot", .article = 2, .oldest = 2, .random_durations = 4},
    {.service = "per_thread_wheel",
     .oldest = 0.75,
     .random_durations = 0.75,
     .random_victim = 1,
     .foreign_cancel = 3},
    {.service = "per_thread_wheel/tsc",
     .oldest = 1.1,
     .random_durations = 1.1,
     .random_victim = 1.3,
     .foreign_cancel = 3},
    {.service = "per_thread_wheel/steady",
     .oldest = 1.75,
     .random_durations = 1.75,
     .random_victim = 2.1,
     .foreign_cancel = 3},
    {.service = "per_thread_wheel_loop", .oldest = 0.3, .random_durations = 0.3, .random_victim = 0.5}};

inline constexpr double most_between_populations = 1.5;

/// For information: a missed number fails no check, because it may say more about the machine than about the code.
inline void print_targets(harness::report& out, const std::vector<arm_cancel_case>& cases,
                          std::uint64_t window_size) {
    const std::uint64_t seed = out.opts().seed;
    harness::text_table table{"Numbers to reach, the dearest case of each (for information)",
                              {{"what", "", harness::align::left},
                               {"measured", ""},
                               {"reach", ""},
                               {"unit", "", harness::align::left},
                               {"", "", harness::align::left}}};
    const auto in_clocks = [&](const std::string& service, const arm_cancel_case& c,
                               const char* metric = "arm_cancel") -> std::optional<double> {
        const harness::row* r = out.find(service, to_json(c, window_size), metric);
        const auto summary = r == nullptr ? std::nullopt : harness::summarise(*r, seed);
        return summary && summary->clock_ratio ? std::optional{summary->clock_ratio->p50} : std::nullopt;
    };
    const auto line = [&](const std::string& what, double value, double limit,
                          const std::string& unit = " x clock") {
        table.add_row({harness::text(what), harness::number(value, 2), harness::number(limit, 2),
                       harness::text(unit.empty() ? "ratio" : "x clock"), verdict_on(value, limit, unit)});
    };

    using chooses = bool (*)(const arm_cancel_case&);
    constexpr chooses is_article = [](const arm_cancel_case& c) { return !c.window && c.earliest; };
    constexpr chooses is_oldest = [](const arm_cancel_case& c) {
        return c.window && !c.random_victim && !c.random_durations();
    };
    constexpr chooses is_random_durations = [](const arm_cancel_case& c) {
        return c.window && !c.random_victim && c.random_durations();
    };
    constexpr chooses is_random_victim = [](const arm_cancel_case& c) { return c.window && c.random_victim; };
    const auto dearest_of = [&](const std::string& service, double limit, chooses chosen) {
        std::optional<double> dearest;
        std::string where;
        // Cheapest and dearest over the populations, of cases that differ in nothing else.
        std::map<std::string, std::pair<double, double>> alike;
        for (const arm_cancel_case& c : cases) {
            const auto value =
                chosen(c) && c.pairs_per_ms == 0 && !c.above_threshold ? in_clocks(service, c) : std::nullopt;
            if (!value) {
                continue;
            }
            if (!dearest || *value > *dearest) {
                dearest = value;
                where = title_of(c, window_size);
            }
            arm_cancel_case everywhere = c;
            everywhere.population = 0;
            auto& [low, high] =
                alike.try_emplace(title_of(everywhere, window_size), *value, *value).first->second;
            low = std::min(low, *value);
            high = std::max(high, *value);
        }
        if (limit == 0 || !dearest) {
            return;
        }
        line(service + ", " + where, *dearest, limit);
        double widest = 1;
        for (const auto& [title, range] : alike) {
            widest = std::max(widest, range.second / range.first);
        }
        if (widest > 1) {
            line(service + ", the same: dearest population : cheapest", widest, most_between_populations, "");
        }
    };
    for (const target& t : targets) {
        dearest_of(t.service, t.article, is_article);
        dearest_of(t.service, t.oldest, is_oldest);
        dearest_of(t.service, t.random_durations, is_random_durations);
        dearest_of(t.service, t.random_victim, is_random_victim);
    }
    for (const target& t : targets) {
        std::optional<double> dearest;
        for (const arm_cancel_case& c : cases) {
            const auto value =
                c.with_foreign_cancel() ? in_clocks(t.service, c, "cancel_foreign") : std::nullopt;
            dearest = value ? std::max(value, dearest) : dearest;
        }
        if (dearest && t.foreign_cancel > 0) {
            line(std::string{t.service} + ", cancel of what another thread armed, any population", *dearest,
                 t.foreign_cancel);
        }
    }
    for (const arm_cancel_case& c : cases) {
        if (c.pairs_per_ms != 1'000) {
            continue;
        }
        for (const harness::row& r : out.rows()) {
            if (!r.service.starts_with("hashed_wheel") || r.metric != "arm_cancel" ||
                r.case_point != to_json(c, window_size)) {
                continue;
            }
            if (const auto value = in_clocks(r.service, c)) {
                line(
                    r.service + ", " + title_of(c, window_size) +
                        (r.note.find("saturated") == std::string::npos ? ": queue bounded" : ": QUEUE GROWS"),
                    *value, 3);
            }
        }
    }
    out.print(table);

    harness::text_table adapters{"Adapters that are not within 20 % or half a clock reading of direct use",
                                 {{"service and case", "", harness::align::left},
                                  {"ratio [95 %]", ""},
                                  {"apart", "x clock"},
                                  {"", "", harness::align::left}}};
    std::size_t compared = 0;
    std::size_t within = 0;
    for (const arm_cancel_case& c : cases) {
        for (const harness::row& r : out.rows()) {
            if (r.metric != "arm_cancel" || r.case_point != to_json(c, window_size)) {
                continue;
            }
            const auto gap = gap_of(out, r.service, r.case_point);
            compared += gap ? 1 : 0;
            within += gap && gap->within() ? 1 : 0;
            if (gap && !gap->within()) {
                adapters.add_row(
                    {harness::text(r.service + ", " + title_of(c, window_size)),
                     harness::text(harness::format_number(gap->ratio.p50, 2) + " [" +
                                   harness::format_number(gap->ratio.ci95.low, 2) + " " +
                                   harness::format_number(gap->ratio.ci95.high, 2) + "]"),
                     harness::number(gap->clocks, 2),
                     harness::text(gap->beyond()
                                       ? "missed by " +
                                             harness::format_number(
                                                 std::min(gap->ratio.p50 - 1.2, gap->clocks - 0.5), 2)
                                       : "cannot decide")});
            }
        }
    }
    if (compared > 0) {
        adapters.add_note("reached in " + std::to_string(within) + " of " + std::to_string(compared) +
                          " comparisons; each of them stands under the table of its case.");
        out.print(adapters);
    }
}

inline void print_arm_cancel(harness::report& out, const std::vector<arm_cancel_case>& cases,
                             std::uint64_t window_size) {
    print_floor(out);
    out.print("How to read the tables of cases:\n"
              "  caller       what the thread that arms and cancels pays: median of all batches [95 % "
              "interval], and the fastest\n"
              "  x clock      the caller's cost over one steady_clock reading, timed beside each batch\n"
              "  rest CPU     CPU time of all other threads of the process for each pair, the drain of "
              "queued work included\n"
              "  first batch  the batch after the service was made: caches and allocators are cold\n"
              "  against      ratio to the first service of the table, and what can be said of it beyond the "
              "noise");
    for (const arm_cancel_case& c : cases) {
        print_case(out, c, window_size);
    }
    print_targets(out, cases, window_size);
}

} // namespace timerbench::experiments
