// What the adapters of third-party libraries share.
#pragma once

#include "timers/detail/spin_lock.hpp"

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace timerbench::detail {

/// Stands in for a lock where only one thread calls.
struct no_lock {
    void lock() const noexcept {}
    void unlock() const noexcept {}
};

template <bool Locked>
using lock_if = std::conditional_t<Locked, spin_lock, no_lock>;

/// A count with one writer at a time and any number of readers. Costs what a plain integer costs.
class tally {
  public:
    void add(std::uint64_t n = 1) noexcept { set(get() + n); }
    void subtract(std::uint64_t n = 1) noexcept { set(get() - n); }
    void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

  private:
    // Written under the lock of the owner, or by its one thread where there is no lock, so that load and store need not be
    // one operation. Read by anybody: nothing else is inferred from the value.
    std::atomic<std::uint64_t> value_{0};
};

} // namespace timerbench::detail
