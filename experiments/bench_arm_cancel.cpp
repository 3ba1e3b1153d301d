// What does it cost to arm a timeout and to cancel it before it fires?
//
// Every figure is taken on the machine's steady clock, by one thread, with the service's own driver (if it has one)
// running beside it. Each visit makes the service, arms the population, measures a few batches of a fixed number of
// operations and stops the service. What is inside the timed region, and why the measurement exists:
//
// article (arm_cancel)            `batch_pairs` times arm then cancel of one timer, 1 s. The article's case, and the pattern of a
//                                 connection that waits for one answer after another. With a population from 120 s on, the timer
//                                 is the earliest of all each time; "deadline": "latest" stands for the same with another timer,
//                                 due earlier, armed outside the timed region: some services pay only for a new earliest one.
// window (arm_cancel)             30 000 timers are outstanding (10 000 requests a second that each wait up to 3 s). `batch_pairs`
//                                 times: cancel the oldest, or a random one, and arm it anew. What a busy server does.
// window (cancel), (arm)          `batch_singles` cancels alone, then as many arms alone, each timed as one batch; 2 000 to 30 000 are
//                                 outstanding meanwhile. Which half of the pair is dear. Two clock readings around each
//                                 operation would cost more than the operation.
//        (cancel_foreign)         the cancels once more, of timers that another thread armed, which is idle now.
//   ... one duration / random     3 s, or uniform over 1..60 s: structures that share storage among equal deadlines differ here.
//   ... deadline earliest         each new deadline is earlier than all others: durations shrink by 20 us each.
//   ... above the threshold       20 min, for services that send long durations down another path.
// paced (arm_cancel)              the window's pairs, or the article's, in bursts of 100 or 1 000 at the start of each millisecond,
//                                 absolute sleeps between. Timed: the bursts only. A saturating loop lets a queue grow that
//                                 a server's pace would not; here the driver gets the time that it gets in life.
// direct/<service>                the same loops over a hand-written use of the library that the service adapts, so that the
//                                 adapter's own cost is seen.
// floor/...                       empty loop, one steady-clock reading, one coarse one, a mutex, malloc + free, the window's loop
//                                 around nothing: what the smallest things cost in this run.
//
// A loop-driven service is polled inside the timed region, after every 64 operations and at the end of each batch or burst: the
// delivery of aborted handlers is part of the cost. Three columns for every cost: the caller's ns; CPU ns of the rest of
// the process per operation, the drain of deferred work included; the queue at the end. Random choices are drawn before
// the timed region. Not in a timed region: making the service, the population, filling the window, reading counters.
//
// The work is verified by the return values of each batch, and by the service's counters once a visit: counters() counts what is
// pending by walking the structure, which between batches would change what the caches hold.
#include "experiments/arm_cancel_report.hpp"
#include "experiments/arm_cancel_work.hpp"
#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/floor_costs.hpp"
#include "harness/gbench.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"
#include "harness/thread_team.hpp"

#include <cerrno>
#include <functional>
#include <sys/prctl.h>
#include <thread>

namespace timerbench::experiments {
namespace {

using harness::json;
using harness::visit;

// Operations of a batch. A sanitizer slows them so much that timers of 1 s would come due within a batch.
const std::size_t batch_pairs = harness::sanitizer_name().empty() ? 4'096 : 512;
const std::size_t batch_singles =
    harness::sanitizer_name().empty() ? 28'000 : 3'500; // the cheapest cancel takes 4 ns
constexpr std::uint64_t dear_population = 100'000; // from here on, setting up costs far more than measuring

/// What is asked of a service between batches, with its type left behind: none of it is timed, and the code around it need
/// not be compiled once per service.
struct service_view {
    std::function<std::optional<counters>()> books;      ///< Empty: a direct use of a library keeps none.
    std::function<std::optional<std::size_t>()> backlog; ///< Empty: defers nothing, or does not say.
    std::function<void()> drain;                         ///< No function: nothing to drain.
    std::function<void()> catch_up;
    std::function<void()> stop;
};

template <class Service>
[[nodiscard]] service_view view_of(Service& service) {
    service_view view;
    view.books = [&]() -> std::optional<counters> {
        if constexpr (requires {
                          { service.counters() } -> std::same_as<counters>;
                      }) {
            return service.counters();
        } else {
            return std::nullopt;
        }
    };
    view.backlog = [&service] { return backlog_of(service); };
    if constexpr (requires { service.drain(); }) {
        view.drain = [&service] { service.drain(); };
    }
    view.catch_up = [&service] { catch_up(service); };
    view.stop = [&] {
        if constexpr (requires { service.stop(); }) {
            service.stop();
        }
    };
    return view;
}

/// The books of one visit: what was asked of the service, against what it says it did.
class account {
  public:
    account(visit& v, const service_view& service) : visit_{v}, service_{service}, before_{service.books()} {}

