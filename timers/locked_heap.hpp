// A binary heap behind one mutex, with a driver thread that sleeps until the earliest deadline: the design of the JDK's
// ScheduledThreadPoolExecutor and of most hand-written timer threads. `locked_heap` removes on cancel, which the JDK's does
// when it is asked to; `lazy_locked_heap` is the executor as it comes and leaves cancelled entries where they are.
//
// How it works
//   An array holds {deadline, sequence, timer} as a binary heap, and every timer knows its place in it, so that cancel
//   takes the entry out at once. The sequence number makes timers with one deadline fire in the order of their arms.
//   The driver takes one due timer at a time under the mutex and runs its callback without it. It starts with the first
//   arm.
//   Lazy: cancel finds the entry in the same way and takes the timer's name out of it. The dead entry stays until it
//   stands at the head and its deadline has come; the driver gets up for it as for a live one. The timer may be armed again
//   or destroyed meanwhile: nothing in the dead entry leads to it.
// What it costs
//   arm: a clock reading, a lock, O(log n) moves of 24 bytes that also write to the timers moved; in the usual order of
//   arms (each deadline later than most) few of them. cancel: a lock, O(log n) moves, each a likely cache miss in a
//   large heap. Nothing is allocated once the array has grown to its high water mark; it never shrinks.
//   Lazy: cancel is a lock and one store, a likely cache miss. Every arm and fire pays for it in a heap that holds the dead
//   too, and the driver sifts each of them out in the end: O(log n) of the larger n.
// What it is bad at
//   Every thread takes the one mutex. An arm that becomes the earliest wakes the driver, a system call of several
//   microseconds: alone in the heap, a timer that is armed and cancelled over and over pays it nearly every time.
//   Lazy: a cancelled timer holds 24 bytes until its deadline, so rate x timeout entries in all: at 10 000 cancelled a
//   second and 60 s, 600 000. One armed for ever and cancelled stays for ever.
// Where it departs from its source
//   An arm wakes the driver only when its deadline is before the time the driver sleeps until, not whenever it becomes
//   the head: after a cancelled head the driver still gets up at that head's time, once, and finds nothing to do.
//   Lazy: the JDK cancels with one compare-and-swap on a task object of its own for each arm, without the lock; here the
//   callback is in the timer and only 24 bytes are left behind.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/abandon.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/running_set.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace timerbench {

struct locked_heap_options {
    bool lazy = false; ///< Whether a cancelled entry stays in the heap until its deadline.

    friend bool operator==(const locked_heap_options&, const locked_heap_options&) = default;
};

/// Usable from any thread. `Clock` is a clock_source. See the names `locked_heap` and `lazy_locked_heap` below.
template <class Clock, locked_heap_options Options>
class basic_locked_heap {
  public:
    class timer {
      public:
        explicit timer(basic_locked_heap& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (used_) {
                service_.release(*this);
            }
        }

      private:
        friend class basic_locked_heap;
        static constexpr std::size_t idle = static_cast<std::size_t>(-1);

        basic_locked_heap& service_;
        callback callback_;        // guarded by the service's mutex, as is index_
        std::size_t index_ = idle; // place in the heap
        // Set by the first arm and never written again. Read by the destructor alone, without the mutex, so that a timer
        // that was never armed costs no lock: the caller orders the first arm before the destruction.
        bool used_ = false;
    };

    /// `owner` is the service that embeds this one, if any: "inside a callback of the service" then means a callback of
    /// the owner, whichever thread runs it. The clock and the owner outlive the service. The options are fixed by the type;
    /// throws std::invalid_argument when others are given.
    explicit basic_locked_heap(Clock& clock = steady(), locked_heap_options options = Options,
                               const void* owner = nullptr)
        : clock_{clock},
          identity_{owner != nullptr ? owner : this} {
        if (options != Options) {
            throw std::invalid_argument{"locked_heap: lazy is a choice of the type; use lazy_locked_heap"};
        }
    }
    basic_locked_heap(const basic_locked_heap&) = delete;
    basic_locked_heap& operator=(const basic_locked_heap&) = delete;
    ~basic_locked_heap() { stop(); }

    /// Besides what every service promises: throws std::bad_alloc when the heap cannot grow and std::system_error when
    /// the driver cannot be started; nothing is armed then.
    bool arm(timer& t, duration d, callback c) {
        // A negative duration must not sort before timers that are due: its callback could then starve them for ever
        // by arming itself again.
        return arm_at(t, saturating_add(clock_.now(), std::max(d, duration::zero())), c);
    }

