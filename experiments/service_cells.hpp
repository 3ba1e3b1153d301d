// What every experiment needs between the list of services and the harness: the chosen entries of the list, blocks of
// timers, populations, the books (counters) checked, the traits as JSON and as a table.
//
// Nothing here names a service. What is special about one is asked of its type (concepts) or of its traits. Nothing here
// belongs in a timed region but `timer_block::operator[]`, which is an address computation.
#pragma once

#include "harness/json.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/statistics.hpp"
#include "harness/text_table.hpp"
#include "timers/service.hpp"
#include "timers/services.hpp"

#ifdef TIMERBENCH_PLANT
#include "experiments/planted.hpp"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <time.h>

namespace timerbench::experiments {

// ---- the list of services ----

/// What experiments run: the list, in a build for planted work with wrapped entries.
#ifdef TIMERBENCH_PLANT
using listed_services = planted_list<all_services>::type;
#else
using listed_services = all_services;
#endif

/// Every name of the list, in its order, for `harness::options_parser`.
[[nodiscard]] inline std::vector<std::string> service_names() {
    std::vector<std::string> names{listed_services::names.begin(), listed_services::names.end()};
#ifdef TIMERBENCH_PLANT
    read_plant(names);
#endif
    return names;
}

/// Calls `f.template operator()<Entry>()` for each entry of the list that the command line chose and that can be made on
/// this machine, in list order. `describe_services` reports the others.
template <class F>
void for_each_chosen(const harness::options& opts, F&& f) {
    listed_services::for_each([&]<class Entry>() {
        if (opts.wants(Entry::name) && why_unavailable<typename Entry::service>().empty()) {
            f.template operator()<Entry>();
        }
    });
}

/// The services of a team of `workers` threads: one for all where any thread may arm, else one loop per worker. Made and
/// destroyed by the calling thread; a worker uses `of(worker)` only.
template <class Entry>
class service_team {
  public:
    using service = typename Entry::service;

    explicit service_team(std::size_t workers) {
        services_.push_back(Entry::make());
        if (services_.front()->traits().loop_driven()) {
            while (services_.size() < workers) {
                services_.push_back(Entry::make());
            }
        }
    }
    [[nodiscard]] service& of(std::size_t worker) { return *services_[services_.size() == 1 ? 0 : worker]; }
    [[nodiscard]] bool shared() const { return services_.size() == 1; }
    [[nodiscard]] std::size_t size() const { return services_.size(); } ///< Number of service objects.
    [[nodiscard]] service& operator[](std::size_t i) { return *services_[i]; }

    /// The sum over all service objects.
    [[nodiscard]] timerbench::counters counters() const;

  private:
    std::vector<std::unique_ptr<service>> services_;
};

// ---- counters ----

[[nodiscard]] inline counters operator-(const counters& a, const counters& b) {
    return {a.armed - b.armed,     a.fired - b.fired,     a.cancelled - b.cancelled,
            a.dropped - b.dropped, a.pending - b.pending, a.threw - b.threw};
}

[[nodiscard]] inline counters operator+(const counters& a, const counters& b) {
    return {a.armed + b.armed,     a.fired + b.fired,     a.cancelled + b.cancelled,
            a.dropped + b.dropped, a.pending + b.pending, a.threw + b.threw};
}

template <class Entry>
counters service_team<Entry>::counters() const {
    timerbench::counters sum;
    for (const auto& s : services_) {
        sum = sum + s->counters();
    }
    return sum;
}

[[nodiscard]] inline std::string to_string(const counters& c) {
    return "armed " + std::to_string(c.armed) + ", fired " + std::to_string(c.fired) + ", cancelled " +
           std::to_string(c.cancelled) + ", dropped " + std::to_string(c.dropped) + ", pending " +
           std::to_string(c.pending) + ", threw " + std::to_string(c.threw);
}

/// What a sample is known to do before it is timed.
struct expected_work {
    std::uint64_t armed = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t fired = 0;
};

/// Empty when exactly that happened between the two readings, else one sentence with both counts.
[[nodiscard]] inline std::string wrong_work(const counters& before, const counters& after,
                                            const expected_work& expected) {
    const counters did = after - before;
    if (did.armed == expected.armed && did.cancelled == expected.cancelled && did.fired == expected.fired &&
        did.dropped == 0 && did.threw == 0) {
        return {};
    }
    return "wrong work: armed " + std::to_string(did.armed) + " (expected " + std::to_string(expected.armed) +
           "), cancelled " + std::to_string(did.cancelled) + " (" + std::to_string(expected.cancelled) +
           "), fired " + std::to_string(did.fired) + " (" + std::to_string(expected.fired) + "), dropped " +
           std::to_string(did.dropped) + " (0), threw " + std::to_string(did.threw) + " (0)";
}

/// Whether the books of every service balanced each time somebody looked. One check per service in the report.
/// Not thread-safe.
class ledger {
  public:
    /// Looks at the counters of a service in quiet (nobody arms or cancels).
    void look(std::string_view service, const counters& c) {
        account& a = accounts_[std::string{service}];
        ++a.looks;
        if (!c.balanced() && a.first_failure.empty()) {
            a.first_failure = to_string(c);
        }
    }
    void report_to(harness::report& report) const {
        for (const auto& [service, a] : accounts_) {
            report.check("armed = cancelled + fired + dropped + pending", service, a.first_failure.empty(),
                         a.first_failure.empty() ? "looked " + std::to_string(a.looks) + " times"
                                                 : a.first_failure);
        }
    }

