// Which clock a service reads when it arms: the dearest part of a cheap arm, and a choice about lateness.
//
//   steady_reading   clock_gettime(CLOCK_MONOTONIC): exact, about 25 ns.
//   coarse_reading   CLOCK_MONOTONIC_COARSE: the time of the kernel's last tick, 6 to 10 ns. It lags by up to the tick (its grain, 1 to
//                    10 ms), and by more when the processor that keeps the time was descheduled by a hypervisor.
//   tsc_reading      the processor's time stamp counter, scaled and set right against the steady clock every 100 ms: about 11 ns. Needs
//                    an invariant counter; elsewhere it is refused.
//
// Each reading says by how much it may lag the steady clock in the ordinary way (`allowance`); a service adds that before it rounds a
// deadline up. On a manual clock the coarse reading lags by a simulated grain of 4 ms, and the counter is the clock itself.
#pragma once

#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <time.h>
#include <tuple>
#include <utility>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace timerbench {

/// One object for each place that arms; the calls on one object are serialised by the caller.
template <class Clock>
class steady_reading {
  public:
    static constexpr bool may_stall = false;
    [[nodiscard]] static std::string_view unavailable() noexcept { return {}; }
    [[nodiscard]] static duration allowance() noexcept { return {}; }
    [[nodiscard]] static time_point read(const Clock& clock) { return clock.now(); }
};

template <class Clock>
class coarse_reading {
  public:
    /// A reading may stand still for longer than the allowance: the service must find out.
    static constexpr bool may_stall = !Clock::is_manual;
    [[nodiscard]] static std::string_view unavailable() noexcept { return {}; }

    [[nodiscard]] static duration allowance() noexcept {
        if constexpr (Clock::is_manual) {
            return manual_grain;
        } else {
            static const duration grain = [] {
                timespec t{};
                clock_getres(CLOCK_MONOTONIC_COARSE, &t);
                return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
            }();
            return grain;
        }
    }

    /// How long a reading may stand beyond the allowance. When the processor that keeps the time has missed five ticks, another
    /// one takes over (Linux 5.18 and newer).
    [[nodiscard]] static duration longest_stall() noexcept { return 6 * allowance(); }

    [[nodiscard]] static time_point read(const Clock& clock) {
        if constexpr (Clock::is_manual) {
            const duration now = clock.now().time_since_epoch();
            return time_point{now - now % manual_grain};
        } else {
            timespec t{};
            clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
            return time_point{std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec}};
        }
    }

  private:
    static constexpr duration manual_grain = std::chrono::milliseconds{4};
};

template <class Clock>
class tsc_reading {
  public:
    static constexpr bool may_stall = false;

    /// Why there is no usable counter; empty where there is one.
    [[nodiscard]] static std::string_view unavailable() {
        if constexpr (Clock::is_manual) {
            return {};
        } else {
            static const std::string reason = probe();
            return reason;
        }
    }

    /// The steady clock may be slewed by 500 parts in a million against the counter; within the 100 ms between two looks at
    /// it that makes 50 us. The rest is for the calibration.
    [[nodiscard]] static duration allowance() noexcept {
        return Clock::is_manual ? duration{} : duration{std::chrono::microseconds{64}};
    }

    [[nodiscard]] time_point read(const Clock& clock) {
        if constexpr (Clock::is_manual) {
            return clock.now();
        } else {
            const std::uint64_t counter = count();
            const std::uint64_t since = counter - base_count_;
            if (since > scale_.counts_between_looks) [[unlikely]] {
                return look(clock);
            }
            return base_ + duration{static_cast<std::int64_t>((since * scale_.ns_per_count_2_32) >> 32)};
        }
    }

  private:
    struct scale {
        std::uint64_t ns_per_count_2_32; // ns for one count, times 2^32
        std::uint64_t counts_between_looks;
    };

    static std::uint64_t count() noexcept {
#if defined(__x86_64__)
        return __rdtsc();
#else
        return 0;
#endif
    }

    static std::string probe() {
#if defined(__x86_64__)
        unsigned a = 0;
        unsigned b = 0;
        unsigned c = 0;
        unsigned d = 0;
        if (__get_cpuid(0x80000007U, &a, &b, &c, &d) == 0 || (d & (1U << 8)) == 0) {
            return "the processor has no invariant time stamp counter";
        }
        std::ifstream file{"/sys/devices/system/clocksource/clocksource0/current_clocksource"};
        std::string source;
        file >> source;
        if (source != "tsc" && source != "kvm-clock" && source != "hyperv_clocksource_tsc_page") {
            return "the kernel does not trust the time stamp counter: its clock source is " +
                   (source.empty() ? "unknown" : source);
        }
        return {};
#else
        return "there is no time stamp counter on this architecture";
#endif
    }

    // Measured once, over 10 ms.
    static scale rate() {
        if constexpr (Clock::is_manual) {
            return {};
        } else {
            static const scale measured = measure();
            return measured;
        }
    }

    static scale measure() {
        const Clock clock{};
        const auto [count_0, time_0] = both(clock);
        time_point time_1 = time_0;
        std::uint64_t count_1 = count_0;
        while (time_1 - time_0 < std::chrono::milliseconds{10}) {
            std::tie(count_1, time_1) = both(clock);
        }
        const long double ns = static_cast<long double>((time_1 - time_0).count());
        const long double counts = static_cast<long double>(count_1 - count_0);
        return scale{static_cast<std::uint64_t>(ns / counts * 4294967296.0L),
                     static_cast<std::uint64_t>(counts / ns * 100'000'000.0L)};
    }

    // A count and the steady time right after it. Being interrupted between the two would make later readings too late by as
    // much, so a pair that took long is taken again.
    static std::pair<std::uint64_t, time_point> both(const Clock& clock) {
        for (int attempt = 0;; ++attempt) {
            const std::uint64_t before = count();
            const time_point now = clock.now();
            if (count() - before < 2'000 || attempt == 8) {
                return {before, now};
            }
        }
    }

    [[gnu::noinline]] time_point look(const Clock& clock) {
        std::tie(base_count_, base_) = both(clock);
        return base_;
    }

    const scale scale_ = rate();
    std::uint64_t base_count_ = 0;
    time_point base_{};
};

} // namespace timerbench
