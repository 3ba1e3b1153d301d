// The coarse timeout of a proxy: deadlines are rounded up to a slot of 10 ms, and one clock thread serves the slots.
//
// How it works. Every thread has an ordered map from slot number to a shared slot; all timers of one thread and
// slot hang in that slot's list. `arm` reads the clock once, finds the slot of the rounded deadline and links the timer.
// `cancel` unlinks it. The clock thread wakes at every slot boundary, takes what is due out of each map, and runs the callbacks
// one by one without holding any lock. Because a steady stream of timeouts hits the same few slots, a direct-mapped index in
// front of the map (slot numbers are consecutive integers) answers nearly every look-up without walking the tree.
//
// What it costs. A pair of arm and cancel is one clock reading, two uncontended lock pairs, one indexed load and a link and
// unlink, whatever the population. No allocation in the steady state: emptied slots are kept for reuse. The clock
// thread wakes 100 times a second once anything was ever armed.
//
// What it is bad at. A callback starts up to one slot after its deadline. A slot stays in its map until its time even when all
// its timers were cancelled: at most duration / 10 ms slots for each thread, about 80 bytes each. One slow callback
// delays all that are due behind it. A process that forks without `pause_for_fork` while the clock thread holds the lock of a map, which is
// microseconds in each slot, has a child in which destroying a timer of that map waits for ever.
//
// Source and departures. The design is that of pingora-timeout 0.9 (Rust). Kept: the per-thread ordered map, the shared slots,
// the single clock thread, the watchdog (a clock thread silent for more than 2 whole seconds is replaced by the next arm),
// the threshold (durations strictly above 15 min, in whole seconds, go to a precise service that frees on cancel), and
// slots that outlive their cancelled timers. Changed, because the original is wrong there by its own contract:
//  - The deadline is rounded up from nanoseconds, never truncated to milliseconds first: nothing fires early.
//  - A timer is in its slot's list before `arm` gives the lock back, so no wake-up falls between a flag and a registration.
//  - The clock sleeps to the next slot boundary instead of 10 ms from whenever it finished: one slot late, not two.
//  - Nothing is run under a lock; expired timers wait in a list from which cancel can still withdraw them.
//  - Takeover is by epoch: a replaced clock thread notices before it touches a map, so there is only ever one.
//  - `pause_for_fork` ends the clock thread rather than waiting two slots, and what is armed meanwhile is kept.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/abandon.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/firing.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/list.hpp"
#include "timers/detail/per_thread.hpp"
#include "timers/detail/spin_lock.hpp"
#include "timers/detail/tick_length.hpp"
#include "timers/locked_heap.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace timerbench {

struct coarse_slot_options {
    std::int64_t slot_ns = 10'000'000; ///< At least 1 000.
    /// Durations whose whole seconds are strictly above this go to the precise service; negative: none do.
    std::int64_t threshold_s = 15 * 60;
};

/// `Identity` only makes distinct types of one and the same code, see `twin`.
template <class Clock, class Identity = void>
class basic_coarse_slot {
    struct shard;
    using precise_timer = typename locked_heap<Clock>::timer;

  public:
    /// A clock thread silent for more than this many whole seconds is replaced.
    static constexpr std::int64_t watchdog_s = 2;

    /// One cache line; the handle of the precise service is made when a duration first asks for it.
    class alignas(64) timer : private detail::list_link {
      public:
        explicit timer(basic_coarse_slot& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (home_.load(std::memory_order_relaxed) == nullptr &&
                precise_.load(std::memory_order_relaxed) == nullptr) {
                return; // never armed: a timeout whose operation was ready pays nothing here
            }
            service_.cancel(*this);
            detail::callback_scope::forget(this);
            delete precise_.load(std::memory_order_relaxed);
        }

      private:
        friend class basic_coarse_slot;
        friend class detail::list<timer>;

