// Tells a service that it lives in a forked child, where its driver thread does not exist.
//
// A process-wide generation is raised in the child by a pthread_atfork handler; a service remembers the generation in which
// its driver was started. Asking costs one relaxed load.
#pragma once

#include <atomic>
#include <pthread.h>

namespace timerbench::detail {

class fork_guard {
  public:
    fork_guard() noexcept : born_{current()} {}

    /// Whether the process is a child forked since construction or the last `adopt`.
    [[nodiscard]] bool in_child() const noexcept {
        return born_ != generation().load(std::memory_order_relaxed);
    }

    /// Called after the driver was started anew in the child.
    void adopt() noexcept { born_ = current(); }

  private:
    // Written only in the child's atfork handler, when the child has a single thread; read by anybody. Relaxed is enough:
    // the value never changes while a second thread exists.
    static std::atomic<unsigned>& generation() noexcept {
        static std::atomic<unsigned> value{0};
        return value;
    }

    static unsigned current() noexcept {
        static const int installed =
            pthread_atfork(nullptr, nullptr, [] { generation().fetch_add(1, std::memory_order_relaxed); });
        (void)installed;
        return generation().load(std::memory_order_relaxed);
    }

    unsigned born_;
};

} // namespace timerbench::detail
