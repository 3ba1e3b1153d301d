#include "harness/interrupt.hpp"

#include <atomic>

namespace timerbench::harness {

namespace {

// Written by the signal handler and by the guard's constructor, read by any thread. Lock-free, so a handler may touch
// it; it carries no other data, so no ordering is needed.
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int number) {
    received.store(number, std::memory_order_relaxed);
    // The next one kills.
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    sigemptyset(&plain.sa_mask);
    sigaction(SIGINT, &plain, nullptr);
    sigaction(SIGTERM, &plain, nullptr);
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