  private:
    struct account {
        std::uint64_t looks = 0;
        std::string first_failure;
    };
    std::map<std::string, account> accounts_;
};

// ---- what a service does besides arm and cancel ----

/// Gives the service's deferred work and its loop a chance to catch up: drains a deferring service, polls a loop until
/// a pass runs nothing. Any other service is left alone. Called by the thread that polls the loop.
template <class Service>
void catch_up(Service& service) {
    if constexpr (requires { service.drain(); }) {
        service.drain();
    }
    if constexpr (requires { service.poll(); }) {
        while (service.poll() > 0) {}
    }
}

/// Entries handed to a driver and not yet taken up; empty for a service that defers nothing.
template <class Service>
[[nodiscard]] std::optional<std::size_t> backlog_of(const Service& service) {
    if constexpr (deferring_service<Service>) {
        return service.backlog();
    } else {
        return std::nullopt;
    }
}

/// One pass of the caller's loop where there is one, nothing otherwise.
template <class Service>
inline void poll_once(Service& service) {
    if constexpr (requires { service.poll(); }) {
        service.poll();
    }
}

/// 1 if the call did what it should: returned true, or returns nothing at all.
template <class Call>
[[nodiscard]] inline std::uint64_t done(Call&& call) {
    if constexpr (std::is_void_v<decltype(call())>) {
        call();
        return 1;
    } else {
        return call() ? 1U : 0U;
    }
}

/// A service type with a hand-written direct use of its library beside it.
template <class Service>
concept has_direct = requires {
    typename Service::direct;
};

/// What the direct use of a service is called in rows.
[[nodiscard]] inline std::string direct_name(std::string_view service) {
    return "direct/" + std::string{service};
}

// ---- timers in bulk ----

/// A fixed number of timers in one block, each constructed from the service, all destroyed (and so cancelled) with it. The
/// service is any type with a nested `timer` that is constructed from it.
template <class Service>
class timer_block {
  public:
    using timer = typename Service::timer;

    timer_block(Service& service, std::size_t size)
        : memory_{
              static_cast<timer*>(::operator new (sizeof(timer) * size, std::align_val_t{alignof(timer)}))} {
        try {
            for (; size_ < size; ++size_) {
                ::new (static_cast<void*>(memory_ + size_)) timer(service);
            }
        } catch (...) {
            release();
            throw;
        }
    }
    timer_block(const timer_block&) = delete;
    timer_block& operator=(const timer_block&) = delete;
    ~timer_block() { release(); }

    [[nodiscard]] timer& operator[](std::size_t i) noexcept { return memory_[i]; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

  private:
    void release() noexcept {
        while (size_ > 0) {
            memory_[--size_].~timer();
        }
        ::operator delete (memory_, std::align_val_t{alignof(timer)});
    }

    timer* memory_;
    std::size_t size_ = 0;
};

/// A callback that does nothing; for timers that are never to fire.
inline constexpr callback no_callback{[](void*) {}, nullptr};

inline constexpr duration population_from = std::chrono::seconds{120};
inline constexpr duration population_to = std::chrono::seconds{840};

/// Uniform over low..high (high not included), from a generator whose sequence is the same everywhere.
[[nodiscard]] inline duration random_duration(harness::random_source& random, duration low, duration high) {
    return low + duration{static_cast<duration::rep>(
                     random.below(static_cast<std::uint64_t>((high - low).count())))};
}

/// Other timers that stay armed while an operation is measured: deadlines uniform in 120..840 s from now, so that none
/// fires meanwhile (a visit lasts seconds) and none takes the path of long durations. For a service made for a limited
/// number of durations, half as many, evenly spread: the rest is left to what is measured. Costs one arm each and `size`
/// timers of memory.
template <class Service>
class population {
  public:
    population(Service& service, std::size_t size, std::uint64_t seed, std::size_t most_durations = 0)
        : timers_{service, size} {
        harness::random_source random{seed};
        const std::size_t steps = (most_durations + 1) / 2;
        for (std::size_t i = 0; i < size; ++i) {
            duration d = random_duration(random, population_from, population_to);
            if (steps > 0) {
                const auto step = (population_to - population_from) / static_cast<duration::rep>(steps);
                d = population_from + step * static_cast<duration::rep>(random.below(steps));
            }
            armed_ += done([&] { return service.arm(timers_[i], d, no_callback); });
        }
    }
    /// How many the service took; less than asked for means a service that is not usable.
    [[nodiscard]] std::size_t armed() const noexcept { return armed_; }