        basic_coarse_slot& service_;
        callback callback_; // guarded by the lock of home_, as are the links
        // The shard whose lock guards the links and the callback. Written by `arm` while the timer is idle. Atomic because a
        // foreign cancel may read it while a callback of the precise service arms the timer for the first time in a
        // shard; that cancel waits for the callback and then reads it again.
        std::atomic<shard*> home_{nullptr};
        detail::firing_state firing_;
        // The handle of the precise service, owned; null until the first long duration. Written and read as home_ is.
        std::atomic<precise_timer*> precise_{nullptr};
    };

    /// Throws std::invalid_argument for a slot below 1 us.
    explicit basic_coarse_slot(Clock& clock, coarse_slot_options options = {})
        : clock_{clock},
          options_{checked(options)},
          zero_{clock.now()},
          slot_{duration{options.slot_ns}},
          precise_{clock, {}, this} {}
    basic_coarse_slot(const basic_coarse_slot&) = delete;
    basic_coarse_slot& operator=(const basic_coarse_slot&) = delete;
    ~basic_coarse_slot() { stop(); }

    [[nodiscard]] service_traits traits() const noexcept {
        return {
            .resolution = duration{options_.slot_ns},
            .latest = duration{options_.slot_ns},
            .cancel_frees = false,
            .allocates =
                "nothing in the steady state; the first duration above the threshold makes a handle once",
            .manual_clock = true,
            .drives_after_fork = true,
            // The thread that replaces a stalled one does not wait for its callback, nor does the precise service.
            .callbacks_overlap = true,
            .threshold = options_.threshold_s < 0 ? duration{} : std::chrono::seconds{options_.threshold_s}};
    }

    /// Any thread.
    bool arm(timer& t, duration d, callback c) {
        if (t.firing_.cancel_begun.load(std::memory_order_acquire)) {
            return false;
        }
        if (is_long(d)) {
            return arm_precise(t, d, c);
        }
        const time_point now = clock_.now();
        if (now.time_since_epoch().count() >= stale_at_.load(std::memory_order_relaxed) &&
            !ensure_clock_thread(now)) {
            return false;
        }
        if (guard_.in_child()) {
            return false;
        }
        const auto key =
            static_cast<std::int64_t>(slot_.covering(std::max(saturating_add(now, d) - zero_, duration{})));
        // A timer that its own callback may be re-arming stays in the shard it was in: the lock that guards it must not
        // change under the eyes of a foreign cancel.
        shard* s = nullptr;
        if (t.firing_.is_running() || t.precise_.load(std::memory_order_relaxed) != nullptr) {
            s = t.home_.load(std::memory_order_relaxed);
        }
        if (s == nullptr) {
            s = &shards_.local([this] { return std::make_unique<shard>(stopping_); });
        }
        const std::lock_guard lock{s->lock};
        if (s->closed) {
            return false;
        }
        t.callback_ = c;
        t.home_.store(s, std::memory_order_release);
        s->slots.at(key).push_back(t);
        ++s->totals.armed;
        return true;
    }

    /// Any thread.
    bool cancel(timer& t) {
        const bool withdrawn = withdraw(t);
        const bool maybe_precise = t.precise_.load(std::memory_order_acquire) != nullptr;
        if (!t.firing_.is_running() && !maybe_precise) [[likely]] {
            return withdrawn;
        }
        return cancel_slowly(t) || withdrawn;
    }

    /// From outside callbacks; idempotent. In a forked child that was not resumed it only lets go of what it inherited.
    void stop() {
        if (guard_.in_child()) {
            detail::abandon(drivers_);
            return;
        }
        {
            const std::lock_guard lock{clock_mutex_};
            stopping_.store(true, std::memory_order_release);
            stale_at_.store(always_stale, std::memory_order_relaxed);
        }
        join_drivers();
        shards_.for_each([](shard& s) {
            const std::lock_guard lock{s.lock};
            s.closed = true;
            s.slots.expire(INT64_MAX, s.due);
            while (timer* t = s.due.front()) {
                t->unlink();
                ++s.totals.dropped;
            }
        });
        precise_.stop();
    }

