// Extra work planted into the `arm` of one service, to see whether a gate or a comparison notices it.
//
// Only a build configured with -DTIMERBENCH_PLANT=ON includes this file: service_cells.hpp then hands every experiment the
// wrapped entries of the list instead of the plain ones. Any other build does not compile a line of it, and a test looks for the
// name of the variable in the binaries. Such a build reads the environment variable TIMERBENCH_PLANT=SERVICE:WORK once, before
// the command line, and every report says what was planted (parameter "plant"). Without the variable nothing is planted.
//
//   spin:N      N steps of a chain of additions, each waiting for the one before, in every 16th arm of a thread: the same
//               instructions each time
//   percent:P   such a chain as long as makes arm + cancel of one timer P % longer on average. Sought at the start of the
//               process on this very service (about a tenth of a second), so that it holds where it runs
//   alloc       64 bytes from the allocator, and back, in every arm
//   clock       one reading of the steady clock in every arm
//
// Cost for a service without planted work, so of the same build without the variable: one decrement of a thread's own word and
// one branch in each arm. Planted runs must be judged against that, not against an ordinary build.
// Bad at: P below about 1, where the search sees its own noise; P of what costs more elsewhere (a large population).
#pragma once

#ifndef TIMERBENCH_PLANT
#error "planted.hpp belongs to builds configured with -DTIMERBENCH_PLANT=ON only"
#endif

#include "harness/json.hpp"
#include "harness/optimiser.hpp"
#include "harness/options.hpp"
#include "timers/listing.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace timerbench::experiments {

enum class planted_work { none, spin, percent, alloc, clock };

/// What the environment asks for. Written by `read_plant` before any other thread starts, then read only.
struct plant_request {
    planted_work work = planted_work::none;
    std::string service;
    std::string text;        ///< As given.
    std::uint64_t steps = 0; ///< spin
    double percent = 0;      ///< percent
    double sought_ns = 0; ///< percent: arm + cancel of the service without planted work, when it was sought.
    double reached = 0;   ///< percent: what the chain made of it in the end.
    std::uint64_t chain = 0; ///< percent: steps in every 16th arm.
};

inline plant_request& the_plant() {
    static plant_request request;
    return request;
}

/// Empty: `text` is understood and `into` is filled in. Else what is wrong, and what would be right.
[[nodiscard]] inline std::string parse_plant(const std::string& text,
                                             const std::vector<std::string>& services, plant_request& into) {
    const std::string right = "; give SERVICE:spin:N, SERVICE:percent:P, SERVICE:alloc or SERVICE:clock";
    const auto colon = text.find(':');
    into.service = text.substr(0, colon);
    into.text = text;
    if (colon == std::string::npos) {
        return "'" + text + "' names no work" + right;
    }
    if (std::find(services.begin(), services.end(), into.service) == services.end()) {
        return "'" + into.service + "' is not a service; --list prints them";
    }
    const std::string work = text.substr(colon + 1);
    if (work == "alloc" || work == "clock") {
        into.work = work == "alloc" ? planted_work::alloc : planted_work::clock;
        return {};
    }
    if (work.starts_with("spin:")) {
        const auto steps = harness::parse_whole_number(std::string_view{work}.substr(5));
        if (steps && *steps <= 1'000'000) {
            into.work = planted_work::spin;
            into.steps = *steps;
            return {};
        }
        return "'" + work + "' is not a number of steps from 0 to 1000000" + right;
    }
    if (work.starts_with("percent:")) {
        const auto percent = harness::parse_real_number(std::string_view{work}.substr(8));
        if (percent && *percent >= 0 && *percent <= 1'000) {
            into.work = planted_work::percent;
            into.percent = *percent;
            return {};
        }
        return "'" + work + "' is not a percentage from 0 to 1000" + right;
    }
    return "'" + work + "' is not a kind of work" + right;
}

/// Reads the environment; leaves the process with 2 and one line on standard error when it is not understood.
inline void read_plant(const std::vector<std::string>& services) {
    const char* text = std::getenv("TIMERBENCH_PLANT");
    if (text == nullptr || *text == '\0') {
        return;
    }
    if (const std::string problem = parse_plant(text, services, the_plant()); !problem.empty()) {
        std::fprintf(stderr, "TIMERBENCH_PLANT: %s\n", problem.c_str());
        std::exit(harness::exit_unusable_input);
    }
}

