// The coarse 10 ms timeout of a well-known proxy, rebuilt with its faults: the positive control that shows whether the
// experiments and tests can see such faults. Not for use.
//
// How it works. Time is cut into slots of 10 ms, counted in whole milliseconds since the service was made. Each thread has
// an ordered map from slot to a shared slot {fired flag, waiters} behind a reader-writer lock; all timers that one thread
// arms for one slot share it. Only the owning thread inserts; one clock thread, started by the first arm, sleeps 10 ms
// from whenever it finished, then takes each map's write lock in turn, removes what is due, sets the flag and calls the
// waiters. Each round stores the whole second in a watchdog word; an arm that finds it two seconds behind starts a clock
// thread. Durations strictly above a threshold in whole seconds go to `locked_heap` instead.
//
// What it costs. An arm reads the clock twice (watchdog, deadline), takes the map's read lock, looks up the slot, counts a
// reference and links the timer under the shard's mutex; a new slot takes the write lock and two allocations (slot and map
// node). A cancel unlinks under the shard's mutex and gives the reference back.
//
// What is wrong with it, all kept on purpose and listed in the traits:
//   - the deadline is cut to whole milliseconds, so a callback may start up to 999 999 ns early;
//   - `arm` reads the slot's flag before it registers as a waiter. When the clock fires the slot in between, nobody
//     ever calls this waiter: the timer stays armed until it is cancelled or the service stops;
//   - while paused for a fork, everything that is armed fires at once, inside `arm`; so does a timer whose slot is
//     fired between its look-up and the reading of its flag;
//   - after a stall a second clock thread is started and the old one stays;
//   - waiters are called under the map's write lock, so a callback may not call the service, and a thread that arms
//     waits while callbacks of its own earlier timers run;
//   - a cancelled timer's slot stays in the map until its time: at most duration / 10 ms slots a thread, plus one.
//
// Where it departs from its source. There an arm costs two allocations, for the boxed futures around the timer; the
// interface here embeds the timer in the caller's storage and has none, and no allocation is faked in their place. There
// firing only wakes tasks; here it calls a function pointer, and `cancel` waits while that callback runs. The slots that
// have waiters are chained, so that pending timers can be counted and dropped. The service can be stopped.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/list.hpp"
#include "timers/detail/per_thread.hpp"
#include "timers/detail/running_set.hpp"
#include "timers/locked_heap.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace timerbench {

struct coarse_slot_faithful_options {
    /// Durations whose whole seconds exceed this go to the precise service; negative: none do.
    std::int64_t threshold_s = 15 * 60;
};

template <class Clock>
class coarse_slot_faithful {
    struct shard;
    struct slot;

  public:
    static constexpr duration slot_width = std::chrono::milliseconds{10};
    /// A clock thread whose watchdog word is this many whole seconds behind counts as dead: surely after a stall of that
    /// length, and at the earliest after one second less.
    static constexpr std::int64_t watchdog_s = 2;
    /// Name of the clock threads in /proc.
    static constexpr const char* thread_name = "coarse_faithful";

    class timer : public detail::list_link {
      public:
        explicit timer(coarse_slot_faithful& service) : service_{service}, precise_{service.precise_} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (home_ != nullptr ||
                long_) { // else never armed: a timeout whose operation was ready pays nothing here
                service_.cancel(*this);
            }
        }

      private:
        friend class coarse_slot_faithful;

