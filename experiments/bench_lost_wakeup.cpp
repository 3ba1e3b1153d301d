// Does a timer service ever lose a wake-up?
//
// A soak: 8 workers, 50 000 tasks. Each task loops a zero timeout around an operation that never finishes (a sleep):
// poll, arm, be woken, be polled again, count one completion, begin anew. The executor polls a task only when it is
// woken, so a timer that never fires, or fires without being heard, leaves a task that stands still, and nothing hides it.
// Zero timeouts, because each is armed into a slot that is about to fire: the race between arming and firing is run as
// often as it can be.
//
// Counted, not timed: there is no timed region. Inside the run: the arm, the driver, the callback, the wake, the queue of the
// worker and the poll. Rates and seconds are printed to say how N came about, not as a measure of the service.
//
// After the run no task arms any more and what is in flight completes. The wait for that goes by progress: it ends
// when all tasks have finished, or when for `latest` of the service plus some seconds no task has moved. A task that has
// then neither finished nor been woken has stopped: its last timeout is lost.
//
// What none lost in N says: with 95 % confidence a timeout is lost with a probability below 3 / N (exactly 1 - 0.05^(1/N)), for
// this workload on this machine. A window of two instructions may never be hit here and be hit elsewhere.
//
// The control: a service with such a race left in, and a seam to hold its window open, runs once more with the window opened
// and closed in turns. That run must lose wake-ups, or the soak could not have seen one.
#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/executor.hpp"
#include "harness/interrupt.hpp"
#include "harness/options.hpp"
#include "harness/progress.hpp"
#include "harness/report.hpp"
#include "harness/statistics.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <optional>
#include <thread>
#include <unistd.h>

namespace timerbench::experiments {
namespace {

using namespace std::chrono_literals;
using harness::json;

struct soak_plan {
    std::uint64_t tasks = 50'000;
    std::uint64_t workers = 8;
    std::uint64_t target = 1'000'000; ///< completions at which a run may end before its time; 0: never
    duration at_least{};
    duration at_most{};
    duration
        patience{}; ///< beyond the service's `latest`: how long nothing may move before the drain is over
    bool seam_held = false;
};

/// Written by one worker, read by the main thread for progress. Each on its own cache line.
struct alignas(64) tally {
    // Only the worker writes, so a load and a store make an increment; relaxed: nothing is published through it.
    std::atomic<std::uint64_t> completions{0};
    std::atomic<std::uint64_t> finished{0};
    std::atomic<std::uint64_t> refused{0};

    static void add_one(std::atomic<std::uint64_t>& count) noexcept {
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
};

template <class Service>
class sleeper : public harness::task {
  public:
    sleeper(Service& service, tally& count, const std::atomic<bool>& enough) noexcept
        : task{&sleeper::poll_me},
          service_{service},
          count_{count},
          enough_{enough} {}

  private:
    static harness::outcome poll_me(harness::task& self, const waker& w) noexcept {
        auto& me = static_cast<sleeper&>(self);
        if (me.nap_) {
            if (!me.nap_->poll(w)) {
                return harness::outcome::pending; // woken without need; the timer is still armed
            }
            me.nap_.reset();
            tally::add_one(me.count_.completions);
        }
        if (me.enough_.load(std::memory_order_relaxed)) {
            tally::add_one(me.count_.finished);
            return harness::outcome::done;
        }
        me.nap_.emplace(me.service_, duration::zero());
        if (me.nap_->poll(w)) {
            // Elapsed at its first poll: the service did not arm. That is no completion.
            me.nap_.reset();
            tally::add_one(me.count_.refused);
            return harness::outcome::done;
        }
        return harness::outcome::pending;
    }

    Service& service_;
    tally& count_;
    const std::atomic<bool>& enough_; // set by the main thread, once; relaxed: a poll may see it late
    std::optional<sleep<Service>> nap_;
};

struct soak_result {
    double seconds = 0;
    std::uint64_t completions = 0;
    std::uint64_t stopped = 0;     ///< tasks that neither finished nor were woken
    std::uint64_t unfinished = 0;  ///< tasks that were still queued when the drain gave up
    std::uint64_t refused = 0;     ///< arms that returned false
    std::uint64_t still_armed = 0; ///< timers pending in the service's books when the drain was over
    std::uint64_t fired = 0;
    harness::executor::totals executor;
    std::uint64_t windows = 0; ///< times the seam was opened
};

[[nodiscard]] time_point now() noexcept {
    return steady_time::now();
}

/// Opens and closes the seam in turns: the arms made while it is open stay in the window for longer than the service takes
/// to fire their slot, the others keep the rest of the tasks going.
template <class Service>
class seam_hand {
  public:
    explicit seam_hand(Service& service)
        : service_{service},
          hold_{service.traits().latest + 2 * service.traits().resolution} {}
    ~seam_hand() { service_.hold_window(duration::zero()); }
    seam_hand(const seam_hand&) = delete;
    seam_hand& operator=(const seam_hand&) = delete;

