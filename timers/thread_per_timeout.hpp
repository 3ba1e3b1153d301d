// A thread for each timeout that does nothing but sleep until it is due: what Ruby's Timeout did, with a thread started by
// every call and killed when the block was done first. The anti-pattern, here for its price tag.
//
// How it works
//   arm starts a thread that waits for the deadline and then runs the callback. cancel wakes it and waits until it is gone, as
//   Ruby's kill and join do; inside a callback, where cancel never waits, the thread is woken and left to end by itself.
//   A thread that ends joins those that ended before it, so that at most one that is done stays behind. The callbacks of one
//   timer never overlap: the thread of a timer that was armed anew by its callback waits for that callback to return.
// What it costs
//   arm: a thread, that is the system calls for it, 8 MiB of address space and at least a page or two of stack, and a block
//   of this service's own. cancel: two switches to a thread that wakes only to die. All of it again for the next timeout;
//   and while many wait, a thread each for the kernel to keep. Waiting itself costs nobody anything.
// What it is bad at
//   Everything but being simple. `most` bounds how many timers may be armed; an arm beyond returns false, as does one for which
//   the system gives no thread. The threads that are due at the same moment wake all at once and queue at the one mutex.
// Where it departs from its source
//   Ruby's thread raises an exception in the thread that it guards, wherever that is; a callback here runs beside it.
//   It takes the manual clock: registering a thread's parker with it is cheap next to the thread, and only on that
//   clock can it be tested to the nanosecond, since nothing orders the threads.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/abandon.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/list.hpp"
#include "timers/detail/running_set.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace timerbench {

struct thread_per_timeout_options {
    std::size_t most = 4'000; ///< Timers armed at the same time; at least 1.
};

/// Usable from any thread. `Clock` is a clock_source.
template <class Clock>
class thread_per_timeout {
    struct sleeper;

  public:
    class timer {
      public:
        explicit timer(thread_per_timeout& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (used_) {
                service_.release(*this);
            }
        }

      private:
        friend class thread_per_timeout;
        thread_per_timeout& service_;
        sleeper* sleeper_ =
            nullptr; // the one that is to fire it; null while idle; guarded by the service's mutex
        // Set by the first arm and never written again. Read by the destructor alone, without the mutex, so that a timer
        // that was never armed costs no lock: the caller orders the first arm before the destruction.
        bool used_ = false;
    };

    /// The clock outlives the service. Throws std::invalid_argument when no timer may be armed.
    explicit thread_per_timeout(Clock& clock = steady(), thread_per_timeout_options options = {})
        : clock_{clock},
          most_{options.most} {
        if (most_ == 0) {
            throw std::invalid_argument{"thread_per_timeout: most is 0; at least 1 is needed"};
        }
    }
    thread_per_timeout(const thread_per_timeout&) = delete;
    thread_per_timeout& operator=(const thread_per_timeout&) = delete;
    ~thread_per_timeout() { stop(); }

    /// Besides what every service promises: false when as many timers are armed as may be or the system gives no thread.
    /// Throws std::bad_alloc when there is no memory; nothing is armed then.
    bool arm(timer& t, duration d, callback c) {
        if (fork_.in_child()) {
            return false;
        }
        const time_point deadline = saturating_add(clock_.now(), std::max(d, duration::zero()));
        {
            const std::lock_guard lock{mutex_};
            if (refuses(t)) {
                return false;
            }
        }
        // The thread is started without the lock, which starting would hold for long, and waits until it is told what for.
        auto made = std::make_unique<sleeper>(clock_, deadline, c);
        try {
            made->thread = detail::start_driver("tb_timeout", [this, s = made.get()] { sleep(*s); });
        } catch (const std::system_error&) {
            return false;
        }
        std::unique_lock lock{mutex_};
        if (refuses(t)) { // by now
            made->stage = phase::withdrawn;
            made->wake();
            lock.unlock();
            made->thread.join();
            return false;
        }
        sleeper& s = *made.release();
        s.stage = phase::armed;
        s.owner = &t;
        s.on_its_own = true;
        if (s.due) {
            s.wake();
        }
        sleepers_.push_back(s);
        ++sleeping_;
        ++running_down_;
        t.sleeper_ = &s;
        if (!t.used_) { // only a first arm may write, see there
            t.used_ = true;
        }
        ++armed_;
        return true;
    }

    bool cancel(timer& t) { return withdraw(t, false); }

    void stop() {
        if (fork_.in_child()) {
            // The threads do not exist; what they were made of is leaked.
            detail::abandon(running_);
            detail::abandon(all_done_);
            return;
        }
        std::unique_lock lock{mutex_};
        stopped_ = true;
        while (sleeper* const s = sleepers_.front()) {
            take(*s);
            s->wake();
            ++dropped_;
        }
        running_.await_all(lock);
        all_done_.wait(lock, [this] { return running_down_ == 0; });
        reap(lock);
    }

    /// Linear in what is pending, under the mutex. In a forked child: the figures at the fork, with what was pending given as
    /// the difference.
    [[nodiscard]] timerbench::counters counters() const {
        std::unique_lock lock{mutex_, std::defer_lock};
        timerbench::counters c;
        if (!fork_.in_child()) {
            lock.lock();
            c.pending = sleepers_.size();
        } else {
            c.pending = armed_ - fired_ - cancelled_ - dropped_;
        }
        c.armed = armed_;
        c.fired = fired_;
        c.cancelled = cancelled_;
        c.dropped = dropped_;
        c.threw = threw_;
        return c;
    }

