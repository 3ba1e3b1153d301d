// Rows, tables and verdicts of bench_aftermath.
#pragma once

#include "experiments/aftermath_figures.hpp"
#include "harness/open_loop.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace timerbench::experiments::aftermath {

using harness::json;

enum class form : std::uint8_t { simulated, loopback };

/// One run and what it said.
struct finished_run {
    std::string service;
    form how = form::simulated;
    bool small = false; ///< At the scale of the real form.
    policy by;
    parameters with;
    results raw;
    figures seen;

    [[nodiscard]] json point() const {
        return {{"form", how == form::simulated ? "simulated" : "loopback"},
                {"scale", small ? "loopback" : "full"},
                {"policy", name_of(by)},
                {"cancel", cancel_name(by)},
                {"retry", retry_name(by)},
                {"rate", with.rate},
                {"requests", with.requests}};
    }
};

/// Whether the latency through the incident is kept in rows: enough policies for one picture.
[[nodiscard]] inline bool has_series(const policy& p) {
    using std::chrono::milliseconds;
    const policy named[] = {{cancelling::no_timeout, {}, retrying::none},
                            {cancelling::detach, {}, retrying::none},
                            worst_policy,
                            {cancelling::abort, {}, retrying::naive},
                            {cancelling::cooperative, milliseconds{10}, retrying::inside},
                            best_policy};
    return std::find(std::begin(named), std::end(named), p) != std::end(named);
}

/// The policies of the real form. Naive retries with an abort stand near the edge between recovery and collapse, where some per cent of the store's
/// capacity decide; a short run leaves them out.
[[nodiscard]] inline std::vector<policy> real_policies(bool quick) {
    using std::chrono::milliseconds;
    std::vector<policy> all{worst_policy,
                            {cancelling::abort, {}, retrying::none},
                            {cancelling::cooperative, milliseconds{10}, retrying::inside},
                            best_policy};
    if (!quick) {
        all.insert(all.end(), {{cancelling::no_timeout, {}, retrying::none},
                               {cancelling::detach, {}, retrying::none},
                               {cancelling::abort, {}, retrying::naive},
                               {cancelling::deadline, milliseconds{10}, retrying::none}});
    }
    return all;
}

inline void add_rows(harness::report& out, const finished_run& run) {
    const auto add = [&](const char* metric, const char* unit, std::vector<double> samples,
                         std::string skipped = {}, std::string note = {}, bool single = false) {
        harness::row row;
        row.service = run.service;
        row.case_point = run.point();
        row.metric = metric;
        row.unit = unit;
        row.samples = std::move(samples);
        row.skipped = std::move(skipped);
        row.error = run.raw.trouble;
        row.note = std::move(note);
        row.single_events = single;
        out.add(std::move(row));
    };
    const figures& f = run.seen;
    add("goodput", "1/s", {f.goodput});
    add("goodput_share", "%", {100 * f.affected.share()});
    add("goodput_share_incident", "%", {100 * f.incident.share()});
    add("goodput_share_after", "%", {100 * f.after.share()});
    add("latency_p50", "ms", {f.affected.p50_ms});
    add("latency_p99", "ms", {f.affected.p99_ms});
    add("wasted", "ms/request", {f.left_ms});
    add("wasted_share", "%", {100 * f.left_share});
    add("lost", "ms/request", {f.lost_ms});
    add("lost_share", "%", {100 * f.lost_share});
    for (std::size_t layer = 1; layer < layers; ++layer) {
        add((std::string{"occupancy_"} + layer_names[layer]).c_str(), "%", {100 * f.occupancy[layer]});
    }
    add("store_calls", "1/request", {f.store_calls});
    add("calls", "1/request", {f.all_calls});
    const std::string never =
        "not normal again within the " + harness::format_number(f.watched_s, 1) + " s after the incident";
    add("recovery", "s", f.recovery_s ? std::vector<double>{*f.recovery_s} : std::vector<double>{},
        f.recovery_s ? "" : never);
    if (run.how == form::simulated && !run.small) {
        add("simulation_cpu", "s", {static_cast<double>(run.raw.cpu_ns) / 1e9});
        if (has_series(run.by)) {
            const std::string each =
                "one value for each " + std::to_string(run.with.bin / std::chrono::milliseconds{1}) + " ms";
            add("goodput_by_time", "1/s", f.goodput_by_bin, "", each);
            add("p99_by_time", "ms", f.p99_ms_by_bin, "",
                each + "; of all users, also of those refused at once");
            add("wasted_share_by_time", "%", f.left_share_by_bin, "", each);
            add("store_calls_by_time", "1/request", f.store_calls_by_bin, "", each);
        }
    }
}

