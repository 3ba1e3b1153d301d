// bench_exact as a template over the list of services, so that its tests can run it on services with planted defects.
//
// Every case is run twice, each time on a fresh service, a fresh clock and a fresh thread. Where the two differ by a single
// allocation the row says so and holds no figure: a count that does not repeat is no count.
#pragma once

#include "experiments/exact_regions.hpp"
#include "experiments/exact_work.hpp"
#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/row.hpp"
#include "harness/text_table.hpp"

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace timerbench::experiments::exact {

using harness::json;

enum class counts_of { heap, deadlines };

/// A case as rows name it, and where its figures come from.
struct exact_case {
    json point;
    std::vector<std::string> states; ///< One empty name: the case has one state.
    counts_of what = counts_of::heap;
    bool fires = false; ///< Whether timers fire in it.
    bool calls_in_callback = false;
    std::string title; ///< In the text report.

    [[nodiscard]] json point_of(const std::string& state) const {
        json full = point;
        if (!state.empty()) {
            full["state"] = state;
        }
        return full;
    }
    [[nodiscard]] std::vector<std::string> metrics() const {
        return what == counts_of::heap ? std::vector<std::string>{"allocations", "bytes"}
                                       : std::vector<std::string>{"fires_lost", "early_fires"};
    }
};

[[nodiscard]] inline std::vector<exact_case> all_exact_cases() {
    const std::vector<std::string> both{"fresh", "steady"};
    const auto armed_ms = armed_for / milliseconds{1};
    const auto window_point = [&](const char* victim) {
        return json{{"kind", "window"},
                    {"cancel", victim},
                    {"outstanding", window_size},
                    {"duration_ms", armed_ms},
                    {"operations", operations}};
    };
    return {
        {{{"kind", "arm_cancel"}, {"duration_ms", armed_ms}, {"operations", operations}},
         both,
         counts_of::heap,
         false,
         false,
         "arm+cancel"},
        {window_point("oldest"), both, counts_of::heap, false, false, "window oldest"},
        {window_point("random"), both, counts_of::heap, false, false, "window random"},
        {{{"kind", "arm_fire"}, {"operations", fires}}, both, counts_of::heap, true, false, "arm+fire"},
        {{{"kind", "late_cancel"}, {"operations", fires}}, {""}, counts_of::heap, true, false, "late cancel"},
        {{{"kind", "cancel_in_callback"}, {"operations", foreign_cancels}},
         {""},
         counts_of::heap,
         true,
         true,
         "in callback"},
        {{{"kind", "random_durations"}, {"operations", random_fires}},
         {""},
         counts_of::deadlines,
         true,
         false,
         "random durations"},
    };
}

/// In the order of `all_exact_cases`.
template <class Entry>
[[nodiscard]] std::vector<findings (*)(std::uint64_t)> bodies_of() {
    return {&arm_cancel<Entry>,  &window<Entry, false>,      &window<Entry, true>,    &arm_fire<Entry>,
            &late_cancel<Entry>, &cancel_in_callback<Entry>, &random_durations<Entry>};
}

[[nodiscard]] inline json timer_point() {
    return {{"kind", "timer"}};
}

inline constexpr const char* no_manual_clock =
    "takes no manual clock: what its driver does, and when, hangs on real time and does not repeat";

/// What is needed to count a service, with its type left behind.
struct subject {
    std::string name;
    std::size_t timer_size = 0;
    std::string refusal; ///< Why none of its cases can be run; empty if they can.
    service_traits traits;
    std::vector<findings (*)(std::uint64_t)> bodies;
    std::string (*region)(region_case, std::uint64_t) = nullptr;
};

template <class Entry>
[[nodiscard]] subject subject_of() {
    subject s;
    s.name = Entry::name;
    s.timer_size = sizeof(typename Entry::service::timer);
    if constexpr (!Entry::takes_clock) {
        s.refusal = no_manual_clock;
    } else {
        s.refusal = why_unavailable<typename Entry::template service_on<manual_time>>();
        if (s.refusal.empty()) {
            manual_time clock;
            s.traits = Entry::make_on(clock)->traits();
            if (s.traits.most_timers > 0 && s.traits.most_timers < most_armed) {
                s.refusal = "at most " + std::to_string(s.traits.most_timers) +
                            " of its timers can be armed at once, " + std::to_string(most_armed) +
                            " are needed";
            }
        }
        s.bodies = bodies_of<Entry>();
        s.region = &region_of<Entry>;
    }
    return s;
}

/// Runs `body` on a thread of its own. What it throws becomes the error.
[[nodiscard]] inline findings on_fresh_thread(const std::function<findings()>& body) {
    findings found;
    std::thread{[&] {
        try {
            found = body();
        } catch (const std::exception& e) {
            found.error = std::string{"an exception: "} + e.what();
        }
    }}.join();
    return found;
}

[[nodiscard]] inline harness::row make_row(const std::string& service, json point,
                                           const std::string& metric) {
    harness::row r;
    r.service = service;
    r.case_point = std::move(point);
    r.metric = metric;
    r.unit = metric == "bytes" || metric == "timer_size" ? "B" : "1";
    return r;
}

/// The rows of one case of one service.
inline void add_case(harness::report& out, ledger& books, const subject& s, std::size_t index,
                     const exact_case& c) {
    const auto add = [&](auto&& fill) {
        for (const std::string& state : c.states) {
            for (const std::string& metric : c.metrics()) {
                harness::row r = make_row(s.name, c.point_of(state), metric);
                fill(r, state);
                out.add(std::move(r));
            }
        }
    };
    std::string refusal = s.refusal;
    if (refusal.empty() && c.calls_in_callback && !s.traits.callback_may_call) {
        refusal = "a callback may not call the service";
    }
    if (refusal.empty() && c.what == counts_of::heap && c.fires && s.traits.several_drivers) {
        refusal = "its callbacks overlap: which of its threads comes to the heap first does not repeat";
    }
    if (refusal.empty() && c.what == counts_of::heap) {
        refusal = harness::alloc_counting().reason;
    }
    if (!refusal.empty()) {
        add([&](harness::row& r, const std::string&) { r.skipped = refusal; });
        return;
    }
    const auto run_once = [&] {
        findings f = on_fresh_thread([&] { return s.bodies[index](out.opts().seed); });
        if (!harness::interrupted()) {
            books.look(s.name, f.after);
        }
        return f;
    };
    const findings first = run_once();
    const findings second = run_once();
    if (harness::interrupted()) {
        return;
    }
    add([&](harness::row& r, const std::string& state) {
        const auto value = [&](const findings& f) -> std::optional<std::uint64_t> {
            for (const figure& each : f.figures) {
                if (each.state == state && each.metric == r.metric) {
                    return each.value;
                }
            }
            return std::nullopt;
        };
        const auto a = value(first);
        const auto b = value(second);
        if (!first.error.empty() || !second.error.empty() || !a || !b) {
            r.error = !first.error.empty()    ? first.error
                      : !second.error.empty() ? second.error
                                              : "was not counted";
        } else if (*a != *b) {
            r.skipped =
                "does not repeat: two passes gave " + std::to_string(*a) + " and " + std::to_string(*b);
        } else {
            r.samples = {static_cast<double>(*a)};
        }
    });
}

inline void print_exact(harness::report& out, const std::vector<subject>& subjects,
                        const std::vector<exact_case>& cases) {
    const auto print = [&](counts_of what, const std::string& metric, const std::string& title,
                           const std::vector<std::string>& notes) {
        std::vector<harness::column> heads{{"service", "", harness::align::left}};
        for (const exact_case& c : cases) {
            for (const std::string& state : c.states) {
                if (c.what == what) {
                    heads.push_back({&state == &c.states.front() ? c.title : "", state});
                }
            }
        }
        harness::text_table table{title, heads};
        for (const subject& s : subjects) {
            std::vector<harness::table_cell> cells{harness::text(s.name)};
            for (const exact_case& c : cases) {
                for (const std::string& state : c.states) {
                    if (c.what == what) {
                        cells.push_back(harness::figure(out.find(s.name, c.point_of(state), metric),
                                                        harness::statistic::p50, 0, out.opts().seed));
                    }
                }
            }
            table.add_row(std::move(cells));
        }
        for (const std::string& note : notes) {
            table.add_note(note);
        }
        out.print(table);
    };
    print(counts_of::heap, "allocations", "Heap allocations, in all",
          {"In " + std::to_string(operations) + " pairs of arm and cancel, " + std::to_string(fires) +
               " arms that fire or late cancels, " + std::to_string(foreign_cancels) +
               " cancels by callbacks.",
           "fresh: from the second pair of the service on; steady: after " + std::to_string(warm_up_pairs) +
               " pairs, or in the third wave of fires."});
    print(counts_of::heap, "bytes", "Bytes asked of the heap, in all", {});

    harness::text_table table{"Deadlines and storage",
                              {{"service", "", harness::align::left},
                               {"fires lost", "of " + std::to_string(random_fires)},
                               {"early fires", "of " + std::to_string(random_fires)},
                               {"timer", "B"}}};
    for (const subject& s : subjects) {
        const auto cell = [&](const json& point, const char* metric) {
            return harness::figure(out.find(s.name, point, metric), harness::statistic::p50, 0,
                                   out.opts().seed);
        };
        const json& fired = cases.back().point;
        table.add_row({harness::text(s.name), cell(fired, "fires_lost"), cell(fired, "early_fires"),
                       cell(timer_point(), "timer_size")});
    }
    out.print(table);
}

struct named_region {
    region_case which;
    json point; ///< The same as in the table of counts.
};

[[nodiscard]] inline std::vector<named_region> all_regions() {
    const std::vector<exact_case> cases = all_exact_cases();
    return {{region_case::arm_cancel, cases[0].point_of("steady")},
            {region_case::window_oldest, cases[1].point_of("steady")},
            {region_case::window_random, cases[2].point_of("steady")}};
}

/// Runs the regions, each twice, and leaves their order in the parameter "regions": callgrind's dumps come in the same.
inline void run_regions(harness::report& out, const std::vector<subject>& subjects) {
    json order = json::array();
    const auto note = [&](const std::string& service, const json& point) {
        order.push_back({{"service", service}, {"case", point}, {"operations", region_operations}});
    };
    const std::string empty = "floor/empty";
    const auto row_of = [&](const std::string& service, const json& point) {
        harness::row r = make_row(service, point, "operations");
        r.samples = {static_cast<double>(region_operations)};
        return r;
    };
    for (const named_region& each : all_regions()) {
        for (int pass = 0; pass < 2; ++pass) {
            empty_region(each.which, out.opts().seed);
            note(empty, each.point);
        }
        out.add(row_of(empty, each.point));
    }
    for (const subject& s : subjects) {
        std::string refusal = s.refusal;
        if (refusal.empty() && s.traits.several_drivers) {
            refusal = "several threads of its own at work beside the caller: what the caller meets of them "
                      "does not repeat";
        }
        for (const named_region& each : all_regions()) {
            harness::row r = row_of(s.name, each.point);
            if (!refusal.empty()) {
                r.skipped = refusal;
            } else {
                for (int pass = 0; pass < 2 && !harness::interrupted(); ++pass) {
                    const std::string problem = s.region(each.which, out.opts().seed);
                    r.error = r.error.empty() ? problem : r.error;
                    note(s.name, each.point);
                }
            }
            out.add(std::move(r));
        }
    }
    out.parameter("regions", std::move(order));
    out.print("Regions for callgrind were run; scripts/instructions starts this and counts them.");
}

// A build that plants work into a service measures the planted ones, as `for_each_chosen` does.
#ifdef TIMERBENCH_PLANT
template <class Entry>
using entry_of = planted_entry<Entry>;
#else
template <class Entry>
using entry_of = Entry;
#endif

/// main of bench_exact, for a list of services.
template <class List>
int run_exact(int argc, const char* const* argv) {
    harness::options opts;
    bool instructions = false;
    const std::vector<std::string> names{List::names.begin(), List::names.end()};
#ifdef TIMERBENCH_PLANT
    read_plant(names);
#endif
    harness::options_parser parser(
        "bench_exact",
        "What repeats to the last digit: heap traffic, lost and early fires, sizes. "
        "--quick changes nothing: a run takes seconds, and all runs do the same work.",
        names);
    parser.add_switch("--instructions", instructions,
                      "run only what scripts/instructions counts under callgrind");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    // The report of a short run could not be a baseline. There is no short run.
    opts.quick = false;

    fix_stack_size();
    const harness::interrupt_guard interrupts;
    harness::report out(instructions ? "instructions" : "exact", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    std::vector<subject> subjects;
    json services = json::object();
    List::for_each([&]<class Entry>() {
        if (opts.wants(Entry::name)) {
            subjects.push_back(subject_of<entry_of<Entry>>());
            services[subjects.back().name] =
                subjects.back().bodies.empty() ? json(nullptr) : traits_json(subjects.back().traits);
        }
    });
    out.parameter("services", std::move(services));
#ifdef TIMERBENCH_PLANT
    out.parameter("plant", plant_json());
#endif
    out.parameter("clock", "manual");
    if (instructions) {
        run_regions(out, subjects);
        return out.finish();
    }
    const auto counting = harness::alloc_counting();
    out.parameter("alloc_counter", counting.available ? "available" : counting.reason);
    out.parameter("step_ms", step / milliseconds{1});
    out.parameter("pairs_per_step", pairs_per_step);
    out.parameter("warm_up_pairs", warm_up_pairs);
    out.parameter("passes", 2);

    const std::vector<exact_case> cases = all_exact_cases();
    ledger books;
    for (const subject& s : subjects) {
        for (std::size_t i = 0; i < cases.size() && !harness::interrupted(); ++i) {
            add_case(out, books, s, i, cases[i]);
        }
        harness::row size = make_row(s.name, timer_point(), "timer_size");
        size.samples = {static_cast<double>(s.timer_size)};
        out.add(std::move(size));
    }
    books.report_to(out);
    if (!harness::interrupted()) {
        print_exact(out, subjects, cases);
    }
    return out.finish();
}

} // namespace timerbench::experiments::exact
