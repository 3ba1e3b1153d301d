// What does a timeout cost when many threads arm and cancel at once?
//
// Every figure is taken on the machine's steady clock. Workers of a team start together behind a barrier; each reads its
// own clocks around its own loop, so no time is divided by the number of threads. Each worker has a window of
// outstanding timers (30 s, so that none fires meanwhile). One operation is a pair: cancel one timer, arm one. A sample is a
// number of passes over the window, long enough (several milliseconds per worker) that workers which share a core are
// preempted in the middle of their work. What is inside the timed region, and why the measurement exists:
//
// own (arm_cancel)           each worker cancels the oldest timer of its own window and arms it anew. What a server of
//                            independent workers does: whatever grows here is contention inside the service.
// handed over (arm_cancel)   workers form pairs. Each cancels a timer that its partner armed one pass earlier and arms an idle one of
//                            its own, while the partner does the reverse. A request that is answered on another thread. After
//                            each pass the two wait for each other, asleep if need be, and the windows change hands: that
//                            wait is in the wall time, and its system calls (one or two a pass) in both.
//                            Each worker touches two windows instead of one: compare its columns with each other first.
//
// The wall figure is ns per pair per worker: the mean over workers of own time per own pair. The CPU figure is that of the
// whole process per pair of all workers: workers, drivers, and the drain of deferred work, which follows when all workers
// are done and is not in the wall time. The rate is the pairs of all workers per second, from the first start to the
// last end. With more workers than cores wall time grows with the queue for the cores even where nothing contends: such
// cases are marked, and the CPU figure is the one to read. The processor time of threads on other cores is booked
// coarsely, so that column is a mean.
//
// A loop-driven service gets one loop per worker, polled by it inside the timed region after every 64 pairs and at the end of
// a pass. Where such a service may be cancelled by its loop's thread only, nothing can be handed over.
// Not in a timed region: making the services and the threads, filling the windows, counting.
//
// The work is verified by the return values of each sample, and by the counters at the end of each visit.
#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"

#include <algorithm>
#include <atomic>

namespace timerbench::experiments {
namespace {

using harness::json;
using harness::visit;

constexpr duration armed_for = std::chrono::seconds{30};
constexpr std::size_t poll_every = 64;
constexpr const char* saturated = "saturated: the queue is longer after than before";

enum class ownership { own, handed_over };

[[nodiscard]] const char* name_of(ownership o) {
    return o == ownership::own ? "own" : "handed over";
}

struct plan {
    std::vector<std::uint64_t> workers{1, 2, 4, 8};
    std::uint64_t window = 10'000;
    std::uint64_t passes = 0;
    std::uint32_t rounds = 0;

    [[nodiscard]] std::uint64_t pairs_per_worker() const { return window * passes; }

    /// The same with windows that fit a service which takes a limited number of timers; both halves of a window count.
    [[nodiscard]] plan fitted_to(const service_traits& traits) const {
        plan fitted = *this;
        if (traits.most_timers > 0) {
            const std::uint64_t windows = 4 * *std::max_element(workers.begin(), workers.end());
            fitted.window = std::min(window, std::max<std::uint64_t>(traits.most_timers / windows, 1));
        }
        return fitted;
    }

    [[nodiscard]] json point(ownership o, std::uint64_t n) const {
        return {{"timers", name_of(o)},
                {"workers", n},
                {"window_per_worker", window},
                {"pairs_per_worker", pairs_per_worker()},
                {"duration_ms", armed_for / std::chrono::milliseconds{1}},
                {"more_workers_than_cores", n > harness::usable_cpus()}};
    }
};

/// What one worker has done, on a cache line of its own.
struct alignas(64) progress {
    std::uint64_t good = 0; // calls that did what they should; written by its worker, read between samples
    // Passes finished since the crew was made. Written by its worker with release, read by its partner with acquire:
    // what the worker did to the timers of a pass is visible to the partner who takes them over.
    std::atomic<std::uint64_t> passes{0};
};

/// One visit's services, threads and windows.
template <class Entry>
class crew {
  public:
    using service = typename Entry::service;