    /// Counts what is pending by walking the slots; each shard is locked meanwhile.
    [[nodiscard]] timerbench::counters counters() const {
        timerbench::counters sum = precise_.counters();
        shards_.for_each([&sum](shard& s) {
            const std::lock_guard lock{s.lock};
            sum.armed += s.totals.armed;
            sum.fired += s.totals.fired;
            sum.cancelled += s.totals.cancelled;
            sum.dropped += s.totals.dropped;
            sum.threw += s.totals.threw;
            sum.pending += s.due.size() + s.slots.count_timers();
        });
        return sum;
    }

    /// Slots that exist now in all threads, those included whose timers were all cancelled.
    [[nodiscard]] std::size_t slots() const {
        std::size_t n = 0;
        shards_.for_each([&n](shard& s) {
            const std::lock_guard lock{s.lock};
            n += s.slots.size();
        });
        return n;
    }

    /// Ends every thread of the service; what is armed from now on is kept. Other threads must not call the service between
    /// this and the fork, or the child inherits a lock that nobody gives back.
    void pause_for_fork() {
        {
            const std::lock_guard lock{clock_mutex_};
            paused_ = true;
            stale_at_.store(never_stale, std::memory_order_relaxed);
        }
        join_drivers();
        precise_.pause_for_fork();
    }

    /// In the parent and in the child.
    void resume() {
        guard_.adopt();
        {
            const std::lock_guard lock{clock_mutex_};
            paused_ = false;
            if (ever_started_ && !stopping_) {
                start_clock_thread(clock_.now());
            }
        }
        precise_.resume();
    }

  private:
    // All timers of one thread and slot.
    using slot = detail::list<timer>;

    // The ordered map from slot number to shared slot, with the index in front. Guarded by the shard's lock.
    class slot_map {
      public:
        [[nodiscard]] slot& at(std::int64_t key) {
            entry& e = index_[static_cast<std::size_t>(key) & (index_.size() - 1)];
            if (e.at != nullptr && e.key == key) [[likely]] {
                return *e.at;
            }
            return find_or_make(key);
        }

        [[nodiscard]] std::size_t size() const noexcept { return map_.size(); }

        // Appends the timers of all slots up to `last` to `due`, in slot order, and keeps the emptied slots for reuse.
        void expire(std::int64_t last, slot& due) {
            while (!map_.empty() && map_.begin()->first <= last) {
                auto node = map_.extract(map_.begin());
                due.splice_back(node.mapped());
                entry& e = index_[static_cast<std::size_t>(node.key()) & (index_.size() - 1)];
                if (e.at == &node.mapped()) {
                    e = {};
                }
                if (spare_.size() < most_spare) {
                    spare_.push_back(std::move(node));
                }
            }
        }

        [[nodiscard]] std::size_t count_timers() const {
            std::size_t n = 0;
            for (const auto& [key, timers] : map_) {
                n += timers.size();
            }
            return n;
        }

      private:
        using tree = std::map<std::int64_t, slot>;
        struct entry {
            std::int64_t key = 0;
            slot* at = nullptr;
        };

        [[gnu::noinline]] slot& find_or_make(std::int64_t key) {
            auto place = map_.lower_bound(key);
            if (place == map_.end() || place->first != key) {
                if (spare_.empty()) {
                    place = map_.try_emplace(place, key);
                } else {
                    spare_.back().key() = key;
                    place = map_.insert(place, std::move(spare_.back()));
                    spare_.pop_back();
                }
                if (map_.size() > index_.size() && index_.size() < largest_index) {
                    grow_index();
                }
            }
            index_[static_cast<std::size_t>(key) & (index_.size() - 1)] = {key, &place->second};
            return place->second;
        }

        void grow_index() {
            index_.assign(index_.size() * 2, {});
            for (auto& [key, s] : map_) {
                index_[static_cast<std::size_t>(key) & (index_.size() - 1)] = {key, &s};
            }
        }

