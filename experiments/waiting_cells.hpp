// Many bounded waits at a time in one process, and what they cost: for threads that wait, and for timers of a service with a worker that
// resumes what has waited. One function of this file is run in a process of its own, which ends with it: threads and memory are
// never cleaned up.
//
// Rounds. In each round of the first phase `waits` waits with a timeout of a minute begin; when all are outstanding, some are notified one by
// one, the rest at once. In the second phase the same number of waits with short timeouts begin, and nobody notifies them.
//
// wake_up    from the notifier's reading of the clock just before it notifies to the waiter's first reading afterwards; one by one
// overshoot  the waiter's reading after a wait that timed out, minus its deadline, which it has from its own reading before the wait
// cpu        CPU per wait of the first phase, of whoever has to do with it: beginning, parking, notifying, resuming, ending.
//            For threads that are there already: of the waiter from before the wait to after it, and of the notifier. For a thread
//            per wait: making it and its end too. For a service: arming, cancelling, its driver and the worker; its ticks as well.
// idle       CPU of the whole process but the main thread per second while all waits are outstanding and nothing happens
// rss        growth of resident memory per outstanding wait, handle included; and of page tables. Kernel stacks (16 KiB a thread on
//            x86-64) and other memory of the kernel are not in it.
// stack      address space set aside for the stacks of threads, per outstanding wait
//
// The more waits on private futexes there are, the longer the kernel searches for the one that is to be woken: since Linux 6.16 it keeps
// those of a process in a table of its own, with 16 lists on a machine of two cores (futex_lists()). Condition variables are such
// futexes; std::future of libstdc++ waits on shared ones, in the large table of all processes.
#pragma once

#include "experiments/service_cells.hpp"
#include "experiments/stage.hpp"
#include "experiments/waiting_readings.hpp"
#include "experiments/waiting_threads.hpp"
#include "experiments/waiting_ways.hpp"
#include "harness/executor.hpp"
#include "harness/json.hpp"
#include "harness/process_status.hpp"
#include "timers/timeout.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <malloc.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>
#include <variant>
#include <vector>

namespace timerbench::experiments {

inline void begin_process() {
    // A huge page is 2 MiB at a time, and what the parent freed would be taken into use again without growth.
    prctl(PR_SET_THP_DISABLE, 1UL, 0UL, 0UL, 0UL);
    prctl(PR_SET_TIMERSLACK, 1UL);
    malloc_trim(0);
}

// ---- threads that wait ----

template <class Way>
struct thread_wait {
    Way way;
    // Between two rounds these are the main thread's. In a round the waiter writes, and the main thread reads after it has seen the
    // round's count of ended waits; `begun` and `ended` order that.
    duration timeout{};
    time_point deadline{};
    time_point resumed{};
    std::int64_t cpu_ns = 0;
    bool notified = false;
    std::atomic<std::uint64_t>* begun = nullptr;
    std::atomic<std::uint64_t>* ended = nullptr;
    // The round that may begin; raised by the main thread.
    std::atomic<std::uint32_t>* gate = nullptr;
    bool once = false;

