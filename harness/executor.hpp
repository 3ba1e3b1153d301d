// The executor: polls woken tasks on a fixed team of worker threads.
//
// A task has one home worker, and only that worker's thread polls it (poll_here() apart). A worker has a first-in
// first-out queue linked through the tasks themselves, behind one mutex and one condition variable; it takes up to
// `batch` tasks at a time. There is no stealing and no timer: a task is polled once when it is spawned and after that
// only because somebody called its waker. Nothing here polls on suspicion, so that a wake-up which a timer service loses shows as a task
// that stands still.
//
// The protocol of a task is one atomic of three bits:
//
//   idle            0                  not queued, nobody polls it
//   queued          woken              in its home's queue, or on the way there
//   running         running            being polled
//   running, woken  running | woken    being polled, and woken since that poll began
//   finished        finished | woken   never polled again
//
//   wake      sets `woken`; whoever finds `idle` there pushes the task, everybody else has nothing left to do
//   poll      queued -> running, then the task's function
//   pending   running -> idle; if it was woken meanwhile: running|woken -> queued, and the worker pushes it again
//   done      -> finished; `woken` stays set, so that a late wake finds nothing to do
//
// No wake is lost: it either finds `idle` and pushes, or finds `queued` before the poll begins, or finds `running`
// and makes the end of that poll push. No two polls overlap: a task enters a queue only on leaving `idle` or at
// the end of a poll, so it is in at most one queue once. Every step is a read-modify-write, also the wake that
// changes nothing: what the waking thread wrote before is therefore visible to the poll that follows.
//
// Where the caller's loop drives a service, each worker is given one loop: it polls the loop after every batch, and blocks in
// the loop instead of on the condition variable when it has nothing to do. Tasks that use such a service are spawned on
// the worker that polls its loop.
//
// Costs: a wake is one atomic operation, one lock, and one system call if the worker sleeps. Bad at: uneven load
// (no stealing), and a wake from outside for a worker that blocks in its loop, which waits for up to `loop_bound`.
#pragma once

#include "timers/service.hpp"
#include "timers/timeout.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace timerbench::harness {

class executor;

enum class outcome { pending, done };

/// Something to be polled; made by deriving from it or by embedding it. It belongs to one executor for life, and lives until it
/// is finished or the executor has stopped, and until nobody can call its waker any more.
class task {
  public:
    /// Polls the task. `pending`: the waker has been left with somebody who will call it. After `done` it is not called
    /// again. Must not throw. Calls never overlap, and each sees what the one before it wrote.
    using poll_function = outcome (*)(task& self, const waker& w) noexcept;

    explicit task(poll_function poll) noexcept : poll_(poll) {}
    task(const task&) = delete;
    task& operator=(const task&) = delete;

    /// Any thread. True makes visible what the last poll wrote.
    [[nodiscard]] bool finished() const noexcept;
    /// Any thread. Neither queued, nor being polled, nor finished: only a wake gets it going again.
    [[nodiscard]] bool idle() const noexcept;

    /// The waker that polls get. Any thread; usable once the task has been spawned or adopted.
    [[nodiscard]] waker self_waker() noexcept { return waker{&task::wake, this}; }

  private:
    friend class executor;
    struct worker;

    static void wake(void* self) noexcept;

    static constexpr std::uint8_t woken_bit = 1;
    static constexpr std::uint8_t running_bit = 2;
    static constexpr std::uint8_t finished_bit = 4;

    // Any thread may set `woken`; the other bits are changed only by the thread that polls. See the protocol above.
    std::atomic<std::uint8_t> state_{0};
    poll_function poll_;
    worker* home_ = nullptr; // written before the first wake, then constant
    task* next_ = nullptr;   // in a queue: guarded by the home's mutex; in a batch: the worker's own
};

/// A loop that a worker drives: `poll` runs what is due and never blocks, `poll_until` blocks until something has run or
/// the time has passed. Both return how many callbacks ran. The object outlives the executor.
struct loop {
    void* object = nullptr;
    std::size_t (*poll)(void* object) = nullptr;
    std::size_t (*poll_until)(void* object, time_point until) = nullptr;
};

template <class L>
requires requires(L& l, time_point t) {
    { l.poll() } -> std::convertible_to<std::size_t>;
    { l.poll_until(t) } -> std::convertible_to<std::size_t>;
}
[[nodiscard]] loop loop_of(L& object) noexcept {
    return loop{&object, [](void* o) -> std::size_t { return static_cast<L*>(o)->poll(); },
                [](void* o, time_point t) -> std::size_t { return static_cast<L*>(o)->poll_until(t); }};
}

class executor {
  public:
    static constexpr std::size_t most_workers = 64;
    static constexpr std::size_t batch = 64;
    /// A worker that blocks in its loop looks at its queue at least this often.
    static constexpr duration loop_bound = std::chrono::milliseconds{5};

    struct totals {
        std::uint64_t polls = 0;  ///< by workers; poll_here() is not among them
        std::uint64_t sleeps = 0; ///< times a worker blocked for want of a task
    };

    /// Starts `workers` threads, 1 to most_workers; else throws std::invalid_argument.
    explicit executor(std::size_t workers);
    /// Starts one worker for each loop, 1 to most_workers; worker i polls loops[i] and nobody else may meanwhile.
    explicit executor(std::span<const loop> loops);
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;
    ~executor(); // stops

    /// Gives the task its home (below workers(), else std::out_of_range) and wakes it. Once per task.
    void spawn(task& t, std::size_t home);
    /// Gives the task its home and leaves it idle. Once per task, instead of spawn().
    void adopt(task& t, std::size_t home);

    /// Polls an idle task on the calling thread, by the protocol: a wake that comes meanwhile makes its home poll it
    /// afterwards. False, without a poll: the task was not idle. It must have been spawned or adopted.
    bool poll_here(task& t);

    /// Ends the workers after the batches they are at; what is queued then is not polled any more. Idempotent, not from
    /// a worker. Wakes after it are harmless and without effect.
    void stop();

    [[nodiscard]] std::size_t workers() const noexcept { return workers_.size(); }
    /// Any thread. Exact after stop(); before that it lags by up to a batch per worker.
    [[nodiscard]] totals count() const;

  private:
    void work(task::worker& w);
    static void run(task& t) noexcept;

    std::vector<std::unique_ptr<task::worker>> workers_; // constant after construction
};

} // namespace timerbench::harness
