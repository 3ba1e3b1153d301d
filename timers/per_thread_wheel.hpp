// One timing wheel for each thread, nodes in the caller's handles, eager cancel, one driver that sleeps until the next slot
// that is occupied: the service to take home.
//
// How it works. Every thread that arms has a hierarchical wheel (detail/tick_wheel.hpp) with ticks of 1 ms. The timer is the node, so arm links
// it and cancel unlinks it, both in constant time and without allocation, and a cancelled timer holds nothing. A wheel is
// guarded by a lock biased towards its thread (detail/biased_lock.hpp); others may arm nothing in it but cancel what is there.
// One driver thread serves all wheels. It sleeps until the earliest occupied slot; an arm wakes it only when it arms something earlier
// than what the driver was last promised for that wheel.
//
// What it costs. A pair of arm and cancel is one clock reading (see timers/reading.hpp for the choices), a few plain memory accesses
// to enter and leave the lock twice, a link and an unlink. A cancel from another thread is a spin lock pair, and now and then a
// system call that revokes the bias. A wheel is 78 KB. With nothing armed nobody wakes.
//
// What it is bad at. A callback starts up to one tick after its deadline, plus the allowance of the reading: the coarse one adds the
// kernel's tick. One slow callback delays all that are due behind it, of all threads. A process that forks while the driver holds the lock of
// a wheel, which is microseconds at a time, has a child in which destroying a timer of that wheel waits for ever.
//
// Never early with a reading that lags. The allowance is added to the deadline before it is rounded up to a tick. For the coarse reading,
// which may stand still for longer, each new reading seen starts an epoch; the first arm of an epoch reads the steady clock
// itself, later ones rely on the allowance. Who sees the next reading knows by the steady clock when the last one had ended at the
// latest; if that was later than the allowance, the epoch is noted as bad and its timers are put off when they come due
// (detail/stall_log.hpp). While arms rely on that, the driver looks when a reading should have ended, so that its end is seen in time
// even if nobody arms any more.
#pragma once

#include "timers/clock.hpp"
#include "timers/detail/abandon.hpp"
#include "timers/detail/biased_lock.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/firing.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/list.hpp"
#include "timers/detail/per_thread.hpp"
#include "timers/detail/stall_log.hpp"
#include "timers/detail/tick_length.hpp"
#include "timers/detail/tick_wheel.hpp"
#include "timers/reading.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

namespace timerbench {

struct per_thread_wheel_options {
    std::int64_t tick_ns = 1'000'000; ///< 1 000 to 1 000 000 000.
};

template <class Clock, template <class> class Reading>
class basic_per_thread_wheel {
    struct shard;

  public:
    /// One cache line.
    class alignas(64) timer : private detail::list_link {
      public:
        explicit timer(basic_per_thread_wheel& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (home_.load(std::memory_order_relaxed) == nullptr) {
                return; // never armed: a timeout whose operation was ready pays nothing here
            }
            service_.cancel(*this);
            detail::callback_scope::forget(this);
        }

      private:
        friend class basic_per_thread_wheel;
        friend class detail::list<timer>;
        friend class detail::tick_wheel<timer>;

        std::uint64_t tick = 0; // guarded by the lock of home_, as are the links, the callback and the epoch
        callback callback_;
        basic_per_thread_wheel& service_;
        // The wheel it was last armed in. Written by `arm` while the timer is idle; not changed by an arm while the callback
        // runs, because a foreign cancel may read it then.
        std::atomic<shard*> home_{nullptr};
        std::uint32_t epoch_ = 0;
        detail::firing_state firing_;
    };
    static_assert(sizeof(timer) == 64);

    /// Why the service cannot be used on this machine; empty if it can.
    [[nodiscard]] static std::string_view unavailable() { return Reading<Clock>::unavailable(); }

    /// Throws std::invalid_argument for a tick out of range and std::runtime_error where it is unavailable.
    explicit basic_per_thread_wheel(Clock& clock, per_thread_wheel_options options = {})
        : clock_{clock},
          tick_{checked(options.tick_ns)},
          zero_{clock.now()} {}
    basic_per_thread_wheel(const basic_per_thread_wheel&) = delete;
    basic_per_thread_wheel& operator=(const basic_per_thread_wheel&) = delete;
    ~basic_per_thread_wheel() { stop(); }

    [[nodiscard]] service_traits traits() const noexcept {
        return {.resolution = tick_.length(),
                .latest = tick_.length() + Reading<Clock>::allowance(),
                .manual_clock = true};
    }

