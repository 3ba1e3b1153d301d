#include "harness/alloc_counter.hpp"
#include "harness/alloc_state.hpp"
#include "harness/environment.hpp"

namespace timerbench::harness {

namespace {

alloc_state* state() {
    return timerbench_alloc_state ? timerbench_alloc_state() : nullptr;
}

alloc_counts read_counts() {
    alloc_counts counts;
    if (const alloc_state* now = state()) {
        counts.allocations = now->allocations.load(std::memory_order_relaxed);
        counts.frees = now->frees.load(std::memory_order_relaxed);
        counts.requested_bytes = now->requested_bytes.load(std::memory_order_relaxed);
        counts.live_bytes = now->live_bytes.load(std::memory_order_relaxed);
    }
    return counts;
}

} // namespace

alloc_availability alloc_counting() {
    if (const auto sanitizer = sanitizer_name(); !sanitizer.empty())
        return {false, "the " + sanitizer + " sanitizer owns malloc in this build"};
    if (!state())
        return {false, "the allocation counter is not linked into this binary"};
    return {true, {}};
}

alloc_window::alloc_window() {
    if (alloc_state* counters = state())
        counters->windows.fetch_add(1, std::memory_order_relaxed);
    at_begin_ = read_counts();
}

alloc_window::~alloc_window() {
    if (alloc_state* counters = state())
        counters->windows.fetch_sub(1, std::memory_order_relaxed);
}

alloc_counts alloc_window::counts() const {
    const alloc_counts now = read_counts();
    return {now.allocations - at_begin_.allocations, now.frees - at_begin_.frees,
            now.requested_bytes - at_begin_.requested_bytes, now.live_bytes - at_begin_.live_bytes};
}

} // namespace timerbench::harness
