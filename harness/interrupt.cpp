#include "harness/interrupt.hpp"

#include <atomic>
#include <cstdint>
#include <ctime>

namespace timerbench::harness {

namespace {

// Written by the signal handler and by the guard's constructor, read by any thread. Lock-free, so a handler may touch
// it; it carries no other data, so no ordering is needed.
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

// When the first signal came, on the steady clock. Touched by the handler alone, which both signals hold back while it runs; other
// threads may run it at the same time, and then either value will do.
std::atomic<std::int64_t> first_ns{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
constexpr std::int64_t same_wish_ns = 300'000'000;

void remember(int number) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t now_ns = now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
    if (received.load(std::memory_order_relaxed) == 0) {
        first_ns.store(now_ns, std::memory_order_relaxed);
        received.store(number, std::memory_order_relaxed);
        return;
    }
    if (now_ns - first_ns.load(std::memory_order_relaxed) < same_wish_ns) {
        return;
    }
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    sigemptyset(&plain.sa_mask);
    sigaction(number, &plain, nullptr);
    raise(number); // held back until the handler returns
}

} // namespace

interrupt_guard::interrupt_guard() {
    received.store(0, std::memory_order_relaxed);
    struct sigaction action {};
    action.sa_handler = remember;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, &old_interrupt_);
    sigaction(SIGTERM, &action, &old_terminate_);
}

interrupt_guard::~interrupt_guard() {
    sigaction(SIGINT, &old_interrupt_, nullptr);
    sigaction(SIGTERM, &old_terminate_, nullptr);
    received.store(0, std::memory_order_relaxed);
}

bool interrupted() noexcept {
    return received.load(std::memory_order_relaxed) != 0;
}

int interrupting_signal() noexcept {
    return received.load(std::memory_order_relaxed);
}

signals_held::signals_held() {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &both, &old_);
}

signals_held::~signals_held() {
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

} // namespace timerbench::harness
