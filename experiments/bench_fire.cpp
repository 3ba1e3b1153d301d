// What does a timer cost that fires?
//
// CPU time per fired timer, of all threads, never wall time: a service that waits costs nothing while it waits. Timers are armed
// first, and what arming costs is not in the figure. Then time passes, and what is measured is the CPU that the service uses
// until the last callback has returned: taking timers out of the structure, moving them between its levels, waking up, and calling
// back. The callback counts and does nothing else.
//
// spread     deadlines evenly over 10 s: what a server with a steady stream of expiring timeouts pays.
// burst      one deadline: what a herd costs each of its members.
// memory     timers lie in memory in the order in which they were armed and are due; shuffled: random places, armed in random
//            order. The difference is what cache misses cost: an intrusive node in the caller's handle pays when it is touched,
//            a node in the service's own pool may lie better or worse.
//
// A service that takes a clock runs on a manual one: nothing waits, the figure is the structure's cost alone. Some 10 000 timers
// come due with each move of that clock; moving it and waking the driver is in the figure, at 1 to 3 ns a timer. For a service
// that the caller's loop drives and on a manual clock the calling thread's CPU counts too. Any other service runs on the steady clock,
// where its waiting and waking is in the figure, and which is therefore a table of its own: the calling thread only sleeps
// there and is left out, unless it is the loop. All arms are made before the first deadline; if a service takes longer for
// them than expected, the attempt is thrown away and made again with more time.
//
// The number of fires is known beforehand: a sample with another number is an error and has no figure. CPU of threads on other
// cores is booked when they go to sleep, so a sample ends 3 ms after the last callback.
#include "experiments/fire_plan.hpp"
#include "experiments/service_cells.hpp"
#include "experiments/stage.hpp"
#include "harness/environment.hpp"
#include "harness/floor_costs.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"

#include <array>

