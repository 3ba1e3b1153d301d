// What does a timeout allocate, and what does it keep?
//
// Nothing is timed: heap traffic of the whole process (drivers included) is counted at malloc level over a fixed number of
// operations, so the figures are counts and repeat. A service that takes a clock runs on a manual one, which is moved on by
// 1 ms at a time and waits for the driver each time; any other runs on the steady clock, paced by absolute sleeps
// of 1 ms. The two regimes stand in tables of their own. Each visit of a cell makes a fresh service. The timers are the
// caller's storage: made before anything is counted, their size is a column of its own. What is counted, and why the
// measurement exists:
//
// article (allocations, bytes)    `pairs` times arm then cancel of one timer, 1 s, 100 pairs a millisecond. Traffic per pair: what
//                                 the design costs the allocator under its usual load.
//   first_...                     the first pairs of the service, when its pools and maps are empty,
//   steady                        after a warm-up of the duration and 100 ms (of 100 ms alone on the steady clock).
// window (allocations, bytes)     the same with 1 000 timers outstanding: cancel the oldest, arm it anew.
// fire (arm_fire_..., fire_...)   1 000 timers are armed and fire 100 to 120 ms later: traffic of the whole cycle, and of the part from the
//                                 last arm on, per timer; the first cycle of the service, and the second (steady).
// outstanding (...)               `outstanding` timers are armed with deadlines uniform in 120 to 840 s: allocations, and bytes held
//                                 when the driver has settled, per timer. What a connection with a timeout adds.
// held burst (held_...)           `outstanding` pairs of arm and cancel of one timer, 60 s, as fast as possible, on a manual clock at one instant: bytes
//                                 held per cancelled timer right afterwards, and after 200 ms in which the driver could clean up. The
//                                 deadline is still far away: what is left now is kept until then, or pooled for good.
// held paced (held_...)           the same at 100 pairs a millisecond: designs that keep one entry per stretch of time show it here.
// ready path (allocations)        a `timeout` is built around an operation that is done at its first poll, polled, and destroyed.
//                                 The first is not counted: a library may set itself up when its first timer is made.
//
// Bytes held are the change of malloc's usable sizes: rounding of the allocator included, its own headers not. Resident memory is
// another matter. A driver's thread stack is not on the heap.
//
// The work is verified by the return values and by the counters, after each measurement; counters may walk structures, and
// that happens outside the counted part.
#include "experiments/service_cells.hpp"
#include "harness/alloc_counter.hpp"
#include "harness/environment.hpp"
#include "harness/interrupt.hpp"
#include "harness/optimiser.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"
#include "timers/clock.hpp"
#include "timers/timeout.hpp"

#include <atomic>

namespace timerbench::experiments {
namespace {

using harness::alloc_counts;
using harness::json;
using harness::visit;
using std::chrono::milliseconds;

constexpr duration step = milliseconds{1};
constexpr std::size_t pairs_per_step = 100;
constexpr std::size_t poll_every = 64;
constexpr duration article_duration = std::chrono::seconds{1};
constexpr duration held_duration = std::chrono::seconds{60};
constexpr duration settling = milliseconds{200};
constexpr duration warm_up_margin = milliseconds{100};
constexpr std::size_t window_size = 1'000;
constexpr std::size_t fires = 1'000;
constexpr std::size_t fire_durations = 20; // 100 to 119 ms in whole milliseconds
constexpr const char* ready_check = "the ready path allocates nothing";

struct plan {
    std::uint64_t pairs = 0;
    std::uint64_t outstanding = 0;
    std::uint32_t rounds = 0;
    std::uint64_t most_warm_up_pairs = UINT64_MAX;