    /// Any thread.
    bool arm(timer& t, duration d, callback c) {
        if (guard_.in_child() || t.firing_.cancel_begun.load(std::memory_order_acquire)) {
            return false;
        }
        arming result;
        shard* const running_in = t.firing_.is_running() ? t.home_.load(std::memory_order_relaxed) : nullptr;
        if (running_in == nullptr) [[likely]] {
            shard& mine = shards_.local([this] { return std::make_unique<shard>(stopping_); });
            const detail::biased_lock::owner_guard lock{mine.lock};
            result = link(mine, t, d, c);
        } else {
            result = link_again(*running_in, t, d, c);
        }
        if (result != arming::done) [[unlikely]] {
            return result == arming::wake && wake_driver();
        }
        return true;
    }

    /// Any thread.
    bool cancel(timer& t) {
        const bool withdrawn = withdraw(t);
        if (!t.firing_.is_running()) [[likely]] {
            return withdrawn;
        }
        return cancel_slowly(t) || withdrawn;
    }

    /// From outside callbacks; idempotent. In a forked child it only lets go of what it inherited.
    void stop() {
        if (guard_.in_child()) {
            detail::abandon(driver_);
            detail::abandon(parker_);
            return;
        }
        {
            const std::lock_guard lock{driver_mutex_};
            stopping_.store(true, std::memory_order_release);
            if (parker_) {
                parker_->wake();
            }
        }
        if (driver_.joinable()) {
            driver_.join();
        }
        shards_.for_each([](shard& s) {
            const std::lock_guard lock{s.lock};
            s.closed = true;
            s.wheel.expire_all();
            while (s.wheel.pop_due() != nullptr) {
                ++s.totals.dropped;
            }
        });
    }

    /// Counts what is pending by walking the wheels; each is locked meanwhile.
    [[nodiscard]] timerbench::counters counters() const {
        timerbench::counters sum;
        shards_.for_each([&sum](shard& s) {
            const std::lock_guard lock{s.lock};
            sum.armed += s.totals.armed;
            sum.fired += s.totals.fired;
            sum.cancelled += s.totals.cancelled;
            sum.dropped += s.totals.dropped;
            sum.threw += s.totals.threw;
            sum.pending += s.wheel.count();
        });
        return sum;
    }

  private:
    using reading = Reading<Clock>;
    static constexpr std::uint64_t never = ~std::uint64_t{0};
    static constexpr std::uint32_t exact = 0; // the epoch of timers that rely on no allowance

    enum class arming { done, wake, refused };

    // One thread's wheel. The lock guards all that is not const.
    struct alignas(64) shard {
        explicit shard(bool stopped) : closed{stopped} {}

        bool closed; // nothing can be armed any more
        mutable detail::biased_lock lock;
        // The driver looks at this wheel at this tick at the latest; `never` if only when woken. Written with the lock held; the
        // driver also reads it without, to pass by: whoever lowers it wakes the driver afterwards.
        std::atomic<std::uint64_t> promised{never};
        // Whether the driver watches for the end of the present reading. Written and read as `promised` is.
        std::atomic<bool> observed{false};
        reading source;
        // For a reading that may stall: what was last seen, its number, and whether arms rely on its allowance.
        time_point seen{};
        std::uint32_t epoch = exact;
        bool relied_on = false;
        timerbench::counters totals;
        detail::stall_log stalls;
        detail::tick_wheel<timer> wheel;
    };

    static duration checked(std::int64_t tick_ns) {
        if (const std::string_view reason = unavailable(); !reason.empty()) {
            throw std::runtime_error{"per_thread_wheel: " + std::string{reason}};
        }
        if (tick_ns < 1'000 || tick_ns > 1'000'000'000) {
            throw std::invalid_argument{"per_thread_wheel: the tick must be 1000 to 1000000000 ns, not " +
                                        std::to_string(tick_ns)};
        }
        return duration{tick_ns};
    }

    // The lock is held.
    arming link(shard& s, timer& t, duration d, callback c) {
        if (s.closed) {
            return arming::refused;
        }
        t.callback_ = c;
        if (t.home_.load(std::memory_order_relaxed) != &s) {
            t.home_.store(&s, std::memory_order_release);
        }
        const bool observed = s.observed.load(std::memory_order_relaxed);
        const std::uint64_t event = s.wheel.insert(t, tick_at_or_after(saturating_add(base(s, t), d)));
        ++s.totals.armed;
        const bool earlier = event < s.promised.load(std::memory_order_relaxed);
        if (!earlier && observed == s.observed.load(std::memory_order_relaxed)) [[likely]] {
            return arming::done;
        }
        if (earlier) {
            s.promised.store(event, std::memory_order_relaxed);
        }
        return arming::wake;
    }