  private:
    timer_block<Service> timers_;
    std::size_t armed_ = 0;
};

// ---- processor time ----

[[nodiscard]] inline std::int64_t read_clock_ns(clockid_t clock) noexcept {
    timespec t{};
    clock_gettime(clock, &t);
    return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
}

/// CPU time of this process minus that of the calling thread, in ns: what drivers and other threads spent. The two clocks
/// are read one after the other, so that a difference of two readings is off by up to a microsecond.
[[nodiscard]] inline std::int64_t cpu_of_others_ns() noexcept {
    const std::int64_t own = read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return read_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own;
}

// ---- traits in reports ----

[[nodiscard]] inline std::string in_words(driven_by value) {
    return value == driven_by::own_thread ? "own thread" : "caller's loop";
}
[[nodiscard]] inline std::string in_words(callable_from value) {
    return value == callable_from::any_thread ? "any thread" : "loop thread";
}

[[nodiscard]] inline harness::json traits_json(const service_traits& t) {
    harness::json faults = harness::json::array();
    for (const fault& f : t.faults) {
        faults.push_back(
            {{"clause", f.clause}, {"name", std::string{f.name}}, {"what", std::string{f.what}}});
    }
    return {{"resolution_ns", t.resolution.count()},
            {"earliest_ns", t.earliest.count()},
            {"latest_ns", t.latest.count()},
            {"cancel_frees", t.cancel_frees},
            {"driver", in_words(t.driver)},
            {"arm_from", in_words(t.arm_from)},
            {"cancel_from", in_words(t.cancel_from)},
            {"allocates", std::string{t.allocates}},
            {"callback_may_call", t.callback_may_call},
            {"fifo", t.fifo},
            {"manual_clock", t.manual_clock},
            {"drives_after_fork", t.drives_after_fork},
            {"most_durations", t.most_durations},
            {"most_timers", t.most_timers},
            {"threshold_ns", t.threshold.count()},
            {"faults", faults}};
}

/// Writes the traits of every chosen service to the report: the parameter "services", and a table. Makes each service once,
/// one after the other. Call it before measuring.
inline void describe_services(harness::report& report) {
    const auto milliseconds = [](duration d) {
        return harness::number(std::chrono::duration<double, std::milli>{d}.count(), 3);
    };
    harness::json all = harness::json::object();
    harness::text_table table{"Services by construction",
                              {{"service", "", harness::align::left},
                               {"resolution", "ms"},
                               {"earliest", "ms"},
                               {"latest", "ms"},
                               {"driven by", "", harness::align::left},
                               {"armed from", "", harness::align::left},
                               {"cancel frees", "", harness::align::left}}};
    for_each_chosen(report.opts(), [&]<class Entry>() {
        const auto service = Entry::make();
        const service_traits t = service->traits();
        all[std::string{Entry::name}] = traits_json(t);
        harness::table_cell name = harness::text(std::string{Entry::name});
        for (const fault& f : t.faults) {
            name.notes.push_back("by design, clause " + std::to_string(f.clause) + ": " +
                                 std::string{f.what});
        }
        if (t.allocates != "nothing") {
            name.notes.push_back("an arm allocates: " + std::string{t.allocates});
        }
        if (t.most_timers > 0) {
            name.notes.push_back("at most " + std::to_string(t.most_timers) + " timers at a time");
        }
        if (t.most_durations > 0) {
            name.notes.push_back("made for at most " + std::to_string(t.most_durations) +
                                 " different durations");
        }
        table.add_row({name, milliseconds(t.resolution), milliseconds(t.earliest), milliseconds(t.latest),
                       harness::text(in_words(t.driver)), harness::text(in_words(t.arm_from)),
                       harness::text(t.cancel_frees ? "at once" : "later")});
    });
    all_services::for_each([&]<class Entry>() {
        const std::string_view why = why_unavailable<typename Entry::service>();
        if (why.empty() || !report.opts().wants(Entry::name)) {
            return;
        }
        harness::row row;
        row.service = Entry::name;
        row.case_point = harness::json::object();
        row.metric = "available";
        row.skipped = why;
        report.add(std::move(row));
        table.add_row({harness::text(std::string{Entry::name}), harness::absent(std::string{why})});
    });
    report.parameter("services", std::move(all));
#ifdef TIMERBENCH_PLANT
    report.parameter("plant", plant_json());
#endif
    report.print(table);
}

} // namespace timerbench::experiments
