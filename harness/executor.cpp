#include "harness/executor.hpp"

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <thread>

namespace timerbench::harness {

struct task::worker {
    std::mutex mutex;
    std::condition_variable more;
    // Guarded by mutex.
    task* first = nullptr;
    task* last = nullptr;
    bool asleep = false; // on `more`; a worker that blocks in its loop cannot be reached
    bool stopping = false;
    executor::totals count;

    loop driven{}; // constant; empty without a loop
    std::thread thread;

    void push(task& t) {
        const std::lock_guard lock{mutex};
        t.next_ = nullptr;
        if (last == nullptr) {
            first = &t;
        } else {
            last->next_ = &t;
        }
        last = &t;
        if (asleep) {
            asleep = false; // one signal is enough, however many tasks come before the worker runs
            more.notify_one();
        }
    }

    // The first `executor::batch` tasks as a chain; null if there is none. The mutex is held.
    [[nodiscard]] task* take(std::uint64_t& taken) {
        task* const chain = first;
        task* end = nullptr;
        for (taken = 0; first != nullptr && taken < executor::batch; ++taken) {
            end = first;
            first = first->next_;
        }
        if (end != nullptr) {
            end->next_ = nullptr;
        }
        if (first == nullptr) {
            last = nullptr;
        }
        return chain;
    }
};

bool task::finished() const noexcept {
    return (state_.load(std::memory_order_acquire) & finished_bit) != 0;
}

bool task::idle() const noexcept {
    return state_.load(std::memory_order_acquire) == 0;
}

void task::wake(void* self) noexcept {
    task& t = *static_cast<task*>(self);
    if (t.state_.fetch_or(woken_bit, std::memory_order_acq_rel) == 0) {
        t.home_->push(t);
    }
}

// The caller has moved the task to `running`.
void executor::run(task& t) noexcept {
    if (t.poll_(t, t.self_waker()) == outcome::done) {
        // The last access: whoever sees it may destroy the task.
        t.state_.store(task::finished_bit | task::woken_bit, std::memory_order_release);
        return;
    }
    std::uint8_t state = task::running_bit;
    if (!t.state_.compare_exchange_strong(state, 0, std::memory_order_acq_rel, std::memory_order_acquire)) {
        // Woken meanwhile. Only the polling thread leaves this state, so nothing changes between the two steps.
        t.state_.fetch_and(static_cast<std::uint8_t>(~task::running_bit), std::memory_order_acq_rel);
        t.home_->push(t);
    }
}

void executor::work(task::worker& w) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    const bool has_loop = w.driven.object != nullptr;
    std::unique_lock lock{w.mutex};
    while (!w.stopping) {
        std::uint64_t taken = 0;
        task* chain = w.take(taken);
        if (chain == nullptr) {
            ++w.count.sleeps;
            if (has_loop) {
                lock.unlock();
                w.driven.poll_until(w.driven.object,
                                    std::chrono::time_point_cast<duration>(std::chrono::steady_clock::now()) +
                                        loop_bound);
                lock.lock();
            } else {
                w.asleep = true;
                w.more.wait(lock, [&w] { return w.first != nullptr || w.stopping; });
                w.asleep = false;
            }
            continue;
        }
        w.count.polls += taken;
        lock.unlock();
        while (chain != nullptr) {
            task& t = *chain;
            chain = t.next_; // read before the poll: the task may be queued again, or be gone, after it
            t.state_.exchange(task::running_bit, std::memory_order_acq_rel);
            run(t);
        }
        if (has_loop) {
            w.driven.poll(w.driven.object);
        }
        lock.lock();
    }
}

namespace {
std::size_t possible(std::size_t workers) {
    if (workers == 0 || workers > executor::most_workers) {
        throw std::invalid_argument("executor: " + std::to_string(workers) + " workers; 1 to " +
                                    std::to_string(executor::most_workers) + " are possible");
    }
    return workers;
}
} // namespace

executor::executor(std::size_t workers) : executor(std::vector<loop>(possible(workers))) {}

executor::executor(std::span<const loop> loops) {
    workers_.reserve(possible(loops.size()));
    for (const loop& l : loops) {
        workers_.push_back(std::make_unique<task::worker>());
        workers_.back()->driven = l;
    }
    try {
        for (auto& w : workers_) {
            w->thread = std::thread{[this, &w = *w] { work(w); }};
        }
    } catch (...) {
        stop();
        throw;
    }
}

executor::~executor() {
    stop();
}

void executor::adopt(task& t, std::size_t home) {
    t.home_ = workers_.at(home).get();
}

void executor::spawn(task& t, std::size_t home) {
    adopt(t, home);
    task::wake(&t);
}

bool executor::poll_here(task& t) {
    std::uint8_t state = 0;
    if (!t.state_.compare_exchange_strong(state, task::running_bit, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
        return false;
    }
    run(t);
    return true;
}

void executor::stop() {
    for (auto& w : workers_) {
        const std::lock_guard lock{w->mutex};
        w->stopping = true;
        w->more.notify_one();
    }
    for (auto& w : workers_) {
        if (w->thread.joinable()) {
            w->thread.join();
        }
    }
}

executor::totals executor::count() const {
    totals sum;
    for (const auto& w : workers_) {
        const std::lock_guard lock{w->mutex};
        sum.polls += w->count.polls;
        sum.sleeps += w->count.sleeps;
    }
    return sum;
}

} // namespace timerbench::harness