    // The same for a timer whose callback runs: it stays in the wheel that it was in, whoever arms it. No lock is held.
    [[gnu::noinline]] arming link_again(shard& s, timer& t, duration d, callback c) {
        if (shards_.is_mine(&s)) {
            const detail::biased_lock::owner_guard lock{s.lock};
            return link(s, t, d, c);
        }
        const std::lock_guard lock{s.lock};
        return link(s, t, d, c);
    }

    // A time not before the steady clock's present one, unless the epoch that the timer is given turns out to be bad.
    time_point base(shard& s, [[maybe_unused]] timer& t) {
        const time_point now = s.source.read(clock_);
        if constexpr (!reading::may_stall) {
            return now + reading::allowance();
        } else {
            if (now != s.seen) [[unlikely]] {
                t.epoch_ = exact;
                return begin_epoch(s, now);
            }
            t.epoch_ = s.epoch;
            if (!s.relied_on) {
                s.relied_on = true;
            }
            if (!s.observed.load(std::memory_order_relaxed)) [[unlikely]] {
                s.observed.store(true, std::memory_order_relaxed);
            }
            return now + reading::allowance() + publishing_slack;
        }
    }

    // A reading other than the last one was just seen, so no arm from now on gets that one. Returns the steady time. The kernel
    // moves the coarse clock in whole grains, so a reading came up less than a grain after its own value; publishing it takes
    // microseconds, for which the slack allows.
    time_point begin_epoch(shard& s, time_point seen) {
        const time_point now = clock_.now();
        const duration lag = std::min(now, seen + reading::allowance()) - s.seen;
        if (s.relied_on && lag > reading::allowance() + publishing_slack) {
            s.stalls.note(s.epoch, std::min(lag - reading::allowance(), reading::longest_stall()));
        }
        s.epoch = s.epoch + 1 == exact ? exact + 1 : s.epoch + 1;
        s.seen = seen;
        s.relied_on = false;
        return now;
    }

    [[nodiscard]] std::uint64_t tick_at_or_after(time_point t) const noexcept {
        return tick_.covering(std::max(t - zero_, duration{}));
    }

    [[nodiscard]] std::uint64_t tick_at_or_before(time_point t) const noexcept {
        return tick_.whole(t - zero_);
    }

    [[nodiscard]] time_point start_of(std::uint64_t tick) const noexcept {
        return tick >= tick_.whole(time_point::max() - zero_)
                   ? time_point::max()
                   : zero_ + tick_.length() * static_cast<std::int64_t>(tick);
    }

    // Takes the timer out of the wheel or the list of due ones. True if it was in one.
    bool withdraw(timer& t) {
        shard* const s = t.home_.load(std::memory_order_acquire);
        if (s == nullptr) {
            return false;
        }
        if (shards_.is_mine(s)) [[likely]] {
            const detail::biased_lock::owner_guard lock{s->lock};
            return unlink(*s, t);
        }
        const std::lock_guard lock{s->lock};
        return unlink(*s, t);
    }

    static bool unlink(shard& s, timer& t) noexcept {
        if (!t.linked()) {
            return false;
        }
        s.wheel.remove(t);
        ++s.totals.cancelled;
        return true;
    }

    // For a timer whose callback runs.
    [[gnu::noinline]] bool cancel_slowly(timer& t) {
        if (guard_.in_child()) {
            return false; // the callback ran when the process was forked, on a thread that is not here
        }
        if (detail::callback_scope::inside(this)) {
            return withdraw(t);
        }
        // From here on the callback cannot re-arm, but a re-arm that was already on its way may land once.
        t.firing_.cancel_begun.store(true, std::memory_order_seq_cst);
        gate_.await(t.firing_);
        const bool withdrawn = withdraw(t);
        gate_.await(t.firing_);
        t.firing_.cancel_begun.store(false, std::memory_order_release);
        return withdrawn;
    }

    // The slow path of `arm`. No lock is held. The timer is linked already; false if the service has stopped meanwhile, in
    // which case `stop` has dropped it or is about to.
    [[gnu::noinline]] bool wake_driver() {
        const std::lock_guard lock{driver_mutex_};
        if (stopping_) {
            return true;
        }
        if (!driver_.joinable()) {
            parker_.emplace(clock_);
            driver_ = detail::start_driver("wheel_driver", [this] { drive(); });
        } else {
            parker_->wake();
        }
        return true;
    }