    crew(std::size_t workers, const plan& p, ownership o)
        : services_{workers},
          progress_(workers),
          team_{static_cast<unsigned>(workers)},
          window_{p.window},
          passes_{p.passes},
          handed_over_{o == ownership::handed_over} {
        for (std::size_t half = 0; half < (handed_over_ ? 2U : 1U); ++half) {
            for (std::size_t w = 0; w < workers; ++w) {
                windows_[half].push_back(std::make_unique<timer_block<service>>(services_.of(w), window_));
            }
        }
    }

    /// Arms every worker's first window, each on its own thread. Returns how many arms succeeded.
    std::uint64_t fill() {
        team_.run([this](unsigned w) {
            service& mine = services_.of(w);
            std::uint64_t good = 0;
            for (std::size_t i = 0; i < window_; ++i) {
                good += mine.arm((*windows_[0][w])[i], armed_for, no_callback) ? 1 : 0;
            }
            poll_once(mine);
            progress_[w].good = good;
        });
        return sum();
    }

    /// One worker's part of a sample.
    void work(unsigned w) {
        service& mine = services_.of(w);
        const unsigned partner = handed_over_ ? w ^ 1U : w;
        service& theirs = services_.of(partner);
        std::uint64_t finished = progress_[w].passes.load(std::memory_order_relaxed);
        std::uint64_t good = 0;
        for (const std::uint64_t end = finished + passes_; finished < end;) {
            // The half that was armed in the pass before, and the other one.
            const std::size_t armed = handed_over_ ? finished % 2 : 0;
            const std::size_t idle = handed_over_ ? 1 - armed : 0;
            timer_block<service>& to_cancel = *windows_[armed][partner];
            timer_block<service>& to_arm = *windows_[idle][w];
            for (std::size_t i = 0; i < window_; ++i) {
                good += theirs.cancel(to_cancel[i]) ? 1 : 0;
                good += mine.arm(to_arm[i], armed_for, no_callback) ? 1 : 0;
                if (i % poll_every == poll_every - 1) {
                    poll_once(mine);
                }
            }
            poll_once(mine);
            progress_[w].passes.store(++finished, std::memory_order_release);
            if (handed_over_) {
                progress_[w].passes.notify_one();
                std::atomic<std::uint64_t>& theirs_done = progress_[partner].passes;
                for (auto seen = theirs_done.load(std::memory_order_acquire); seen < finished;
                     seen = theirs_done.load(std::memory_order_acquire)) {
                    theirs_done.wait(seen, std::memory_order_acquire);
                }
            }
        }
        progress_[w].good = good;
    }

    [[nodiscard]] std::uint64_t sum() const {
        std::uint64_t all = 0;
        for (const progress& one : progress_) {
            all += one.good;
        }
        return all;
    }

    void drain() {
        if constexpr (deferring_service<service>) {
            // A loop is polled by its worker, and drained by the sampling thread while the workers stand still.
            for (std::size_t i = 0; i < services_.size(); ++i) {
                services_[i].drain();
            }
        }
    }
    [[nodiscard]] std::optional<std::size_t> backlog() {
        std::optional<std::size_t> all;
        for (std::size_t i = 0; i < services_.size(); ++i) {
            if (const auto one = backlog_of(services_[i])) {
                all = all.value_or(0) + *one;
            }
        }
        return all;
    }

    [[nodiscard]] harness::thread_team& team() { return team_; }
    [[nodiscard]] timerbench::counters counters() const { return services_.counters(); }

