// What does a timeout cost around an operation that is already done when it is first polled?
//
// In a server most operations are: the bytes are in the buffer, the lock is free. The operation here is a call that the
// compiler cannot see through and that gives a value at once; it is made the same way in every row. Each sample times three
// batches one after the other: the bare operation, the row's way of guarding it, the bare operation again. Kinds:
//
// lazy                      timed: make a timeout (1 s), poll it, take the value, destroy it. This project's timeout: it asks the
//                           operation first and touches clock and service only when the operation is pending.
// deadline_at_construction  the same, but the constructor reads the clock, as tokio's does: the price of counting time from
//                           construction instead of from the first pending poll.
// eager                     timed: make a timer, arm it (1 s), poll the operation, cancel, destroy. What a timeout costs that
//                           arms first; a loop-driven service is polled after every 64 operations, inside the timed region.
// lazy_precise              lazy with 20 min, for services that send long durations down another path: the ready path must not
//                           depend on the duration.
//
// awaited                   the same for coroutines: co_await with_timeout around an awaitable that is ready, an hour's deadline, beside
//                           awaiting it bare.
// scope                     makes and leaves a scope with a deadline in an hour, beside one without a deadline: what is above bare is one clock
//                           reading, one arm and one cancel. Polled as eager is.
//
// poll is the whole, bare the operation alone, above_bare the difference of neighbours (poll minus the mean of the two bare
// batches around it; noise can make it negative). Not in a timed region: making the service, reading counters.
//
// Beside the times, facts: in lazy rows the service's counters stand still and, for services that take a clock, a clock that
// counts its readings saw none on the polling thread. The same count over the eager way must not be zero, which shows
// that the count can see a reading.
#include "experiments/after_pieces.hpp"
#include "experiments/arm_cancel_work.hpp"
#include "experiments/service_cells.hpp"
#include "harness/environment.hpp"
#include "harness/floor_costs.hpp"
#include "harness/gbench.hpp"
#include "harness/interrupt.hpp"
#include "harness/optimiser.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"
#include "timers/clock.hpp"
#include "timers/timeout.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace timerbench::experiments {
namespace {

using harness::json;
using harness::visit;

constexpr std::uint64_t lazy_ops = 65'536;
constexpr std::uint64_t eager_ops = 4'096;

/// What an operation gives: about the size of a count and an error code. An optional of it is returned in memory. One
/// that fits two registers is put together by gcc 12 from stores narrower than the load that follows; the processor
/// then waits 5 ns for its own stores, in each layer, which is more than everything measured here.
struct outcome {
    std::uint64_t bytes = 0;
    std::uint64_t error = 0;
};

/// Done at the first poll.
class ready_operation {
  public:
    explicit ready_operation(std::uint64_t value) : value_{value} {}

    [[gnu::noinline]] std::optional<outcome> poll(const waker&) {
        // The compiler must not know here what comes back, nor in the caller what this reads and writes.
        asm volatile("" : "+r"(value_) : : "memory");
        return outcome{.bytes = value_};
    }

  private:
    std::uint64_t value_;
};

/// The deadline is fixed when the timeout is made; what is left of it would be armed at the first pending poll, which an
/// operation that is done never gets to.
template <class Service>
class timeout_from_construction {
  public:
    timeout_from_construction(Service& service, duration d, ready_operation operation)
        : deadline_{saturating_add(steady_time::now(), d)},
          inner_{service, d, operation} {}

    auto poll(const waker& w) { return inner_.poll(w); }
    [[nodiscard]] time_point deadline() const { return deadline_; }

