// One hierarchical timing wheel behind one mutex, with a driver thread that sleeps until the next occupied slot: the design
// of the time driver of tokio.
//
// How it works
//   Six levels of 64 slots; a slot of level 0 is one tick of 1 ms, one of each further level spans a whole turn of the level
//   below, so that the wheel spans 2^36 ms, a little over two years. A deadline becomes a tick, counted from the making of the
//   service and rounded up. Spans are aligned: the highest bit in which a timer's tick differs from the wheel's own time
//   gives the level, the six bits of that level give the slot. A slot of a higher level is emptied into the levels below
//   when time reaches its beginning. Beyond the span a timer waits in the top level and is looked at once a turn.
//   Each level has a word with a bit for each occupied slot, so the next expiry is found by a rotation and a count of zeros;
//   the lowest level that has anything has the earliest. The timer is the node: arm links it, cancel unlinks it at once.
//   The driver starts with the first arm; an arm wakes it when its tick is before the one that the driver sleeps until.
// What it costs
//   arm: a clock reading, a division, a lock, a link at the end of a list. cancel: a lock and an unlink that touches the
//   neighbours. Neither grows with the population. Nothing is allocated, a cancelled timer holds nothing, the wheel is 6 KB.
//   A timer is moved down at most five times, by the driver under the lock: a timeout of 10 s two or three times.
// What it is bad at
//   Every thread takes the one mutex, and the driver holds it while it moves a slot of a higher level down: that slot may
//   hold a great many timers, and an arm then waits for all of them. A callback starts up to one tick after its deadline.
//   The driver gets up for slots of higher levels too, when nothing is due in them.
// Where it departs from its source
//   tokio's timers carry an atomic state, by which an extension of a deadline gets by without the lock and is found out when
//   the old one expires, and it wakes tasks in batches of 32. Here a re-arm is a cancel and an arm, and a callback is run at
//   a time. Exact multiples of the tick stay; tokio adds nearly a millisecond to the deadline before it cuts it.
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
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace timerbench {

namespace detail {

/// The structure alone: whole ticks, no clock, no lock. `Node` derives publicly from list_link and has the members
/// `std::uint64_t tick` and `std::uint16_t place`, which the wheel sets and reads; a node that was never in it has
/// `place == aligned_wheel<Node>::nowhere`. Not thread-safe.
template <class Node>
class aligned_wheel {
  public:
    using tick_type = std::uint64_t;
    static constexpr unsigned levels = 6;
    static constexpr unsigned bits = 6;
    static constexpr std::size_t slots = std::size_t{1} << bits;
    static constexpr tick_type span = tick_type{1} << (levels * bits);
    static constexpr std::uint16_t nowhere = 0xFFFF;

    /// The last tick up to which everything was served.
    [[nodiscard]] tick_type now() const noexcept { return now_; }

    /// Links a node that is nowhere, to become due at `tick`; at once if that tick was served already. Ticks stay below 2^63.
    void insert(Node& node, tick_type tick) noexcept {
        node.tick = tick;
        place(node);
    }

    /// Unlinks a node that is somewhere, due or not.
    void remove(Node& node) noexcept {
        node.unlink();
        const std::uint16_t place = std::exchange(node.place, nowhere);
        if (place != due_place && nodes_[place].empty()) {
            occupied_[place / slots] &= ~(tick_type{1} << (place % slots));
        }
    }

    /// The next tick at which a slot becomes due or is moved down; empty when nothing lies ahead. Never later than the
    /// earliest tick of what is linked. What is due already is not looked at.
    [[nodiscard]] std::optional<tick_type> next_event() const noexcept {
        const std::optional<slot_start> next = next_slot();
        return next ? std::optional{next->tick} : std::nullopt;
    }

    /// Unlinks and returns the next node that is due at `tick`, earlier ticks first; null when there is none, and then
    /// everything up to `tick` is served.
    [[nodiscard]] Node* pop(tick_type tick) noexcept {
        while (due_.empty()) {
            const std::optional<slot_start> next = next_slot();
            if (!next || next->tick > tick) {
                now_ = std::max(now_, tick);
                return nullptr;
            }
            now_ = next->tick;
            occupied_[next->place / slots] &= ~(tick_type{1} << (next->place % slots));
            list<Node> moving;
            moving.splice_back(nodes_[next->place]);
            while (Node* const node = moving.front()) {
                node->unlink();
                place(*node);
            }
        }
        Node* const node = due_.front();
        remove(*node);
        return node;
    }

    [[nodiscard]] bool has_due() const noexcept { return !due_.empty(); }

    /// Unlinks every node and calls `f(Node&)` for it, in no particular order.
    template <class F>
    void clear(F&& f) noexcept {
        const auto empty = [this, &f](list<Node>& from) {
            while (Node* const node = from.front()) {
                remove(*node);
                f(*node);
            }
        };
        empty(due_);
        for (list<Node>& slot : nodes_) {
            empty(slot);
        }
    }

    /// Counts what is linked by walking every list. Linear.
    [[nodiscard]] std::size_t count() const noexcept {
        std::size_t n = due_.size();
        for (const list<Node>& slot : nodes_) {
            n += slot.size();
        }
        return n;
    }

    /// Whether every bit tells the truth about its slot. For tests.
    [[nodiscard]] bool check() const noexcept {
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i].empty() == ((occupied_[i / slots] >> (i % slots) & 1) != 0)) {
                return false;
            }
        }
        return true;
    }

  private:
    struct slot_start {
        std::size_t place;
        tick_type tick; // the first after now_ at which the slot begins
    };
    static constexpr std::uint16_t due_place = levels * slots;

    static constexpr unsigned shift(std::size_t level) noexcept {
        return static_cast<unsigned>(level) * bits;
    }

    void place(Node& node) noexcept {
        if (node.tick <= now_) {
            node.place = due_place;
            due_.push_back(node);
            return;
        }
        const tick_type differing = std::min((node.tick ^ now_) | (slots - 1), span - 1);
        const std::size_t level = (static_cast<std::size_t>(std::bit_width(differing)) - 1) / bits;
        const std::size_t slot = (node.tick >> shift(level)) % slots;
        node.place = static_cast<std::uint16_t>(level * slots + slot);
        nodes_[node.place].push_back(node);
        occupied_[level] |= tick_type{1} << slot;
    }

    // All that is in a level lies in the present turn of the level above it or, in the top level, ahead of now by whole
    // turns. So the lowest level that has anything has the earliest slot.
    [[nodiscard]] std::optional<slot_start> next_slot() const noexcept {
        for (std::size_t level = 0; level < levels; ++level) {
            if (occupied_[level] == 0) {
                continue;
            }
            // The slot that now_ is in comes last: what it holds belongs to a later turn.
            const tick_type present = now_ >> shift(level);
            const auto from = static_cast<int>((present + 1) % slots);
            const auto ahead =
                static_cast<tick_type>(std::countr_zero(std::rotr(occupied_[level], from))) + 1;
            return slot_start{level * slots + (present + ahead) % slots, (present + ahead) << shift(level)};
        }
        return std::nullopt;
    }

    tick_type now_ = 0;
    std::array<tick_type, levels> occupied_{};
    std::array<list<Node>, levels * slots> nodes_;
    list<Node> due_;
};

} // namespace detail

