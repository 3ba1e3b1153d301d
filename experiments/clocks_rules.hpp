// What counts as reading the wall clock or waiting against it, and how a path that was watched is judged. Without the watching
// itself (clocks_watch.hpp), so that it can be tested. Costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <linux/futex.h>
#include <string>
#include <string_view>
#include <time.h>

namespace timerbench::experiments {

/// By how much the wall clock is off at a time since the beginning of the watch (not negative).
[[nodiscard]] constexpr std::int64_t wall_offset_s(std::int64_t since_ns) noexcept {
    constexpr std::int64_t offsets[] = {0, 1, -1, 5, -5, 3'600, -3'600};
    return offsets[static_cast<std::size_t>(since_ns / 5'000'000) % std::size(offsets)];
}

/// Whether this object file is the C or C++ library, through which everybody reads clocks. `path` may be empty.
[[nodiscard]] constexpr bool is_runtime_library(std::string_view path) noexcept {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    for (const std::string_view stem :
         {"libc.so", "libc-", "libstdc++.so", "libc++.so", "libpthread", "librt."}) {
        if (name.starts_with(stem)) {
            return true;
        }
    }
    return false;
}

[[nodiscard]] constexpr bool is_wall(clockid_t clock) noexcept {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI ||
           clock == CLOCK_REALTIME_ALARM;
}

/// Whether a futex call waits until a time on the wall clock.
[[nodiscard]] constexpr bool is_wall_futex(int operation, bool has_timeout) noexcept {
    const int command = operation & FUTEX_CMD_MASK;
    // Of FUTEX_LOCK_PI the timeout is on the wall clock without saying so.
    return has_timeout &&
           (command == FUTEX_LOCK_PI || ((operation & FUTEX_CLOCK_REALTIME) != 0 &&
                                         (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET)));
}

struct seen_clocks {
    std::uint64_t readings = 0;  ///< of the wall clock by this binary
    std::uint64_t elsewhere = 0; ///< by libraries that are not its runtime
    std::uint64_t waits = 0;     ///< against the wall clock, by anybody
    std::string reader;          ///< the library of the last reading elsewhere
    std::string waited_in;       ///< the function of the last such wait
};

/// Empty where nothing of ours looks at the wall clock, else what does. What other libraries read for purposes of their own is
/// no fault as long as nothing waits for it.
[[nodiscard]] inline std::string wall_clock_use(const seen_clocks& seen) {
    if (seen.waits > 0) {
        return "waits against the wall clock " + std::to_string(seen.waits) + " times, last in " +
               seen.waited_in;
    }
    if (seen.readings > 0) {
        return "reads the wall clock " + std::to_string(seen.readings) + " times";
    }
    return {};
}

/// Empty where a timeout kept its time while the wall clock was set by 1 to 3600 s, else how it did not. Late by less than a second
/// is the machine's business, not the clock's.
[[nodiscard]] inline std::string clock_effect(double earliest_ms, double latest_ms, double allowed_early_ms,
                                              double allowed_late_ms) {
    if (earliest_ms < allowed_early_ms) {
        return "early by " + std::to_string(-earliest_ms) + " ms";
    }
    if (latest_ms > allowed_late_ms + 900) {
        return "late by " + std::to_string(latest_ms) + " ms";
    }
    return {};
}

} // namespace timerbench::experiments
