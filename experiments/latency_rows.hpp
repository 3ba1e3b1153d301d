// Rows and marks that experiments with single latencies have in common.
//
// Figures are computed from all events. A row in the JSON holds at most so many values: where there were more events, evenly spaced order
// statistics with the smallest and the largest; the figures of all of them stand in a parameter of the report.
#pragma once

#include "experiments/service_cells.hpp"
#include "harness/open_loop.hpp"
#include "harness/report.hpp"
#include "timers/floor.hpp"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace timerbench::experiments {

/// The service that keeps nothing, in the place of an entry of the list: what an experiment shows for it is its own cost and
/// that of the machine.
struct floor_entry {
    static constexpr std::string_view name = "floor/no_timer";
    using service = floor_service;
    [[nodiscard]] static std::unique_ptr<service> make() { return std::make_unique<service>(); }
};
template <class Entry>
inline constexpr bool is_floor = std::is_same_v<typename Entry::service, floor_service>;

struct latency_row {
    std::string service;
    harness::json case_point;
    std::string metric;
    std::string unit;
    std::string skipped;
    std::string error;
    std::string note;
};

/// Adds the row, with values rounded to `step`, and appends its exact figures to `exact` (a JSON array) if there are any.
inline void add_latencies(harness::report& out, harness::json& exact, const latency_row& what,
                          const harness::tail& events, std::size_t keep, double step) {
    harness::row row;
    row.service = what.service;
    row.case_point = what.case_point;
    row.metric = what.metric;
    row.unit = what.unit;
    row.skipped = what.skipped;
    row.error = what.error;
    row.note = what.note;
    row.single_events = true;
    for (const double v : events.kept(keep)) {
        // Away from zero where negative, so that what was early stays early.
        const double steps = v < 0 ? std::floor(v / step) : std::round(v / step);
        row.samples.push_back(step < 1 ? steps / std::round(1 / step) : steps * step);
    }
    if (events.size() > keep) {
        row.note += (row.note.empty() ? "" : "; ") + std::to_string(keep) +
                    " evenly spaced order statistics of " + std::to_string(events.size()) + " events";
    }
    if (!events.empty() && row.skipped.empty() && row.error.empty()) {
        harness::json entry{{"service", what.service}, {"metric", what.metric}, {"unit", what.unit}};
        entry.update(what.case_point);
        entry.update(events.to_json());
        exact.push_back(std::move(entry));
    } else if (events.empty() && row.skipped.empty() && row.error.empty()) {
        row.skipped = "no event";
    }
    out.add(std::move(row));
}

/// The check that intended times, as they were planned, have uniform phases. Too few of them are no reason to fail.
inline void check_phases(harness::report& out, const std::vector<std::int64_t>& times_ns,
                         std::int64_t width_ns) {
    const std::string what = "intended times uniform over " + std::to_string(width_ns / 1'000'000) + " ms";
    if (times_ns.size() < 10 * harness::phase_parts) {
        out.check(what, "", true, std::to_string(times_ns.size()) + " bursts are too few to tell");
        return;
    }
    const double chi = harness::chi_square_of_phases(times_ns, width_ns, harness::phase_parts);
    out.check(what, "", chi <= harness::phase_chi_square_bound,
              "chi-square " + harness::format_number(chi, 2) + " over " +
                  std::to_string(harness::phase_parts) + " parts, at most " +
                  harness::format_number(harness::phase_chi_square_bound, 2));
}

} // namespace timerbench::experiments