/// Usable from any thread. `Clock` is a clock_source.
template <class Clock>
class locked_wheel {
  public:
    static constexpr duration tick_length = std::chrono::milliseconds{1};

    class timer : private detail::list_link {
      public:
        explicit timer(locked_wheel& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (used_) {
                service_.release(*this);
            }
        }

      private:
        friend class locked_wheel;
        friend class detail::list<timer>;
        friend class detail::aligned_wheel<timer>;
        static constexpr std::uint16_t nowhere = 0xFFFF;

        // Guarded by the service's mutex, as are the links.
        std::uint64_t tick = 0;
        callback callback_;
        locked_wheel& service_;
        std::uint16_t place = nowhere;
        // Set by the first arm and never written again. Read by the destructor alone, without the mutex, so that a timer
        // that was never armed costs no lock: the caller orders the first arm before the destruction.
        bool used_ = false;
    };
    static_assert(sizeof(timer) <= 64);

    /// The clock outlives the service.
    explicit locked_wheel(Clock& clock = steady()) : clock_{clock}, start_{clock.now()} {}
    locked_wheel(const locked_wheel&) = delete;
    locked_wheel& operator=(const locked_wheel&) = delete;
    ~locked_wheel() { stop(); }

    /// Besides what every service promises: throws std::system_error when the driver cannot be started; nothing is armed then.
    bool arm(timer& t, duration d, callback c) {
        if (fork_.in_child()) {
            return false;
        }
        const std::uint64_t tick = tick_of(saturating_add(clock_.now(), std::max(d, duration::zero())));
        const std::lock_guard lock{mutex_};
        if (stopped_ || running_.bars(&t)) {
            return false;
        }
        if (!driver_.joinable()) [[unlikely]] {
            start_driver();
        }
        if (!t.used_) { // only a first arm may write, see there
            t.used_ = true;
        }
        t.callback_ = c;
        wheel_.insert(t, tick);
        ++armed_;
        if (tick < sleeping_until_) {
            sleeping_until_ = tick;
            parker_->wake();
        }
        return true;
    }

    bool cancel(timer& t) {
        if (fork_.in_child()) {
            return std::exchange(t.place, timer::nowhere) != timer::nowhere;
        }
        std::unique_lock lock{mutex_};
        const bool withdrawn = withdraw(t);
        if (!running_.empty() && !detail::callback_scope::inside(this)) {
            running_.await(lock, &t);
        }
        return withdrawn;
    }

