// How late does a timeout fire, and is it ever early?
//
// Each wave makes one service and arms, over 0.9 s (with --quick 0.6 s), 2 000 timers of 1, 5, 10, 25 and 100 ms each, at times spread evenly over any slot,
// so that some hundred timers are in flight at any moment. Measured are single events, two figures each: the start of
// the callback, and the moment at which an executor polls the task that waited, both minus (the harness's own clock
// reading just before the arm + duration). There is no timed region around batches: what lies between the two readings is
// the arm, the service's waiting, the driver's wake-up and, for the second figure, the wake-up of the task's worker.
//
// The arms come from one thread that keeps to a schedule by absolute sleeps. Its own lag behind the schedule is a row of its own,
// and resumption is also given from the intended time, so that a stalled generator does not hide what it caused. For a service that
// the caller's loop drives there are two loops, and each loop's thread arms its half between two passes.
//
// Environments: idle; cores_busy, with one burning thread per core; service_busy, with 100 000 arm + cancel pairs a second on
// the same service (from another thread, or between the passes of a loop), in bursts of 1 ms. The bare row limit/clock_nanosleep
// sleeps until the same deadlines, known beforehand, in each environment: what no service on this machine can beat.
//
// Waves of all services and environments run in random order, one service alive at a time. Each begins with some events that
// are not recorded. Nobody may be early but services whose traits say so, within those traits.
#include "experiments/accuracy_report.hpp"
#include "experiments/accuracy_wave.hpp"
#include "experiments/itinerary.hpp"
#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"

namespace timerbench::experiments {
namespace {

int run(int argc, char** argv) {
    harness::options opts;
    wave_plan plan;
    std::uint64_t rounds = 0;
    harness::options_parser parser("bench_accuracy", "How late does a timeout fire, and is it ever early?",
                                   service_names());
    parser.add_number("--rounds", rounds, 1, 1'000,
                      "waves of each service in each environment; left out: 3, with --quick 1");
    parser.add_number("--events", plan.events, 20, 20'000, "timers of each duration in a wave");
    parser.add_number("--keep", plan.samples_kept, 2, 1'000'000,
                      "values of each row in the JSON; evenly spaced order statistics where there are more");
    parser.add_number(
        "--stall-ms", plan.stall_ms, 0, 10'000,
        "stop the arming thread once in the middle of each wave, to see how the report shows it");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    if (rounds == 0) {
        rounds = opts.pick(3U, 1U);
    }
    plan.span = opts.pick(plan.span, duration{600ms});

    const harness::interrupt_guard interrupts;
    harness::report out("accuracy", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    harness::json durations = harness::json::array();
    for (const duration d : plan.durations) {
        durations.push_back(d.count() / 1'000'000);
    }
    out.parameter("rounds", rounds);
    out.parameter("durations_ms", durations);
    out.parameter("events_per_duration_and_wave", plan.events);
    out.parameter("stall_ms", plan.stall_ms);
    out.parameter("workers", plan.workers);
    out.parameter("pairs_a_second", plan.pairs_a_second);
    out.parameter("warm_up_events", plan.warm_up);
    describe_services(out);

    // One schedule a round, the same for every service and environment.
    std::vector<std::vector<intention>> schedules;
    std::vector<duration> phases;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        schedules.push_back(make_schedule(plan, opts.seed + round));
        for (const intention& i : schedules.back()) {
            if (i.which != warm_up_index) {
                phases.push_back(i.offset % phase_width);
            }
        }
    }

    ledger books;
    accuracy_report lines{out, plan};
    itinerary waves;
    // What waits without any service.
    const std::pair<const char*, decltype(&run_limit)> waits[]{{limit_name, &run_limit},
                                                               {waiter_name, &run_waiter}};
    for (const auto& [name, run] : waits) {
        lines.know(name, {.traits = {}, .is_limit = true});
        for (const surroundings where : all_surroundings) {
            for (std::uint64_t round = 0; round < rounds; ++round) {
                waves.add(name, [&, name = name, run = run, where, round] {
                    lines.add(name, where, run(plan, where, schedules[round]));
                });
            }
        }
    }
    for_each_chosen(opts, [&]<class Entry>() {
        const std::string name{Entry::name};
        const service_traits traits = Entry::make()->traits();
        lines.know(name, {.traits = traits});
        for (const surroundings where : all_surroundings) {
            for (std::uint64_t round = 0; round < rounds; ++round) {
                waves.add(name + ", " + name_of(where), [&, name, where, round] {
                    lines.add(name, where, run_wave<Entry>(plan, where, schedules[round], books));
                });
            }
        }
    });
    waves.run(opts.seed);

    lines.finish();
    const double chi = chi_square(phases, phase_bins);
    out.check("arming phases uniform over 10 ms", "", chi <= chi_square_95,
              "chi-square " + harness::format_number(chi, 2) + " over " + std::to_string(phase_bins) +
                  " parts, at most " + harness::format_number(chi_square_95, 2));
    books.report_to(out);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