    void wait() {
        begun->fetch_add(1, std::memory_order_relaxed);
        const std::int64_t cpu = own_cpu_ns();
        deadline = saturating_add(steady_time::now(), timeout);
        notified = way.wait_until(deadline);
        resumed = steady_time::now();
        cpu_ns = own_cpu_ns() - cpu;
        ended->fetch_add(1, std::memory_order_release);
    }
    static void* body(void* self) {
        auto& me = *static_cast<thread_wait*>(self);
        prctl(PR_SET_TIMERSLACK, 1UL);
        if (me.once) {
            me.wait();
            return nullptr;
        }
        for (std::uint32_t round = 0;; ++round) {
            std::uint32_t open = me.gate->load(std::memory_order_acquire);
            while (open <= round) {
                me.gate->wait(open, std::memory_order_acquire);
                open = me.gate->load(std::memory_order_acquire);
            }
            me.wait();
        }
    }
};

/// One thread waits, in vain and notified, so that the code of it has been touched when memory is looked at. It stays, so that no
/// other thread gets its stack.
template <class Way>
void warm_up(thread_crew& crew, const waiting_plan& plan) {
    struct first {
        Way way;
        // Raised by the thread when it has nothing more to do.
        std::atomic<bool> done{false};
    };
    auto& f = *new first;
    const std::string why = crew.add(
        [](void* self) -> void* {
            auto& me = *static_cast<first*>(self);
            static_cast<void>(me.way.wait_until(steady_time::now() + 1ms));
            static_cast<void>(me.way.wait_until(steady_time::now() + far_away));
            me.done.store(true, std::memory_order_release);
            while (true) {
                pause();
            }
            return nullptr;
        },
        &f);
    if (!why.empty()) {
        throw cannot_measure{"a first thread " + why};
    }
    std::this_thread::sleep_for(2ms);
    f.way.notify();
    if (!poll_until(plan.patience, [&f] { return f.done.load(std::memory_order_acquire); })) {
        throw cannot_measure{"a first thread does not end its wait"};
    }
    crew.leave();
}

/// `fresh`: a thread is made for each wait and ends with it, which counts; else the same threads wait in all rounds.
template <class Way>
[[nodiscard]] waiting_figures measure_threads(const waiting_plan& plan, bool fresh) {
    using slot = thread_wait<Way>;
    begin_process();
    waiting_figures f;
    // Never destroyed: threads are left behind that still look at them.
    auto& begun = *new std::atomic<std::uint64_t>{0};
    auto& ended = *new std::atomic<std::uint64_t>{0};
    auto& gate = *new std::atomic<std::uint32_t>{0};
    auto& crew = *new thread_crew{plan.most_threads};
    warm_up<Way>(crew, plan);
    const still_life before;
    auto& slots = *new std::deque<slot>(plan.waits);
    for (slot& s : slots) {
        s.begun = &begun;
        s.ended = &ended;
        s.gate = &gate;
        s.once = fresh;
    }
    const auto make_threads = [&] {
        for (slot& s : slots) {
            if (const std::string why = crew.add(&slot::body, &s); !why.empty()) {
                throw cannot_measure{"of " + std::to_string(plan.waits) + " threads " + why};
            }
        }
    };
    if (!fresh) {
        make_threads();
    }
    std::uint32_t round = 0;
    std::int64_t making = 0; // CPU of the main thread for the threads of the last round
    const auto begin_round = [&] {
        begun = 0;
        ended = 0;
        for (slot& s : slots) {
            s.way.reset();
        }
        if (fresh) {
            const std::int64_t mine = own_cpu_ns();
            make_threads();
            making = own_cpu_ns() - mine;
        } else {
            gate.store(++round, std::memory_order_release);
            gate.notify_all();
        }
        return poll_until(plan.patience, [&] { return begun.load(std::memory_order_relaxed) == plan.waits; });
    };
    const auto end_round = [&](duration patience) {
        const bool all =
            poll_until(patience, [&] { return ended.load(std::memory_order_acquire) == plan.waits; });
        if (all && fresh) {
            crew.join();
        }
        return all;
    };

    const std::size_t rounds = rounds_for(plan.notified, plan.waits);
    double cpu_ns = 0;
    for (std::size_t r = 0; r < rounds; ++r) {
        for (slot& s : slots) {
            s.timeout = far_away;
        }
        std::int64_t others = cpu_of_others_ns();
        if (!begin_round()) {
            f.wrong = "not all waits began";
            return f;
        }
        settle_down(plan.settle, plan.waits);
        if (r == 0) {
            const std::int64_t paused = cpu_of_others_ns();
            before.look(f, plan, crew.alive());
            others += cpu_of_others_ns() - paused;
        }
        const std::size_t singly = std::min(plan.notified, plan.waits);
        std::vector<time_point> told(singly);
        std::int64_t notifying = 0;
        std::int64_t mine = 0;
        for (std::size_t i = 0; i < plan.waits; ++i) {
            if (i < singly) {
                if (i > 0) {
                    std::this_thread::sleep_for(plan.between);
                }
                mine = own_cpu_ns();
                told[i] = steady_time::now();
                slots[i].way.notify();
                notifying += own_cpu_ns() - mine;
            } else {
                mine = i == singly ? own_cpu_ns() : mine;
                slots[i].way.notify();
                notifying += i + 1 == plan.waits ? own_cpu_ns() - mine : 0;
            }
        }
        if (!end_round(plan.patience)) {
            f.wrong = "a wait that was notified did not end";
            return f;
        }
        cpu_ns += static_cast<double>(notifying);
        for (std::size_t i = 0; i < plan.waits; ++i) {
            if (!slots[i].notified) {
                f.wrong = "a wait of a minute timed out";
            }
            cpu_ns += fresh ? 0 : static_cast<double>(slots[i].cpu_ns);
            if (i < singly) {
                f.wake_up_us.push_back(us_between(told[i], slots[i].resumed));
            }
        }
        cpu_ns += fresh ? static_cast<double>(making + cpu_of_others_ns() - others) : 0;
    }
    f.cpu_us = cpu_ns * 1e-3 / static_cast<double>(rounds * plan.waits);

    for (std::size_t r = 0; r < rounds_for(plan.timed_out, plan.waits); ++r) {
        for (std::size_t i = 0; i < plan.waits; ++i) {
            slots[i].timeout = timeout_of(i, plan);
        }
        if (!begin_round() || !end_round(plan.patience)) {
            f.wrong = "a wait with a timeout did not end";
            return f;
        }
        for (const slot& s : slots) {
            if (s.notified) {
                f.wrong = "a wait that nobody notified was notified";
            }
            f.late(s.resumed - s.deadline);
        }
    }
    return f;
}

// ---- timers of a service ----

/// What a task waits for: a flag and whom to wake.
class event_operation {
  public:
    /// The state lies beside the task; it outlives the operation.
    struct state {
        detail::spin_lock lock;
        bool set = false; // guarded by lock
        waker to_wake;    // guarded by lock