    /// The same for a deadline on this service's clock; reads no clock. `time_point::max()` never fires. Timers that are
    /// due fire in the order of their deadlines, so a callback that keeps arming a deadline in the past starves others.
    bool arm_at(timer& t, time_point deadline, callback c) {
        if (lost()) {
            return false;
        }
        const std::lock_guard lock{mutex_};
        if (stopped_ || running_.bars(&t)) {
            return false;
        }
        if (!driver_.joinable() && !paused_) {
            start_driver();
        }
        heap_.emplace_back();
        if (!t.used_) { // only a first arm may write, see there
            t.used_ = true;
        }
        t.callback_ = c;
        sift_up(heap_.size() - 1, entry{deadline, next_sequence_++, &t});
        ++armed_;
        if (deadline < sleeping_until_) {
            sleeping_until_ = deadline;
            parker_->wake();
        }
        return true;
    }

    bool cancel(timer& t) {
        if (lost()) {
            return std::exchange(t.index_, timer::idle) != timer::idle;
        }
        std::unique_lock lock{mutex_};
        const bool withdrawn = withdraw(t);
        if (!running_.empty() && !detail::callback_scope::inside(identity_)) {
            running_.await(lock, &t);
        }
        return withdrawn;
    }

    void stop() {
        if (lost()) {
            detail::abandon(driver_);
            detail::abandon(parker_);
            detail::abandon(running_);
            return;
        }
        std::unique_lock lock{mutex_};
        stopped_ = true;
        for (const entry& e : heap_) {
            if (!e.dead()) {
                e.owner->index_ = timer::idle;
                ++dropped_;
            }
        }
        heap_.clear();
        running_.await_all(lock);
        join_driver(lock);
    }

    /// Stops the driver, waits for a running callback and keeps what is pending. Not from inside a callback.
    void pause_for_fork() {
        if (lost()) {
            return;
        }
        std::unique_lock lock{mutex_};
        paused_ = true;
        join_driver(lock);
    }

    /// In parent and child, once each after pause_for_fork. In a child that was forked without a pause it does nothing,
    /// and arm keeps returning false.
    void resume() {
        if (lost()) {
            return;
        }
        const std::lock_guard lock{mutex_};
        fork_.adopt();
        paused_ = false;
        if (!stopped_ && !heap_.empty() && !driver_.joinable()) {
            start_driver();
        }
    }

    /// In a child that was forked without a pause: the figures at the fork. Lazy: linear in what is held, under the mutex.
    [[nodiscard]] timerbench::counters counters() const {
        std::unique_lock lock{mutex_, std::defer_lock};
        if (!lost()) {
            lock.lock();
        }
        return {.armed = armed_,
                .fired = fired_,
                .cancelled = cancelled_,
                .dropped = dropped_,
                .pending = live(),
                .threw = threw_};
    }

    [[nodiscard]] service_traits traits() const {
        return {.resolution = duration{1},
                .cancel_frees = !Options.lazy,
                .allocates = "nothing once the heap has grown to its high water mark",
                .fifo = true,
                .manual_clock = true,
                .drives_after_fork = true,
                .cancelled_held_to_deadline = Options.lazy};
    }

    /// Entries in the heap, those of cancelled timers included; 24 bytes each.
    [[nodiscard]] std::size_t held() const {
        const std::lock_guard lock{mutex_};
        return heap_.size();
    }

    /// Whether heap order holds and every timer in the heap knows its place. Linear, under the mutex; for tests.
    [[nodiscard]] bool check() const {
        const std::lock_guard lock{mutex_};
        for (std::size_t i = 0; i < heap_.size(); ++i) {
            if ((!heap_[i].dead() && heap_[i].owner->index_ != i) ||
                (i > 0 && before(heap_[i], heap_[parent(i)]))) {
                return false;
            }
        }
        return true;
    }

  private:
    struct entry {
        time_point deadline;
        std::uint64_t sequence = 0;
        timer* owner = nullptr; // lazy: null once cancelled

        [[nodiscard]] bool dead() const noexcept { return Options.lazy && owner == nullptr; }
    };

    // In a child that was forked while the driver ran, the mutex and the heap may be in any state: nothing touches them.
    // paused_ is read without the mutex, but only in a child, whose one thread is also the one that writes it.
    [[nodiscard]] bool lost() const noexcept { return fork_.in_child() && !paused_; }

    static constexpr std::size_t parent(std::size_t i) noexcept { return (i - 1) / 2; }

    static bool before(const entry& a, const entry& b) noexcept {
        return a.deadline != b.deadline ? a.deadline < b.deadline : a.sequence < b.sequence;
    }

    void place(std::size_t i, const entry& e) noexcept {
        heap_[i] = e;
        if (!e.dead()) {
            e.owner->index_ = i;
        }
    }

    // Puts `e` into the free place `i` or above it.
    void sift_up(std::size_t i, const entry& e) noexcept {
        while (i > 0 && before(e, heap_[parent(i)])) {
            place(i, heap_[parent(i)]);
            i = parent(i);
        }
        place(i, e);
    }