    /// The population must be there before anything is timed.
    void require(std::uint64_t armed, std::uint64_t wanted) {
        if (armed != wanted) {
            visit_.fail("the service armed " + std::to_string(armed) + " of a population of " +
                        std::to_string(wanted));
        }
    }

    /// So many arms and cancels were called, of which `good` did what they should. False: the cell has failed.
    bool add(std::uint64_t armed, std::uint64_t cancelled, std::uint64_t good) {
        expected_.armed += armed;
        expected_.cancelled += cancelled;
        if (good != armed + cancelled) {
            visit_.fail("wrong work: " + std::to_string(good) + " of " + std::to_string(armed + cancelled) +
                        " calls of arm and cancel returned true");
            return false;
        }
        return true;
    }

    /// At the end of the visit, with the timers still alive. Stops the service.
    void close() {
        if (const auto after = service_.books()) {
            const std::string wrong = wrong_work(*before_, *after, expected_);
            if (!wrong.empty()) {
                visit_.fail(wrong);
            }
            check(*after, "");
        }
        service_.stop();
        if (const auto stopped = service_.books()) {
            check(*stopped, "after stop: ");
        }
    }

  private:
    void check(const counters& c, const char* when) {
        visit_.check("armed = cancelled + fired + dropped + pending", c.balanced(), when + to_string(c));
    }

    visit& visit_;
    const service_view& service_;
    std::optional<counters> before_;
    expected_work expected_;
};

using batch_body = harness::function_ref<std::uint64_t()>;

/// Times one batch of `ops` operations, with the rest of the process and the queue beside it. Returns what `body` does:
/// how many calls did what they should.
std::uint64_t timed(visit& v, const service_view& service, const std::string& metric, std::uint64_t ops,
                    batch_body body) {
    std::uint64_t good = 0;
    const harness::metric_set names{metric, "", metric + "_rest_cpu", ""};
    const auto counted = [&] { good = body(); };
    if (!service.drain) {
        v.sample(names, ops, counted);
        return good;
    }
    const auto before = service.backlog();
    std::optional<std::size_t> after;
    v.sample(names, ops, counted, [&] {
        after = service.backlog();
        service.drain();
    });
    if (after) {
        v.value(metric + "_backlog", "entries", static_cast<double>(*after));
        if (*after > *before) {
            v.note(metric, saturated_note);
        }
    }
    return good;
}

/// How long the queue was after each burst of a visit.
class queue_watch {
  public:
    void add(std::size_t length) { lengths_.push_back(length); }
    /// A queue that is emptied once a tick swings; only one that is longer in the second half of the visit than in the
    /// first, by more than half and by more than a burst, is not kept up with. Each half must span two ticks.
    [[nodiscard]] bool grows(std::size_t burst) const {
        const auto middle = lengths_.begin() + static_cast<std::ptrdiff_t>(lengths_.size() / 2);
        if (middle == lengths_.begin()) {
            return false;
        }
        const std::size_t first = *std::max_element(lengths_.begin(), middle);
        return *std::max_element(middle, lengths_.end()) > first + first / 2 + burst;
    }

