// The counters shared by the interposing functions (alloc_counter.cpp, linked only where allocations are counted) and
// the windows that read them (alloc_window.cpp, always there). Included by these two only.
#pragma once

#include <atomic>
#include <cstdint>

namespace timerbench::harness {

// Every thread of the process adds to these, from within malloc, so no lock is possible. Each is a plain sum: additions
// commute, nothing is ordered by them, hence relaxed. Readers compare two readings and are exact once writers are quiet.
struct alignas(64) alloc_state {
    std::atomic<std::uint32_t> windows{0}; // counting while above 0; changed by alloc_window only
    std::atomic<std::uint64_t> allocations{0};
    std::atomic<std::uint64_t> frees{0};
    std::atomic<std::uint64_t> requested_bytes{0};
    std::atomic<std::int64_t> live_bytes{0};
};

} // namespace timerbench::harness

// Defined in alloc_counter.cpp; a null address where that is not linked in.
extern "C" __attribute__((weak)) timerbench::harness::alloc_state* timerbench_alloc_state() noexcept;