    void turn() {
        if (now() < next_) {
            return;
        }
        open_ = !open_;
        windows_ += open_ ? 1 : 0;
        service_.hold_window(open_ ? hold_ : duration::zero());
        next_ = now() + 4 * hold_;
    }
    [[nodiscard]] std::uint64_t windows() const noexcept { return windows_; }

  private:
    Service& service_;
    duration hold_;
    time_point next_{};
    bool open_ = false;
    std::uint64_t windows_ = 0;
};

struct no_seam {
    template <class Service>
    explicit no_seam(Service&) noexcept {}
    static void turn() noexcept {}
    [[nodiscard]] static std::uint64_t windows() noexcept { return 0; }
};

[[nodiscard]] std::vector<harness::loop> loops_of(auto& team) {
    std::vector<harness::loop> loops;
    for (std::size_t i = 0; i < team.size(); ++i) {
        loops.push_back(harness::loop_of(team[i]));
    }
    return loops;
}

template <class Entry, class Seam>
[[nodiscard]] soak_result soak(const soak_plan& plan, ledger& books, std::string_view name) {
    using service = typename Entry::service;
    service_team<Entry> team{plan.workers};
    std::deque<tally> tallies(plan.workers);
    std::atomic<bool> enough{false};
    soak_result result;
    {
        // Before the tasks: an armed timer may wake its task, and so a worker, until the task is gone. The executor is
        // stopped by then.
        std::optional<harness::executor> executor;
        std::deque<sleeper<service>> tasks;
        if constexpr (loop_service<service>) {
            executor.emplace(loops_of(team));
        } else {
            executor.emplace(plan.workers);
        }
        const auto sum = [&tallies](std::atomic<std::uint64_t> tally::*which) {
            std::uint64_t total = 0;
            for (const tally& t : tallies) {
                total += (t.*which).load(std::memory_order_relaxed);
            }
            return total;
        };

        const time_point begin = now();
        for (std::size_t i = 0; i < plan.tasks; ++i) {
            const std::size_t home = i % plan.workers;
            tasks.emplace_back(team.of(home), tallies[home], enough);
            executor->spawn(tasks.back(), home);
        }
        {
            Seam seam{team.of(0)};
            for (duration ran{}; ran < plan.at_most && !harness::interrupted(); ran = now() - begin) {
                if (plan.target > 0 && ran >= plan.at_least && sum(&tally::completions) >= plan.target) {
                    break;
                }
                seam.turn();
                std::this_thread::sleep_for(5ms);
            }
            result.windows = seam.windows();
        }
        result.seconds = std::chrono::duration<double>(now() - begin).count();

        enough.store(true, std::memory_order_relaxed);
        const duration patience = team.of(0).traits().latest + plan.patience;
        const auto ended = [&] { return sum(&tally::finished) + sum(&tally::refused); };
        std::uint64_t moved = 0;
        for (time_point last_move = now(); ended() < plan.tasks && !harness::interrupted();) {
            const std::uint64_t at = sum(&tally::completions) + ended();
            if (at != moved) {
                moved = at;
                last_move = now();
            } else if (now() - last_move > patience) {
                break;
            }
            std::this_thread::sleep_for(1ms);
        }
        for (const auto& t : tasks) {
            result.stopped += t.idle() ? 1 : 0;
            result.unfinished += !t.idle() && !t.finished() ? 1 : 0;
        }
        executor->stop();
        result.executor = executor->count();
        result.completions = sum(&tally::completions);
        result.refused = sum(&tally::refused);
        const counters quiet = team.counters();
        result.still_armed = quiet.pending;
        result.fired = quiet.fired;
        books.look(name, quiet);
    }
    for (std::size_t i = 0; i < team.size(); ++i) {
        catch_up(team[i]);
        team[i].stop();
    }
    books.look(name, team.counters());
    return result;
}

/// What stands in the table and the files for one run.
class soak_report {
  public:
    soak_report(harness::report& out, const soak_plan& plan)
        : out_{out},
          plan_{plan},
          table_{"Soak: zero timeouts around an operation that never finishes",
                 {{"service", "", harness::align::left},
                  {"seam", "", harness::align::left},
                  {"ran", "s"},
                  {"completions", "N"},
                  {"a second", "1/s"},
                  {"tasks that", "stopped"},
                  {"lost below, 95 %", "3 / N"},
                  {"exactly", "1-0.05^(1/N)"},
                  {"polls a", "completion"},
                  {"N >= " + harness::format_number(static_cast<double>(plan.target), 0), ""}}} {}