namespace timerbench::experiments {
namespace {

using harness::json;
using harness::visit;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t poll_every = 64;
constexpr std::size_t warm_up_timers = 2'000;
constexpr duration warm_up_after = milliseconds{30};
constexpr duration manual_lead = seconds{1};
constexpr duration booking = milliseconds{3};
constexpr int attempts = 3;

enum class shape { spread, burst };
[[nodiscard]] const char* name_of(shape s) {
    return s == shape::spread ? "spread" : "burst";
}
constexpr std::array all_shapes{shape::spread, shape::burst};
constexpr std::array all_orders{fire_order::memory, fire_order::shuffled};

/// Sizes in one of the two regimes.
struct sizes {
    std::uint64_t timers = 0;
    std::uint64_t span_ms = 0;
    [[nodiscard]] duration span() const { return milliseconds{span_ms}; }
};

struct plan {
    sizes manual;
    sizes steady;
    template <class Entry>
    [[nodiscard]] const sizes& of() const {
        return stage<Entry>::is_manual ? manual : steady;
    }
};

/// A measured case of a service, and how its figure is put together.
struct fire_case {
    std::string service;
    bool manual = false;
    shape what = shape::spread;
    fire_order order = fire_order::memory;
    json point;
    bool caller_counts = false;
    std::vector<std::string> notes;
};

/// Arms and fires a few timers, so that the driver runs and the code has been touched. Returns what arming took.
template <class Entry>
[[nodiscard]] duration warm_up(visit& v, stage<Entry>& where, timer_block<subject_of<Entry>>& timers,
                               fired_count& fired) {
    const service_traits traits = where.subject().traits();
    const std::size_t n = std::min(timers.size(), warm_up_timers);
    const time_point begin = steady_time::now();
    std::uint64_t good = 0;
    for (std::size_t i = 0; i < n; ++i) {
        good += where.subject().arm(timers[i], warm_up_after, fired.counting(traits)) ? 1 : 0;
    }
    const duration took = steady_time::now() - begin;
    const time_point due = where.now() + warm_up_after + traits.latest;
    if (!pass_until_fired(where, fired, n, due, traits.latest + seconds{20}) || good != n) {
        v.fail("warm-up: " + std::to_string(good) + " of " + std::to_string(n) + " timers were armed, " +
               std::to_string(fired.now()) + " fired");
    }
    where.settle();
    return took;
}

/// Arms all. Returns how many arms succeeded.
template <class Entry>
[[nodiscard]] std::uint64_t arm_all(stage<Entry>& where, timer_block<subject_of<Entry>>& timers,
                                    const arm_sequence& sequence, duration lead, duration span,
                                    fired_count& fired) {
    auto& service = where.subject();
    const service_traits traits = service.traits();
    const callback count = fired.counting(traits);
    const time_point start = where.now();
    std::uint64_t good = 0;
    for (std::size_t k = 0; k < sequence.size() && !harness::interrupted(); ++k) {
        duration d = lead + offset_of(sequence.rank_at(k), timers.size(), span, traits.most_durations / 2);
        // What was made for few durations gets durations, everybody else deadlines.
        if (!stage<Entry>::is_manual && traits.most_durations == 0) {
            d = start + d - where.now();
        }
        good += service.arm(timers[sequence.timer_at(k)], d, count) ? 1 : 0;
        if (k % poll_every == poll_every - 1) {
            poll_once(service);
        }
    }
    where.settle();
    return good;
}

/// Lets time pass until all have fired. `first` is the common start of the deadlines.
template <class Entry>
void pass_all(stage<Entry>& where, const fired_count& fired, std::uint64_t n, time_point first,
              duration span) {
    const duration latest = where.subject().traits().latest;
    if constexpr (stage<Entry>::is_manual) {
        const auto steps = static_cast<duration::rep>(span > duration::zero() ? clock_steps(n) : 1);
        for (duration::rep i = 1; i < steps && !harness::interrupted(); ++i) {
            where.pass_until(first + span * i / steps);
        }
    }
    static_cast<void>(pass_until_fired(where, fired, n, first + span + latest, latest + seconds{20}));
}

template <class Entry>
void run_visit(visit& v, const plan& p, shape what, fire_order order) {
    stage<Entry> where;
    auto& service = where.subject();
    const service_traits traits = service.traits();
    const std::size_t n = within_limit(traits, p.of<Entry>().timers).count;
    const duration span = what == shape::spread ? p.of<Entry>().span() : duration::zero();
    fired_count fired;
    timer_block<subject_of<Entry>> timers{service, n};
    const duration took = warm_up(v, where, timers, fired);
    const arm_sequence sequence{n, order, v.seed()};
    duration lead = manual_lead;
    if (!stage<Entry>::is_manual) {
        lead = lead_for(n, std::min(n, warm_up_timers), took);
    }
    for (int attempt = 0; attempt < attempts && !harness::interrupted(); ++attempt, lead *= 3) {
        const counters before = service.counters();
        fired.n = 0;
        const time_point first = where.now() + lead;
        const std::uint64_t good = arm_all(where, timers, sequence, lead, span, fired);
        if (harness::interrupted()) {
            return;
        }
        if (good != n) {
            return v.fail("the service armed " + std::to_string(good) + " of " + std::to_string(n) +
                          " timers");
        }
        if (fired.now() != 0) {
            for (std::size_t i = 0; i < n; ++i) {
                service.cancel(timers[i]);
            }
            where.settle();
            continue;
        }
        v.sample({"", "fire_caller_cpu", "fire_rest_cpu", ""}, n, [&] {
            pass_all(where, fired, n, first, span);
            sleep_through(steady_time::now() + booking);
        });
        if (harness::interrupted()) {
            return;
        }
        const counters after = service.counters();
        if (const std::string wrong = wrong_work(before, after, {.armed = n, .fired = n}); !wrong.empty()) {
            v.fail(wrong);
        } else if (fired.now() != n) {
            v.fail("wrong work: " + std::to_string(fired.now()) + " callbacks counted of " +
                   std::to_string(n));
        }
        v.check("armed = cancelled + fired + dropped + pending", after.balanced(), to_string(after));
        v.check("every timer fires once", after.fired - before.fired == n && fired.now() == n,
                std::to_string(fired.now()) + " of " + std::to_string(n));
        return;
    }
    if (!harness::interrupted()) {
        v.fail("the first deadline came before all timers were armed, " + std::to_string(attempts) +
               " times in a row");
    }
}

// ---- cells and report ----

template <class Entry>
[[nodiscard]] fire_case make_case(const plan& p, const service_traits& traits, shape what, fire_order order) {
    const sizes& size = p.of<Entry>();
    const bounded_timers n = within_limit(traits, size.timers);
    fire_case c;
    c.service = std::string{Entry::name};
    c.manual = stage<Entry>::is_manual;
    c.what = what;
    c.order = order;
    c.point = {{"clock", stage<Entry>::clock_name},
               {"deadlines", name_of(what)},
               {"order", name_of(order)},
               {"timers", n.count}};
    if (what == shape::spread) {
        c.point["span_ms"] = size.span_ms;
    }
    c.caller_counts = stage<Entry>::is_manual || traits.loop_driven();
    if (!n.note.empty()) {
        c.notes.push_back(n.note);
    }
    if (traits.most_durations > 0) {
        c.notes.push_back(
            "made for at most " + std::to_string(traits.most_durations) + " durations: the spread has " +
            std::to_string(traits.most_durations / 2) +
            " different ones; the burst is one duration, its deadlines as far apart as the arms");
    }
    return c;
}

/// CPU of the process per timer, and in multiples of a clock reading beside it.
void add_sums(harness::report& out, const fire_case& c) {
    const harness::row* caller = out.find(c.service, c.point, "fire_caller_cpu");
    const harness::row* rest = out.find(c.service, c.point, "fire_rest_cpu");
    if (caller == nullptr || rest == nullptr) {
        return;
    }
    harness::row sum = *rest;
    sum.metric = "fire_cpu";
    if (sum.skipped.empty() && sum.error.empty() && c.caller_counts) {
        if (caller->samples.size() != sum.samples.size()) {
            sum.error = "unequal numbers of samples of the caller and of the rest";
        } else {
            for (std::size_t i = 0; i < sum.samples.size(); ++i) {
                sum.samples[i] += caller->samples[i];
            }
        }
    }
    if (sum.error.empty() &&
        std::any_of(sum.samples.begin(), sum.samples.end(), [](double x) { return x <= 0; })) {
        sum.error = "no CPU time was booked";
    }
    for (const std::string& note : c.notes) {
        sum.note += (sum.note.empty() ? "" : "; ") + note;
    }
    harness::row ratio = sum;
    ratio.metric = "fire_x_clock";
    ratio.unit = "1";
    ratio.clock_ns.clear();
    if (ratio.error.empty() && ratio.skipped.empty()) {
        for (std::size_t i = 0; i < ratio.samples.size() && i < sum.clock_ns.size(); ++i) {
            ratio.samples[i] /= sum.clock_ns[i];
        }
    }
    out.add(std::move(sum));
    out.add(std::move(ratio));
}

/// In groups of three digits.
[[nodiscard]] std::string in_words(std::uint64_t n) {
    const std::string digits = std::to_string(n);
    std::string grouped;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % 3 == 0) {
            grouped += ' ';
        }
        grouped += digits[i];
    }
    return grouped;
}