/// For reports.
[[nodiscard]] inline harness::json plant_json() {
    const plant_request& p = the_plant();
    if (p.work == planted_work::none) {
        return "nothing, in a build that could";
    }
    harness::json described = {{"service", p.service}, {"asked", p.text}};
    if (p.work == planted_work::percent) {
        described["arm_cancel_ns"] = p.sought_ns;
        described["reached_percent"] = p.reached;
        described["chain_steps"] = p.chain;
    }
    return described;
}

/// Each addition waits for the one before; the result is always 0, and the processor does not know it.
[[gnu::noinline]] inline std::int64_t chain_of_additions(std::uint64_t steps) noexcept {
    std::uint64_t sum = steps;
    for (std::uint64_t i = 0; i < steps; ++i) {
        asm volatile("add $1, %0" : "+r"(sum));
    }
    asm volatile("and $0, %0" : "+r"(sum));
    return static_cast<std::int64_t>(sum);
}

inline constexpr std::uint32_t every_nth_arm = 16;
inline constexpr std::uint32_t practically_never = 0xffff'ffff;

/// `Service` with extra work in arm. Everything else, the timer type included, is the service's own.
template <class Service>
class planted : public Service {
  public:
    using Service::Service;

    bool arm(typename Service::timer& timer, duration d, callback c) {
        if (--left_ == 0) [[unlikely]] {
            d += work();
        }
        return Service::arm(timer, d, c);
    }

    /// Which work every object of this type does from now on: in every `every`th arm of a thread. Not while another thread arms.
    static void plant(planted_work kind, std::uint64_t steps, std::uint32_t every) noexcept {
        kind_ = kind;
        steps_ = steps;
        every_ = every;
        left_ = every;
    }

  private:
    /// Returns zero, which arm has to wait for.
    [[gnu::noinline]] static duration work() noexcept {
        left_ = every_;
        switch (kind_) {
        case planted_work::none:
            break;
        case planted_work::spin:
        case planted_work::percent:
            return duration{chain_of_additions(steps_)};
        case planted_work::alloc: {
            void* block = ::operator new(64);
            harness::do_not_optimize(block);
            ::operator delete(block);
            break;
        }
        case planted_work::clock: {
            auto now = std::chrono::steady_clock::now().time_since_epoch().count();
            asm volatile("and $0, %0" : "+r"(now));
            return duration{now};
        }
        }
        return {};
    }

    inline static planted_work kind_ = planted_work::none;
    inline static std::uint64_t steps_ = 0;
    inline static std::uint32_t every_ = practically_never;
    /// A thread that begins later starts with 1: its first arm takes up `every_`.
    inline static thread_local constinit std::uint32_t left_ = 1;
};

// ---- how much is P percent ----

/// ns per pair of `pairs` times arm and cancel of one timer of 1 s; the service is polled, if a loop drives it, every 64.
template <class Service>
double planted_pair_ns(Service& service, typename Service::timer& timer, std::size_t pairs) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t k = 0; k < pairs; ++k) {
        service.arm(timer, std::chrono::seconds{1}, callback{[](void*) {}, nullptr});
        service.cancel(timer);
        if constexpr (requires { service.poll(); }) {
            if (k % 64 == 63) {
                service.poll();
            }
        }
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / static_cast<double>(pairs);
}