        coarse_slot_faithful& service_;
        // Written by arm and cancel only, which the caller serialises. The clock thread copies `call_` before the
        // callback begins and reads nothing afterwards.
        shard* home_ = nullptr;
        std::shared_ptr<slot> slot_;
        callback call_;
        bool long_ = false; // armed in the precise service
        typename locked_heap<Clock>::timer precise_;
    };

    explicit coarse_slot_faithful(Clock& clock = steady(), coarse_slot_faithful_options options = {})
        : clock_{clock},
          options_{options},
          zero_{clock.now()},
          precise_{clock, {}, this} {}
    coarse_slot_faithful(const coarse_slot_faithful&) = delete;
    coarse_slot_faithful& operator=(const coarse_slot_faithful&) = delete;
    ~coarse_slot_faithful() { stop(); }

    /// Not from inside a callback of the service.
    bool arm(timer& t, duration d, callback c) {
        if (stopped_.load(std::memory_order_relaxed) || fork_.in_child()) {
            return false;
        }
        t.long_ = options_.threshold_s >= 0 &&
                  std::chrono::duration_cast<std::chrono::seconds>(d).count() > options_.threshold_s;
        if (t.long_) {
            return precise_.arm(t.precise_, d, c);
        }
        start_clock_if_silent();
        shard& home = shards_.local([] { return std::make_unique<shard>(); });
        t.home_ = &home;
        t.call_ = c;
        if (paused_.load()) {
            return fire_inline(home, t);
        }
        std::shared_ptr<slot> shared = subscribe(home, slot_ms(saturating_add(clock_.now(), d)));
        if (shared->fired.load()) {
            return fire_inline(home, t);
        }
        // A fire that happens here is missed: the flag has been read, and the waiter is not registered yet.
        if (window_ns_.load(std::memory_order_relaxed) > 0) {
            stay_in_window();
        }
        const std::lock_guard lock{home.waiters_mutex};
        if (stopped_.load(std::memory_order_relaxed)) {
            return false;
        }
        if (!shared->linked()) {
            home.occupied.push_back(*shared);
        }
        shared->waiters.push_back(t);
        t.slot_.swap(shared); // what it held since its last fire is given back after the lock
        ++home.totals.armed;
        return true;
    }

    /// Withdraws the waiter; its slot stays in the map until its time. Not from inside a callback of the service.
    bool cancel(timer& t) {
        if (t.long_) {
            return precise_.cancel(t.precise_);
        }
        if (t.home_ == nullptr) {
            return false;
        }
        shard& home = *t.home_;
        const bool inside = detail::callback_scope::inside(this);
        std::unique_lock lock{home.waiters_mutex};
        if (t.linked()) {
            t.unlink();
            leave_if_empty(*t.slot_);
            ++home.totals.cancelled;
            lock.unlock();
            t.slot_.reset();
            return true;
        }
        if (!inside && !fork_.in_child()) {
            home.running.await(lock, &t);
        }
        return false;
    }

    void stop() {
        stopped_.store(true, std::memory_order_relaxed);
        precise_.stop();
        const bool in_child = fork_.in_child();
        shards_.for_each([in_child](shard& s) {
            std::unique_lock lock{s.waiters_mutex};
            while (slot* occupied = s.occupied.front()) {
                occupied->unlink();
                for (detail::list<timer>* waiting : {&occupied->called, &occupied->waiters}) {
                    while (timer* t = waiting->front()) {
                        t->unlink();
                        ++s.totals.dropped;
                    }
                }
            }
            if (!in_child) {
                s.running.await_all(lock);
            }
        });
        if (in_child) {
            // Their threads do not exist here, and a condition variable with waiters cannot be destroyed.
            for (auto& record : clock_threads_) {
                (void)record.release();
            }
            clock_threads_.clear();
            return;
        }
        std::vector<std::unique_ptr<clock_thread>> ended;
        {
            const std::lock_guard lock{control_mutex_};
            ended.swap(clock_threads_);
            for (auto& record : ended) {
                record->stopping = true;
                record->parker.wake();
            }
        }
        for (auto& record : ended) {
            record->thread.join();
        }
    }

    [[nodiscard]] timerbench::counters counters() const {
        timerbench::counters sum = precise_.counters();
        shards_.for_each([&sum](shard& s) {
            const std::lock_guard lock{s.waiters_mutex};
            sum.armed += s.totals.armed;
            sum.fired += s.totals.fired;
            sum.cancelled += s.totals.cancelled;
            sum.dropped += s.totals.dropped;
            sum.threw += s.totals.threw;
            s.occupied.for_each([&sum](slot& o) { sum.pending += o.waiters.size() + o.called.size(); });
        });
        return sum;
    }

    [[nodiscard]] service_traits traits() const {
        using namespace std::chrono_literals;
        return {
            .resolution = slot_width,
            .earliest = -999'999ns,
            // Rounded up by at most 9 ms, since the fraction of a millisecond is gone, then one sleep of the clock.
            .latest = 19ms,
            .cancel_frees = false,
            .allocates = "nothing, but two blocks for the first timer of a slot (shared slot and map node)",
            .callback_may_call = false,
            .fifo = false,
            .manual_clock = true,
            .callbacks_overlap = true, // of a second clock thread, and of the precise service
            .threshold = options_.threshold_s < 0 ? duration{} : std::chrono::seconds{options_.threshold_s},
            .faults = faults,
        };
    }

    /// Keeps each arm for `d` between reading its slot's flag and registering as a waiter; zero closes the window and
    /// lets go whoever is in it. On a manual clock an arm stays until time has moved on by `d`.
    void hold_window(duration d) {
        const std::lock_guard lock{window_mutex_};
        window_ns_.store(std::max(d, duration::zero()).count(), std::memory_order_relaxed);
        if (d <= duration::zero()) {
            for (auto* parked : in_window_) {
                parked->wake();
            }
        }
    }

    /// How many arms are held in the window now.
    [[nodiscard]] std::size_t held_in_window() const {
        const std::lock_guard lock{window_mutex_};
        return in_window_.size();
    }

    /// Keeps the clock from taking locks, and waits two slots for it to let go of those it holds. The clock thread goes on.
    /// Until `unpause` every arm fires at once, inside `arm`. On a manual clock somebody else has to move time on.
    void pause_for_fork() {
        paused_.store(true);
        std::mutex mutex;
        std::unique_lock lock{mutex};
        typename Clock::parker parker{clock_};
        sleep_until(lock, parker, saturating_add(clock_.now(), 2 * slot_width), [] { return false; });
    }

    /// Named as in the source. In a forked child `arm` refuses all the same.
    void unpause() { paused_.store(false); }

    /// Slots in all maps, those of cancelled timers included. Waits while callbacks run.
    [[nodiscard]] std::size_t slots() const {
        std::size_t n = 0;
        shards_.for_each([&n](shard& s) {
            const std::shared_lock lock{s.map_mutex};
            n += s.map.size();
        });
        return n;
    }

  private:
    struct slot : detail::list_link {
        // Set by the clock thread, read by arming threads without a lock: that race is the fault this service keeps.
        std::atomic<bool> fired{false};
        // Guarded by the shard's waiters_mutex, as is the link into `occupied`.
        detail::list<timer> waiters;
        detail::list<timer> called; // taken off `waiters` by a fire whose turn has not come yet
    };

    // Lock order: map_mutex before waiters_mutex. The slots in `occupied` are kept alive by their waiters' references.
    struct shard {
        std::shared_mutex map_mutex;
        std::map<std::int64_t, std::shared_ptr<slot>> map; // by the slot's end in ms since zero_
        std::mutex waiters_mutex;
        // Guarded by waiters_mutex.
        detail::list<slot> occupied; // slots with at least one waiter, whether still in the map or not
        detail::running_set<std::mutex> running;
        timerbench::counters totals; // without `pending`
    };

    struct clock_thread {
        clock_thread(Clock& clock, time_point first) : parker{clock}, first_round{first} {}
        typename Clock::parker parker;
        time_point first_round;
        bool stopping = false; // guarded by control_mutex_
        std::thread thread;
    };

    static constexpr std::array<fault, 6> faults{{
        {1, "lost_wakeup",
         "A timer whose slot is fired between reading the slot's flag and registering never fires; it stays "
         "armed until "
         "cancelled or dropped."},
        {2, "early_by_truncation", "The deadline is cut to whole milliseconds: up to 999 999 ns early."},
        {2, "early_while_paused",
         "A timer armed between pause_for_fork and unpause fires at once, however long it is."},
        {4, "herd_under_lock",
         "Callbacks run under the write lock of the arming thread's map: they may not call the service, and "
         "arms of that "
         "thread wait for all of the slot's callbacks."},
        {6, "second_clock_thread",
         "After the clock has been silent for 2 s (whole seconds) the next arm adds a clock thread and the "
         "old one stays "
         "until stop: one more thread a stall."},
        {7, "inline_fire",
         "A timer armed while paused, or into a slot that is fired meanwhile, runs its callback inside arm."},
    }};

    [[nodiscard]] std::int64_t slot_ms(time_point deadline) const {
        // Cutting to whole milliseconds is what makes it early.
        const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - zero_);
        const std::int64_t width_ms =
            std::chrono::duration_cast<std::chrono::milliseconds>(slot_width).count();
        return (std::max<std::int64_t>(whole.count(), 0) + width_ms - 1) / width_ms * width_ms;
    }

    [[nodiscard]] std::int64_t whole_seconds() const {
        return std::chrono::duration_cast<std::chrono::seconds>(clock_.now() - zero_).count();
    }

    std::shared_ptr<slot> subscribe(shard& home, std::int64_t end_ms) {
        {
            const std::shared_lock lock{home.map_mutex};
            if (const auto found = home.map.find(end_ms); found != home.map.end()) {
                return found->second;
            }
        }
        // Nobody else inserts into this thread's map, so it is not looked up again.
        auto made = std::make_shared<slot>();
        const std::lock_guard lock{home.map_mutex};
        home.map.emplace(end_ms, made);
        return made;
    }

    bool fire_inline(shard& home, timer& t) {
        std::unique_lock lock{home.waiters_mutex};
        if (stopped_.load(std::memory_order_relaxed)) {
            return false;
        }
        ++home.totals.armed;
        run(home, lock, t);
        return true;
    }

    // Entered and left with waiters_mutex held; `t` is unlinked.
    void run(shard& home, std::unique_lock<std::mutex>& lock, timer& t) {
        typename detail::running_set<std::mutex>::record record;
        const callback call = t.call_;
        home.running.begin(record, &t);
        ++home.totals.fired;
        lock.unlock();
        bool threw = false;
        {
            const detail::callback_scope scope{this, &t};
            threw = detail::run_guarded(call);
        }
        lock.lock();
        home.totals.threw += threw ? 1 : 0;
        home.running.end(record);
    }

    static void leave_if_empty(slot& s) {
        if (s.waiters.empty() && s.called.empty()) {
            s.unlink();
        }
    }

    // Called with the write lock of the map held.
    void fire(shard& home, slot& due) {
        due.fired.store(true);
        std::unique_lock lock{home.waiters_mutex};
        // Who registers from here on is not called.
        due.called.splice_back(due.waiters);
        while (timer* t = due.called.front()) {
            t->unlink();
            leave_if_empty(due);
            run(home, lock, *t);
        }
    }

    void round() {
        const duration now = clock_.now() - zero_;
        watchdog_.store(std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                        std::memory_order_relaxed);
        if (paused_.load()) {
            return;
        }
        const std::int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
        shards_.for_each([this, now_ms](shard& s) {
            const std::lock_guard lock{s.map_mutex};
            while (!s.map.empty() && s.map.begin()->first <= now_ms) {
                const std::shared_ptr<slot> due = std::move(s.map.begin()->second);
                s.map.erase(s.map.begin());
                fire(s, *due);
            }
        });
    }

    void clock_loop(clock_thread& self) {
        time_point next = self.first_round;
        for (;;) {
            {
                std::unique_lock lock{control_mutex_};
                sleep_until(lock, self.parker, next, [&self] { return self.stopping; });
                if (self.stopping) {
                    return;
                }
            }
            round();
            next = saturating_add(clock_.now(), slot_width);
        }
    }

    void start_clock_if_silent() {
        const std::int64_t now_s = whole_seconds();
        std::int64_t seen = watchdog_.load();
        if (now_s < seen + watchdog_s || !watchdog_.compare_exchange_strong(seen, now_s)) {
            return;
        }
        const std::lock_guard lock{control_mutex_};
        if (stopped_.load(std::memory_order_relaxed)) {
            return;
        }
        auto made = std::make_unique<clock_thread>(clock_, saturating_add(clock_.now(), slot_width));
        clock_thread& record = *made;
        clock_threads_.push_back(std::move(made));
        record.thread = detail::start_driver(thread_name, [this, &record] { clock_loop(record); });
    }

    void stay_in_window() {
        typename Clock::parker parker{clock_};
        std::unique_lock lock{window_mutex_};
        const auto closed = [this] { return window_ns_.load(std::memory_order_relaxed) == 0; };
        const time_point until =
            saturating_add(clock_.now(), duration{window_ns_.load(std::memory_order_relaxed)});
        in_window_.push_back(&parker);
        sleep_until(lock, parker, until, closed);
        std::erase(in_window_, &parker);
    }

    template <class Ended>
    void sleep_until(std::unique_lock<std::mutex>& lock, typename Clock::parker& parker, time_point until,
                     Ended ended) {
        while (!ended() && clock_.now() < until) {
            parker.wait_until(lock, until);
        }
    }

    Clock& clock_;
    const coarse_slot_faithful_options options_;
    const time_point zero_;
    detail::fork_guard fork_;
    mutable detail::per_thread<shard> shards_;

    // Set once by stop, read by arm under its shard's waiters_mutex before it links: stop takes that mutex of every shard
    // after setting it, and a shard that stop does not find was made, under the lock of `shards_`, after the setting.
    std::atomic<bool> stopped_{false};
    // Set by whoever forks, read by arming threads and clock threads. Nothing is ordered by it: two slots of waiting are.
    std::atomic<bool> paused_{false};
    // Whole second of the clock's latest round, stored by clock threads. An arm that finds it behind moves it on by
    // compare-exchange, and whoever succeeds starts a clock thread.
    std::atomic<std::int64_t> watchdog_{-watchdog_s};
    // Written under window_mutex_; read without it by arm, which only asks whether to enter the window.
    std::atomic<std::int64_t> window_ns_{0};

    mutable std::mutex window_mutex_;
    std::vector<typename Clock::parker*> in_window_; // guarded by window_mutex_

    std::mutex control_mutex_;
    std::vector<std::unique_ptr<clock_thread>> clock_threads_; // guarded by control_mutex_

    locked_heap<Clock> precise_;
};

} // namespace timerbench
