// A one-byte lock for critical sections of a few dozen nanoseconds.
//
// Taking it is one atomic exchange, giving it back one plain store, which makes a pair about half as dear as that of an
// uncontended std::mutex. The price is paid under contention: a waiter spins briefly, then gives up its time
// slice, then sleeps in short steps, because the holder may have been descheduled and nobody will wake the waiter.
// Never held across a callback, a system call or an allocation that is not amortised.
#pragma once

#include <atomic>
#include <thread>
#include <time.h>

namespace timerbench::detail {

class spin_lock {
  public:
    spin_lock() noexcept = default;
    spin_lock(const spin_lock&) = delete;
    spin_lock& operator=(const spin_lock&) = delete;

    void lock() noexcept {
        if (!taken_.exchange(true, std::memory_order_acquire)) {
            return;
        }
        lock_contended();
    }

    bool try_lock() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }

    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

  private:
    void lock_contended() noexcept {
        for (int attempt = 0;; ++attempt) {
            if (!taken_.load(std::memory_order_relaxed) &&
                !taken_.exchange(true, std::memory_order_acquire)) {
                return;
            }
            if (attempt < spins) {
                pause();
            } else if (attempt < spins + yields) {
                std::this_thread::yield();
            } else {
                timespec step{.tv_sec = 0, .tv_nsec = 20'000};
                nanosleep(&step, nullptr);
            }
        }
    }

    static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }

    // Spinning covers a holder that runs on another core, yielding one that waits for this core.
    static constexpr int spins = 64;
    static constexpr int yields = 16;

    // Any thread. The acquire of a successful exchange pairs with the release of the store in `unlock`.
    std::atomic<bool> taken_{false};
};

} // namespace timerbench::detail