    /// `faulty`: losing wake-ups is among the service's traits.
    void add(const std::string& service, const soak_plan& ran, const soak_result& r, bool held, bool faulty) {
        const json point{
            {"tasks", ran.tasks}, {"workers", ran.workers}, {"seam", held ? "held open" : "closed"}};
        const std::string wrong = what_went_wrong(r);
        const auto one = [&](const char* metric, const char* unit, double value) {
            harness::row row;
            row.service = service;
            row.case_point = point;
            row.metric = metric;
            row.unit = unit;
            row.samples = {value};
            row.error = wrong;
            out_.add(std::move(row));
        };
        one("completions", "1", static_cast<double>(r.completions));
        one("stopped_tasks", "1", static_cast<double>(r.stopped));
        one("run_time", "s", r.seconds);
        one("polls", "1", static_cast<double>(r.executor.polls));
        one("worker_sleeps", "1", static_cast<double>(r.executor.sleeps));

        const double n = static_cast<double>(r.completions);
        harness::table_cell bound =
            harness::absent("some were lost: " + harness::format_number(static_cast<double>(r.stopped), 0) +
                            " of " + harness::format_number(n, 0));
        harness::table_cell exact = bound;
        if (r.stopped == 0) {
            bound = scientific(harness::rule_of_three(r.completions));
            exact = scientific(harness::zero_events_bound(r.completions));
            one("bound_95", "1/timeout", harness::zero_events_bound(r.completions).value_or(1));
        }
        harness::table_cell name = harness::text(service);
        if (!wrong.empty()) {
            name.notes.push_back("not usable: " + wrong);
        }
        if (held) {
            name.notes.push_back(
                "the control: the window between reading the flag and registering held open, " +
                std::to_string(r.windows) + " times in this run");
        } else if (faulty) {
            name.notes.push_back("may lose wake-ups by design: reported, not failed");
        }
        if (ran.tasks < plan_.tasks) {
            name.notes.push_back(std::to_string(ran.tasks) +
                                 " tasks, because it takes a limited number of timers at a time");
        }
        table_.add_row({name, harness::text(held ? "held open" : "closed"), harness::number(r.seconds, 1),
                        harness::number(r.completions), harness::number(n / std::max(r.seconds, 1e-9), 0),
                        harness::number(r.stopped), bound, exact,
                        harness::number(static_cast<double>(r.executor.polls) / std::max(n, 1.0), 2),
                        target_cell(r, held)});
        check(service, ran, r, held, faulty, wrong);
    }

    void print() {
        table_.add_note("Both bounds hold for this workload on this machine. A completion is one timeout "
                        "armed, fired, heard and "
                        "polled for.");
        table_.add_note(
            "tasks that stopped: neither finished nor woken after all that was in flight had its time; each "
            "is one lost timeout.");
        if (plan_.workers > harness::usable_cpus()) {
            table_.add_note(std::to_string(plan_.workers) + " workers on " +
                            std::to_string(harness::usable_cpus()) +
                            " usable processors: more workers than cores.");
        }
        out_.print(table_);
        if (!controlled_) {
            out_.print("No control in this run: none of the chosen services has a seam to hold open.");
        }
    }

  private:
    [[nodiscard]] std::string what_went_wrong(const soak_result& r) const {
        if (r.refused > 0) {
            return std::to_string(r.refused) + " arms were refused by a running service";
        }
        if (r.unfinished > 0) {
            return std::to_string(r.unfinished) + " woken tasks were not polled before the drain gave up";
        }
        if (r.completions == 0) {
            return "no timeout completed";
        }
        // Every completion is one fire; a fire whose wake is lost adds a fire and no completion.
        if (r.fired < r.completions || r.fired - r.completions > r.stopped) {
            return "wrong work: the service fired " + std::to_string(r.fired) + " times for " +
                   std::to_string(r.completions) + " completions";
        }
        return {};
    }

    [[nodiscard]] static harness::table_cell scientific(std::optional<double> value) {
        if (!value) {
            return harness::absent("no completions");
        }
        const int exponent = static_cast<int>(std::floor(std::log10(*value)));
        return harness::text(harness::format_number(*value / std::pow(10.0, exponent), 2) + "e" +
                             std::to_string(exponent));
    }