        // 2^17 slots of 10 ms are more than the 15 minutes below the threshold.
        static constexpr std::size_t largest_index = std::size_t{1} << 17;
        // What is kept for reuse: ten seconds of slots. The rest goes back to the heap.
        static constexpr std::size_t most_spare = 1'000;

        tree map_;
        std::vector<entry> index_ = std::vector<entry>(64); // a power of two
        std::vector<typename tree::node_type> spare_;
    };

    // What one thread armed. Its lock guards all members and the timers in its slots.
    struct alignas(64) shard {
        explicit shard(bool stopped) noexcept : closed{stopped} {}

        mutable detail::spin_lock lock;
        bool closed; // nothing can be armed any more
        timerbench::counters totals;
        slot due; // expired, the callback not begun: cancel can still take a timer out
        slot_map slots;
    };

    // A clock thread; more than one only while a replaced one has not left yet.
    struct driver {
        std::thread thread;
        std::optional<typename Clock::parker>
            parker; // guarded by clock_mutex_; gone once the thread has left
    };

    static constexpr std::int64_t always_stale = INT64_MIN;
    static constexpr std::int64_t never_stale = INT64_MAX;

    static coarse_slot_options checked(coarse_slot_options options) {
        if (options.slot_ns < 1'000) {
            throw std::invalid_argument{"coarse_slot: the slot must be at least 1000 ns"};
        }
        return options;
    }

    [[nodiscard]] bool is_long(duration d) const noexcept {
        return options_.threshold_s >= 0 && d.count() / 1'000'000'000 > options_.threshold_s;
    }

    // Takes the timer out of its slot or out of the list of due ones. True if it was in one.
    bool withdraw(timer& t) {
        shard* const s = t.home_.load(std::memory_order_acquire);
        if (s == nullptr) {
            return false;
        }
        const std::lock_guard lock{s->lock};
        if (!t.linked()) {
            return false;
        }
        t.unlink();
        ++s->totals.cancelled;
        return true;
    }

    [[gnu::noinline]] bool arm_precise(timer& t, duration d, callback c) {
        precise_timer* p = t.precise_.load(std::memory_order_relaxed);
        if (p == nullptr) {
            p = new precise_timer{precise_};
            t.precise_.store(p, std::memory_order_release);
        }
        return precise_.arm(*p, d, c);
    }

    bool cancel_precise(timer& t) {
        precise_timer* const p = t.precise_.load(std::memory_order_acquire);
        return p != nullptr && precise_.cancel(*p);
    }

    // For a timer whose callback runs, or that was ever held by the precise service.
    [[gnu::noinline]] bool cancel_slowly(timer& t) {
        if (detail::callback_scope::inside(this)) {
            const bool withdrawn = withdraw(t);
            return cancel_precise(t) || withdrawn;
        }
        if (guard_.in_child()) {
            return cancel_precise(t); // a callback that ran when the process was forked does not end here
        }
        // From here on the callback cannot re-arm, but a re-arm that was already on its way may land in either place once.
        // Waiting for both kinds of callback and then looking at the slot again catches it.
        t.firing_.cancel_begun.store(true, std::memory_order_seq_cst);
        bool withdrawn = withdraw(t);
        gate_.await(t.firing_);
        withdrawn |= cancel_precise(t);
        withdrawn |= withdraw(t);
        gate_.await(t.firing_);
        t.firing_.cancel_begun.store(false, std::memory_order_release);
        return withdrawn;
    }

    // The slow path of `arm`: no clock thread yet, or one that has been silent for too long. False after stop.
    [[gnu::noinline]] bool ensure_clock_thread(time_point now) {
        const std::lock_guard lock{clock_mutex_};
        if (stopping_ || guard_.in_child()) {
            return false;
        }
        if (!paused_ && now.time_since_epoch().count() >= stale_at_.load(std::memory_order_relaxed)) {
            start_clock_thread(now);
        }
        ever_started_ = true;
        return true;
    }

    // clock_mutex_ is held.
    void start_clock_thread(time_point now) {
        const std::uint64_t epoch = ++epoch_;
        show_life(now);
        driver& d = *drivers_.emplace_back(std::make_unique<driver>());
        d.parker.emplace(clock_);
        d.thread = detail::start_driver("coarse_clock", [this, epoch, &d] { clock_thread(epoch, d.parker); });
    }