    void drive() {
        while (!stopping_.load(std::memory_order_acquire)) {
            std::uint64_t next = never;
            time_point look = time_point::max();
            const time_point now = clock_.now();
            shards_.for_each([&](shard& s) { serve(s, now, next, look); });
            look = std::min(look, start_of(next));
            std::unique_lock lock{driver_mutex_};
            if (!stopping_) {
                parker_->wait_until(lock, look);
            }
        }
        const std::lock_guard lock{driver_mutex_};
        parker_.reset();
    }

    // Fires what is due in one wheel, and lowers `next` and `look` to when it must be looked at again.
    void serve(shard& s, time_point now, std::uint64_t& next, time_point& look) {
        const std::uint64_t present = tick_at_or_before(now);
        if (const std::uint64_t promised = s.promised.load(std::memory_order_relaxed);
            promised > present && !s.observed.load(std::memory_order_relaxed)) {
            next = std::min(next, promised);
            return;
        }
        s.lock.lock();
        observe(s, now, look);
        s.wheel.advance(present);
        while (timer* t = stopping_.load(std::memory_order_relaxed) ? nullptr : s.wheel.pop_due()) {
            if (put_off(s, *t)) [[unlikely]] {
                continue;
            }
            gate_.begin(t->firing_);
            ++s.totals.fired;
            const callback c = t->callback_;
            s.lock.unlock();
            const bool threw = gate_.run(this, *t, t->firing_, c);
            s.lock.lock();
            s.totals.threw += threw ? 1 : 0;
        }
        const std::uint64_t event = s.wheel.next_event().value_or(never);
        s.promised.store(event, std::memory_order_relaxed);
        next = std::min(next, event);
        if (event == never && !s.wheel.has_set_aside()) {
            s.stalls.clear();
        }
        s.lock.unlock();
    }

    // For a reading that may stall, while arms rely on it.
    void observe([[maybe_unused]] shard& s, [[maybe_unused]] time_point now,
                 [[maybe_unused]] time_point& look) {
        if constexpr (reading::may_stall) {
            if (!s.observed.load(std::memory_order_relaxed)) {
                return;
            }
            if (const time_point seen = s.source.read(clock_); seen != s.seen) {
                // An epoch that nobody relied on has passed: arms are sparse, and the next one will say when they are not.
                s.observed.store(s.relied_on, std::memory_order_relaxed);
                begin_epoch(s, seen);
            }
            s.wheel.take_back();
            if (s.observed.load(std::memory_order_relaxed)) {
                // A reading that is overdue may be so for many grains.
                look = std::min(look, std::max(now + reading::allowance() / 4,
                                               s.seen + reading::allowance() + publishing_slack / 2));
            }
        }
    }

    // Whether a due timer belongs to a bad epoch and was put back. Once put off it counts as armed exactly.
    bool put_off([[maybe_unused]] shard& s, [[maybe_unused]] timer& t) {
        if constexpr (reading::may_stall) {
            if (t.epoch_ == exact) {
                return false;
            }
            if (t.epoch_ == s.epoch) {
                // The reading still stands, so nobody knows yet for how long it will have.
                s.wheel.set_aside(t);
                return true;
            }
            const duration excess = s.stalls.empty() ? duration{} : s.stalls.excess(t.epoch_);
            t.epoch_ = exact;
            const std::uint64_t due = t.tick + tick_.covering(excess);
            if (due > s.wheel.now()) {
                s.wheel.insert(t, due);
                return true;
            }
        }
        return false;
    }

    static constexpr duration publishing_slack = std::chrono::microseconds{100};

    Clock& clock_;
    const detail::tick_length tick_;
    const time_point zero_; // tick 0
    detail::fork_guard guard_;
    mutable detail::per_thread<shard> shards_;
    detail::firing_gate gate_;

    // Raised once, under driver_mutex_; read by the driver between callbacks, and by the making of a shard under the lock
    // of shards_, see per_thread.
    std::atomic<bool> stopping_{false};
    std::mutex driver_mutex_;                      // guards what follows
    std::optional<typename Clock::parker> parker_; // exists as long as the driver
    std::thread driver_;
};

template <class Clock>
using per_thread_wheel = basic_per_thread_wheel<Clock, coarse_reading>;
template <class Clock>
using per_thread_wheel_tsc = basic_per_thread_wheel<Clock, tsc_reading>;
template <class Clock>
using per_thread_wheel_steady = basic_per_thread_wheel<Clock, steady_reading>;

} // namespace timerbench
