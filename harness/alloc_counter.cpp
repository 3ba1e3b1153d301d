// The interposing functions of harness/alloc_counter.hpp. Nothing here may allocate, lock or throw. Under a sanitizer
// this file is empty: the sanitizer's own malloc must stay in place.
#include "harness/alloc_state.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIMERBENCH_FOREIGN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TIMERBENCH_FOREIGN_MALLOC 1
#endif
#endif

#if !defined(TIMERBENCH_FOREIGN_MALLOC)

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <malloc.h>

namespace {

using timerbench::harness::alloc_state;

constinit alloc_state counters;

bool counting() {
    return counters.windows.load(std::memory_order_relaxed) != 0;
}

void* allocated(void* block, std::size_t requested) {
    if (block && counting()) {
        counters.allocations.fetch_add(1, std::memory_order_relaxed);
        counters.requested_bytes.fetch_add(requested, std::memory_order_relaxed);
        counters.live_bytes.fetch_add(static_cast<std::int64_t>(malloc_usable_size(block)),
                                      std::memory_order_relaxed);
    }
    return block;
}

void freed(std::size_t usable) {
    counters.frees.fetch_add(1, std::memory_order_relaxed);
    counters.live_bytes.fetch_sub(static_cast<std::int64_t>(usable), std::memory_order_relaxed);
}

} // namespace

extern "C" {

// glibc's own entry points.
void* __libc_malloc(std::size_t size) noexcept;
void* __libc_calloc(std::size_t count, std::size_t size) noexcept;
void* __libc_realloc(void* block, std::size_t size) noexcept;
void __libc_free(void* block) noexcept;
void* __libc_memalign(std::size_t alignment, std::size_t size) noexcept;
void* __libc_valloc(std::size_t size) noexcept;
void* __libc_pvalloc(std::size_t size) noexcept;

alloc_state* timerbench_alloc_state() noexcept {
    return &counters;
}

void* malloc(std::size_t size) noexcept {
    return allocated(__libc_malloc(size), size);
}

void* calloc(std::size_t count, std::size_t size) noexcept {
    return allocated(__libc_calloc(count, size), count * size); // a product that overflows gives a null block
}

void* realloc(void* block, std::size_t size) noexcept {
    const bool count = counting();
    const std::size_t old_usable = count && block ? malloc_usable_size(block) : 0;
    void* moved = __libc_realloc(block, size);
    if (count && block &&
        (moved || size == 0)) // without a result the old block stays, unless size 0 freed it
        freed(old_usable);
    return allocated(moved, size);
}

void* reallocarray(void* block, std::size_t count, std::size_t size) noexcept {
    if (size != 0 && count > std::numeric_limits<std::size_t>::max() / size) {
        errno = ENOMEM;
        return nullptr;
    }
    return realloc(block, count * size);
}

void free(void* block) noexcept {
    if (block && counting())
        freed(malloc_usable_size(block));
    __libc_free(block);
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
    return allocated(__libc_memalign(alignment, size), size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    return allocated(__libc_memalign(alignment, size), size);
}

int posix_memalign(void** result, std::size_t alignment, std::size_t size) noexcept {
    if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    const int saved = errno; // posix_memalign reports by its result and leaves errno alone
    void* block = allocated(__libc_memalign(alignment, size), size);
    errno = saved;
    if (!block)
        return ENOMEM;
    *result = block;
    return 0;
}

void* valloc(std::size_t size) noexcept {
    return allocated(__libc_valloc(size), size);
}

void* pvalloc(std::size_t size) noexcept {
    return allocated(__libc_pvalloc(size), size);
}

} // extern "C"

#endif