    // Ends every clock thread; the maps stay as they are.
    void join_drivers() {
        std::vector<std::unique_ptr<driver>> leaving;
        {
            const std::lock_guard lock{clock_mutex_};
            ++epoch_;
            leaving.swap(drivers_);
            for (const auto& d : leaving) {
                if (d->parker) {
                    d->parker->wake();
                }
            }
        }
        for (const auto& d : leaving) {
            d->thread.join();
        }
    }

    // The instant from which the clock thread counts as stalled: whole seconds since `now` exceed the limit.
    void show_life(time_point now) {
        const std::int64_t second = (now - zero_).count() / 1'000'000'000;
        const time_point stale = saturating_add(zero_, std::chrono::seconds{second + watchdog_s + 1});
        stale_at_.store(stale.time_since_epoch().count(), std::memory_order_relaxed);
    }

    void clock_thread(std::uint64_t epoch, std::optional<typename Clock::parker>& parker) {
        const duration slot{options_.slot_ns};
        std::unique_lock lock{clock_mutex_};
        while (epoch == epoch_) {
            const time_point now = clock_.now();
            show_life(now);
            const std::int64_t due = (now - zero_) / slot;
            shards_.for_each([&](shard& s) {
                if (epoch == epoch_) {
                    serve(s, due, epoch, lock);
                }
            });
            if (epoch == epoch_) {
                parker->wait_until(lock, saturating_add(zero_, slot * (due + 1)));
            }
        }
        parker.reset();
    }

    // Fires what is due in one shard. clock_mutex_ is held through `clock_lock`, except while a callback runs.
    void serve(shard& s, std::int64_t due, std::uint64_t epoch, std::unique_lock<std::mutex>& clock_lock) {
        {
            const std::lock_guard lock{s.lock};
            s.slots.expire(due, s.due);
        }
        for (unsigned served = 1; epoch == epoch_; ++served) {
            timer* t = nullptr;
            callback c;
            {
                const std::lock_guard lock{s.lock};
                t = s.due.front();
                if (t == nullptr) {
                    return;
                }
                t->unlink();
                gate_.begin(t->firing_);
                c = t->callback_;
                ++s.totals.fired;
            }
            clock_lock.unlock();
            if (gate_.run(this, *t, t->firing_, c)) {
                const std::lock_guard lock{s.lock};
                ++s.totals.threw;
            }
            clock_lock.lock();
            if (served % looks_per_life_sign == 0 && epoch == epoch_) {
                show_life(clock_.now());
            }
        }
    }

    // A clock thread with a long list of due timers shows that it lives after this many callbacks.
    static constexpr unsigned looks_per_life_sign = 16;

    Clock& clock_;
    const coarse_slot_options options_;
    const time_point zero_; // slot 0 ends here
    const detail::tick_length slot_;
    detail::fork_guard guard_;
    locked_heap<Clock> precise_;
    mutable detail::per_thread<shard> shards_;

    // When the clock thread counts as stalled, in ns of the clock. Written under clock_mutex_, read by every arm without it: an
    // arm that sees an old value takes the slow path once too often, or leaves the discovery to the next arm.
    std::atomic<std::int64_t> stale_at_{always_stale};
    // Raised once, under clock_mutex_; read by the making of a shard under the lock of shards_, see per_thread.
    std::atomic<bool> stopping_{false};

    // Held by the clock thread whenever it touches a map, so that a takeover never meets it in one.
    std::mutex clock_mutex_;
    std::uint64_t epoch_ = 0; // guarded by clock_mutex_, as are the next three
    bool paused_ = false;
    bool ever_started_ = false;
    std::vector<std::unique_ptr<driver>> drivers_;

    detail::firing_gate gate_;
};

template <class Clock>
using coarse_slot = basic_coarse_slot<Clock>;

} // namespace timerbench