  private:
    std::vector<std::size_t> lengths_;
};

constexpr std::int64_t burst_step_ns = 1'000'000;

/// One batch of bursts at the start of each millisecond; `prepare` fills the script of the next burst, untimed.
std::uint64_t timed_bursts(visit& v, const service_view& service, queue_watch& queue, std::uint32_t bursts,
                           std::uint64_t ops, batch_body body, harness::function_ref<void()> prepare) {
    const std::string metric = "arm_cancel";
    std::uint64_t good = 0;
    std::uint32_t late = 0;
    std::int64_t intended_ns = read_clock_ns(CLOCK_MONOTONIC);

    const std::int64_t others_before = cpu_of_others_ns();
    v.sample_bursts(
        {metric, "", "", ""}, bursts, ops, [&] { good += body(); }, [] {},
        [&] {
            if (const auto length = service.backlog()) {
                queue.add(*length);
            }
            prepare();
            intended_ns += burst_step_ns;
            late += read_clock_ns(CLOCK_MONOTONIC) > intended_ns ? 1 : 0;
            const timespec until{.tv_sec = intended_ns / 1'000'000'000,
                                 .tv_nsec = intended_ns % 1'000'000'000};
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR &&
                   !harness::interrupted()) {}
        });
    if (const auto length = service.backlog()) {
        v.value(metric + "_backlog", "entries", static_cast<double>(*length));
    }
    service.catch_up();
    const std::int64_t others_after = cpu_of_others_ns();
    v.value(metric + "_rest_cpu", "ns/op",
            static_cast<double>(others_after - others_before) / static_cast<double>(ops * bursts));
    if (late * 10 > bursts) {
        v.note(metric, "pace not held: more than a tenth of the bursts ended when the next was due already");
    }
    return good;
}

/// Everything that a visit of one cell needs to know.
struct plan {
    std::uint64_t population = 0;
    std::uint64_t window_size = 0; ///< 0: the article's one timer.
    window_plan window{};
    duration article_duration{};
    bool earlier_guard = false;     ///< article: another timer is due earlier.
    std::uint64_t pairs_per_ms = 0; ///< 0: saturating.
    std::uint32_t bursts = 0;       ///< paced: in one batch.
    std::size_t most_durations = 0;
    std::size_t pairs = batch_pairs;
    std::uint64_t visit_every = 1; ///< Only every so many visits are made; the others take no sample.
    bool singles = false;          ///< Time arm and cancel alone, too.
    bool foreign = false;          ///< And cancels of what another thread armed.
};

template <class Service>
void visit_article(visit& v, Service& service, const plan& p) {
    timer_block<Service> own{service, 2};
    const population<Service> others{service, p.population, v.seed(), p.most_durations};
    const service_view view = view_of(service);
    account books{v, view};
    books.require(others.armed(), p.population);
    catch_up(service);
    queue_watch queue;
    auto& timer = own[0];
    const auto batch = [&](std::size_t pairs) {
        return run_article(service, timer, p.article_duration, pairs);
    };

    while (v.next()) {
        std::uint64_t good = 0;
        if (p.pairs_per_ms > 0) {
            const std::uint64_t pairs = p.pairs_per_ms;
            good = timed_bursts(
                v, view, queue, p.bursts, pairs, [&] { return batch(pairs); }, [] {});
            if (!books.add(pairs * p.bursts, pairs * p.bursts, good)) {
                break;
            }
            continue;
        }
        if (p.earlier_guard) {
            // Due before any deadline of the batch, and far enough away not to fire while the batch runs.
            good += done([&] { return service.arm(own[1], p.article_duration * 9 / 10, no_callback); });
        }
        good += timed(v, view, "arm_cancel", p.pairs, [&] { return batch(p.pairs); });
        if (p.earlier_guard) {
            good += done([&] { return service.cancel(own[1]); });
            poll_once(service);
        }
        const std::uint64_t pairs = p.pairs + (p.earlier_guard ? 1 : 0);
        if (!books.add(pairs, pairs, good)) {
            break;
        }
    }
    if (queue.grows(p.pairs_per_ms)) {
        v.note("arm_cancel", saturated_note);
    }
    books.close();
}

template <class Service>
void visit_window(visit& v, Service& service, const plan& p) {
    window<Service> outstanding{service, p.window_size, p.window, v.seed() + 1};
    const population<Service> others{service, p.population, v.seed(), p.most_durations};
    const service_view view = view_of(service);
    account books{v, view};
    books.require(others.armed(), p.population);
    script pairs{p.pairs_per_ms > 0 ? p.pairs_per_ms : p.pairs};
    script singles{std::min<std::size_t>(batch_singles, p.window_size - p.window_size / 15)};
    const std::uint64_t size = p.window_size;
    queue_watch queue;

    bool good = books.add(size, 0, outstanding.fill());
    std::int64_t filled_ns = read_clock_ns(CLOCK_MONOTONIC);
    // Before the first of the window could come due, all are armed afresh.
    const auto refresh = [&] {
        if (read_clock_ns(CLOCK_MONOTONIC) - filled_ns > p.window.low.count() / 3) {
            good = good && books.add(0, size, outstanding.empty()) && books.add(size, 0, outstanding.fill());
            filled_ns = read_clock_ns(CLOCK_MONOTONIC);
        }
    };

    bool singles_timed = false;
    while (good && v.next()) {
        refresh();
        outstanding.prepare(pairs, false);
        const auto run = [&] { return run_pairs(service, outstanding.timers(), pairs); };
        if (p.pairs_per_ms > 0) {
            const std::uint64_t done_now = timed_bursts(v, view, queue, p.bursts, pairs.size(), run,
                                                        [&] { outstanding.prepare(pairs, false); });
            good = good && books.add(pairs.size() * p.bursts, pairs.size() * p.bursts, done_now);
            continue;
        }
        good = good && books.add(pairs.size(), pairs.size(), timed(v, view, "arm_cancel", pairs.size(), run));
        // One batch of each a visit: they are long, and the pairs have warmed what they run through.
        if (p.singles && !v.warming() && !singles_timed) {
            singles_timed = true;
            refresh();
            outstanding.prepare(singles, true);
            const auto cancels = [&] { return run_cancels(service, outstanding.timers(), singles); };
            const auto arms = [&] { return run_arms(service, outstanding.timers(), singles); };
            good = good && books.add(0, singles.size(), timed(v, view, "cancel", singles.size(), cancels));
            good = good && books.add(singles.size(), 0, timed(v, view, "arm", singles.size(), arms));
            if (p.foreign) {
                harness::thread_team other{1}; // alive to the end, so that nobody inherits what it armed
                std::uint64_t armed = 0;
                good = good && books.add(0, singles.size(), cancels());
                other.run([&](unsigned) { armed = arms(); });
                good = good && books.add(singles.size(), 0, armed);
                good = good && books.add(0, singles.size(),
                                         timed(v, view, "cancel_foreign", singles.size(), cancels));
                good = good && books.add(singles.size(), 0, arms());
            }
        }
    }
    if (queue.grows(p.pairs_per_ms)) {
        v.note("arm_cancel", saturated_note);
    }
    books.close();
}

/// Goes through the batches of a visit without a sample. The library's loop has to see time pass, else it asks for ever more.
inline void pass(visit& v) {
    while (v.next()) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

/// A cell whose visits make the service with `make`.
template <class Make>
harness::cell cell_of(const std::string& name, json point, plan p, const std::string& refusal, Make make) {
    std::vector<std::string> metrics{"arm_cancel"};
    if (p.singles) {
        metrics.insert(metrics.end(), {"cancel", "arm"});
    }
    if (p.foreign) {
        metrics.push_back("cancel_foreign");
    }
    return {name, std::move(point),
            [=](visit& v) {
                if (!refusal.empty()) {
                    v.skip(refusal);
                    return;
                }
                // Dear visits warm up by their own first batch.
                if (p.visit_every > 1 && (v.warming() || v.index() % p.visit_every != 0)) {
                    pass(v);
                    return;
                }
                const auto service = make();
                if (p.window_size > 0) {
                    visit_window(v, *service, p);
                } else {
                    visit_article(v, *service, p);
                }
            },
            false, std::move(metrics)};
}

/// What the window's loop costs around nothing.
harness::cell script_loop_cell() {
    return {"floor/window_loop",
            json::object(),
            [](visit& v) {
                script work{64 * batch_pairs};
                while (v.next()) {
                    std::uint64_t good = 0;
                    v.sample(harness::wall_only("arm_cancel"), work.size(),
                             [&] { good = run_nothing(work); });
                    harness::do_not_optimize(good);
                }
            },
            true,
            {"arm_cancel"}};
}

struct settings {
    std::vector<std::uint64_t> populations;
    std::uint64_t window_size = 30'000;
    std::uint64_t dear_visit_every = 1;
    std::uint64_t paced_visit_every = 1;
    duration paced_length{};
};

/// Adds the cells of one service, and of its direct use where there is one.
template <class Entry>
void add_cells(std::vector<harness::cell>& cells, const harness::options& opts, const settings& s) {
    using service = typename Entry::service;
    const service_traits traits = Entry::make()->traits();

    for (const arm_cancel_case& c : all_cases(s.populations, opts.quick)) {
        plan p;
        p.population = c.population;
        p.window_size = c.window ? s.window_size : 0;
        p.window = {c.random_victim, c.low, c.high, c.earliest};
        p.article_duration = c.high;
        p.earlier_guard = !c.window && !c.earliest;
        p.pairs_per_ms = c.pairs_per_ms;
        // A visit of four batches or more spans at least four ticks.
        p.bursts =
            static_cast<std::uint32_t>(std::max(s.paced_length, traits.resolution).count() / burst_step_ns);
        p.most_durations = traits.most_durations;
        if (traits.most_timers > 0) {
            // Each of its timers is a thing of the system's, and each operation takes microseconds.
            p.pairs = std::min(p.pairs, std::max<std::size_t>(traits.most_timers / 16, 64));
        }
        p.visit_every = c.population >= dear_population ? s.dear_visit_every
                        : c.pairs_per_ms > 0            ? s.paced_visit_every
                                                        : 1;
        p.singles = c.window && c.pairs_per_ms == 0;
        p.foreign = c.with_foreign_cancel() && traits.arm_from == callable_from::any_thread &&
                    traits.cancel_from == callable_from::any_thread;

        std::string refusal;
        const std::uint64_t outstanding = p.population + std::max<std::uint64_t>(p.window_size, 2);
        if (traits.most_timers > 0 && outstanding > traits.most_timers) {
            refusal = "holds at most " + std::to_string(traits.most_timers) + " timers at a time here";
        } else if (traits.most_durations > 0 && (c.low != c.high || (c.window && c.earliest))) {
            refusal = "made for at most " + std::to_string(traits.most_durations) + " different durations";
        } else if (c.above_threshold && traits.threshold == duration::zero()) {
            refusal = "no threshold: every duration takes one path";
        } else if (c.above_threshold && c.high <= traits.threshold) {
            refusal = "its threshold lies above the duration of this case";
        }
        const json point = to_json(c, s.window_size);
        const std::string name{Entry::name};
        cells.push_back(cell_of(name, point, p, refusal, [] { return Entry::make(); }));
        if constexpr (has_direct<service>) {
            if (c.with_direct()) {
                cells.push_back(cell_of(direct_name(name), point, p, refusal,
                                        [] { return std::make_unique<typename service::direct>(); }));
            }
        }
    }
}

int run(int argc, char** argv) {
    harness::options opts;
    settings s;
    harness::options_parser parser("bench_arm_cancel",
                                   "What does it cost to arm a timeout and to cancel it before it fires?",
                                   service_names());
    parser.add_number("--window", s.window_size, 1'000, 1'000'000, "outstanding timers of the window cases");
    parser.add_numbers("--population", s.populations, 0, 2'000'000,
                       "other timers armed meanwhile (default 0, 64, 4096, 1000000; with --quick not 64)");
    parser.allow_benchmark_flags();
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    if (s.populations.empty()) {
        s.populations = opts.quick ? std::vector<std::uint64_t>{0, 4'096, 1'000'000}
                                   : std::vector<std::uint64_t>{0, 64, 4'096, 1'000'000};
    }
    std::sort(s.populations.begin(), s.populations.end());
    s.populations.erase(std::unique(s.populations.begin(), s.populations.end()), s.populations.end());
    s.dear_visit_every = opts.pick(7U, 2U);
    s.paced_visit_every = opts.pick(5U, 2U);
    s.paced_length = std::chrono::milliseconds{opts.pick(30, 20)};
    // The default would add up to 50 us to every sleep between two bursts.
    prctl(PR_SET_TIMERSLACK, 1UL);

    const harness::interrupt_guard interrupts;
    std::vector<harness::cell> cells = harness::floor_cells("arm_cancel");
    cells.push_back(script_loop_cell());
    for_each_chosen(opts, [&]<class Entry>() { add_cells<Entry>(cells, opts, s); });

    harness::sampler samples({.seed = opts.seed, .batches_per_visit = opts.pick(4U, 3U)});
    harness::gbench_runner bench("bench_arm_cancel", opts, samples, {.repetitions = opts.pick(14U, 3U)});
    if (const auto code = bench.prepare(cells)) {
        return *code;
    }
    harness::report out("arm_cancel", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);
    bench.run();

    out.parameter("window", s.window_size);
    out.parameter("populations", s.populations);
    out.parameter(
        "batch",
        {{"pairs", batch_pairs}, {"singles", batch_singles}, {"operations_per_poll", operations_per_poll}});
    out.parameter("paced_ms", std::chrono::duration_cast<std::chrono::milliseconds>(s.paced_length).count());
    out.parameter("dear_populations",
                  {{"from", dear_population}, {"measured_in_one_visit_of", s.dear_visit_every}});
    out.parameter("sampler", samples.parameters());
    out.parameter("benchmark", bench.parameters());
    out.add(samples);
    if (!harness::interrupted()) {
        print_arm_cancel(out, all_cases(s.populations, opts.quick), s.window_size);
    }
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
