// One wait at a time between two threads: how fast the waiter is back when the notifier comes soon after it began, and whether it
// keeps its time while it is woken for nothing again and again. Run in a process of its own.
//
// handoff  the notifier spins from the beginning of the wait until `delay` has passed, reads the clock and notifies. A spin that is longer
//          than the delay catches the notification without a system call; a shorter one is for nothing. Rounds in which the notifier
//          was not on time are left out. wake_up as in waiting_cells.hpp; cpu: of the waiter, from before the wait to after it.
//          Both threads run at once: a machine with one core has next to no round that counts
// poked    nobody notifies; the waiter is woken without need, by `poke` and by a signal, every 200 us, for two seconds longer than it
//          asked for. A loop that starts its time anew with every wake-up lasts until that is over
#pragma once

#include "experiments/waiting_cells.hpp"

#include <csignal>
#include <pthread.h>
#include <sched.h>

namespace timerbench::experiments {

struct handoff_figures {
    std::vector<double> wake_up_us;
    std::vector<double> cpu_us;
    std::uint64_t late = 0; ///< rounds left out, because the notifier was not on time
    std::string wrong;
};

/// By how much the notifier may be late, or by a quarter of the delay.
inline constexpr duration punctual = 1us;

template <class Way>
struct handoff_pair {
    Way way;
    // The round that may begin, raised by the notifier; the waiter's beginning in ns, 0 before it; the rounds that have ended, raised by
    // the waiter, which then has written the figures of that round.
    alignas(64) std::atomic<std::uint32_t> gate{0};
    alignas(64) std::atomic<std::int64_t> began_ns{0};
    alignas(64) std::atomic<std::uint32_t> ended{0};
    time_point resumed{};
    std::int64_t cpu_ns = 0;
    bool notified = false;

    static void* body(void* self) {
        auto& me = *static_cast<handoff_pair*>(self);
        prctl(PR_SET_TIMERSLACK, 1UL);
        for (std::uint32_t round = 0;; ++round) {
            me.gate.wait(round, std::memory_order_acquire);
            const std::int64_t cpu = own_cpu_ns();
            const time_point begin = steady_time::now();
            me.began_ns.store(begin.time_since_epoch().count(), std::memory_order_release);
            me.notified = me.way.wait_until(begin + 5s);
            me.resumed = steady_time::now();
            me.cpu_ns = own_cpu_ns() - cpu;
            me.ended.store(round + 1, std::memory_order_release);
        }
    }
};

/// `rounds` rounds that count, or as many as there are within `budget`.
template <class Way>
[[nodiscard]] handoff_figures measure_handoff(duration delay, std::uint64_t rounds, duration budget) {
    begin_process();
    handoff_figures f;
    auto& pair = *new handoff_pair<Way>;
    auto& crew = *new thread_crew{1};
    if (const std::string why = crew.add(&handoff_pair<Way>::body, &pair); !why.empty()) {
        throw cannot_measure{"thread " + why};
    }
    // The waiter is left where it is once there are enough: the process ends.
    const time_point enough = steady_time::now() + budget;
    for (std::uint32_t round = 0; f.wake_up_us.size() < rounds && steady_time::now() < enough; ++round) {
        pair.way.reset();
        pair.began_ns.store(0, std::memory_order_relaxed);
        std::this_thread::sleep_for(50us); // the waiter sleeps at the gate
        pair.gate.store(round + 1, std::memory_order_release);
        pair.gate.notify_one();
        std::int64_t began = 0;
        // The waiter is about to run on another core, unless there is none: then this one has to be given up.
        for (int looks = 0; (began = pair.began_ns.load(std::memory_order_acquire)) == 0; ++looks) {
            if (looks >= 100'000) {
                sched_yield();
            }
        }
        const time_point when = time_point{duration{began}} + delay;
        time_point told = steady_time::now();
        while (told < when) {
            told = steady_time::now();
        }
        pair.way.notify();
        while (pair.ended.load(std::memory_order_acquire) != round + 1) {
            std::this_thread::sleep_for(20us);
        }
        if (!pair.notified) {
            f.wrong = "a wait that was notified timed out";
        }
        if (told > when + std::max<duration>(delay / 4, punctual)) {
            ++f.late;
            continue;
        }
        f.wake_up_us.push_back(us_between(told, pair.resumed));
        f.cpu_us.push_back(static_cast<double>(pair.cpu_ns) * 1e-3);
    }
    return f;
}

struct poked_figures {
    duration asked{};
    duration lasted{};
    std::uint64_t pokes = 0;
    bool notified = false;
};

template <class Way>
struct poked_wait {
    Way way;
    duration asked{};
    // Raised by the waiter when the other members are written.
    std::atomic<bool> ended{false};
    duration lasted{};
    bool notified = false;

    static void* body(void* self) {
        auto& me = *static_cast<poked_wait*>(self);
        const time_point begin = steady_time::now();
        me.notified = me.way.wait_until(begin + me.asked);
        me.lasted = steady_time::now() - begin;
        me.ended.store(true, std::memory_order_release);
        return nullptr;
    }
};

inline constexpr duration poke_every = 200us;
inline constexpr duration poke_longer = 2s;

/// Also changes what this process does with SIGUSR1.
template <class Way>
[[nodiscard]] poked_figures measure_poked(duration asked) {
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    sigaction(SIGUSR1, &nothing, nullptr); // no SA_RESTART: a system call that waits ends
    poked_wait<Way> wait;
    wait.asked = asked;
    pthread_t thread{};
    if (const int problem = pthread_create(&thread, nullptr, &poked_wait<Way>::body, &wait); problem != 0) {
        throw cannot_measure{std::string{"the waiting thread could not be made: "} + std::strerror(problem)};
    }
    poked_figures f;
    f.asked = asked;
    for (const time_point enough = steady_time::now() + asked + poke_longer;
         !wait.ended.load(std::memory_order_acquire) && steady_time::now() < enough; ++f.pokes) {
        wait.way.poke();
        pthread_kill(thread, SIGUSR1);
        std::this_thread::sleep_for(poke_every);
    }
    pthread_join(thread, nullptr);
    f.lasted = wait.lasted;
    f.notified = wait.notified;
    return f;
}

} // namespace timerbench::experiments