    [[nodiscard]] service_traits traits() const {
        return {.resolution = duration{1},
                .allocates = "a thread and a block for it",
                .manual_clock = true,
                .most_timers = most_,
                .callbacks_overlap = true,
                .several_drivers = true};
    }

  private:
    using parker = typename Clock::parker;

    enum class phase {
        starting, // not yet told whether its timer could be armed
        armed,
        withdrawn, // has nothing more to do
    };

    // A thread and what it waits for. All guarded by the service's mutex but what is constant. The block is deleted by whoever
    // joins the thread.
    struct sleeper : detail::list_link { // linked while armed, then among the finished
        sleeper(Clock& clock, time_point when, callback what) : deadline{when}, action{what} {
            waits_on.emplace(clock);
        }

        void wake() { waits_on->wake(); }

        const time_point deadline;
        const callback action;
        timer* owner = nullptr;
        phase stage = phase::starting;
        bool due = false;        // the deadline has passed, and it waits to be told that it may fire
        bool on_its_own = false; // nobody waits to join it: it goes to the finished
        std::optional<parker>
            waits_on; // from before the thread starts, so that a clock knows of it; until the thread is done
        std::thread thread; // written by arm before the sleeper is linked, afterwards only by who joins it
    };

    // The mutex is held.
    [[nodiscard]] bool refuses(const timer& t) const noexcept {
        return stopped_ || sleeping_ >= most_ || running_.bars(&t);
    }

    // The mutex is held; `s` is armed.
    void take(sleeper& s) noexcept {
        s.unlink();
        --sleeping_;
        s.owner->sleeper_ = nullptr;
        s.owner = nullptr;
        s.stage = phase::withdrawn;
    }

    void release(timer& t) { withdraw(t, true); }

    bool withdraw(timer& t, bool destroying) {
        if (fork_.in_child()) {
            return std::exchange(t.sleeper_, nullptr) != nullptr;
        }
        std::unique_lock lock{mutex_};
        sleeper* const s = t.sleeper_;
        const bool inside = detail::callback_scope::inside(this);
        if (s != nullptr) {
            take(*s);
            ++cancelled_;
            s->on_its_own = inside;
            s->wake();
            running_down_ -= inside ? 0 : 1;
        }
        if (!running_.empty()) {
            if (!inside) {
                running_.await(lock, &t);
            } else if (destroying && detail::callback_scope::inside_own(&t)) {
                running_.forget(&t);
            }
        }
        lock.unlock();
        if (destroying) {
            detail::callback_scope::forget(&t);
        }
        if (s != nullptr && !inside) {
            s->thread.join();
            delete s;
        }
        return s != nullptr;
    }

    // The thread's life.
    void sleep(sleeper& s) {
        std::unique_lock lock{mutex_};
        while (s.stage != phase::withdrawn) {
            if (!s.due && clock_.now() >= s.deadline) {
                s.due = true;
            }
            if (!s.due) {
                s.waits_on->wait_until(lock, s.deadline);
            } else if (s.stage == phase::starting || running_.running(s.owner)) {
                s.waits_on->wait_until(lock, time_point::max());
            } else {
                fire(lock, s);
            }
        }
        if (!s.on_its_own) {
            // Who waits to join it deletes it.
            s.waits_on.reset();
            return;
        }
        detail::list<sleeper> before;
        before.splice_back(finished_);
        lock.unlock();
        join(before);
        // The clock is told last: nothing is left to be done that anybody could be waiting for.
        s.waits_on.reset();
        lock.lock();
        finished_.push_back(s);
        if (--running_down_ == 0) {
            all_done_.notify_all();
        }
    }

    // The lock is held before and after, but not while the callback runs.
    void fire(std::unique_lock<std::mutex>& lock, sleeper& s) {
        timer* const t = s.owner;
        take(s);
        ++fired_;
        typename detail::running_set<std::mutex>::record running;
        running_.begin(running, t);
        lock.unlock();
        bool threw = false;
        {
            const detail::callback_scope scope{this, t};
            threw = detail::run_guarded(s.action);
        }
        lock.lock();
        threw_ += threw ? 1 : 0;
        running_.end(running);
        // Unless the callback destroyed it, the timer is there as long as the lock is held.
        if (running.timer != nullptr && t->sleeper_ != nullptr && t->sleeper_->due) {
            t->sleeper_->wake();
        }
    }

    // The lock is held before and after.
    void reap(std::unique_lock<std::mutex>& lock) {
        detail::list<sleeper> done;
        done.splice_back(finished_);
        lock.unlock();
        join(done);
        lock.lock();
    }

    static void join(detail::list<sleeper>& done) {
        while (sleeper* const s = done.front()) {
            s->unlink();
            s->thread.join();
            delete s;
        }
    }

    Clock& clock_;
    const std::size_t most_;
    detail::fork_guard fork_;

    mutable std::mutex mutex_;       // guards all below
    detail::list<sleeper> sleepers_; // armed
    detail::list<sleeper> finished_; // their threads are done but for leaving, and are to be joined
    std::size_t sleeping_ = 0;       // length of the first, for the limit
    std::size_t running_down_ = 0;   // threads that are armed, fire or end, and that nobody waits to join
    detail::running_set<std::mutex> running_;
    std::condition_variable all_done_; // nothing runs down any more
    std::uint64_t armed_ = 0;
    std::uint64_t fired_ = 0;
    std::uint64_t cancelled_ = 0;
    std::uint64_t dropped_ = 0;
    std::uint64_t threw_ = 0;
    bool stopped_ = false;
};

static_assert(timer_service<thread_per_timeout<steady_time>>);

} // namespace timerbench