    void stop() {
        if (fork_.in_child()) {
            detail::abandon(driver_);
            detail::abandon(parker_);
            detail::abandon(running_);
            return;
        }
        std::unique_lock lock{mutex_};
        stopped_ = true;
        wheel_.clear([this](timer&) { ++dropped_; });
        running_.await_all(lock);
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

    /// Linear in what is pending, under the mutex. In a forked child the wheel may be half changed and cannot be walked: what
    /// was pending at the fork is given as the difference.
    [[nodiscard]] timerbench::counters counters() const {
        std::unique_lock lock{mutex_, std::defer_lock};
        if (!fork_.in_child()) {
            lock.lock();
        }
        timerbench::counters c{
            .armed = armed_, .fired = fired_, .cancelled = cancelled_, .dropped = dropped_, .threw = threw_};
        c.pending = fork_.in_child() ? armed_ - fired_ - cancelled_ - dropped_ : wheel_.count();
        return c;
    }

    [[nodiscard]] service_traits traits() const {
        return {.resolution = tick_length, .latest = tick_length, .fifo = true, .manual_clock = true};
    }

    /// Whether the wheel's occupancy bits are right. For tests.
    [[nodiscard]] bool check() const {
        const std::lock_guard lock{mutex_};
        return wheel_.check();
    }

  private:
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    // The first tick that is not before the deadline, which is not before the start.
    [[nodiscard]] std::uint64_t tick_of(time_point deadline) const noexcept {
        duration::rep since_start = 0;
        if (__builtin_sub_overflow(deadline.time_since_epoch().count(), start_.time_since_epoch().count(),
                                   &since_start)) {
            since_start = std::numeric_limits<duration::rep>::max();
        }
        return static_cast<std::uint64_t>(ceil_ticks(duration{since_start}, tick_length));
    }

    // The last tick that is not after `now`.
    [[nodiscard]] std::uint64_t tick_reached(time_point now) const noexcept {
        return static_cast<std::uint64_t>((now - start_) / tick_length);
    }

    [[nodiscard]] time_point time_of(std::uint64_t tick) const noexcept {
        duration::rep since_start = 0;
        if (__builtin_mul_overflow(tick, tick_length.count(), &since_start)) {
            return time_point::max();
        }
        return saturating_add(start_, duration{since_start});
    }

    // The mutex is held.
    bool withdraw(timer& t) noexcept {
        if (t.place == timer::nowhere) {
            return false;
        }
        wheel_.remove(t);
        ++cancelled_;
        return true;
    }

    void release(timer& t) {
        if (!detail::callback_scope::inside_own(&t) || fork_.in_child()) {
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
        parker_.emplace(clock_);
        try {
            driver_ = detail::start_driver("tb_locked_wheel", [this] { drive(); });
        } catch (...) {
            parker_.reset();
            throw;
        }
    }

    void drive() {
        std::unique_lock lock{mutex_};
        std::uint64_t reached = 0;
        while (!quit_) {
            if (!wheel_.has_due()) {
                reached = tick_reached(clock_.now());
            }
            if (timer* const t = wheel_.pop(reached)) {
                fire(lock, *t);
                continue;
            }
            sleeping_until_ = wheel_.next_event().value_or(never);
            parker_->wait_until(lock,
                                sleeping_until_ == never ? time_point::max() : time_of(sleeping_until_));
            // Awake: whatever is armed now is seen before the next sleep.
            sleeping_until_ = 0;
        }
    }

    void fire(std::unique_lock<std::mutex>& lock, timer& t) {
        const callback c = t.callback_;
        ++fired_;
        typename detail::running_set<std::mutex>::record running;
        running_.begin(running, &t);
        lock.unlock();
        bool threw = false;
        {
            const detail::callback_scope scope{this, &t};
            threw = detail::run_guarded(c);
        }
        lock.lock();
        threw_ += threw ? 1 : 0;
        running_.end(running);
    }

    Clock& clock_;
    const time_point start_;
    detail::fork_guard fork_;

    mutable std::mutex mutex_; // guards all below
    detail::aligned_wheel<timer> wheel_;
    // The tick that the driver sleeps until, or an earlier one that it was woken for; 0 while it is awake or does not exist,
    // so that an arm then wakes nobody.
    std::uint64_t sleeping_until_ = 0;
    detail::running_set<std::mutex> running_;
    std::uint64_t armed_ = 0;
    std::uint64_t fired_ = 0;
    std::uint64_t cancelled_ = 0;
    std::uint64_t dropped_ = 0;
    std::uint64_t threw_ = 0;
    bool stopped_ = false;
    bool quit_ = false;
    std::optional<typename Clock::parker> parker_; // exists as long as the driver
    std::thread driver_;
};

static_assert(timer_service<locked_wheel<steady_time>>);

} // namespace timerbench