void print_table(harness::report& out, const std::vector<fire_case>& cases, const sizes& size, bool manual,
                 std::uint64_t meant) {
    std::vector<std::string> services;
    for (const fire_case& c : cases) {
        if (c.manual == manual && (services.empty() || services.back() != c.service)) {
            services.push_back(c.service);
        }
    }
    if (services.empty()) {
        return;
    }
    const std::string over =
        harness::format_number(static_cast<double>(size.span_ms) / 1e3, size.span_ms % 1'000 == 0 ? 0 : 1) +
        " s";
    harness::text_table table{"CPU per fired timer, " + std::string{manual ? "manual" : "steady"} +
                                  " clock, " + in_words(size.timers) + " timers" +
                                  (size.timers < meant ? " (not " + in_words(meant) + ")" : ""),
                              {{"service", "", harness::align::left},
                               {over + ", order", "ns"},
                               {"", "x clock"},
                               {"shuffled", "ns"},
                               {"", "x clock"},
                               {"burst, order", "ns"},
                               {"", "x clock"},
                               {"shuffled", "ns"},
                               {"", "x clock"}}};
    for (const std::string& service : services) {
        std::vector<harness::table_cell> cells{harness::text(service)};
        for (const fire_case& c : cases) {
            if (c.service != service) {
                continue;
            }
            for (const auto& [metric, decimals] : {std::pair{"fire_cpu", 1}, std::pair{"fire_x_clock", 2}}) {
                const harness::row* found = out.find(c.service, c.point, metric);
                if (found == nullptr) {
                    cells.push_back(harness::figure(nullptr));
                    continue;
                }
                harness::row bare = *found;
                bare.note.clear(); // stands beside the service's name
                cells.push_back(harness::figure(&bare, harness::statistic::p50, decimals, out.opts().seed));
            }
            for (const std::string& note : c.notes) {
                auto& notes = cells.front().notes;
                if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
                    notes.push_back(note);
                }
            }
        }
        table.add_row(std::move(cells));
    }
    if (const harness::row* clock = out.find("floor/steady_clock", json::object(), "fire_cpu")) {
        const auto cost = harness::median(clock->samples);
        table.add_note("clock: one steady_clock::now(), in this run " +
                       (cost ? harness::format_number(*cost, 1) + " ns" : "not measured") +
                       "; each ratio is to readings beside its sample.");
    }
    table.add_note(
        "order: timers lie in memory as they were armed and are due; shuffled: anywhere. Arming is "
        "not in the figures.");
    table.add_note(manual
                       ? "Nothing waits on a manual clock: the structure's cost alone, all threads. Medians "
                         "over samples."
                       : "Waiting and waking included; all threads but the one that only looks on. Medians "
                         "over samples.");
    out.print(table);
}