  private:
    time_point deadline_;
    timeout<Service, ready_operation> inner_;
};

// Each loop returns the sum of the values that it got, so that nothing can be left out.

[[gnu::noinline]] std::uint64_t poll_bare(std::uint64_t ops) {
    const waker w{};
    std::uint64_t sum = 0;
    for (std::uint64_t k = 0; k < ops; ++k) {
        ready_operation operation{k};
        sum += operation.poll(w).value_or(outcome{}).bytes;
    }
    return sum;
}

template <class Service>
[[gnu::noinline]] std::uint64_t poll_lazy(Service& service, duration d, std::uint64_t ops) {
    const waker w{};
    std::uint64_t sum = 0;
    for (std::uint64_t k = 0; k < ops; ++k) {
        timeout<Service, ready_operation> guarded{service, d, ready_operation{k}};
        if (const auto result = guarded.poll(w)) {
            sum += result->value.value_or(outcome{}).bytes;
        }
    }
    return sum;
}

template <class Service>
[[gnu::noinline]] std::uint64_t poll_from_construction(Service& service, duration d, std::uint64_t ops) {
    const waker w{};
    std::uint64_t sum = 0;
    for (std::uint64_t k = 0; k < ops; ++k) {
        timeout_from_construction<Service> guarded{service, d, ready_operation{k}};
        harness::do_not_optimize(guarded.deadline());
        if (const auto result = guarded.poll(w)) {
            sum += result->value.value_or(outcome{}).bytes;
        }
    }
    return sum;
}

template <class Service>
[[gnu::noinline]] std::uint64_t poll_eager(Service& service, duration d, std::uint64_t ops) {
    const waker w{};
    std::uint64_t sum = 0;
    in_polled_groups(service, ops, [&](std::size_t k) {
        typename Service::timer timer{service};
        service.arm(timer, d, no_callback);
        ready_operation operation{k};
        sum += operation.poll(w).value_or(outcome{}).bytes;
        service.cancel(timer);
    });
    return sum;
}

constexpr std::uint64_t sum_of(std::uint64_t ops) {
    return ops * (ops - 1) / 2;
}

enum class way { lazy, deadline_at_construction, eager, lazy_precise, awaited, scope };
constexpr std::array all_ways{
    way::lazy, way::deadline_at_construction, way::eager, way::lazy_precise, way::awaited, way::scope};

[[nodiscard]] constexpr bool arms(way w) {
    return w == way::eager || w == way::scope;
}

/// Clock readings that the way may cost above bare; 0: not asked for.
[[nodiscard]] constexpr double most_clocks(way w) {
    return w == way::lazy || w == way::lazy_precise ? 0.1 : w == way::awaited ? 0.2 : 0;
}

[[nodiscard]] const char* name_of(way w) {
    switch (w) {
    case way::lazy:
        return "lazy";
    case way::deadline_at_construction:
        return "deadline_at_construction";
    case way::eager:
        return "eager";
    case way::lazy_precise:
        return "lazy_precise";
    case way::awaited:
        return "awaited";
    case way::scope:
        return "scope";
    }
    return "";
}

[[nodiscard]] duration duration_of(way w) {
    switch (w) {
    case way::lazy_precise:
        return std::chrono::minutes{20};
    case way::awaited:
    case way::scope:
        return std::chrono::hours{1}; // as after_pieces has it
    default:
        return std::chrono::seconds{1};
    }
}

[[nodiscard]] json point_of(way w) {
    return {{"kind", name_of(w)},
            {"duration_ms", std::chrono::duration_cast<std::chrono::milliseconds>(duration_of(w)).count()}};
}

/// In polled groups, as poll_eager.
template <class Service>
std::uint64_t run_scopes(Service& service, std::uint64_t ops) {
    after_pieces<Service> pieces{service};
    std::uint64_t done = 0;
    for (std::uint64_t k = 0; k < ops; k += operations_per_poll) {
        done += pieces.scope_enter_leave(operations_per_poll);
        poll_once(service);
    }
    return done;
}

/// What `run_way` and `run_bare` return when every operation gave what it should.
[[nodiscard]] std::uint64_t expected_of(way w, std::uint64_t ops) {
    return w == way::awaited || w == way::scope ? ops : sum_of(ops);
}

template <class Service>
std::uint64_t run_bare(way w, Service& service, std::uint64_t ops) {
    switch (w) {
    case way::awaited:
        return after_pieces<Service>{service}.bare(ops);
    case way::scope:
        return after_pieces<Service>{service}.scope_no_deadline(ops);
    default:
        return poll_bare(ops);
    }
}

template <class Service>
std::uint64_t run_way(way w, Service& service, std::uint64_t ops) {
    switch (w) {
    case way::lazy:
    case way::lazy_precise:
        return poll_lazy(service, duration_of(w), ops);
    case way::deadline_at_construction:
        return poll_from_construction(service, duration_of(w), ops);
    case way::eager:
        return poll_eager(service, duration_of(w), ops);
    case way::awaited:
        return after_pieces<Service>{service}.timed(ops);
    case way::scope:
        return run_scopes(service, ops);
    }
    return 0;
}

template <class Service>
void visit_way(visit& v, Service& service, way w) {
    // With each of its timers a thing of the system's, an operation takes microseconds.
    const std::uint64_t arming_ops = service.traits().most_timers > 0 ? eager_ops / 16 : eager_ops;
    const std::uint64_t ops = arms(w) ? arming_ops : lazy_ops;
    const counters before = service.counters();
    std::uint64_t armed = 0;

    while (v.next()) {
        std::uint64_t bare_sum = 0;
        std::uint64_t sum = 0;
        const auto bare = [&] { bare_sum += run_bare(w, service, lazy_ops); };
        const auto first = v.sample({}, lazy_ops, bare);
        const auto whole = v.sample(harness::wall_only("poll"), ops, [&] { sum = run_way(w, service, ops); });
        const auto second = v.sample({}, lazy_ops, bare);
        armed += arms(w) ? ops : 0;
        if (sum != expected_of(w, ops) || bare_sum != 2 * expected_of(w, lazy_ops)) {
            v.fail("wrong work: the values of the operations add up to " + std::to_string(sum) +
                   ", expected " + std::to_string(expected_of(w, ops)));
            break;
        }
        const double bare_ns = (first.wall_ns + second.wall_ns) / 2;
        v.value("bare", "ns/op", bare_ns);
        v.value("above_bare", "ns/op", whole.wall_ns - bare_ns);
        catch_up(service);
    }
    const counters after = service.counters();
    if (const std::string wrong = wrong_work(before, after, {armed, armed, 0}); !wrong.empty()) {
        v.fail(wrong);
    }
    v.check("armed = cancelled + fired + dropped + pending", after.balanced(), to_string(after));
    service.stop();
}

template <class Entry>
void add_cells(std::vector<harness::cell>& cells) {
    const service_traits traits = Entry::make()->traits();
    for (const way w : all_ways) {
        std::string refusal;
        if (w == way::lazy_precise && traits.threshold == duration::zero()) {
            refusal = "no threshold: every duration takes one path";
        } else if (w == way::lazy_precise && duration_of(w) <= traits.threshold) {
            refusal = "its threshold lies above 20 min";
        }
        cells.push_back({std::string{Entry::name},
                         point_of(w),
                         [=](visit& v) {
                             if (!refusal.empty()) {
                                 v.skip(refusal);
                                 return;
                             }
                             const auto service = Entry::make();
                             visit_way(v, *service, w);
                         },
                         false,
                         {"poll"}});
    }
}

/// A clock reading and a subtraction, whatever the service.
harness::cell remaining_cell() {
    return {"floor/deadline_remaining",
            json::object(),
            [](visit& v) {
                const deadline until = deadline::in(std::chrono::hours{1});
                while (v.next()) {
                    v.sample(harness::wall_only("cost"), lazy_ops, [&] {
                        for (std::uint64_t k = 0; k < lazy_ops; ++k) {
                            harness::do_not_optimize(until.remaining());
                        }
                    });
                }
            },
            true,
            {"cost"}};
}

/// The steady clock, counting its readings per thread: a driver reads the clock for its own purposes.
class counting_time {
  public:
    static constexpr bool is_manual = false;