    // Puts `e` into the free place `i` or below it.
    void sift_down(std::size_t i, const entry& e) noexcept {
        for (std::size_t child = 2 * i + 1; child < heap_.size(); child = 2 * i + 1) {
            if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) {
                ++child;
            }
            if (!before(heap_[child], e)) {
                break;
            }
            place(i, heap_[child]);
            i = child;
        }
        place(i, e);
    }

    void remove_at(std::size_t i) noexcept {
        if (!heap_[i].dead()) {
            heap_[i].owner->index_ = timer::idle;
        }
        const entry last = heap_.back();
        heap_.pop_back();
        if (i == heap_.size()) {
            return;
        }
        if (i > 0 && before(last, heap_[parent(i)])) {
            sift_up(i, last);
        } else {
            sift_down(i, last);
        }
    }

    bool withdraw(timer& t) noexcept {
        if (t.index_ == timer::idle) {
            return false;
        }
        if constexpr (Options.lazy) {
            heap_[std::exchange(t.index_, timer::idle)].owner = nullptr;
        } else {
            remove_at(t.index_);
        }
        ++cancelled_;
        return true;
    }

    // The mutex is held.
    [[nodiscard]] std::size_t live() const noexcept {
        if constexpr (Options.lazy) {
            return static_cast<std::size_t>(
                std::count_if(heap_.begin(), heap_.end(), [](const entry& e) { return !e.dead(); }));
        } else {
            return heap_.size();
        }
    }

    void release(timer& t) {
        if (!detail::callback_scope::inside_own(&t) || lost()) {
            cancel(t);
            return;
        }
        {
            const std::lock_guard lock{mutex_};
            withdraw(t);
            running_.forget(&t);
        }
        detail::callback_scope::forget(&t);
    }

    // The mutex is held.
    void start_driver() {
        quit_ = false;
        sleeping_until_ = time_point::min();
        parker_.emplace(clock_);
        try {
            driver_ = detail::start_driver("tb_heap", [this] { drive(); });
        } catch (...) {
            parker_.reset();
            throw;
        }
    }

    // The lock is held before and after, and given up while the driver finishes.
    void join_driver(std::unique_lock<std::mutex>& lock) {
        if (!driver_.joinable()) {
            return;
        }
        quit_ = true;
        parker_->wake();
        std::thread driver = std::move(driver_);
        lock.unlock();
        driver.join();
        lock.lock();
        parker_.reset();
    }

    void drive() {
        std::unique_lock lock{mutex_};
        time_point now = clock_.now();
        while (!quit_) {
            if (!heap_.empty() && heap_.front().deadline <= now) {
                fire_first(lock);
                continue;
            }
            now = clock_.now();
            if (!heap_.empty() && heap_.front().deadline <= now) {
                continue;
            }
            sleeping_until_ = heap_.empty() ? time_point::max() : heap_.front().deadline;
            parker_->wait_until(lock, sleeping_until_);
            // Awake: whatever is armed now is seen before the next sleep.
            sleeping_until_ = time_point::min();
        }
    }

    void fire_first(std::unique_lock<std::mutex>& lock) {
        if (heap_.front().dead()) {
            remove_at(0);
            // A great many may come due at once; nobody waits for all of them.
            lock.unlock();
            lock.lock();
            return;
        }
        timer* const t = heap_.front().owner;
        const callback c = t->callback_;
        remove_at(0);
        ++fired_;
        typename detail::running_set<std::mutex>::record running;
        running_.begin(running, t);
        lock.unlock();
        bool threw = false;
        {
            const detail::callback_scope scope{identity_, t};
            threw = detail::run_guarded(c);
        }
        lock.lock();
        threw_ += threw ? 1 : 0;
        running_.end(running);
    }

    Clock& clock_;
    const void* const identity_;
    detail::fork_guard fork_;

    mutable std::mutex mutex_; // guards all below
    std::vector<entry> heap_;
    std::uint64_t next_sequence_ = 0;
    // The time the driver sleeps until, or an earlier one that it was woken for; the start of the time line while it is
    // awake or does not exist, so that an arm then wakes nobody.
    time_point sleeping_until_ = time_point::min();
    detail::running_set<std::mutex> running_;
    std::uint64_t armed_ = 0;
    std::uint64_t fired_ = 0;
    std::uint64_t cancelled_ = 0;
    std::uint64_t dropped_ = 0;
    std::uint64_t threw_ = 0;
    bool stopped_ = false;
    bool paused_ = false;
    bool quit_ = false;
    std::optional<typename Clock::parker> parker_; // exists as long as the driver
    std::thread driver_;
};

/// Removes on cancel.
template <class Clock>
using locked_heap = basic_locked_heap<Clock, locked_heap_options{}>;

/// Leaves what is cancelled until its deadline.
template <class Clock>
using lazy_locked_heap = basic_locked_heap<Clock, locked_heap_options{.lazy = true}>;

static_assert(timer_service<locked_heap<steady_time>> && forkable_service<locked_heap<steady_time>>);
static_assert(timer_service<lazy_locked_heap<steady_time>> &&
              forkable_service<lazy_locked_heap<steady_time>>);

} // namespace timerbench