/// The checks on one run's own books.
inline void check_books(harness::report& out, const finished_run& run, std::uint64_t most_memory,
                        std::size_t timer_bytes) {
    const std::string wrong = run.raw.trouble.empty() ? wrong_books(run.raw) : run.raw.trouble;
    out.check("every request ends once, all work is useful, lost or for who had left", run.service,
              wrong.empty(), name_of(run.by) + (wrong.empty() ? "" : ": " + wrong));
    const std::uint64_t used = run.raw.most_alive * (sizeof(call) + timer_bytes + 2 * sizeof(step));
    if (used > most_memory) {
        out.check("memory within the bound", run.service, false,
                  name_of(run.by) + ": " + std::to_string(used) + " B in records of calls, at most " +
                      std::to_string(most_memory));
    }
}

inline void print_runs(harness::report& out, const std::vector<const finished_run*>& runs,
                       const std::string& service) {
    if (runs.empty()) {
        return;
    }
    const parameters& p = runs.front()->with;
    harness::text_table table{
        "After the timeout: what a policy makes of an incident (simulated, timeouts on " + service + ")",
        {{"policy", "", harness::align::left},
         {"goodput", "1/s"},
         {"", "share"},
         {"in the", "incident"},
         {"latency", "p50 ms"},
         {"", "p99 ms"},
         {"wasted", "ms/req"},
         {"", "of work"},
         {"lost", "of work"},
         {"pools in use", "A"},
         {"", "B"},
         {"", "store"},
         {"attempts/req", "store"},
         {"", "all"},
         {"normal", "after s"}}};
    const auto percent = [](double share) { return harness::number(100 * share, 1); };
    for (const finished_run* run : runs) {
        if (!run->raw.trouble.empty()) {
            table.add_row({harness::text(name_of(run->by)), harness::absent(run->raw.trouble)});
            continue;
        }
        const figures& f = run->seen;
        table.add_row({harness::text(name_of(run->by)), harness::number(f.goodput, 0),
                       percent(f.affected.share()), percent(f.incident.share()),
                       harness::number(f.affected.p50_ms, 1), harness::number(f.affected.p99_ms, 1),
                       harness::number(f.left_ms, 2), percent(f.left_share), percent(f.lost_share),
                       percent(f.occupancy[1]), percent(f.occupancy[2]), percent(f.occupancy[3]),
                       harness::number(f.store_calls, 2), harness::number(f.all_calls, 2),
                       f.recovery_s ? harness::number(*f.recovery_s, 1)
                                    : harness::text(">" + harness::format_number(f.watched_s, 0))});
    }
    const auto ms = [](duration d) { return std::to_string(d / std::chrono::milliseconds{1}) + " ms"; };
    table.add_note("Shares in per cent. " + std::to_string(p.requests) + " users, " +
                   harness::format_number(p.rate, 0) + " a second, each for at most " + ms(p.limit) +
                   "; from " + ms(p.incident_at) + " on the store is " +
                   harness::format_number(p.slowdown, 1) + " times as slow for " + ms(p.incident_for) + ".");
    table.add_note(
        "goodput: answers within the limit, of those who came from the incident's beginning on; in the "
        "incident: of those who came in it. Latency: of the same, who left counts with the limit.");
    table.add_note(
        "wasted: work done when its caller, or somebody above, had left; lost: other work without an "
        "answer in time. Both of the whole run. attempts: calls to the store, and to A, B and the store, "
        "refused ones included.");
    table.add_note("pools in use: share of the " + std::to_string(p.connections[1]) + ", " +
                   std::to_string(p.connections[2]) + " and " + std::to_string(p.connections[3]) +
                   " connections to A, B and the store, from the incident's beginning on.");
    table.add_note(
        "normal after: from the incident's end until, for " + ms(p.limit / 3) +
        ", 0.9 of the normal share is answered in time with a p99 of at most 1.1 of the normal one (" +
        harness::format_number(100 * runs.front()->seen.normal.share(), 1) + " % and " +
        harness::format_number(runs.front()->seen.normal.p99_ms, 1) +
        " ms, by the first row). >: not while the run lasted.");
    out.print(table);
}