        void notify() {
            waker w;
            {
                const std::lock_guard hold{lock};
                set = true;
                w = to_wake;
            }
            w();
        }
    };
    explicit event_operation(state& s) noexcept : state_{&s} {}
    [[nodiscard]] std::optional<std::monostate> poll(const waker& w) {
        const std::lock_guard hold{state_->lock};
        if (state_->set) {
            return std::monostate{};
        }
        state_->to_wake = w;
        return std::nullopt;
    }

  private:
    state* state_;
};

template <class Service>
class timer_wait : public harness::task {
  public:
    timer_wait(Service& service, duration timeout, std::atomic<std::uint64_t>& begun,
               std::atomic<std::uint64_t>& ended) noexcept
        : task{&timer_wait::poll_me},
          service_{service},
          begun_{begun},
          ended_{ended},
          timeout_{timeout} {}

    void notify() { event_.notify(); }

    // Written by the worker in a poll; to be read once the task is finished.
    time_point deadline{};
    time_point resumed{};
    bool notified = false;

  private:
    static harness::outcome poll_me(harness::task& self, const waker& w) noexcept {
        auto& me = static_cast<timer_wait&>(self);
        if (!me.wait_) {
            me.deadline = saturating_add(steady_time::now(), me.timeout_);
            me.wait_.emplace(me.service_, me.timeout_, event_operation{me.event_});
            me.begun_.fetch_add(1, std::memory_order_relaxed);
        }
        const auto result = me.wait_->poll(w);
        if (!result) {
            return harness::outcome::pending;
        }
        me.resumed = steady_time::now();
        me.notified = result->value.has_value();
        me.wait_.reset(); // cancels, where the time was not up
        me.ended_.fetch_add(1, std::memory_order_release);
        return harness::outcome::done;
    }