    /// The same for a service that takes a limited number of timers. Each of them is a thing of the system's, so that an
    /// operation takes microseconds, and is as good or bad as any other.
    [[nodiscard]] plan fitted_to(const service_traits& traits) const {
        plan fitted = *this;
        if (traits.most_timers > 0) {
            fitted.pairs = std::min<std::uint64_t>(pairs, 1'000);
            fitted.outstanding = std::min<std::uint64_t>({outstanding, 2'000, traits.most_timers});
            fitted.most_warm_up_pairs = 1'000;
        }
        return fitted;
    }
};

/// A fresh service with the clock it runs on, and the ways to let time pass.
template <class Entry, bool Manual = Entry::takes_clock>
class stage {
  public:
    using service = typename Entry::service;
    static constexpr const char* clock_name = "steady";

    /// The next step is counted from now.
    void begin_steps() { next_ = steady().now(); }
    /// Returns once `step` has passed since the last return, the loop polled meanwhile where there is one.
    void pass_step() {
        next_ = std::max(next_ + step, steady().now() - 50 * step); // far behind: the rest is given up
        if constexpr (loop_service<service>) {
            while (steady().now() < next_) {
                service_->poll_until(next_);
            }
        } else {
            const auto ns = next_.time_since_epoch().count();
            const timespec until{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0 &&
                   !harness::interrupted()) {}
        }
    }
    void settle() { catch_up(*service_); }
    [[nodiscard]] service& subject() { return *service_; }
    /// How long the first operations of a steady state take.
    [[nodiscard]] static duration warm_up(duration) { return warm_up_margin; }

  private:
    std::unique_ptr<service> service_ = Entry::make();
    time_point next_ = steady().now();
};

template <class Entry>
class stage<Entry, true> {
  public:
    using service = typename Entry::template service_on<manual_time>;
    static constexpr const char* clock_name = "manual";

    void begin_steps() {}
    void pass_step() { clock_.advance(step); }
    void settle() {
        catch_up(*service_);
        clock_.settle();
    }
    [[nodiscard]] service& subject() { return *service_; }
    [[nodiscard]] static duration warm_up(duration d) { return d + warm_up_margin; }

  private:
    manual_time clock_;
    std::unique_ptr<service> service_ = Entry::make_on(clock_);
};

/// Arms and cancels on one stage, and keeps the books.
template <class Entry>
class work {
  public:
    explicit work(visit& v) : visit_{v}, before_{stage_.subject().counters()} {}

    using service = typename stage<Entry>::service;
    [[nodiscard]] service& subject() { return stage_.subject(); }

    void arm(typename service::timer& t, duration d, callback c = no_callback) {
        ++expected_.armed;
        good_ += subject().arm(t, d, c) ? 1 : 0;
    }
    void cancel(typename service::timer& t) {
        ++expected_.cancelled;
        good_ += subject().cancel(t) ? 1 : 0;
    }
    void expect_fires(std::uint64_t n) { expected_.fired += n; }

    /// `n` pairs, each of them `pair(i)`, evenly paced.
    template <class Pair>
    void paced(std::uint64_t n, Pair&& pair) {
        stage_.begin_steps();
        for (std::uint64_t i = 0; i < n && !harness::interrupted(); ++i) {
            pair(i);
            if (i % poll_every == poll_every - 1) {
                poll_once(subject());
            }
            if (i % pairs_per_step == pairs_per_step - 1) {
                stage_.pass_step();
            }
        }
        stage_.settle();
    }
    void pass(duration d) {
        stage_.begin_steps();
        for (duration passed{}; passed < d && !harness::interrupted(); passed += step) {
            stage_.pass_step();
        }
        stage_.settle();
    }
    void pass_step() { stage_.pass_step(); }
    void settle() { stage_.settle(); }
    [[nodiscard]] std::uint64_t warm_up_pairs(duration d) const {
        return static_cast<std::uint64_t>(stage_.warm_up(d) / step) * pairs_per_step;
    }

    void per_op(const std::string& prefix, const alloc_counts& c, std::uint64_t ops) {
        const auto n = static_cast<double>(ops);
        visit_.value(prefix + "allocations", "1/op", static_cast<double>(c.allocations) / n);
        visit_.value(prefix + "bytes", "B/op", static_cast<double>(c.requested_bytes) / n);
    }
    void held(const std::string& metric, const alloc_counts& c, std::uint64_t timers) {
        visit_.value(metric, "B", static_cast<double>(c.live_bytes) / static_cast<double>(timers));
    }

    /// At the end of a visit, in quiet: wrong work makes every row of the cell an error.
    void close() {
        if (harness::interrupted()) {
            return;
        }
        if (good_ != expected_.armed + expected_.cancelled) {
            visit_.fail("wrong work: " + std::to_string(good_) + " of " +
                        std::to_string(expected_.armed + expected_.cancelled) +
                        " calls of arm and cancel returned true");
        }
        const counters after = subject().counters();
        if (const std::string wrong = wrong_work(before_, after, expected_); !wrong.empty()) {
            visit_.fail(wrong);
        }
        visit_.check("armed = cancelled + fired + dropped + pending", after.balanced(), to_string(after));
    }

  private:
    visit& visit_;
    stage<Entry> stage_;
    counters before_;
    expected_work expected_;
    std::uint64_t good_ = 0;
};

template <class Entry>
using subject_of = typename stage<Entry>::service;

/// Counts what `body` does.
template <class Body>
[[nodiscard]] alloc_counts counted(Body&& body) {
    const harness::alloc_window window;
    body();
    return window.counts();
}

// ---- the measurements ----

template <class Entry>
void article(visit& v, const plan& p) {
    work<Entry> w{v};
    {
        timer_block<subject_of<Entry>> timers{w.subject(), 1};
        const auto pair = [&](std::uint64_t) {
            w.arm(timers[0], article_duration);
            w.cancel(timers[0]);
        };
        w.per_op("first_", counted([&] { w.paced(p.pairs, pair); }), p.pairs);
        w.paced(std::min(w.warm_up_pairs(article_duration), p.most_warm_up_pairs), pair);
        w.per_op("", counted([&] { w.paced(p.pairs, pair); }), p.pairs);
    }
    w.close();
}

template <class Entry>
void window(visit& v, const plan& p) {
    work<Entry> w{v};
    timer_block<subject_of<Entry>> timers{w.subject(), window_size};
    w.paced(window_size, [&](std::uint64_t i) { w.arm(timers[i], article_duration); });
    std::uint64_t oldest = 0;
    const auto pair = [&](std::uint64_t) {
        auto& t = timers[oldest++ % window_size];
        w.cancel(t);
        w.arm(t, article_duration);
    };
    w.per_op("first_", counted([&] { w.paced(p.pairs, pair); }), p.pairs);
    w.paced(std::min(w.warm_up_pairs(article_duration), p.most_warm_up_pairs), pair);
    w.per_op("", counted([&] { w.paced(p.pairs, pair); }), p.pairs);
    w.close();
}

struct fired_count {
    std::atomic<std::uint64_t> n{0}; // raised by drivers, read by the sampling thread
    static void record(void* context) {
        static_cast<fired_count*>(context)->n.fetch_add(1, std::memory_order_relaxed);
    }
};

template <class Entry>
void fire(visit& v, const plan&) {
    work<Entry> w{v};
    fired_count fired;
    timer_block<subject_of<Entry>> timers{w.subject(), fires};
    bool complete = true;
    for (const std::string prefix : {"first_", ""}) {
        fired.n = 0;
        alloc_counts expiry;
        std::uint64_t early = 0;
        const alloc_counts cycle = counted([&] {
            for (std::size_t i = 0; i < fires; ++i) {
                w.arm(timers[i], milliseconds{100 + i % fire_durations}, {&fired_count::record, &fired});
            }
            poll_once(w.subject());
            early = fired.n;
            expiry = counted([&] {
                for (int passed = 0; fired.n < fires && passed < 20'000 && !harness::interrupted();
                     ++passed) {
                    w.pass_step();
                }
                w.settle();
            });
        });
        w.expect_fires(fires);
        complete = complete && fired.n == fires;
        w.per_op(prefix + "arm_fire_", cycle, fires);
        if (early == 0) {
            w.per_op(prefix + "fire_", expiry, fires);
        } else {
            v.note(prefix + "fire_allocations",
                   "a cycle was left out whose arms took longer than the shortest duration");
        }
    }
    if (!complete && !harness::interrupted()) {
        v.fail("only " + std::to_string(fired.n) + " of " + std::to_string(fires) +
               " timers fired within 20 s");
    }
    w.close();
}

template <class Entry>
void outstanding(visit& v, const plan& p) {
    work<Entry> w{v};
    const std::size_t most = w.subject().traits().most_durations;
    harness::random_source random{v.seed()};
    timer_block<subject_of<Entry>> timers{w.subject(), p.outstanding};
    // Drawn beforehand, so that nothing but the arms is counted.
    std::vector<duration> durations(p.outstanding);
    for (duration& d : durations) {
        d = random_duration(random, population_from, population_to);
        if (most > 0) {
            const duration apart = (population_to - population_from) / static_cast<duration::rep>(most);
            d = population_from + (d - population_from) / apart * apart;
        }
    }
    const harness::alloc_window counting;
    for (std::size_t i = 0; i < p.outstanding; ++i) {
        w.arm(timers[i], durations[i]);
        if (i % poll_every == poll_every - 1) {
            poll_once(w.subject());
        }
    }
    w.settle();
    const alloc_counts c = counting.counts();
    w.per_op("", c, p.outstanding);
    w.held("held", c, p.outstanding);
    v.value("timer_size", "B", static_cast<double>(sizeof(typename subject_of<Entry>::timer)));
    w.close();
}

template <class Entry>
void held(visit& v, const plan& p, bool paced) {
    work<Entry> w{v};
    timer_block<subject_of<Entry>> timers{w.subject(), 1};
    const auto pair = [&](std::uint64_t) {
        w.arm(timers[0], held_duration);
        w.cancel(timers[0]);
    };
    const harness::alloc_window counting;
    if (paced) {
        w.paced(p.outstanding, pair);
    } else {
        for (std::uint64_t i = 0; i < p.outstanding; ++i) {
            pair(i);
        }
    }
    // Both are read before either is recorded: recording allocates.
    const alloc_counts at_once = counting.counts();
    w.pass(settling);
    const alloc_counts settled = counting.counts();
    w.held("held_at_once", at_once, p.outstanding);
    w.held("held_settled", settled, p.outstanding);
    w.close();
}

struct ready {
    std::optional<int> poll(const waker&) const noexcept { return 1; }
};

template <class Entry>
void ready_path(visit& v, const plan& p) {
    work<Entry> w{v};
    std::uint64_t values = 0;
    const auto one = [&] {
        timeout<subject_of<Entry>, ready> t{w.subject(), article_duration, ready{}};
        harness::do_not_optimize(t);
        const auto result = t.poll(waker{});
        values += result && !result->elapsed() ? 1 : 0;
    };
    one();
    w.settle();
    const alloc_counts c = counted([&] {
        for (std::uint64_t i = 0; i < p.pairs; ++i) {
            one();
        }
    });
    w.per_op("", c, p.pairs);
    if (values != p.pairs + 1) {
        v.fail("wrong work: " + std::to_string(values) + " of " + std::to_string(p.pairs + 1) +
               " polls gave the value");
    }
    v.check(ready_check, c.allocations == 0,
            std::to_string(c.allocations) + " allocations in " + std::to_string(p.pairs) + " timeouts");
    w.close();
}

// ---- cells and report ----

struct kind {
    const char* name;
    std::vector<std::string> metrics;
};

const kind article_kind{"article", {"first_allocations", "first_bytes", "allocations", "bytes"}};
const kind window_kind{"window", {"first_allocations", "first_bytes", "allocations", "bytes"}};
const kind fire_kind{"fire",
                     {"first_arm_fire_allocations", "first_arm_fire_bytes", "first_fire_allocations",
                      "first_fire_bytes", "arm_fire_allocations", "arm_fire_bytes", "fire_allocations",
                      "fire_bytes"}};
const kind outstanding_kind{"outstanding", {"allocations", "bytes", "held", "timer_size"}};
const kind burst_kind{"held burst", {"held_at_once", "held_settled"}};
const kind paced_kind{"held paced", {"held_at_once", "held_settled"}};
const kind ready_kind{"ready path", {"allocations", "bytes"}};

[[nodiscard]] json point_of(const kind& k, const std::string& clock, const plan& p) {
    json point{{"kind", k.name}, {"clock", clock}};
    const std::string_view name{k.name};
    if (name == "article" || name == "window") {
        point.update({{"duration_ms", article_duration / milliseconds{1}}, {"operations", p.pairs}});
    } else if (name == "fire") {
        point.update({{"operations", fires}});
    } else if (name == "ready path") {
        point.update({{"operations", p.pairs}});
    } else {
        point.update({{"operations", p.outstanding}});
    }
    return point;
}

template <class Entry>
void add_cells(std::vector<harness::cell>& cells, const plan& p) {
    const auto add = [&](const kind& k, void (*body)(visit&, const plan&)) {
        harness::cell c;
        c.service = std::string{Entry::name};
        c.case_point = point_of(k, stage<Entry>::clock_name, p);
        c.metrics = k.metrics;
        c.run = [body, p](visit& v) {
            if (const auto counting = harness::alloc_counting(); !counting.available) {
                v.skip(counting.reason);
            } else {
                body(v, p);
            }
        };
        cells.push_back(std::move(c));
    };
    add(article_kind, [](visit& v, const plan& given) { article<Entry>(v, given); });
    add(window_kind, [](visit& v, const plan& given) { window<Entry>(v, given); });
    add(fire_kind, [](visit& v, const plan& given) { fire<Entry>(v, given); });
    add(outstanding_kind, [](visit& v, const plan& given) { outstanding<Entry>(v, given); });
    add(burst_kind, [](visit& v, const plan& given) { held<Entry>(v, given, false); });
    add(paced_kind, [](visit& v, const plan& given) { held<Entry>(v, given, true); });
    add(ready_kind, [](visit& v, const plan& given) { ready_path<Entry>(v, given); });
}

/// What was measured of one service.
struct subject {
    std::string name;
    plan work;
};

struct shown {
    const kind* what;
    const char* metric;
    const char* title;
    const char* unit;
    int decimals;
};

void print_table(harness::report& out, const std::string& title, const std::string& clock,
                 const std::vector<subject>& services, const std::vector<shown>& columns,
                 const std::vector<std::string>& notes) {
    std::vector<harness::column> heads{{"service", "", harness::align::left}};
    for (const shown& c : columns) {
        heads.push_back({c.title, c.unit});
    }
    harness::text_table table{title + ", " + clock + " clock", heads};
    for (const auto& [service, work] : services) {
        std::vector<harness::table_cell> cells{harness::text(service)};
        for (const shown& c : columns) {
            cells.push_back(harness::figure(out.find(service, point_of(*c.what, clock, work), c.metric),
                                            harness::statistic::p50, c.decimals, out.opts().seed));
        }
        table.add_row(std::move(cells));
    }
    for (const std::string& note : notes) {
        table.add_note(note);
    }
    out.print(table);
}

void print_tables(harness::report& out, const plan& p, const std::string& clock,
                  const std::vector<subject>& services) {
    if (services.empty()) {
        return;
    }
    print_table(out, "Heap allocations per operation", clock, services,
                {{&article_kind, "first_allocations", "article", "first", 2},
                 {&article_kind, "allocations", "", "steady", 2},
                 {&article_kind, "bytes", "", "B", 1},
                 {&window_kind, "first_allocations", "window", "first", 2},
                 {&window_kind, "allocations", "", "steady", 2},
                 {&window_kind, "bytes", "", "B", 1},
                 {&fire_kind, "first_arm_fire_allocations", "arm+fire", "first", 2},
                 {&fire_kind, "arm_fire_allocations", "", "steady", 2},
                 {&fire_kind, "arm_fire_bytes", "", "B", 1},
                 {&fire_kind, "fire_allocations", "fire alone", "steady", 2},
                 {&ready_kind, "allocations", "ready path", "all", 2}},
                {"Medians over visits. article: arm+cancel of one timer; window: the same with 1 000 "
                 "outstanding; 100 pairs a ms.",
                 "first: from the making of the service on; steady: after the warm-up. B: bytes asked for, "
                 "steady state.",
                 "fire alone: what is allocated between the last arm and the last fire."});
    print_table(out, "Bytes of heap held, per timer", clock, services,
                {{&outstanding_kind, "timer_size", "caller's storage", "B", 0},
                 {&outstanding_kind, "allocations", "outstanding", "allocs", 2},
                 {&outstanding_kind, "held", "", "B", 1},
                 {&burst_kind, "held_at_once", "cancelled, burst", "at once", 2},
                 {&burst_kind, "held_settled", "", "settled", 2},
                 {&paced_kind, "held_at_once", "cancelled, paced", "at once", 2},
                 {&paced_kind, "held_settled", "", "settled", 2}},
                {"Of a service that takes a limited number of timers at a time, at most 2 000.",
                 "cancelled: held per timer that was armed for 60 s and cancelled; settled: 200 ms later, "
                 "the deadline still far away.",
                 "Per-thread and per-service blocks are in these figures, spread over " +
                     std::to_string(p.outstanding) + " timers."});
}

int run(int argc, char** argv) {
    harness::options opts;
    plan p;
    std::uint64_t pairs = 0;
    std::uint64_t outstanding_timers = 0;
    harness::options_parser parser("bench_allocs", "What does a timeout allocate, and what does it keep?",
                                   service_names());
    parser.add_number("--pairs", pairs, 1, 10'000'000,
                      "operations counted at a time; left out: 5000 with --quick, else 20000");
    parser.add_number("--outstanding", outstanding_timers, 1, 10'000'000,
                      "timers outstanding or held; left out: 20000 with --quick, else 100000");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    p.pairs = pairs != 0 ? pairs : opts.pick(20'000U, 5'000U);
    p.outstanding = outstanding_timers != 0 ? outstanding_timers : opts.pick(100'000U, 20'000U);
    p.rounds = opts.pick(4U, 1U);

    const harness::interrupt_guard interrupts;
    harness::report out("allocs", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);

    std::vector<harness::cell> cells;
    std::vector<subject> on_manual;
    std::vector<subject> on_steady;
    for_each_chosen(opts, [&]<class Entry>() {
        const subject one{std::string{Entry::name}, p.fitted_to(Entry::make()->traits())};
        (Entry::takes_clock ? on_manual : on_steady).push_back(one);
        add_cells<Entry>(cells, one.work);
    });
    harness::sampler samples({.seed = opts.seed});
    samples.run(cells, p.rounds);
    out.parameter("pairs", p.pairs);
    out.parameter("outstanding", p.outstanding);
    out.parameter("pairs_per_ms", pairs_per_step);
    out.parameter("window", window_size);
    out.parameter("sampler", samples.parameters());
    const auto counting = harness::alloc_counting();
    out.parameter("alloc_counter", counting.available ? "available" : counting.reason);
    out.add(samples);
    if (!counting.available) {
        out.print("Nothing was counted: " + counting.reason);
    }
    print_tables(out, p, "manual", on_manual);
    print_tables(out, p, "steady", on_steady);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