    [[nodiscard]] static time_point now() noexcept {
        ++readings;
        return steady_time::now();
    }

    class parker : public steady_time::parker {
      public:
        explicit parker(counting_time&) : steady_time::parker{steady()} {}
    };

    static thread_local std::uint64_t readings;
};
thread_local std::uint64_t counting_time::readings = 0;
static_assert(clock_source<counting_time>);

constexpr std::uint64_t check_ops = 1'000;

template <class Service>
void check_arms_nothing(harness::report& out, const std::string& name, Service& service) {
    const counters before = service.counters();
    const std::uint64_t sum = poll_lazy(service, duration_of(way::lazy), check_ops);
    const counters after = service.counters();
    out.check("lazy ready path arms nothing", name,
              sum == sum_of(check_ops) && wrong_work(before, after, {}).empty(),
              "armed " + std::to_string((after - before).armed) + " in " + std::to_string(check_ops) +
                  " polls");
}

template <class Entry>
void check_reads_no_clock(harness::report& out) {
    const std::string name{Entry::name};
    if constexpr (Entry::takes_clock) {
        counting_time clock;
        const auto service = Entry::make_on(clock);
        const auto readings_of = [&](auto&& loop) {
            const std::uint64_t before = counting_time::readings;
            loop();
            return counting_time::readings - before;
        };
        check_arms_nothing(out, name, *service);
        const std::uint64_t lazy = readings_of(
            [&] { harness::do_not_optimize(poll_lazy(*service, duration_of(way::lazy), check_ops)); });
        const std::uint64_t eager = readings_of(
            [&] { harness::do_not_optimize(poll_eager(*service, duration_of(way::eager), check_ops)); });
        out.check("lazy ready path reads no clock", name, lazy == 0 && eager > 0,
                  "readings in " + std::to_string(check_ops) + " polls: lazy " + std::to_string(lazy) +
                      ", eager (must not be 0) " + std::to_string(eager));
    } else {
        const auto service = Entry::make();
        check_arms_nothing(out, name, *service);
    }
}

/// Median of above_bare / clock, sample by sample. The clock was timed beside the neighbouring `poll` sample.
[[nodiscard]] std::optional<double> above_in_clocks(const harness::row* poll, const harness::row* above) {
    if (poll == nullptr || above == nullptr || !poll->error.empty() || !poll->skipped.empty() ||
        poll->clock_ns.size() != above->samples.size()) {
        return std::nullopt;
    }
    std::vector<double> ratios;
    for (std::size_t i = 0; i < above->samples.size(); ++i) {
        ratios.push_back(above->samples[i] / poll->clock_ns[i]);
    }
    return harness::median(ratios);
}

void print_tables(harness::report& out) {
    using harness::statistic;
    const std::uint64_t seed = out.opts().seed;
    harness::text_table floor{"Floor: the smallest things, in this run",
                              {{"", "", harness::align::left}, {"p50 [95 %]", "ns"}, {"min", "ns"}}};
    for (const harness::row& r : out.rows()) {
        if (r.service.starts_with("floor/")) {
            floor.add_row({harness::text(r.service), harness::figure_with_interval(&r, 2, seed),
                           harness::figure(&r, statistic::min, 2, seed)});
        }
    }
    out.print(floor);

    for (const way w : all_ways) {
        const json point = point_of(w);
        const double most = most_clocks(w);
        harness::text_table table{
            std::string{"Ready path, "} + name_of(w),
            {{"service", "", harness::align::left},
             {"whole p50 [95 %]", "ns"},
             {"min", "ns"},
             {"bare", "ns"},
             {"above bare p50 [95 %]", "ns"},
             {"above bare", "x clock"},
             {most > 0 ? "at most " + harness::format_number(most, 1) : "", "", harness::align::left}}};
        double own_gap = 0;
        bool any = false;
        for_each_chosen(out.opts(), [&]<class Entry>() {
            const std::string name{Entry::name};
            const harness::row* poll = out.find(name, point, "poll");
            if (poll == nullptr) {
                return;
            }
            any = true;
            if (!poll->skipped.empty() || !poll->error.empty()) {
                table.add_row({harness::text(name), harness::figure(poll)});
                return;
            }
            const harness::row* above = out.find(name, point, "above_bare");
            const auto clocks = above_in_clocks(poll, above);
            if (const auto summary = harness::summarise(*poll, seed); summary && summary->aa_gap) {
                own_gap = std::max(own_gap, *summary->aa_gap);
            }
            table.add_row({harness::text(name), harness::figure_with_interval(poll, 2, seed),
                           harness::figure(poll, statistic::min, 2, seed),
                           harness::figure(out.find(name, point, "bare"), statistic::p50, 2, seed),
                           harness::figure_with_interval(above, 2, seed),
                           clocks ? harness::number(*clocks, 3) : harness::text("-"),
                           harness::text(most == 0 || !clocks ? ""
                                         : *clocks <= most
                                             ? "reached"
                                             : "missed by " + harness::format_number(*clocks - most, 3))});
        });
        std::string twin_text = "twin not measured";
        const harness::row* original = out.find("coarse_slot", point, "poll");
        const harness::row* twin = out.find("twin", point, "poll");
        if (original != nullptr && twin != nullptr) {
            if (const auto ratio = harness::compare_rows(*twin, *original, seed)) {
                twin_text =
                    "twin's gap " + harness::format_number((ratio->p50 - 1) * 100, 1) + " % of the whole";
            }
        }
        table.add_note("No smaller difference is called one: " + twin_text + ", a row's own A/A gap (up to " +
                       harness::format_number(own_gap * 100, 1) + " %).");
        if (any) {
            out.print(table);
        }
    }
    out.print("All services share one lazy path, which calls none of them: its rows differ by what it costs "
              "to make and destroy an "
              "idle timer, and by placement.");
}

int run(int argc, char** argv) {
    harness::options opts;
    harness::options_parser parser("bench_ready_path",
                                   "What does a timeout cost around an operation that is already done?",
                                   service_names());
    parser.allow_benchmark_flags();
    if (const auto code = parser.parse(argc, argv, opts)) {
        return *code;
    }
    const harness::interrupt_guard interrupts;
    std::vector<harness::cell> cells = harness::floor_cells("cost");
    cells.push_back(remaining_cell());
    for_each_chosen(opts, [&]<class Entry>() { add_cells<Entry>(cells); });

    harness::sampler samples({.seed = opts.seed, .batches_per_visit = opts.pick(5U, 4U)});
    harness::gbench_runner bench("bench_ready_path", opts, samples, {.repetitions = opts.pick(30U, 8U)});
    if (const auto code = bench.prepare(cells)) {
        return *code;
    }
    harness::report out("ready_path", opts, harness::environment::capture());
    if (const auto code = out.begin()) {
        return *code;
    }
    describe_services(out);
    bench.run();

    out.parameter("batch",
                  {{"lazy", lazy_ops}, {"eager", eager_ops}, {"operations_per_poll", operations_per_poll}});
    out.parameter("sampler", samples.parameters());
    out.parameter("benchmark", bench.parameters());
    out.add(samples);
    if (!harness::interrupted()) {
        for_each_chosen(opts, [&]<class Entry>() { check_reads_no_clock<Entry>(out); });
        print_tables(out);
    }
    return out.finish();
}

} // namespace
} // namespace timerbench::experiments

int main(int argc, char** argv) {
    return timerbench::experiments::run(argc, argv);
}
