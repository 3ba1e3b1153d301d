// What does a timeout weigh, and what does it leave behind?
//
// armed       timers of 60 s, so many that a service's fixed parts do not count: bytes per timer that waits. After the deadline: what is
//             left of it when all have fired and the handles are gone.
// cancelled   one timer is armed for 60 s and cancelled, over and over: bytes held per cancelled timer 200 ms later, when the
//             driver could have cleaned up. What is left is held until the deadline that each had (rate x timeout of it, in a
//             server), or pooled. After the deadline: what is not given back.
//
// Both come at 100 000 a second, so that designs with an entry per stretch of time show it. Two figures each: exact, the bytes
// of the heap in use (allocator's rounding included, its own headers not), and RSS, the growth of the process's resident
// memory, in which are headers, fragments, stacks of threads and what the allocator keeps after a free. Armed timers
// include the caller's handle, whose size is a column too. What the kernel keeps for a timer, a descriptor or a thread is in
// neither figure.
//
// RSS never shrinks reliably, so each measurement runs in a forked child of its own, without huge pages. Before the first reading the
// child makes the service and lets one timer fire: driver, code and first blocks are there, and only growth with the number
// of timers is measured. What the service itself takes is a column. On a manual clock the 60 s pass at once; on the steady
// clock nobody waits for them, and those cells say so.
//
// The work is verified by return values and counters, after the readings: counters walk structures.
#include "experiments/fire_plan.hpp"
#include "experiments/service_cells.hpp"
#include "experiments/stage.hpp"
#include "harness/alloc_counter.hpp"
#include "harness/environment.hpp"
#include "harness/forked.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/process_status.hpp"
#include "harness/progress.hpp"
#include "harness/report.hpp"

#include <array>
#include <malloc.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <unistd.h>

namespace timerbench::experiments {
namespace {

using harness::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr duration armed_for = seconds{60};
constexpr duration pace = milliseconds{1};
constexpr std::size_t per_pace = 100;
constexpr std::size_t poll_every = 64;
constexpr duration settling = milliseconds{200};
constexpr duration settling_step = milliseconds{20};
constexpr duration waiting_step = seconds{1};
constexpr auto child_limit = std::chrono::minutes{5};
constexpr std::uint64_t meant = 1'000'000;

enum class kind { armed, cancelled };
constexpr std::array all_kinds{kind::armed, kind::cancelled};
[[nodiscard]] const char* name_of(kind k) {
    return k == kind::armed ? "armed" : "cancelled";
}

constexpr std::array all_metrics{"exact", "rss", "exact_after_deadline", "rss_after_deadline", "service"};
constexpr const char* real_minute = "would take 60 s of real time: the service runs on the steady clock only";

struct sizes {
    std::uint64_t manual = 0;
    std::uint64_t steady = 0;
    template <class Entry>
    [[nodiscard]] std::uint64_t of() const {
        return stage<Entry>::is_manual ? manual : steady;
    }
};

// ---- in the child ----

[[nodiscard]] std::int64_t resident() {
    const auto memory = harness::read_resident_memory();
    if (!memory) {
        throw std::runtime_error{"resident memory cannot be read: neither /proc/self/smaps_rollup nor statm"};
    }
    return static_cast<std::int64_t>(memory->bytes);
}

/// Growth since it was made.
class scales {
  public:
    scales() : resident_before_{resident()}, heap_before_{heap_.counts().live_bytes} {}
    /// Bytes per timer in use now, as the rows `exact<suffix>` and `rss<suffix>`.
    void weigh(json& values, const std::string& suffix, std::size_t timers) const {
        const auto exact = heap_.counts().live_bytes - heap_before_;
        const auto grown = resident() - resident_before_;
        values["exact" + suffix] = static_cast<double>(exact) / static_cast<double>(timers);
        values["rss" + suffix] = static_cast<double>(grown) / static_cast<double>(timers);
    }