    Service& service_;
    std::atomic<std::uint64_t>& begun_;
    std::atomic<std::uint64_t>& ended_;
    duration timeout_;
    event_operation::state event_;
    std::optional<timeout<Service, event_operation>> wait_;
};

/// One worker resumes what has waited.
template <class Entry>
[[nodiscard]] waiting_figures measure_service(const waiting_plan& plan) {
    using service_type = typename Entry::service;
    using task_type = timer_wait<service_type>;
    begin_process();
    waiting_figures f;
    // Never destroyed: the process ends first.
    auto& service = *Entry::make().release();
    const service_traits traits = service.traits();
    auto& executor = *new harness::executor{1};
    auto& begun = *new std::atomic<std::uint64_t>{0};
    auto& ended = *new std::atomic<std::uint64_t>{0};
    std::deque<task_type>* tasks = nullptr;
    std::int64_t beginning = 0; // CPU of the main thread for the tasks of the last round
    const auto begin_round = [&](std::size_t n, auto&& timeout) {
        begun = 0;
        ended = 0;
        tasks = new std::deque<task_type>;
        const std::int64_t mine = own_cpu_ns();
        for (std::size_t i = 0; i < n; ++i) {
            tasks->emplace_back(service, timeout(i), begun, ended);
            executor.spawn(tasks->back(), 0);
        }
        beginning = own_cpu_ns() - mine;
        return poll_until(plan.patience, [&] { return begun.load(std::memory_order_relaxed) == n; });
    };
    const auto all_finished = [&] {
        return std::all_of(tasks->begin(), tasks->end(), [](const task_type& t) { return t.finished(); });
    };
    const auto end_round = [&](std::size_t n, duration patience) {
        return poll_until(patience, [&] { return ended.load(std::memory_order_acquire) == n; }) &&
               poll_until(patience, all_finished);
    };
    const auto far = [](std::size_t) { return far_away; };

    // Driver, worker and first blocks are there before memory is looked at.
    static_cast<void>(begin_round(1, [](std::size_t) { return duration{1ms}; }));
    static_cast<void>(end_round(1, traits.latest + 2s));
    static_cast<void>(begin_round(1, far));
    std::this_thread::sleep_for(1ms);
    tasks->front().notify();
    static_cast<void>(end_round(1, plan.patience));

    const std::size_t rounds = rounds_for(plan.notified, plan.waits);
    double cpu_ns = 0;
    const still_life before;
    for (std::size_t r = 0; r < rounds; ++r) {
        std::int64_t others = cpu_of_others_ns();
        if (!begin_round(plan.waits, far)) {
            f.wrong = "not all waits began";
            return f;
        }
        settle_down(plan.settle, plan.waits);
        if (r == 0) {
            const std::int64_t paused = cpu_of_others_ns();
            before.look(f, plan, 0);
            others += cpu_of_others_ns() - paused;
        }
        const std::size_t singly = std::min(plan.notified, plan.waits);
        std::vector<time_point> told(singly);
        std::int64_t notifying = 0;
        std::int64_t mine = 0;
        for (std::size_t i = 0; i < plan.waits; ++i) {
            if (i > 0 && i < singly) {
                std::this_thread::sleep_for(plan.between);
            }
            if (i <= singly) {
                mine = own_cpu_ns();
            }
            if (i < singly) {
                told[i] = steady_time::now();
            }
            (*tasks)[i].notify();
            if (i < singly || i + 1 == plan.waits) {
                notifying += own_cpu_ns() - mine;
            }
        }
        if (!end_round(plan.waits, plan.patience)) {
            f.wrong = "a wait that was notified did not end";
            return f;
        }
        cpu_ns += static_cast<double>(beginning + notifying + cpu_of_others_ns() - others);
        for (std::size_t i = 0; i < plan.waits; ++i) {
            if (!(*tasks)[i].notified) {
                f.wrong = "a wait of a minute timed out";
            }
            if (i < singly) {
                f.wake_up_us.push_back(us_between(told[i], (*tasks)[i].resumed));
            }
        }
        delete tasks;
    }
    f.cpu_us = cpu_ns * 1e-3 / static_cast<double>(rounds * plan.waits);

    const bool loses = traits.has_fault("lost_wakeup");
    for (std::size_t r = 0; r < rounds_for(plan.timed_out, plan.waits); ++r) {
        const bool began = begin_round(plan.waits, [&](std::size_t i) { return timeout_of(i, plan); });
        const bool all = began && end_round(plan.waits, loses ? traits.latest + 1s : plan.patience);
        if (!all && !loses) {
            f.wrong = "a wait with a timeout did not end";
            return f;
        }
        for (const task_type& t : *tasks) {
            if (!t.finished()) {
                ++f.missing;
            } else if (t.notified) {
                f.wrong = "a wait that nobody notified was notified";
            } else {
                f.late(t.resumed - t.deadline);
            }
        }
        if (!all) {
            return f; // what is left of the round may yet be woken: its tasks stay
        }
        delete tasks;
    }
    return f;
}

} // namespace timerbench::experiments
