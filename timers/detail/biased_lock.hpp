// A lock for data that one thread, the owner, touches all the time and others rarely.
//
// How it works. While the lock is biased the owner enters by raising a flag of its own and looking at the flag of the others: two plain
// memory accesses, no atomic read-modify-write. Another thread first takes an ordinary spin lock, then revokes the bias: it
// raises its flag, makes the kernel run a memory barrier on every core that runs a thread of this process (membarrier), and waits
// until the owner is outside. After that barrier either the owner has seen the flag and uses the spin lock like everybody
// else, or the others see the owner inside. Once it has entered often enough with no visitor in between, the owner takes its fast
// way back.
//
// What it costs. Biased owner: about 1 ns for a pair. Revoked: a spin lock pair for everybody. Revoking: one system call of
// about 500 ns, which interrupts the other cores briefly. Where membarrier is not to be had the bias is off for good.
//
// What it is bad at. A visitor every few hundred entries of the owner, which then pays for the spin lock or the revocation most of the
// time: at worst about twice what a spin lock alone would cost, because the bias comes back only when the spin locks paid since the last
// visit have cost as much as a revocation.
#pragma once

#include "timers/detail/spin_lock.hpp"

#include <atomic>
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
                lock_.enter_shared();
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
        entries_since_visit_ = 0;
        if (!revoked_.load(std::memory_order_relaxed)) {
            revoke();
        }
    }

    void unlock() noexcept { spin_.unlock(); }

    /// Whether the owner has its fast way now. Any thread; for tests and figures.
    [[nodiscard]] bool biased() const noexcept { return !revoked_.load(std::memory_order_relaxed); }

    /// Entries of the owner without a visit after which the fast way comes back.
    static constexpr unsigned entries_until_biased = 256;

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

    // The owner holds no flag. Giving the bias back is safe under the spin lock: a visitor takes that first and then sees it.
    [[gnu::noinline]] void enter_shared() noexcept {
        spin_.lock();
        if (++entries_since_visit_ >= entries_until_biased && barrier_available()) {
            entries_since_visit_ = 0;
            revoked_.store(false, std::memory_order_relaxed);
        }
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
    // Written with spin_ held: true by visitors, false by the owner, who also reads it without. The owner's own store gives it nothing
    // to acquire that the spin lock has not; a visitor's store is ordered by the barrier.
    std::atomic<bool> revoked_;
    unsigned entries_since_visit_ = 0; // guarded by spin_
    spin_lock spin_;
};

} // namespace timerbench::detail