/// Seeks the length of the chain that makes arm + cancel `p.percent` % longer, and plants it. Batches with and without it
/// alternate, so that a slow spell hits both alike; medians are compared.
template <class Service>
void plant_percent(Service& service, plant_request& p) {
    constexpr int batches = 48;
    typename Service::timer timer{service};
    Service::plant(planted_work::none, 0, practically_never);
    // Whole rounds of every_nth_arm, some 40 us.
    const double roughly_ns = planted_pair_ns(service, timer, 64);
    const auto pairs = static_cast<std::size_t>(std::clamp(40'000 / roughly_ns / 64, 1.0, 16.0)) * 64;
    const auto median = [](std::vector<double> values) {
        std::nth_element(values.begin(), values.begin() + batches / 2, values.end());
        return values[batches / 2];
    };
    const auto measure = [&](std::uint64_t steps) {
        std::vector<double> with, without;
        for (int i = 0; i < batches; ++i) {
            Service::plant(planted_work::none, 0, practically_never);
            without.push_back(planted_pair_ns(service, timer, pairs));
            Service::plant(planted_work::percent, steps, every_nth_arm);
            with.push_back(planted_pair_ns(service, timer, pairs));
        }
        p.sought_ns = median(without);
        p.reached = (median(with) / p.sought_ns - 1) * 100;
    };

    measure(0); // warms up, and gives the cost without
    double step_ns = 1;
    for (int i = 0; i < 8; ++i) {
        constexpr std::uint64_t steps = 20'000;
        const auto begin = std::chrono::steady_clock::now();
        std::int64_t zero = chain_of_additions(steps);
        harness::do_not_optimize(zero);
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
        step_ns = i == 0 ? took.count() / steps : std::min(step_ns, took.count() / steps);
    }
    double steps = p.percent / 100 * p.sought_ns * every_nth_arm / step_ns;
    for (int round = 0; round < 3 && p.percent > 0; ++round) {
        p.chain = static_cast<std::uint64_t>(std::max(std::round(steps), 1.0));
        measure(p.chain);
        if (round < 2) { // the last round only says what was reached
            steps *= std::clamp(p.reached > 0 ? p.percent / p.reached : 2.0, 0.5, 2.0);
        }
    }
    Service::plant(planted_work::percent, p.chain, every_nth_arm);
    service.stop();
}

// ---- entries of the list ----

/// What the entries below share: the first service made of a planted kind makes sure that the work is planted.
template <class Service, class Make>
void plant_into(std::string_view name, Make&& make_for_search) {
    static const bool once = [&] {
        plant_request& p = the_plant();
        if (p.work == planted_work::none || p.service != name) {
            Service::plant(planted_work::none, 0, practically_never);
        } else if (p.work == planted_work::percent) {
            plant_percent(*make_for_search(), p);
        } else {
            Service::plant(p.work, p.steps, p.work == planted_work::spin ? every_nth_arm : 1);
        }
        return true;
    }();
    static_cast<void>(once);
}

/// The entry `Entry` of the list, with its service wrapped.
template <class Entry>
struct planted_entry;

template <name_literal Name, template <class> class Service, auto Options>
struct planted_entry<clocked<Name, Service, Options>> {
    static constexpr std::string_view name = Name.view();
    static constexpr bool takes_clock = true;
    template <class Clock>
    using service_on = planted<Service<Clock>>;
    using service = service_on<steady_time>;

    [[nodiscard]] static std::unique_ptr<service> make() { return make_on(steady()); }

    template <class Clock>
    [[nodiscard]] static std::unique_ptr<service_on<Clock>> make_on(Clock& clock) {
        const auto bare = [&clock] {
            if constexpr (std::is_same_v<std::remove_const_t<decltype(Options)>, no_options>) {
                return std::make_unique<service_on<Clock>>(clock);
            } else {
                return std::make_unique<service_on<Clock>>(clock, Options);
            }
        };
        plant_into<service_on<Clock>>(name, bare);
        return bare();
    }
};

template <name_literal Name, class Service, auto Options>
struct planted_entry<real_time<Name, Service, Options>> {
    static constexpr std::string_view name = Name.view();
    static constexpr bool takes_clock = false;
    using service = planted<Service>;

    [[nodiscard]] static std::unique_ptr<service> make() {
        const auto bare = [] {
            if constexpr (std::is_same_v<std::remove_const_t<decltype(Options)>, no_options>) {
                return std::make_unique<service>();
            } else {
                return std::make_unique<service>(Options);
            }
        };
        plant_into<service>(name, bare);
        return bare();
    }
};

template <class List>
struct planted_list;

template <class... Entries>
struct planted_list<service_list<Entries...>> {
    using type = service_list<planted_entry<Entries>...>;
};

} // namespace timerbench::experiments