/// The line on what the articles recommend against what they warn of. Empty when either was not run.
[[nodiscard]] inline std::string judge_extremes(harness::report& out,
                                                const std::vector<const finished_run*>& runs) {
    const finished_run* best = nullptr;
    const finished_run* worst = nullptr;
    for (const finished_run* run : runs) {
        if (run->raw.trouble.empty()) {
            best = run->by == best_policy ? run : best;
            worst = run->by == worst_policy ? run : worst;
        }
    }
    if (best == nullptr || worst == nullptr) {
        return {};
    }
    const figures& b = best->seen;
    const figures& w = worst->seen;
    const auto ratio_text = [](double r) {
        return std::isfinite(r) ? harness::format_number(r, 1) : "any number of";
    };
    const double less = b.left_ms > 0 ? w.left_ms / b.left_ms : HUGE_VAL;
    const double useless_best = b.left_ms + b.lost_ms;
    const double useless = useless_best > 0 ? (w.left_ms + w.lost_ms) / useless_best : HUGE_VAL;
    std::string text = "Judged: " + name_of(best_policy) + " against " + name_of(worst_policy) + ".\n";
    text += "  Work for callers who had left: " + harness::format_number(b.left_ms, 3) + " against " +
            harness::format_number(w.left_ms, 3) + " ms a request, " + ratio_text(less) +
            " x less (at least 5 x " + (less >= 5 ? "wanted: reached)" : "wanted: NOT reached)") +
            "; with lost work " + ratio_text(useless) + " x less.\n";
    json verdict{{"wasted_best_ms", b.left_ms},
                 {"wasted_worst_ms", w.left_ms},
                 {"useless_best_ms", useless_best},
                 {"useless_worst_ms", w.left_ms + w.lost_ms},
                 {"wasted_reached", less >= 5}};
    const std::string best_recovery =
        b.recovery_s ? harness::format_number(*b.recovery_s, 1) + " s" : "not while the run lasted";
    if (!b.recovery_s) {
        text += "  Normal again after the incident: " + best_recovery +
                ", so there is no ratio (at least 3 x sooner wanted: NOT reached).\n";
        verdict["recovery_reached"] = false;
    } else {
        // A bin is the resolution of the time to normal.
        const double bin = parameters::seconds_of(best->with.bin);
        const double worst_at_least = w.recovery_s ? *w.recovery_s : w.watched_s;
        const double sooner = worst_at_least / std::max(*b.recovery_s, bin);
        const bool reached = sooner >= 3;
        text += "  Normal again after the incident: " + best_recovery + " against " +
                (w.recovery_s ? harness::format_number(*w.recovery_s, 1) + " s, "
                              : "more than " + harness::format_number(w.watched_s, 1) + " s, at least ") +
                harness::format_number(sooner, 1) + " x sooner (at least 3 x " +
                (reached ? "wanted: reached).\n" : "wanted: NOT reached).\n");
        verdict["recovery_best_s"] = *b.recovery_s;
        verdict["recovery_worst_at_least_s"] = worst_at_least;
        verdict["recovery_reached"] = reached;
    }
    if (less < 5) {
        text += "  Why: of all work " + harness::format_number(100 * w.left_share, 1) +
                " % was for callers who had left with the one and " +
                harness::format_number(100 * b.left_share, 1) +
                " % with the other; the callee works on until it looks, " +
                std::to_string(best_policy.look / std::chrono::milliseconds{1}) + " ms at most.\n";
    }
    out.parameter("judged", std::move(verdict));
    return text;
}

// ---- the two forms side by side ----

struct comparison {
    double goodput_gap = 0; ///< Relative.
    double attempts_gap = 0;
    double late_mean_ms = 0;
    double late_p99_ms = 0;
    double late_max_ms = 0;
    /// What the machine did to the loop makes the store slower than in the model by so much that it may be the reason.
    bool noisy = false;
    static constexpr double most = 0.10;
    static constexpr double noisy_share = 0.03;

    [[nodiscard]] bool agree() const { return goodput_gap <= most && attempts_gap <= most; }
};

[[nodiscard]] inline double answered_share(const results& r) {
    std::uint64_t n = 0;
    for (const outcome o : r.ended) {
        n += o == outcome::in_time ? 1 : 0;
    }
    return static_cast<double>(n) / static_cast<double>(std::max<std::size_t>(r.ended.size(), 1));
}

/// Calls to the store a request until the last user's limit was over.
[[nodiscard]] inline double attempts_until_cut(const results& r) {
    return static_cast<double>(r.calls_at_cut.value_or(r.calls)[store]) /
           static_cast<double>(std::max<std::size_t>(r.arrival.size(), 1));
}

