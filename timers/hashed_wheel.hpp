// One hashed wheel with a rounds counter, a worker thread that ticks, and a queue in front of it: the design of Netty's
// HashedWheelTimer, which RPC frameworks use for their request timeouts.
//
// How it works
//   The wheel has 512 slots, each a list. A deadline becomes a tick, counted from the making of the service and rounded
//   up; tick modulo 512 is the slot, and how many whole turns lie before it is kept in the node as rounds. arm only appends
//   a node to the front queue. At each tick the worker empties the cancelled queue, places at most 100 000 queued nodes
//   into the wheel, walks the slot of that tick, takes one round off the nodes that have rounds left and fires
//   the others. A worker that was held up goes through every tick it missed.
//   cancel marks the node and appends it to the cancelled queue; the node returns to the pool at the next tick. With
//   `mark`, cancel only marks: the node stays in the wheel until its tick comes.
// What it costs
//   arm: a clock reading, a lock, a node from the pool and a link at the end of the queue. cancel: a lock and two stores.
//   The division, the wheel and most cold lines are the worker's, which pays about as much again later, in bulk. Nothing is
//   allocated once the pool has grown to its high water mark. It never shrinks and holds 64 bytes for each timer that
//   was armed at the worst moment and for each one cancelled since the tick before; with `mark`, for each one that was
//   cancelled in the wheel and whose tick is to come, so up to rate x timeout.
// What it is bad at
//   Lateness up to a tick. The worker gets up at every tick whether anything is pending or not, and walks every node once a
//   turn. Work is put off, so a caller faster than the worker only fills the queue: look at the backlog.
// Where it departs from its sources
//   Deadlines that are exact multiples of the tick count as that tick. One lock guards queues and pool, where Netty has
//   lock-free queues and allocates a node per arm. A node that is cancelled while it waits in the front queue leaves
//   it with the next tick and takes none of the 100 000 transfers; Netty's stays and counts, which is how its queue comes to
//   millions. After more than a turn without the worker, turns in which nothing is due are skipped.
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
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace timerbench {

struct hashed_wheel_options {
    std::int64_t tick_ns = 10'000'000; ///< At least 1 000.
    bool mark = false; ///< Whether cancel only marks the node, which then stays until its tick.
};

/// Usable from any thread. `Clock` is a clock_source.
template <class Clock>
class hashed_wheel {
    struct node;

  public:
    static constexpr std::int64_t slots = 512;
    static constexpr std::size_t transfers_per_tick = 100'000;

    class timer {
      public:
        explicit timer(hashed_wheel& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (used_) {
                service_.release(*this);
            }
        }

      private:
        friend class hashed_wheel;
        hashed_wheel& service_;
        // The node of the last arm; guarded by the service's lock. The timer is armed if the node says so too: it may
        // have gone to another timer since.
        node* node_ = nullptr;
        // Set by the first arm and never written again. Read by the destructor alone, without the lock, so that a timer that
        // was never armed costs none: the caller orders the first arm before the destruction.
        bool used_ = false;
    };

    /// The clock outlives the service. Throws std::invalid_argument for a tick below 1 000 ns.
    explicit hashed_wheel(Clock& clock = steady(), hashed_wheel_options options = {})
        : clock_{clock},
          options_{checked(options)},
          start_{clock.now()} {}
    hashed_wheel(const hashed_wheel&) = delete;
    hashed_wheel& operator=(const hashed_wheel&) = delete;
    ~hashed_wheel() { stop(); }

    /// Besides what every service promises: throws std::bad_alloc when the pool cannot grow and std::system_error when the
    /// worker cannot be started; nothing is armed then.
    bool arm(timer& t, duration d, callback c) {
        if (fork_.in_child()) {
            return false;
        }
        const time_point now = clock_.now();
        const time_point deadline = saturating_add(now, std::max(d, duration::zero()));
        const std::lock_guard lock{front_};
        if (stopped_ || running_.bars(&t)) {
            return false;
        }
        if (!worker_.joinable()) [[unlikely]] {
            start_worker(now);
        }
        if (free_ == nullptr) [[unlikely]] {
            grow();
        }
        node* const n = free_;
        free_ = n->chain;
        // The worker was the last to write to the next node too; its line had better be on its way before it is needed.
        __builtin_prefetch(free_, 1);
        n->deadline_ns = deadline.time_since_epoch().count();
        n->placed = false;
        n->action = c;
        n->owner.store(&t, std::memory_order_relaxed);
        incoming_.push_back(*n);
        t.node_ = n;
        if (!t.used_) { // only a first arm may write, see there
            t.used_ = true;
        }
        ++queued_;
        ++armed_;
        return true;
    }

    bool cancel(timer& t) {
        if (fork_.in_child()) {
            return t.node_ != nullptr && t.node_->disown(&t);
        }
        std::unique_lock lock{front_};
        const bool withdrawn = withdraw(t);
        if (!running_.empty() && !detail::callback_scope::inside(this)) {
            running_.await(lock, &t);
        }
        return withdrawn;
    }

    void stop() {
        if (fork_.in_child()) {
            detail::abandon(worker_);
            detail::abandon(parker_);
            detail::abandon(running_);
            detail::abandon(drained_);
            return;
        }
        std::unique_lock lock{front_};
        stopped_ = true;
        for_each_node(
            [this](node& n) { dropped_ += n.owner.exchange(nullptr, std::memory_order_release) != nullptr; });
        drained_.notify_all();
        running_.await_all(lock);
        if (!worker_.joinable()) {
            return;
        }
        quit_ = true;
        parker_->wake();
        std::thread worker = std::move(worker_);
        lock.unlock();
        worker.join();
        lock.lock();
        parker_.reset();
    }

    /// Linear in the size of the pool, under the lock that arm and cancel take. In a forked child: the figures at the fork.
    [[nodiscard]] timerbench::counters counters() const {
        std::unique_lock lock{front_, std::defer_lock};
        if (!fork_.in_child()) {
            lock.lock();
        }
        timerbench::counters c{
            .armed = armed_, .fired = fired_, .cancelled = cancelled_, .dropped = dropped_, .threw = threw_};
        for_each_node([&c](node& n) { c.pending += n.owner.load(std::memory_order_relaxed) != nullptr; });
        return c;
    }

    [[nodiscard]] service_traits traits() const {
        return {.resolution = duration{options_.tick_ns},
                .latest = duration{options_.tick_ns},
                .cancel_frees = false,
                .allocates = "nothing once the pool of 64-byte nodes has grown to its high water mark",
                .fifo = true,
                .manual_clock = true};
    }

    /// Queued nodes that the worker has not placed into the wheel, plus cancelled ones that it has not freed. With `mark`
    /// cancel hands nothing over, and the dead nodes in the wheel do not count.
    [[nodiscard]] std::size_t backlog() const {
        const std::lock_guard lock{front_};
        return queued_ + unfreed_;
    }

    /// Wakes the worker to take over at once, and beyond the 100 000 of a tick, what was handed over before the call. Not from
    /// inside a callback.
    void drain() {
        if (fork_.in_child()) {
            return;
        }
        std::unique_lock lock{front_};
        if (stopped_ || !worker_.joinable()) {
            return;
        }
        const std::uint64_t ticket = ++drain_requested_;
        parker_->wake();
        drained_.wait(lock, [this, ticket] { return drain_done_ >= ticket || stopped_; });
    }

    /// Nodes in the pool, whether in use or free. For tests.
    [[nodiscard]] std::size_t pool_size() const {
        const std::lock_guard lock{front_};
        return chunks_.size() * nodes_per_chunk;
    }

  private:
    static constexpr std::size_t nodes_per_chunk = 1'024;

    // The links place a node in the front queue, in a slot or among the due: first the front lock guards them, and from the
    // moment the worker has taken the node over they are the worker's, as are `rounds` and `placed`.
    struct alignas(64) node : detail::list_link {
        node* chain =
            nullptr; // next on the cancelled queue or in the pool; guarded by the lock, or by whoever took it off
        union {
            std::int64_t deadline_ns = 0; // on the clock, until placed
            std::int64_t rounds;          // whole turns still to pass, once placed
        };
        callback action;
        // The timer that is armed with this node; null when fired, cancelled or free. Written under the front lock only.
        // Atomic because the worker of a wheel that only marks looks for null without the lock: null is final until
        // the worker itself gives the node back, and the acquire pairs with the release of the cancel.
        std::atomic<timer*> owner{nullptr};
        bool placed = false;

        [[nodiscard]] bool dead() const noexcept { return owner.load(std::memory_order_acquire) == nullptr; }

        bool disown(const timer* t) noexcept {
            if (owner.load(std::memory_order_relaxed) != t) {
                return false;
            }
            owner.store(nullptr, std::memory_order_release);
            return true;
        }
    };
    static_assert(sizeof(node) == 64);

    // Free nodes on their way to the pool.
    struct free_chain {
        node* first = nullptr;
        node* last = nullptr;

        void push(node& n) noexcept {
            n.chain = first;
            first = &n;
            if (last == nullptr) {
                last = &n;
            }
        }
    };

    static hashed_wheel_options checked(hashed_wheel_options options) {
        if (options.tick_ns < 1'000) {
            throw std::invalid_argument{"hashed_wheel: tick of " + std::to_string(options.tick_ns) +
                                        " ns; at least 1000 is needed"};
        }
        return options;
    }

    // --- the callers' side; the front lock is held ---

    void grow() {
        chunks_.push_back(std::make_unique<node[]>(nodes_per_chunk));
        for (std::size_t i = nodes_per_chunk; i-- > 0;) {
            give_back(chunks_.back()[i]);
        }
    }

    void give_back(node& n) noexcept {
        n.chain = free_;
        free_ = &n;
    }

    void give_back(const free_chain& freed) noexcept {
        if (freed.first != nullptr) {
            freed.last->chain = free_;
            free_ = freed.first;
        }
    }

    bool withdraw(timer& t) noexcept {
        node* const n = t.node_;
        if (n == nullptr || !n->disown(&t)) {
            return false;
        }
        ++cancelled_;
        if (!options_.mark) {
            n->chain = cancelled_queue_;
            cancelled_queue_ = n;
            ++unfreed_;
        }
        return true;
    }

    template <class F>
    void for_each_node(F&& f) const {
        for (const auto& chunk : chunks_) {
            std::for_each_n(chunk.get(), nodes_per_chunk, f);
        }
    }

    void start_worker(time_point now) {
        current_ = tick_reached(now);
        parker_.emplace(clock_);
        try {
            worker_ = detail::start_driver("tb_wheel", [this] { work(); });
        } catch (...) {
            parker_.reset();
            throw;
        }
    }

    // --- any thread; the front lock is not held ---

    void release(timer& t) {
        if (!detail::callback_scope::inside_own(&t) || fork_.in_child()) {
            cancel(t);
            return;
        }
        {
            const std::lock_guard lock{front_};
            withdraw(t);
            running_.forget(&t);
        }
        detail::callback_scope::forget(&t);
    }

    // --- time ---

    // The last tick that is not after `now`, which is not before the start.
    [[nodiscard]] std::int64_t tick_reached(time_point now) const noexcept {
        return (now - start_).count() / options_.tick_ns;
    }

    // The first tick that is not before the deadline.
    [[nodiscard]] std::int64_t tick_of(std::int64_t deadline_ns) const noexcept {
        std::int64_t since_start = 0;
        if (__builtin_sub_overflow(deadline_ns, start_.time_since_epoch().count(), &since_start)) {
            since_start = std::numeric_limits<std::int64_t>::max();
        }
        return ceil_ticks(duration{since_start}, duration{options_.tick_ns});
    }

    [[nodiscard]] time_point time_of(std::int64_t tick) const noexcept {
        std::int64_t since_start = 0;
        if (__builtin_mul_overflow(tick, options_.tick_ns, &since_start)) {
            return time_point::max();
        }
        return saturating_add(start_, duration{since_start});
    }

    // --- the worker's side; the front lock is not held unless a function takes it as a parameter ---

    void work() {
        std::unique_lock lock{front_};
        while (!quit_) {
            if (drain_done_ != drain_requested_) {
                const std::uint64_t ticket = drain_requested_;
                lock.unlock();
                take_over(std::numeric_limits<std::size_t>::max());
                lock.lock();
                drain_done_ = ticket;
                drained_.notify_all();
                continue;
            }
            const std::int64_t target = tick_reached(clock_.now());
            if (target > current_) {
                lock.unlock();
                advance(target);
                lock.lock();
                continue;
            }
            parker_->wait_until(lock, time_of(current_ + 1));
        }
    }

    void advance(std::int64_t target) {
        std::int64_t next_look = current_;
        while (current_ < target) {
            if (!take_over(transfers_per_tick)) {
                return;
            }
            expire(wheel_[slot_of(current_ + 1)]);
            ++current_;
            // A turn that was not skipped has something due in it; looking again before its end would find the same.
            if (target - current_ > slots && current_ >= next_look && staged_.empty()) {
                skip_turns((target - current_) / slots);
                next_look = current_ + slots;
            }
        }
    }

    // False: the worker has to leave.
    bool take_over(std::size_t most) {
        node* cancelled = nullptr;
        {
            const std::lock_guard lock{front_};
            if (quit_) {
                return false;
            }
            staged_.splice_back(incoming_);
            cancelled = std::exchange(cancelled_queue_, nullptr);
        }
        free_chain freed;
        std::size_t cancelled_count = 0;
        std::size_t left_queue = 0;
        while (cancelled != nullptr) {
            node& n = *std::exchange(cancelled, cancelled->chain);
            // Every arm before this cancel was taken over with it, so the node is in a list of the worker's, or in none
            // because its tick came first.
            if (n.linked()) {
                n.unlink();
                left_queue += n.placed ? 0 : 1;
            }
            freed.push(n);
            ++cancelled_count;
        }
        for (std::size_t i = 0; i < most && !staged_.empty(); ++i) {
            node& n = *staged_.front();
            n.unlink();
            ++left_queue;
            if (options_.mark && n.dead()) {
                freed.push(n);
            } else {
                place(n);
            }
        }
        const std::lock_guard lock{front_};
        give_back(freed);
        queued_ -= left_queue;
        unfreed_ -= cancelled_count;
        return true;
    }

    static constexpr std::size_t slot_of(std::int64_t tick) noexcept {
        return static_cast<std::size_t>(tick % slots);
    }

    // What is late already goes to the next tick.
    void place(node& n) noexcept {
        const std::int64_t tick = std::max(tick_of(n.deadline_ns), current_ + 1);
        n.rounds = (tick - (current_ + 1)) / slots;
        n.placed = true;
        wheel_[slot_of(tick)].push_back(n);
    }

    void expire(detail::list<node>& slot) {
        free_chain freed;
        for (node* n = slot.front(); n != nullptr;) {
            node& visited = *std::exchange(n, slot.after(*n));
            if (visited.rounds > 0) {
                --visited.rounds;
                continue;
            }
            visited.unlink();
            if (options_.mark && visited.dead()) {
                freed.push(visited);
            } else {
                due_.push_back(visited);
            }
        }
        if (due_.empty() && freed.first == nullptr) {
            return;
        }
        std::unique_lock lock{front_};
        give_back(freed);
        while (!due_.empty()) {
            node& n = *due_.front();
            n.unlink();
            fire(lock, n);
        }
    }

    void fire(std::unique_lock<std::mutex>& lock, node& n) {
        timer* const t = n.owner.load(std::memory_order_relaxed);
        if (t == nullptr) {
            // Cancelled while it waited here. Without `mark` it is on the cancelled queue, and freed from there.
            if (options_.mark) {
                give_back(n);
            }
            return;
        }
        const callback c = n.action;
        n.disown(t);
        give_back(n);
        ++fired_;
        typename detail::running_set<std::mutex>::record running;
        running_.begin(running, t);
        lock.unlock();
        bool threw = false;
        {
            const detail::callback_scope scope{this, t};
            threw = detail::run_guarded(c);
        }
        lock.lock();
        threw_ += threw ? 1 : 0;
        running_.end(running);
    }

    // Passes over as many whole turns as have nothing due in them, at most `turns`. A whole turn leaves every slot where it
    // is and takes one round off every node.
    void skip_turns(std::int64_t turns) noexcept {
        const auto for_each_placed = [this](auto&& f) {
            for (detail::list<node>& slot : wheel_) {
                for (node* n = slot.front(); n != nullptr; n = slot.after(*n)) {
                    f(*n);
                }
            }
        };
        for_each_placed([&turns](const node& n) { turns = std::min(turns, n.rounds); });
        if (turns > 0) {
            for_each_placed([turns](node& n) { n.rounds -= turns; });
            current_ += turns * slots;
        }
    }

    Clock& clock_;
    const hashed_wheel_options options_;
    const time_point start_; // of tick 0
    detail::fork_guard fork_;

    // The front. The lock guards everything down to the worker's part.
    alignas(64) mutable std::mutex front_;
    node* free_ = nullptr;
    node* cancelled_queue_ = nullptr; // newest first; the order does not matter
    detail::list<node> incoming_;
    std::uint64_t armed_ = 0;
    std::uint64_t cancelled_ = 0;
    std::uint64_t queued_ = 0;  // nodes in incoming_ and staged_
    std::uint64_t unfreed_ = 0; // nodes on the cancelled queue, or taken off it and not in the pool yet
    bool stopped_ = false;
    bool quit_ = false;
    detail::running_set<std::mutex> running_;
    std::uint64_t fired_ = 0;
    std::uint64_t dropped_ = 0;
    std::uint64_t threw_ = 0;
    std::uint64_t drain_requested_ = 0;
    std::uint64_t drain_done_ = 0;
    std::condition_variable drained_;
    std::vector<std::unique_ptr<node[]>> chunks_;
    std::optional<typename Clock::parker> parker_; // exists as long as the worker
    std::thread worker_;

    // The worker's part. current_ is set before the worker starts.
    alignas(64) std::int64_t current_ = 0; // the last tick that is done
    detail::list<node> staged_;            // taken over from the front, not placed yet
    detail::list<node> due_;               // out of their slot, about to fire
    std::array<detail::list<node>, static_cast<std::size_t>(slots)> wheel_;
};

static_assert(timer_service<hashed_wheel<steady_time>> && deferring_service<hashed_wheel<steady_time>>);

} // namespace timerbench