    [[nodiscard]] harness::table_cell target_cell(const soak_result& r, bool held) const {
        if (held || plan_.target == 0) {
            return harness::absent(held ? "the control is there to lose, not to count" : "no target given");
        }
        if (r.completions >= plan_.target) {
            return harness::text("reached");
        }
        harness::table_cell missed = harness::text("missed");
        missed.notes.push_back(
            "the time of " + harness::format_number(r.seconds, 1) + " s was up at " +
            harness::format_number(static_cast<double>(r.completions) / std::max(r.seconds, 1e-9), 0) +
            " completions a second");
        return missed;
    }

    void check(const std::string& service, const soak_plan& ran, const soak_result& r, bool held, bool faulty,
               const std::string& wrong) {
        const std::string figures = std::to_string(r.stopped) + " tasks stopped, " +
                                    std::to_string(r.completions) + " completions, " +
                                    std::to_string(r.still_armed) + " timers still armed in the books";
        if (held) {
            controlled_ = true;
            out_.check("the soak sees lost wake-ups when the seam is held open", service, r.stopped > 0,
                       figures);
        } else if (faulty) {
            out_.check("wake-ups lost by design are reported", service, wrong.empty(), figures);
        } else {
            out_.check("no wake-up lost", service, r.stopped == 0 && wrong.empty(), figures);
        }
        // One poll a completion, and the first one of each task: an expiry wakes the one task that waits for it.
        const std::uint64_t expected = r.completions + ran.tasks;
        out_.check("polls at most 1.5 x expiries", service + (held ? " (seam held open)" : ""),
                   static_cast<double>(r.executor.polls) <= 1.5 * static_cast<double>(expected),
                   std::to_string(r.executor.polls) + " polls for " + std::to_string(expected));
    }

    harness::report& out_;
    const soak_plan& plan_;
    harness::text_table table_;
    bool controlled_ = false;
};

int run(int argc, char** argv) {
    harness::options opts;
    soak_plan plan;
    std::uint64_t seconds = 0;
    harness::options_parser parser("bench_lost_wakeup",
                                   "Does a timer service ever lose a wake-up? A soak of zero timeouts.",
                                   service_names());
    parser.add_number(
        "--seconds", seconds, 1, 86'400,
        "seconds for each service; left out: 10, and with --quick until --completions are there, 1 to 8");
    parser.add_number("--tasks", plan.tasks, 1, 1'000'000, "tasks, each with one timeout outstanding");
    parser.add_number("--workers", plan.workers, 1, harness::executor::most_workers,
                      "worker threads of the executor");
    parser.add_number("--completions", plan.target, 1, 1'000'000'000'000,
                      "completions wanted for each service");
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    const bool until_target = opts.quick && seconds == 0;
    plan.at_most = seconds > 0 ? std::chrono::seconds{seconds} : opts.quick ? 8s : 10s;
    plan.at_least = until_target ? duration{1s} : plan.at_most;
    plan.patience = opts.pick(5s, 2s);

    const harness::interrupt_guard interrupts;
    harness::report out("lost_wakeup", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    out.parameter("tasks", plan.tasks);
    out.parameter("workers", plan.workers);
    out.parameter("completions_wanted", plan.target);
    out.parameter("seconds_at_least", std::chrono::duration<double>(plan.at_least).count());
    out.parameter("seconds_at_most", std::chrono::duration<double>(plan.at_most).count());
    describe_services(out);

    ledger books;
    soak_report lines{out, plan};
    harness::progress progress{opts.services.size() + 1, isatty(STDERR_FILENO) == 1};
    for_each_chosen(opts, [&]<class Entry>() {
        const std::string name{Entry::name};
        const service_traits traits = Entry::make()->traits();
        const bool faulty = traits.has_fault("lost_wakeup");
        soak_plan fitting = plan;
        if (traits.most_timers > 0) {
            fitting.tasks =
                std::min<std::uint64_t>(plan.tasks, std::max<std::size_t>(traits.most_timers / 2, 1));
        }
        if (harness::interrupted()) {
            return;
        }
        progress.step(name);
        lines.add(name, fitting, soak<Entry, no_seam>(fitting, books, name), false, faulty);
        if constexpr (seamed_service<typename Entry::service>) {
            if (harness::interrupted()) {
                return;
            }
            progress.step(name + ", seam held open");
            soak_plan control = fitting;
            control.at_most = control.at_least = opts.pick(10s, 2s);
            lines.add(name, control, soak<Entry, seam_hand<typename Entry::service>>(control, books, name),
                      true, true);
        }
    });
    lines.print();
    books.report_to(out);
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