  private:
    harness::alloc_window heap_;
    std::int64_t resident_before_;
    std::int64_t heap_before_;
};

template <class Entry>
void pass_steps(stage<Entry>& where, duration whole, duration step) {
    const time_point end = where.now() + whole;
    for (time_point t = where.now() + step; t < end && !harness::interrupted(); t += step) {
        where.pass_until(t);
    }
    where.pass_until(end);
    where.settle();
}

/// `n` operations at the pace of the experiment.
template <class Entry, class Operation>
void at_pace(stage<Entry>& where, std::size_t n, Operation&& operation) {
    time_point next = where.now();
    for (std::size_t i = 0; i < n && !harness::interrupted(); ++i) {
        operation(i);
        if (i % poll_every == poll_every - 1) {
            poll_once(where.subject());
        }
        if (i % per_pace == per_pace - 1) {
            next += pace;
            where.pass_until(next);
        }
    }
}

template <class Entry>
[[nodiscard]] std::string measure(kind what, std::size_t n) {
    // Freed memory of the parent would be taken into use again without growth, and a huge page is 2 MiB at a time.
    prctl(PR_SET_THP_DISABLE, 1UL, 0UL, 0UL, 0UL);
    malloc_trim(0);
    json values = json::object();
    std::uint64_t good = 0;
    const harness::alloc_window whole;
    // Never destroyed, as are the timers: the process ends with this function, and no time is spent on taking it apart.
    stage<Entry>& where = *new stage<Entry>;
    auto& service = where.subject();
    const service_traits traits = service.traits();
    fired_count& fired = *new fired_count;
    const callback counting = fired.counting(traits);
    {
        timer_block<subject_of<Entry>> first{service, 1};
        good += service.arm(first[0], milliseconds{1}, counting) ? 1 : 0;
        const time_point due = where.now() + milliseconds{1} + traits.latest;
        static_cast<void>(pass_until_fired(where, fired, 1, due, traits.latest + seconds{20}));
        good += service.arm(first[0], armed_for, counting) && service.cancel(first[0]) ? 1 : 0;
        pass_steps(where, settling, settling_step);
    }
    values["service"] = static_cast<double>(whole.counts().live_bytes);

    {
        // Code and buffers of reading, which are not to be taken for the service's.
        json scratch = json::object();
        const scales rehearsal;
        rehearsal.weigh(scratch, "", 1);
    }
    const scales growth;
    auto* const timers = new timer_block<subject_of<Entry>>{service, what == kind::armed ? n : 1};
    at_pace(where, n, [&](std::size_t i) {
        if (what == kind::armed) {
            good += service.arm((*timers)[i], armed_for, counting) ? 1 : 0;
        } else {
            good += service.arm((*timers)[0], armed_for, counting) && service.cancel((*timers)[0]) ? 1 : 0;
        }
    });
    const time_point due = where.now() + armed_for + traits.latest;
    pass_steps(where, settling, settling_step);
    growth.weigh(values, "", n);
    const counters middle = service.counters();
    if (middle.pending != (what == kind::armed ? n : 0)) {
        throw std::runtime_error{"wrong work: " + std::to_string(middle.pending) + " timers are pending"};
    }
    if constexpr (stage<Entry>::is_manual) {
        pass_steps(where, armed_for + traits.latest, waiting_step);
        if (what == kind::armed) {
            static_cast<void>(pass_until_fired(where, fired, n + 1, due, traits.latest + seconds{20}));
        }
        where.settle();
        delete timers;
        growth.weigh(values, "_after_deadline", n);
    }
    const counters seen = service.counters();
    const std::uint64_t fires = 1 + (what == kind::armed && stage<Entry>::is_manual ? n : 0);
    const std::uint64_t cancels = 1 + (what == kind::cancelled ? n : 0);
    if (seen.fired != fires || seen.cancelled != cancels || seen.armed != n + 2 || good != n + 2) {
        throw std::runtime_error{"wrong work: " + to_string(seen) + "; expected armed " +
                                 std::to_string(n + 2) + ", fired " + std::to_string(fires) + ", cancelled " +
                                 std::to_string(cancels) + "; " + std::to_string(good) +
                                 " calls returned true"};
    }
    return json{
        {"values", values},
        {"counters", {seen.armed, seen.fired, seen.cancelled, seen.dropped, seen.pending, seen.threw}}}
        .dump();
}

// ---- in the parent ----

/// A case of a service with what was measured of it.
struct memory_case {
    std::string service;
    bool manual = false;
    kind what = kind::armed;
    std::size_t timers = 0;
    std::string note;
    double handle = 0;
    json point;
    std::function<std::string()> measure; // in a child
    std::map<std::string, std::vector<double>> samples;
    std::string error;
};

template <class Entry>
[[nodiscard]] memory_case make_case(const sizes& size, const service_traits& traits, kind what) {
    memory_case c;
    // The limit goes for cancelled ones too: what makes a service have one makes each arm dear.
    const bounded_timers n = within_limit(traits, size.of<Entry>());
    c.service = std::string{Entry::name};
    c.manual = stage<Entry>::is_manual;
    c.what = what;
    c.timers = n.count;
    c.note = n.note;
    c.handle = static_cast<double>(sizeof(typename subject_of<Entry>::timer));
    c.point = {{"kind", name_of(what)},
               {"clock", stage<Entry>::clock_name},
               {"timers", n.count},
               {"duration_ms", armed_for / milliseconds{1}},
               {"a_second", per_pace * (seconds{1} / pace)}};
    c.measure = [what, timers = n.count] { return measure<Entry>(what, timers); };
    return c;
}

void visit(memory_case& c, ledger& books) {
    const harness::forked_result result = harness::run_in_child(c.measure, child_limit);
    if (!result.error.empty()) {
        if (!harness::interrupted() && c.error.empty()) {
            c.error = result.error;
        }
        return;
    }
    const json read = json::parse(result.output);
    for (const auto& [metric, value] : read.at("values").items()) {
        c.samples[metric].push_back(value.get<double>());
    }
    const auto n = read.at("counters").get<std::array<std::uint64_t, 6>>();
    books.look(c.service, {n[0], n[1], n[2], n[3], n[4], n[5]});
}

void add_rows(harness::report& out, memory_case& c, const std::string& unavailable) {
    for (const std::string metric : all_metrics) {
        harness::row row;
        row.service = c.service;
        row.case_point = c.point;
        row.metric = metric;
        row.unit = "B";
        row.note = c.note;
        row.samples = c.samples[metric];
        row.error = c.error;
        row.skipped = unavailable;
        if (row.skipped.empty() && !c.manual && metric.ends_with("_after_deadline")) {
            row.skipped = real_minute;
        }
        out.add(std::move(row));
    }
    harness::row handle;
    handle.service = c.service;
    handle.case_point = c.point;
    handle.metric = "handle";
    handle.unit = "B";
    handle.samples = {c.handle};
    out.add(std::move(handle));
}

void print_table(harness::report& out, const std::vector<memory_case>& cases, bool manual,
                 std::uint64_t timers) {
    std::vector<harness::column> heads{
        {"service", "", harness::align::left}, {"handle", "B"}, {"armed", "exact"}, {"", "RSS"}};
    if (manual) {
        heads.insert(heads.end(), {{"after", "exact"}, {"", "RSS"}});
    }
    heads.insert(heads.end(), {{"cancelled", "exact"}, {"", "RSS"}});
    if (manual) {
        heads.insert(heads.end(), {{"after", "exact"}, {"", "RSS"}});
    }
    heads.push_back({"service", "KiB"});
    harness::text_table table{"Bytes per timer of 60 s, " + std::string{manual ? "manual" : "steady"} +
                                  " clock, " + std::to_string(timers) + " timers" +
                                  (timers < meant ? " (not " + std::to_string(meant) + ")" : ""),
                              heads};
    bool any = false;
    for (std::size_t i = 0; i + 1 < cases.size(); i += all_kinds.size()) {
        const memory_case& armed = cases[i];
        const memory_case& cancelled = cases[i + 1];
        if (armed.manual != manual) {
            continue;
        }
        any = true;
        harness::table_cell name = harness::text(armed.service);
        if (!armed.note.empty()) {
            name.notes.push_back(armed.note);
        }
        std::vector<harness::table_cell> cells{name, harness::number(armed.handle, 0)};
        for (const memory_case* c : {&armed, &cancelled}) {
            for (const char* metric : {"exact", "rss", "exact_after_deadline", "rss_after_deadline"}) {
                if (!manual && std::string_view{metric}.ends_with("_after_deadline")) {
                    continue;
                }
                const harness::row* found = out.find(c->service, c->point, metric);
                harness::row bare = found != nullptr ? *found : harness::row{};
                bare.note.clear(); // stands beside the service's name
                cells.push_back(harness::figure(&bare, harness::statistic::p50, 1, out.opts().seed));
            }
        }
        const harness::row* fixed = out.find(cancelled.service, cancelled.point, "service");
        const auto bytes =
            fixed != nullptr && fixed->error.empty() ? harness::median(fixed->samples) : std::nullopt;
        cells.push_back(bytes && fixed->skipped.empty() ? harness::number(*bytes / 1024, 1)
                                                        : harness::figure(fixed));
        table.add_row(std::move(cells));
    }
    if (!any) {
        return;
    }
    table.add_note("exact: heap in use; RSS: growth of resident memory, the allocator's own share and thread "
                   "stacks included. Kernel memory is in neither.");
    table.add_note("armed: handle included. cancelled: held per timer 200 ms after its cancel.");
    table.add_note(
        manual ? "after: when the 60 s have passed, per timer; handles are gone. RSS that stays is "
                 "what malloc keeps for later."
               : "What is left after the deadline is not measured: " + std::string{real_minute} + ".");
    table.add_note("service: heap of the service itself after its first timer. 100 000 arms a second.");
    out.print(table);
}

int run(int argc, char** argv) {
    harness::options opts;
    std::uint64_t timers = 0;
    std::uint64_t rounds = 1;
    harness::options_parser parser(
        "bench_memory", "What does a timeout weigh, and what does it leave behind?", service_names());
    parser.add_number(
        "--timers", timers, 1, 20'000'000,
        "timers armed, or armed and cancelled; left out: 1000000, with --quick 200000 on the manual "
        "clock and 50000 on the steady one");
    parser.add_number("--rounds", rounds, 1, 100, "measurements of each case, each in a process of its own");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    const auto given = [&](std::uint64_t otherwise) { return timers != 0 ? timers : otherwise; };
    const sizes size{.manual = given(opts.pick(meant, std::uint64_t{200'000})),
                     .steady = given(opts.pick(meant, std::uint64_t{50'000}))};

    const harness::interrupt_guard interrupts;
    harness::report out("memory", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);
    const auto counting = harness::alloc_counting();
    out.parameter("timers_on_manual_clock", size.manual);
    out.parameter("timers_on_steady_clock", size.steady);
    out.parameter("rounds", rounds);
    out.parameter("alloc_counter", counting.available ? "available" : counting.reason);
    const auto resident_now = harness::read_resident_memory();
    out.parameter("resident_memory", resident_now ? resident_now->source : "unavailable");

    std::vector<memory_case> cases;
    for_each_chosen(opts, [&]<class Entry>() {
        const service_traits traits = Entry::make()->traits();
        for (const kind what : all_kinds) {
            cases.push_back(make_case<Entry>(size, traits, what));
        }
    });
    ledger books;
    harness::progress line{cases.size() * rounds, isatty(STDERR_FILENO) == 1};
    for (std::uint64_t round = 0; round < rounds && counting.available; ++round) {
        for (memory_case& c : cases) {
            if (harness::interrupted()) {
                break;
            }
            line.step(c.service + ", " + name_of(c.what));
            visit(c, books);
        }
    }
    if (!harness::interrupted()) {
        for (memory_case& c : cases) {
            add_rows(out, c, counting.available ? "" : counting.reason);
        }
        print_table(out, cases, true, size.manual);
        print_table(out, cases, false, size.steady);
        books.report_to(out);
    }
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
