// A lock for data that one thread, the owner, touches all the time and others rarely.
//
// How it works. While the lock is biased the owner enters by raising a flag of its own and looking at the flag of the others: two plain
// memory accesses, no atomic read-modify-write. Another thread first takes an ordinary spin lock, then revokes the bias: it
// raises its flag, makes the kernel run a memory barrier on every core that runs a thread of this process (membarrier), and waits
// until the owner is outside. After that barrier either the owner has seen the flag and uses the spin lock like everybody
// else, or the others see the owner inside. `restore_bias` gives the fast way back to the owner.
//
// What it costs. Biased owner: about 1 ns for a pair. Revoked: a spin lock pair for everybody. Revoking: one system call of
// about 500 ns, which interrupts the other cores briefly. Where membarrier is not to be had the bias is off for good.
//
// What it is bad at. Owner and others alternating: each change of hands costs a system call. Whoever restores the bias should do so only
// after a while without visitors; `visits` tells.
#pragma once

#include "timers/detail/spin_lock.hpp"

#include <atomic>
#include <cstdint>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace timerbench::detail {

class biased_lock {
  public:
    biased_lock() noexcept : revoked_{!barrier_available()} {}
    biased_lock(const biased_lock&) = delete;
    biased_lock& operator=(const biased_lock&) = delete;

    /// Held by the owner. There is one owner at a time; handing the lock to another thread as owner needs a happens-before
    /// edge between the two from elsewhere.
    class owner_guard {
      public:
        explicit owner_guard(biased_lock& lock) noexcept : lock_{lock}, shared_{!lock.enter_biased()} {
            if (shared_) [[unlikely]] {
                lock_.spin_.lock();
            }
        }
        owner_guard(const owner_guard&) = delete;
        owner_guard& operator=(const owner_guard&) = delete;
        ~owner_guard() {
            if (shared_) [[unlikely]] {
                lock_.spin_.unlock();
            } else {
                lock_.inside_.store(false, std::memory_order_release);
            }
        }

      private:
        biased_lock& lock_;
        const bool shared_;
    };

    // BasicLockable, for every other thread; the owner may use it too while it holds no owner_guard.

    void lock() noexcept {
        spin_.lock();
        ++visits_;
        if (!revoked_.load(std::memory_order_relaxed)) {
            revoke();
        }
    }

    void unlock() noexcept { spin_.unlock(); }

    /// The number of times anybody took the lock by `lock`. The caller holds it so.
    [[nodiscard]] std::uint64_t visits() const noexcept { return visits_; }

    /// Gives the fast way back to the owner. The caller holds the lock by `lock`.
    void restore_bias() noexcept {
        if (barrier_available()) {
            revoked_.store(false, std::memory_order_release);
        }
    }

  private:
    [[nodiscard]] bool enter_biased() noexcept {
        inside_.store(true, std::memory_order_relaxed);
        // The compiler must not move the load above the store. The processor may, and that is what membarrier is for.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (!revoked_.load(std::memory_order_acquire)) [[likely]] {
            return true;
        }
        inside_.store(false, std::memory_order_release);
        return false;
    }

    void revoke() noexcept {
        revoked_.store(true, std::memory_order_relaxed);
        barrier();
        for (int attempt = 0; inside_.load(std::memory_order_acquire); ++attempt) {
            if (attempt > 64) {
                std::this_thread::yield(); // the owner was descheduled inside
            }
        }
    }

    static void barrier() noexcept { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

    [[nodiscard]] static bool barrier_available() noexcept {
        static const bool available =
            syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
        return available;
    }

    // Written by the owner only, read by whoever revokes. The release of a leave pairs with the acquire of that read.
    std::atomic<bool> inside_{false};
    // Written with spin_ held, read by the owner. The release of `restore_bias` pairs with the owner's acquire.
    std::atomic<bool> revoked_;
    std::uint64_t visits_ = 0; // guarded by spin_
    spin_lock spin_;
};

} // namespace timerbench::detail
