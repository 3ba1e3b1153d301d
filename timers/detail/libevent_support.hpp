// What the libevent service and the direct use of libevent beside it share: the options, the conversion of durations,
// making a base, and the table of common timeouts.
#pragma once

#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <event2/event.h>
#include <event2/thread.h>
#include <memory>
#include <stdexcept>
#include <sys/time.h>
#include <time.h>
#include <type_traits>

namespace timerbench {

struct libevent_options {
    driven_by driver = driven_by::own_thread;
    bool common_queues = false;    ///< Timers of one duration share a queue; at most 256 durations do.
    bool library_defaults = false; ///< The coarse clock and the cached time, as libevent has them by default.

    [[nodiscard]] constexpr bool own_thread() const noexcept { return driver == driven_by::own_thread; }
};

/// `d` in nanoseconds, rounded up, and at the ends of their range instead of beyond them.
template <class Rep, class Period>
requires std::is_integral_v<Rep>
[[nodiscard]] constexpr duration saturated(std::chrono::duration<Rep, Period> d) noexcept {
    if constexpr (std::is_same_v<std::chrono::duration<Rep, Period>, duration>) {
        return d;
    } else {
        __extension__ using wide = __int128;
        // 63 bits for the count, 30 for the nanoseconds of a second, and 33 for a period of up to 272 years.
        static_assert(Period::num <= (std::intmax_t{1} << 33));
        constexpr wide nanos_per_second = 1'000'000'000;
        wide nanos = wide{d.count()} * Period::num * nanos_per_second;
        nanos = nanos / Period::den + (nanos % Period::den > 0 ? 1 : 0);
        return duration{static_cast<duration::rep>(
            std::clamp(nanos, wide{duration::min().count()}, wide{duration::max().count()}))};
    }
}

/// The first timeval at or above `d + margin` (not negative). Nothing overflows: what is not positive becomes zero, what is
/// beyond the range of nanoseconds becomes its end, and tv_usec lies in [0, 1 000 000).
template <class Rep, class Period>
[[nodiscard]] constexpr timeval to_timeval(std::chrono::duration<Rep, Period> d,
                                           duration margin = {}) noexcept {
    const duration whole = saturated(d);
    if (whole <= duration::zero()) {
        return {.tv_sec = 0, .tv_usec = 0};
    }
    const auto nanos =
        static_cast<std::uint64_t>(std::min(whole, duration::max() - margin).count() + margin.count());
    const std::uint64_t micros = (nanos + 999) / 1000;
    return {.tv_sec = static_cast<time_t>(micros / 1'000'000),
            .tv_usec = static_cast<suseconds_t>(micros % 1'000'000)};
}

namespace detail {

struct base_deleter {
    void operator()(event_base* base) const noexcept { event_base_free(base); }
};
using base_ptr = std::unique_ptr<event_base, base_deleter>;

/// Throws std::runtime_error when libevent cannot make one, for example without file descriptors.
inline base_ptr make_base(libevent_options options) {
    struct config_deleter {
        void operator()(event_config* config) const noexcept { event_config_free(config); }
    };
    static const int threads = evthread_use_pthreads(); // once, and before the first base that is shared
    const std::unique_ptr<event_config, config_deleter> config{event_config_new()};
    int flags = options.own_thread() ? 0 : EVENT_BASE_FLAG_NOLOCK;
    if (!options.library_defaults) {
        flags |= EVENT_BASE_FLAG_PRECISE_TIMER | EVENT_BASE_FLAG_NO_CACHE_TIME;
    }
    base_ptr base;
    if (threads == 0 && config && event_config_set_flag(config.get(), flags) == 0) {
        base.reset(event_base_new_with_config(config.get()));
    }
    if (!base) {
        throw std::runtime_error{"libevent: no event base could be made"};
    }
    return base;
}

/// libevent cuts its own reading of the clock down to whole microseconds, so that a deadline computed from it lies up to
/// 999 ns too early. What is armed is longer by that much, unless the duration is not positive: then any time is right.
inline constexpr duration clock_cut{999};

template <libevent_options Options>
[[nodiscard]] constexpr timeval timeout_of(duration d) noexcept {
    return to_timeval(d, Options.library_defaults ? duration{} : clock_cut);
}

/// The step of the clock that libevent reads by default.
inline duration coarse_grain() noexcept {
    timespec step{};
    clock_getres(CLOCK_MONOTONIC_COARSE, &step);
    return std::chrono::seconds{step.tv_sec} + duration{step.tv_nsec};
}

/// Finds libevent's handle for a duration in constant time: libevent itself searches a list of up to 256, and prints a
/// warning for each request beyond. Guarded by the lock of the owner.
class common_timeouts {
  public:
    static constexpr std::size_t most = 256; // libevent's MAX_COMMON_TIMEOUTS

    /// Null when the durations are used up: the timer then goes to the ordinary heap. Allocates at most `most` times.
    [[nodiscard]] const timeval* find_or_make(event_base* base, const timeval& tv) noexcept {
        std::size_t at = place_of(tv);
        for (; table_[at].handle != nullptr; at = (at + 1) % table_.size()) {
            if (table_[at].length.tv_sec == tv.tv_sec && table_[at].length.tv_usec == tv.tv_usec) {
                return table_[at].handle;
            }
        }
        if (size_ == most) {
            return nullptr;
        }
        const timeval* const handle = event_base_init_common_timeout(base, &tv);
        if (handle != nullptr) {
            table_[at] = {tv, handle};
            ++size_;
        }
        return handle;
    }

  private:
    struct entry {
        timeval length;
        const timeval* handle;
    };

    static std::size_t place_of(const timeval& tv) noexcept {
        const auto micros =
            static_cast<std::uint64_t>(tv.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(tv.tv_usec);
        // Multiplicative hashing: the top 9 bits of the product number the 512 places.
        return static_cast<std::size_t>((micros * 0x9E3779B97F4A7C15U) >> 55U);
    }

    std::array<entry, 2 * most> table_{}; // never more than half full
    std::size_t size_ = 0;
};

} // namespace detail
} // namespace timerbench
