// Counts heap traffic of the whole process at malloc level: malloc, calloc, realloc, reallocarray, free, memalign,
// aligned_alloc, posix_memalign, valloc, pvalloc, and with them operator new and every library in the process.
//
// The interposing functions live in the object library timerbench_alloc_counter; only binaries that count link it.
// They pass on to glibc's own entry points (__libc_malloc and its like). Off: one relaxed load per call. On: five
// relaxed additions. In a binary without them, or under a sanitizer (which owns malloc), available() is false and
// says why; the counts are then all zero and must not be used.
//
// What is counted: a successful call that returns a block is one allocation (calloc and aligned forms too); free of a
// non-null pointer is one free; realloc is one allocation, and one free when it was given a block (realloc to size 0
// only a free). requested_bytes sums the sizes asked for. live_bytes is the change of malloc_usable_size in use since
// the window opened, blocks from before it included when freed: it can be negative. Memory taken with mmap directly is
// not seen.
#pragma once

#include <cstdint>
#include <string>

namespace timerbench::harness {

struct alloc_counts {
    std::uint64_t allocations = 0;
    std::uint64_t frees = 0;
    std::uint64_t requested_bytes = 0;
    std::int64_t live_bytes = 0;
};

struct alloc_availability {
    bool available = false;
    std::string reason; // empty when available
};
[[nodiscard]] alloc_availability alloc_counting();

// Counting is on while at least one window lives. Windows may overlap; each sees the whole process.
class alloc_window {
  public:
    alloc_window();
    ~alloc_window();
    alloc_window(const alloc_window&) = delete;
    alloc_window& operator=(const alloc_window&) = delete;

    // Traffic since the window opened. Exact once the threads that allocate are quiet.
    [[nodiscard]] alloc_counts counts() const;

  private:
    alloc_counts at_begin_;
};

} // namespace timerbench::harness