/// Work done for callers who had left, ms a request, as far as it had ended by then.
[[nodiscard]] inline double wasted_until_cut(const results& r) {
    return static_cast<double>(r.left_ns_at_cut) / 1e6 /
           static_cast<double>(std::max<std::size_t>(r.arrival.size(), 1));
}

[[nodiscard]] inline comparison compare_forms(const results& simulated, const results& real,
                                              duration store_work) {
    const auto gap = [](double a, double b) { return std::abs(b - a) / std::max(a, 1e-9); };
    comparison c;
    c.goodput_gap = gap(answered_share(simulated), answered_share(real));
    c.attempts_gap = gap(attempts_until_cut(simulated), attempts_until_cut(real));
    if (!real.lateness_ms.empty()) {
        c.late_mean_ms = harness::mean(real.lateness_ms).value_or(0);
        c.late_p99_ms = harness::percentile_of_sorted(real.lateness_ms, 99);
        c.late_max_ms = real.lateness_ms.back();
    }
    c.noisy = c.late_mean_ms >
              comparison::noisy_share * std::chrono::duration<double, std::milli>{store_work}.count();
    return c;
}

/// Prints both forms, adds a check for each policy that can be decided, and returns whether all of them can.
[[nodiscard]] inline bool
report_forms(harness::report& out,
             const std::vector<std::pair<const finished_run*, const finished_run*>>& pairs) {
    if (pairs.empty()) {
        return true;
    }
    bool decided = true;
    harness::text_table table{"Simulated against real (Boost.Asio over loopback TCP), same parameters",
                              {{"policy", "", harness::align::left},
                               {"goodput share", "simulated"},
                               {"", "real"},
                               {"", "gap %"},
                               {"attempts/req", "simulated"},
                               {"", "real"},
                               {"", "gap %"},
                               {"wasted ms/req", "simulated"},
                               {"", "real"},
                               {"loop late", "mean ms"},
                               {"", "p99 ms"},
                               {"agree", "", harness::align::left}}};
    for (const auto& [simulated, real] : pairs) {
        const std::string name = name_of(real->by);
        const std::string check = "simulated and real within 10 % in goodput and attempts";
        if (!real->raw.trouble.empty()) {
            table.add_row({harness::text(name), harness::absent(real->raw.trouble)});
            out.check(check, real->service, false, name + ": " + real->raw.trouble);
            continue;
        }
        const comparison c = compare_forms(simulated->raw, real->raw, real->with.work[store]);
        const bool undecided = !c.agree() && c.noisy;
        decided = decided && !undecided;
        table.add_row(
            {harness::text(name), harness::number(100 * answered_share(simulated->raw), 1),
             harness::number(100 * answered_share(real->raw), 1), harness::number(100 * c.goodput_gap, 1),
             harness::number(attempts_until_cut(simulated->raw), 2),
             harness::number(attempts_until_cut(real->raw), 2), harness::number(100 * c.attempts_gap, 1),
             harness::number(wasted_until_cut(simulated->raw), 2),
             harness::number(wasted_until_cut(real->raw), 2), harness::number(c.late_mean_ms, 2),
             harness::number(c.late_p99_ms, 2),
             harness::text(c.agree()   ? "yes"
                           : undecided ? "cannot decide"
                                       : "NO")});
        if (!undecided) {
            out.check(check, real->service, c.agree(),
                      name + ": goodput " + harness::format_number(100 * c.goodput_gap, 1) + " %, attempts " +
                          harness::format_number(100 * c.attempts_gap, 1) + " % apart; loop late by " +
                          harness::format_number(c.late_p99_ms, 2) + " ms at p99, " +
                          harness::format_number(c.late_max_ms, 2) + " ms at most");
        }
    }
    const parameters& p = pairs.front().first->with;
    const auto ms = [](duration d) { return std::to_string(d / std::chrono::milliseconds{1}) + " ms"; };
    table.add_note(std::to_string(p.requests) + " users, " + harness::format_number(p.rate, 0) +
                   " a second, limit " + ms(p.limit) + ", store " + ms(p.work[store]) + " with " +
                   std::to_string(p.connections[store]) + " connections, incident of " + ms(p.incident_for) +
                   ". Attempts and wasted work until the last user's limit, where the real form ends.");
    table.add_note(
        "cannot decide: apart, and the loop's own steps were late by more than " +
        harness::format_number(100 * comparison::noisy_share, 0) +
        " % of the store's mean work at the mean, so that the store was that much slower than in the model.");
    out.print(table);
    return decided;
}

} // namespace timerbench::experiments::aftermath