int run(int argc, char** argv) {
    harness::options opts;
    std::uint64_t timers = 0;
    std::uint64_t span_ms = 0;
    std::uint64_t rounds = 0;
    harness::options_parser parser("bench_fire", "What does a timer cost that fires?", service_names());
    parser.add_number(
        "--timers", timers, 1, 10'000'000,
        "timers that fire; left out: 1000000, with --quick 100000 on the manual clock and 50000 on the "
        "steady one");
    parser.add_number(
        "--span-ms", span_ms, 1, 600'000,
        "over which deadlines are spread; left out: 10000, with --quick 500 on the steady clock");
    parser.add_number(
        "--rounds", rounds, 1, 1'000,
        "samples of each case; left out: 3, and 1 of a spread on the steady clock; with --quick 2 on "
        "the manual clock and 1 on the steady one");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    constexpr std::uint64_t meant = 1'000'000;
    const auto given = [](std::uint64_t value, std::uint64_t otherwise) {
        return value != 0 ? value : otherwise;
    };
    const plan p{.manual = {given(timers, opts.pick(meant, std::uint64_t{100'000})), given(span_ms, 10'000)},
                 .steady = {given(timers, opts.pick(meant, std::uint64_t{50'000})),
                            given(span_ms, opts.pick(std::uint64_t{10'000}, std::uint64_t{500}))}};

    const harness::interrupt_guard interrupts;
    harness::report out("fire", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);

    const std::vector<harness::cell> floors = harness::floor_cells("fire_cpu");
    std::vector<harness::cell> on_manual;
    std::vector<harness::cell> spread_on_steady;
    std::vector<harness::cell> burst_on_steady;
    std::vector<fire_case> cases;
    for_each_chosen(opts, [&]<class Entry>() {
        const service_traits traits = Entry::make()->traits();
        for (const shape what : all_shapes) {
            for (const fire_order order : all_orders) {
                cases.push_back(make_case<Entry>(p, traits, what, order));
                harness::cell c;
                c.service = cases.back().service;
                c.case_point = cases.back().point;
                c.metrics = {"fire_caller_cpu", "fire_rest_cpu"};
                c.run = [&p, what, order](visit& v) { run_visit<Entry>(v, p, what, order); };
                (stage<Entry>::is_manual ? on_manual
                 : what == shape::spread ? spread_on_steady
                                         : burst_on_steady)
                    .push_back(std::move(c));
            }
        }
    });
    // A service's own warm-up stands in its visits.
    harness::sampler samples({.seed = opts.seed, .warm_up_rounds = 0});
    const auto several = static_cast<std::uint32_t>(given(rounds, opts.pick(3U, 2U)));
    const auto few = static_cast<std::uint32_t>(given(rounds, 1));
    samples.run(floors, std::max(several, 3U));
    samples.run(on_manual, several);
    samples.run(burst_on_steady, opts.quick ? few : several);
    samples.run(spread_on_steady, few);
    for (const auto& [name, size] : {std::pair{"manual", p.manual}, std::pair{"steady", p.steady}}) {
        out.parameter(name, {{"timers", size.timers}, {"span_ms", size.span_ms}});
    }
    out.parameter("sampler", samples.parameters());
    out.add(samples);
    for (const fire_case& c : cases) {
        add_sums(out, c);
    }
    print_table(out, cases, p.manual, true, meant);
    print_table(out, cases, p.steady, false, meant);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