  private:
    service_team<Entry> services_;
    std::vector<std::unique_ptr<timer_block<service>>> windows_[2]; // destroyed before their services
    std::vector<progress> progress_;
    harness::thread_team team_; // ends before the windows
    std::size_t window_;
    std::uint64_t passes_;
    bool handed_over_;
};

[[nodiscard]] harness::metric_set metric_names() {
    return {"arm_cancel", "arm_cancel_workers_cpu", "arm_cancel_rest_cpu", "arm_cancel_rate"};
}

template <class Entry>
void run_visit(visit& v, const plan& p, ownership o, std::size_t workers) {
    crew<Entry> all{workers, p, o};
    std::uint64_t samples = 0;
    const std::uint64_t filled = all.fill();
    if (filled != workers * p.window) {
        v.fail("the service armed " + std::to_string(filled) + " of " + std::to_string(workers * p.window) +
               " timers");
        return;
    }
    all.drain();
    const counters before = all.counters();
    while (v.next()) {
        const auto queued_before = all.backlog();
        std::optional<std::size_t> queued_after;
        v.sample_threads(
            metric_names(), all.team(), p.pairs_per_worker(), [&all](unsigned w) { all.work(w); },
            [&] {
                queued_after = all.backlog();
                all.drain();
            });
        ++samples;
        const std::uint64_t expected = 2 * workers * p.pairs_per_worker();
        if (all.sum() != expected) {
            v.fail("wrong work: " + std::to_string(all.sum()) + " of " + std::to_string(expected) +
                   " calls of arm and cancel returned true");
            return;
        }
        if (queued_after) {
            v.value("backlog", "entries", static_cast<double>(*queued_after));
            if (*queued_after > *queued_before) {
                v.note("arm_cancel", saturated);
            }
        }
    }
    const counters after = all.counters();
    const std::uint64_t pairs = samples * workers * p.pairs_per_worker();
    if (const std::string wrong = wrong_work(before, after, {.armed = pairs, .cancelled = pairs});
        !wrong.empty()) {
        v.fail(wrong);
    }
    v.check("armed = cancelled + fired + dropped + pending", after.balanced(), to_string(after));
}

[[nodiscard]] std::string why_not(ownership o, std::size_t workers, const service_traits& traits) {
    if (o == ownership::own) {
        return {};
    }
    if (workers % 2 != 0) {
        return "timers are handed over within pairs of workers";
    }
    if (traits.cancel_from == callable_from::loop_thread) {
        return "a timer may be cancelled by the thread that polls its loop only";
    }
    return {};
}

// ---- report ----

/// CPU of the whole process per pair, sample by sample: what the workers spent and what everything else did.
void add_process_cpu(harness::report& out, const std::string& service, const json& point) {
    const harness::row* workers = out.find(service, point, "arm_cancel_workers_cpu");
    const harness::row* rest = out.find(service, point, "arm_cancel_rest_cpu");
    if (workers == nullptr || rest == nullptr) {
        return;
    }
    harness::row sum = *workers;
    sum.metric = "arm_cancel_cpu";
    sum.note.clear();
    sum.first_pass.reset();
    if (sum.skipped.empty() && sum.error.empty()) {
        if (sum.samples.size() == rest->samples.size()) {
            for (std::size_t i = 0; i < sum.samples.size(); ++i) {
                sum.samples[i] += rest->samples[i];
            }
        } else {
            sum.error = "the workers have " + std::to_string(sum.samples.size()) +
                        " samples and the rest of the process " + std::to_string(rest->samples.size());
        }
    }
    out.add(std::move(sum));
}

struct cpu_ratio {
    harness::table_cell cell;
    std::optional<double> of_means;
};

/// Mean CPU per pair with the most workers over that with the fewest, and the interval of the median of neighbouring visits.
cpu_ratio ratio_of(harness::report& out, const plan& p, ownership o, const std::string& service,
                   std::uint64_t low, std::uint64_t high) {
    const harness::row* many = out.find(service, p.point(o, high), "arm_cancel_cpu");
    const harness::row* few = out.find(service, p.point(o, low), "arm_cancel_cpu");
    harness::row row;
    row.service = service;
    row.case_point = {{"timers", name_of(o)}, {"workers", high}, {"to_workers", low}};
    row.metric = "cpu_ratio";
    row.unit = "1";
    cpu_ratio result;
    for (const harness::row* one : {many, few}) {
        if (one == nullptr) {
            row.error = "no CPU figure";
        } else if (!one->error.empty()) {
            row.error = one->error;
        } else if (!one->skipped.empty()) {
            row.skipped = one->skipped;
        }
    }
    if (low == high && row.error.empty()) {
        row.skipped = "a ratio needs two numbers of workers";
    }
    if (row.error.empty() && row.skipped.empty()) {
        const auto most = harness::mean(many->samples);
        const auto least = harness::mean(few->samples);
        if (most && least && *least > 0) {
            row.samples = {*most / *least};
            result.of_means = *most / *least;
            const auto pairs = harness::compare_rows(*many, *few, out.opts().seed);
            std::string figure = harness::format_number(*result.of_means, 2);
            if (pairs) {
                figure += " [" + harness::format_number(pairs->ci95.low, 2) + " " +
                          harness::format_number(pairs->ci95.high, 2) + "]";
            }
            result.cell = harness::text(figure);
        } else {
            row.error = "no CPU time was booked";
        }
    }
    if (!result.of_means) {
        result.cell = harness::absent(row.error.empty() ? row.skipped : "error: " + row.error);
    }
    out.add(std::move(row));
    return result;
}

/// What was measured of one service.
struct subject {
    std::string name;
    plan work;
};

void print_tables(harness::report& out, const plan& p, ownership o, const std::vector<subject>& services) {
    const std::string what = o == ownership::own ? "Timers of each worker's own"
                                                 : "Timers armed by one worker and cancelled by its partner";
    const unsigned cores = harness::usable_cpus();
    std::vector<std::uint64_t> counts;
    for (const std::uint64_t n : p.workers) {
        if (o == ownership::own || n % 2 == 0) {
            counts.push_back(n);
        }
    }
    if (counts.empty()) {
        out.print(what + ": not measured, since pairs need an even number of workers.");
        return;
    }
    const std::uint64_t low = *std::min_element(counts.begin(), counts.end());
    const std::uint64_t high = *std::max_element(counts.begin(), counts.end());
    const auto title = [&](std::uint64_t n) { return std::to_string(n) + (n > cores ? "*" : ""); };

    std::vector<harness::column> cost_columns{{"service", "workers:", harness::align::left}};
    std::vector<harness::column> rate_columns{{"service", "workers:", harness::align::left}};
    const auto group = [&](std::vector<harness::column>& to, const std::string& name) {
        for (const std::uint64_t n : counts) {
            to.push_back({n == counts.front() ? name : "", title(n)});
        }
    };
    group(cost_columns, "wall ns");
    group(cost_columns, "CPU ns");
    cost_columns.push_back({"CPU ratio", std::to_string(high) + " : " + std::to_string(low)});
    group(rate_columns, "M pairs/s");
    rate_columns.push_back({"backlog", title(high)});
    rate_columns.push_back({"A/A wall", "% at " + title(high)});

    harness::text_table costs{
        what + ": ns per arm+cancel, per worker (wall, median) and per pair of all (CPU, mean)",
        cost_columns};
    harness::text_table rates{what + ": total rate of all workers", rate_columns};
    for (const auto& [service, work] : services) {
        harness::table_cell name = harness::text(service);
        if (work.window < p.window) {
            name.notes.push_back("windows of " + std::to_string(work.window) +
                                 " timers, because it takes a limited number at a time");
        }
        std::vector<harness::table_cell> cost{name};
        std::vector<harness::table_cell> rate{name};
        for (const std::uint64_t n : counts) {
            cost.push_back(harness::figure(out.find(service, work.point(o, n), "arm_cancel"),
                                           harness::statistic::p50, 0, out.opts().seed));
        }
        for (const std::uint64_t n : counts) {
            cost.push_back(harness::figure(out.find(service, work.point(o, n), "arm_cancel_cpu"),
                                           harness::statistic::mean, 0, out.opts().seed));
        }
        cost.push_back(ratio_of(out, work, o, service, low, high).cell);
        for (const std::uint64_t n : counts) {
            const harness::row* row = out.find(service, work.point(o, n), "arm_cancel_rate");
            const auto summary = row != nullptr ? harness::summarise(*row, out.opts().seed) : std::nullopt;
            rate.push_back(summary ? harness::number(summary->p50 / 1e6, 2)
                                   : harness::figure(row, harness::statistic::p50, 0, out.opts().seed));
        }
        const harness::row* queue = out.find(service, work.point(o, high), "backlog");
        rate.push_back(queue != nullptr ? harness::figure(queue, harness::statistic::max, 0, out.opts().seed)
                                        : harness::text("none"));
        rate.push_back(harness::figure(out.find(service, work.point(o, high), "arm_cancel"),
                                       harness::statistic::aa_percent, 1, out.opts().seed));
        costs.add_row(std::move(cost));
        rates.add_row(std::move(rate));
    }
    costs.add_note("* more workers than the " + std::to_string(cores) +
                   " usable cores: wall time includes waiting for a core; read the CPU columns.");
    costs.add_note("CPU: of the whole process, drivers and the drain of deferred work included.");
    costs.add_note("CPU ratio: of the means [95 % interval of the median ratio of neighbouring visits].");
    rates.add_note("backlog: largest number of entries that a driver had not taken up when a sample ended.");
    out.print(costs);
    out.print(rates);
}

int run(int argc, char** argv) {
    harness::options opts;
    plan p;
    std::uint64_t rounds = 0;
    std::uint64_t passes = 0;
    harness::options_parser parser("bench_scaling",
                                   "What does a timeout cost when many threads arm and cancel at once?",
                                   service_names());
    parser.add_numbers("--workers", p.workers, 1, 64, "numbers of worker threads");
    parser.add_number("--window", p.window, 100, 1'000'000, "outstanding timers of each worker");
    parser.add_number("--passes", passes, 1, 10'000,
                      "passes over the window in a sample; left out: 6 with --quick, else 20");
    parser.add_number("--rounds", rounds, 1, 1'000,
                      "measured visits of each cell; left out: 2 with --quick, else 3");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    std::sort(p.workers.begin(), p.workers.end());
    p.workers.erase(std::unique(p.workers.begin(), p.workers.end()), p.workers.end());
    p.passes = passes != 0 ? passes : opts.pick(20U, 6U);
    p.rounds = rounds != 0 ? static_cast<std::uint32_t>(rounds) : opts.pick(3U, 2U);

    const harness::interrupt_guard interrupts;
    harness::report out("scaling", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);

    std::vector<harness::cell> cells;
    std::vector<subject> services;
    for_each_chosen(opts, [&]<class Entry>() {
        const std::string name{Entry::name};
        const service_traits traits = Entry::make()->traits();
        const plan work = p.fitted_to(traits);
        services.push_back({name, work});
        for (const ownership o : {ownership::own, ownership::handed_over}) {
            for (const std::uint64_t n : p.workers) {
                const std::string reason = why_not(o, n, traits);
                harness::cell c;
                c.service = name;
                c.case_point = work.point(o, n);
                c.metrics = {"arm_cancel", "arm_cancel_workers_cpu", "arm_cancel_rest_cpu",
                             "arm_cancel_rate"};
                c.run = [work, o, n, reason](visit& v) {
                    if (!reason.empty()) {
                        v.skip(reason);
                    } else {
                        run_visit<Entry>(v, work, o, n);
                    }
                };
                cells.push_back(std::move(c));
            }
        }
    });
    harness::sampler samples({.seed = opts.seed, .batches_per_visit = opts.pick(2U, 1U)});
    samples.run(cells, p.rounds);
    out.parameter("workers", p.workers);
    out.parameter("window_per_worker", p.window);
    out.parameter("passes", p.passes);
    out.parameter("usable_cpus", harness::usable_cpus());
    out.parameter("sampler", samples.parameters());
    out.add(samples);
    for (const auto& [service, work] : services) {
        for (const ownership o : {ownership::own, ownership::handed_over}) {
            for (const std::uint64_t n : p.workers) {
                add_process_cpu(out, service, work.point(o, n));
            }
        }
    }
    print_tables(out, p, ownership::own, services);
    print_tables(out, p, ownership::handed_over, services);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
