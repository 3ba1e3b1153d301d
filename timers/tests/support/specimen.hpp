// A small timer service with a defect that can be chosen: the proof that the conformance tests see what they are for.
//
// Without a defect it is one ordered map behind one mutex and one or two driver threads, meets the whole contract, and is
// run through every test like the services of the list. Two drivers make it the one service on which two callbacks
// really run at the same time. Each defect is one that timer libraries had in the field.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/running_set.hpp"
#include "timers/service.hpp"

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace timerbench::testing {

enum class defect {
    none,
    cuts_to_milliseconds, // early by up to 1 ms
    always_one_step_more, // an exact deadline costs a step that it need not
    span_wraps,           // a delay above 512 ms fires early
    old_age,              // a service older than a year never fires again
    period_grows,         // a re-arm inside the callback takes longer each time
    overflows,            // the sum of clock and duration wraps
    negative_late,        // a negative duration goes to a slot of the future
    fires_inline,         // a zero duration runs inside `arm`
    fires_twice,
    missed_wakeup,            // a shorter timer does not end the wait for a longer one
    overdue_lost,             // what is late by more than a second is not fired at all
    zero_starves,             // a zero re-arm overtakes whatever is due
    newest_first,             // equal deadlines fire in reverse
    batch_ignores_cancel,     // a cancel of what is due already returns true, and it fires all the same
    cancel_leaves_wakeup,     // the next timer fires at the time of the cancelled one
    cancel_leaves_entry,      // an old expiry reaches the next wait
    cancel_does_not_wait,     // returns while the callback still runs
    cancel_waits_in_callback, // two callbacks that cancel each other never return
    cancel_keeps_memory,
    rearm_beats_cancel,  // the callback's own arm succeeds although a foreign cancel waits
    pending_miscounted,  // a cancel beside a running callback is subtracted twice
    destroy_keeps_entry, // a destroyed timer fires
    touches_destroyed,   // writes to a timer after its callback
    callback_under_lock,
    throw_loses_batch, // an exception takes the timers of the same pass with it
    throw_not_counted,
    stop_fires,
    stop_does_not_wait,
    arms_after_stop,
    arms_in_child,          // claims to have armed where no driver exists
    forgets_exited_threads, // what an exited thread armed is lost
    waits_on_wall_clock,
    hides_a_driver, // two callbacks at a time, and the traits do not say so
    count_,
};

template <class>
struct defect_range;
template <int... I>
struct defect_range<std::integer_sequence<int, I...>> {
    using type = std::integer_sequence<defect, static_cast<defect>(I + 1)...>;
};
/// All but `none`.
using every_defect =
    defect_range<std::make_integer_sequence<int, static_cast<int>(defect::count_) - 1>>::type;

[[nodiscard]] constexpr std::string_view name_of(defect d) noexcept {
    constexpr std::array<std::string_view, static_cast<std::size_t>(defect::count_)> names{
        "specimen",
        "specimen/cuts_to_milliseconds",
        "specimen/always_one_step_more",
        "specimen/span_wraps",
        "specimen/old_age",
        "specimen/period_grows",
        "specimen/overflows",
        "specimen/negative_late",
        "specimen/fires_inline",
        "specimen/fires_twice",
        "specimen/missed_wakeup",
        "specimen/overdue_lost",
        "specimen/zero_starves",
        "specimen/newest_first",
        "specimen/batch_ignores_cancel",
        "specimen/cancel_leaves_wakeup",
        "specimen/cancel_leaves_entry",
        "specimen/cancel_does_not_wait",
        "specimen/cancel_waits_in_callback",
        "specimen/cancel_keeps_memory",
        "specimen/rearm_beats_cancel",
        "specimen/pending_miscounted",
        "specimen/destroy_keeps_entry",
        "specimen/touches_destroyed",
        "specimen/callback_under_lock",
        "specimen/throw_loses_batch",
        "specimen/throw_not_counted",
        "specimen/stop_fires",
        "specimen/stop_does_not_wait",
        "specimen/arms_after_stop",
        "specimen/arms_in_child",
        "specimen/forgets_exited_threads",
        "specimen/waits_on_wall_clock",
        "specimen/hides_a_driver",
    };
    return names[static_cast<std::size_t>(d)];
}

/// Some defects need two callbacks at the same time to show.
[[nodiscard]] constexpr int drivers_of(defect d) noexcept {
    return d == defect::cancel_waits_in_callback || d == defect::hides_a_driver ? 2 : 1;
}

template <class Clock>
class specimen {
    // Two entries with the same deadline are told apart by the number of their arm.
    using key = std::pair<time_point, std::uint64_t>;

  public:
    class timer {
      public:
        explicit timer(specimen& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { service_.withdraw(*this, true); }

      private:
        friend specimen;
        specimen& service_;
        // Guarded by the service's mutex.
        bool armed_ = false;
        key place_{};
    };

    specimen(Clock& clock, defect what, int drivers)
        : shared_{std::make_shared<state>(clock, what)},
          drivers_{drivers} {
        for (int i = 0; i < drivers; ++i) {
            shared_->parkers.emplace_back(clock);
        }
        for (int i = 0; i < drivers; ++i) {
            threads_.push_back(std::make_unique<std::thread>(
                [s = shared_, &parker = shared_->parkers[static_cast<std::size_t>(i)]] {
                    drive(*s, parker);
                }));
        }
    }
    specimen(const specimen&) = delete;
    specimen& operator=(const specimen&) = delete;
    ~specimen() {
        stop();
        if (forked_.in_child()) {
            // A thread that is not there can neither be joined nor can what it waits on be destroyed.
            for (auto& thread : threads_) {
                (void)thread.release();
            }
            (void)new std::shared_ptr<state>{shared_};
        }
    }

    [[nodiscard]] bool arm(timer& t, duration d, callback c) {
        if (forked_.in_child()) {
            return is(defect::arms_in_child);
        }
        std::unique_lock lock{shared_->mutex};
        state& s = *shared_;
        if (s.stopped && !is(defect::arms_after_stop)) {
            return false;
        }
        const bool own = detail::callback_scope::inside_own(&t);
        if (s.running.bars(&t) && !is(defect::rearm_beats_cancel)) {
            return false;
        }
        ++s.totals.armed;
        if (is(defect::fires_inline) && d <= duration::zero()) {
            ++s.totals.fired;
            lock.unlock();
            c.run(c.context);
            return true;
        }
        t.place_ = {deadline_of(d, own), is(defect::newest_first) ? ~s.arms++ : s.arms++};
        t.armed_ = true;
        const bool first = s.queue.empty() || t.place_ < s.queue.begin()->first;
        const bool was_empty = s.queue.empty();
        s.queue.emplace(t.place_, entry{&t, c, is(defect::forgets_exited_threads) ? this_thread() : nullptr});
        if (first && (was_empty || !is(defect::missed_wakeup))) {
            s.wake();
        }
        return true;
    }

    bool cancel(timer& t) { return withdraw(t, false); }

    void stop() {
        if (forked_.in_child()) {
            return;
        }
        std::unique_lock lock{shared_->mutex};
        state& s = *shared_;
        s.stopped = true;
        std::vector<callback> pending;
        for (auto& [place, e] : s.queue) {
            if (e.owner != nullptr) {
                e.owner->armed_ = false;
            }
            pending.push_back(e.what);
        }
        s.totals.dropped += s.queue.size();
        s.queue.clear();
        s.wake();
        lock.unlock();
        for (auto& thread : threads_) {
            if (!thread->joinable()) {
                continue;
            }
            if (is(defect::stop_does_not_wait)) {
                thread->detach();
            } else {
                thread->join();
            }
        }
        if (is(defect::stop_fires)) {
            for (const callback& c : pending) {
                c.run(c.context);
            }
        }
    }

    [[nodiscard]] timerbench::counters counters() const {
        const std::lock_guard lock{shared_->mutex};
        timerbench::counters totals = shared_->totals;
        totals.pending = shared_->queue.size() - shared_->miscounted;
        return totals;
    }

    [[nodiscard]] service_traits traits() const {
        service_traits t;
        t.resolution = duration{1};
        t.allocates = "a node of a map";
        t.fifo = drivers_ == 1;
        t.manual_clock = Clock::is_manual;
        t.several_drivers = drivers_ > 1 && shared_->what != defect::hides_a_driver;
        t.callbacks_overlap = t.several_drivers;
        return t;
    }

  private:
    struct entry {
        timer* owner;
        callback what;
        std::shared_ptr<std::weak_ptr<int>> armed_by;
    };

    struct state {
        state(Clock& c, defect d) : clock{c}, what{d}, born{c.now()} {}

        void wake() {
            for (auto& parker : parkers) {
                parker.wake();
            }
            wall_wakeup.notify_all();
        }

        Clock& clock;
        const defect what;
        const time_point born;
        std::mutex mutex;
        std::deque<typename Clock::parker> parkers;
        std::condition_variable wall_wakeup;
        // Guarded by mutex, as is all that follows.
        std::map<key, entry> queue;
        detail::running_set<std::mutex> running;
        timerbench::counters totals;
        std::uint64_t arms = 0;
        std::uint64_t miscounted = 0;
        time_point left_wakeup = time_point::max();
        duration growth{};
        std::vector<std::array<char, 128>> kept;
        bool stopped = false;
    };

    [[nodiscard]] bool is(defect d) const noexcept { return shared_->what == d; }

    static std::shared_ptr<std::weak_ptr<int>> this_thread() {
        thread_local const std::shared_ptr<int> alive = std::make_shared<int>(0);
        return std::make_shared<std::weak_ptr<int>>(alive);
    }

    time_point deadline_of(duration d, bool own) {
        state& s = *shared_;
        const time_point now = s.clock.now();
        switch (s.what) {
        case defect::cuts_to_milliseconds:
            return time_point{
                std::chrono::floor<std::chrono::milliseconds>(saturating_add(now, d).time_since_epoch())};
        case defect::always_one_step_more:
            return saturating_add(saturating_add(now, d), std::chrono::milliseconds{1});
        case defect::span_wraps:
            return d == duration::max() ? time_point::max() : now + d % std::chrono::milliseconds{512};
        case defect::old_age:
            return now - s.born > std::chrono::hours{24 * 365} ? time_point::max() : saturating_add(now, d);
        case defect::period_grows:
            if (own) {
                s.growth += d / 20;
            }
            return saturating_add(saturating_add(now, d), own ? s.growth : duration::zero());
        case defect::overflows:
            return time_point{duration{
                static_cast<duration::rep>(static_cast<std::uint64_t>(now.time_since_epoch().count()) +
                                           static_cast<std::uint64_t>(d.count()))}};
        case defect::negative_late:
            return d < duration::zero() ? now + std::chrono::seconds{10} : saturating_add(now, d);
        case defect::zero_starves:
            return own && d == duration::zero() ? time_point::min() : saturating_add(now, d);
        default:
            return saturating_add(now, d);
        }
    }

    bool withdraw(timer& t, bool destroying) {
        if (forked_.in_child()) {
            return false;
        }
        std::unique_lock lock{shared_->mutex};
        state& s = *shared_;
        bool withdrew = false;
        const auto at = t.armed_ ? s.queue.find(t.place_) : s.queue.end();
        if (at != s.queue.end()) {
            if (destroying && is(defect::destroy_keeps_entry)) {
                at->second.owner = nullptr;
                return true;
            }
            if (!destroying && is(defect::cancel_leaves_entry)) {
                at->second.owner = nullptr;
            } else {
                if (is(defect::cancel_leaves_wakeup) && at == s.queue.begin()) {
                    s.left_wakeup = at->first.first;
                }
                s.queue.erase(at);
            }
            withdrew = true;
        } else if (t.armed_) {
            withdrew = true; // taken into a batch already, see drive
        }
        t.armed_ = false;
        if (withdrew) {
            ++s.totals.cancelled;
            if (is(defect::pending_miscounted) && !s.running.empty()) {
                ++s.miscounted;
            }
            if (is(defect::cancel_keeps_memory)) {
                s.kept.emplace_back().fill(1);
            }
        }
        if (detail::callback_scope::inside(shared_.get())) {
            if (destroying) {
                if (detail::callback_scope::inside_own(&t)) {
                    s.running.forget(&t);
                    detail::callback_scope::forget(&t);
                }
            } else if (is(defect::cancel_waits_in_callback) && !detail::callback_scope::inside_own(&t)) {
                s.running.await(lock, &t);
            }
        } else if (!is(defect::cancel_does_not_wait)) {
            s.running.await(lock, &t);
        }
        return withdrew;
    }

    static void run(state& s, std::unique_lock<std::mutex>& lock, const entry& e) {
        ++s.totals.fired;
        if (e.owner != nullptr) {
            e.owner->armed_ = false;
        }
        typename detail::running_set<std::mutex>::record record;
        s.running.begin(record, e.owner);
        bool threw = false;
        {
            const detail::callback_scope scope{&s, e.owner};
            if (s.what != defect::callback_under_lock) {
                lock.unlock();
            }
            threw = detail::run_guarded(e.what);
            if (s.what == defect::fires_twice) {
                detail::run_guarded(e.what);
            }
            if (s.what != defect::callback_under_lock) {
                lock.lock();
            }
        }
        s.running.end(record);
        if (s.what == defect::touches_destroyed && e.owner != nullptr) {
            e.owner->armed_ = false;
        }
        if (threw) {
            s.totals.threw += s.what == defect::throw_not_counted ? 0 : 1;
            if (s.what == defect::throw_loses_batch) {
                while (!s.queue.empty() && s.queue.begin()->first.first <= s.clock.now()) {
                    s.queue.begin()->second.owner->armed_ = false;
                    s.queue.erase(s.queue.begin());
                }
            }
        }
    }

    static void wait(state& s, std::unique_lock<std::mutex>& lock, typename Clock::parker& parker,
                     time_point until) {
        if (s.what == defect::waits_on_wall_clock && !Clock::is_manual && until != time_point::max()) {
            s.wall_wakeup.wait_until(lock, std::chrono::system_clock::now() + (until - s.clock.now()));
        } else {
            parker.wait_until(lock, until);
        }
    }

    static void drive(state& s, typename Clock::parker& parker) {
        std::unique_lock lock{s.mutex};
        while (!s.stopped) {
            if (s.queue.empty()) {
                wait(s, lock, parker, time_point::max());
                continue;
            }
            const time_point now = s.clock.now();
            const time_point until = std::min(s.queue.begin()->first.first, s.left_wakeup);
            if (until > now) {
                wait(s, lock, parker, until);
                continue;
            }
            s.left_wakeup = time_point::max();
            std::vector<entry> batch;
            do {
                batch.push_back(s.queue.begin()->second);
                s.queue.erase(s.queue.begin());
            } while (s.what == defect::batch_ignores_cancel && !s.queue.empty() &&
                     s.queue.begin()->first.first <= now);
            for (const entry& e : batch) {
                if ((s.what == defect::overdue_lost && now - until > std::chrono::seconds{1}) ||
                    (e.armed_by != nullptr && e.armed_by->expired())) {
                    e.owner->armed_ = false;
                    continue;
                }
                run(s, lock, e);
            }
        }
    }

    std::shared_ptr<state> shared_;
    const int drivers_;
    detail::fork_guard forked_;
    std::vector<std::unique_ptr<std::thread>> threads_;
};

} // namespace timerbench::testing
