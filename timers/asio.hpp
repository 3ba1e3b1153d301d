// Boost.Asio's steady timers on one io_context. A thread of the service runs it (`asio`), or the caller's loop does: without
// any locks (`asio_per_thread`), or with locks, so that any thread may cancel (`asio_per_thread/locked`).
//
// How it works
//   A timer embeds an Asio timer. arm reads the clock, allocates one block that holds our state and, through the
//   handler's associated allocator, Asio's operation, and starts a wait; the handler owns the block and frees it when it is
//   run or destroyed. A cancelled wait is delivered to its handler too, perhaps when the timer is gone: so the block
//   says which timer it serves, cancel takes that away under our lock, and a handler whose block serves nobody does
//   nothing. The same decides when Asio has queued the completion before cancel came: the lock says who was first, not
//   Asio.
// What it costs
//   arm: an allocation, a reading of the clock, a spin lock, Asio's mutex, O(log n) moves in its heap; a timerfd system call
//   when the timer becomes the earliest. cancel: the locks again, and the aborted handler goes to the thread that runs
//   the context, waking it if it sleeps. Blocks are not recycled: the library's users have an allocation per wait too, and
//   allocators recycle small blocks well.
// What it is bad at
//   Being used from other threads: each cancel is work for the running thread, so a saturating loop builds up a
//   backlog of aborted handlers and their blocks.
// Where it departs from the library
//   The io_context's own executor instead of the type-erased one. poll ends although a callback arms for now each time,
//   which io_context::poll would not: a completion of a timer that was armed in the same pass is put by for the next one.
//   poll_until may return up to a millisecond after its bound when nothing fires: Asio waits in whole milliseconds.
#pragma once

#include "timers/asio_direct.hpp"
#include "timers/detail/asio_support.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/list.hpp"
#include "timers/detail/running_set.hpp"
#include "timers/detail/third_party.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace timerbench {

/// With an own thread usable from any thread. Driven by a loop: arm only from the thread that polls; cancel too, unless
/// `locked`; `counters` from any thread.
template <asio_options Options>
class basic_asio {
    static_assert(Options.locked || !Options.own_thread(), "an own thread needs locks");
    using lock_type = detail::lock_if<Options.locked>;
    using running_set = detail::running_set<lock_type>;
    struct block;

  public:
    /// The same duties by hand, to be measured beside this adapter.
    using direct = asio_direct<Options>;

    class timer : detail::list_link {
      public:
        explicit timer(basic_asio& service)
            : service_{service},
              wait_{service.engine_->context.get_executor()} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            service_.withdraw(*this, true);
            if (!service_.fork_.in_child()) {
                wait_.~asio_timer();
            }
        }

      private:
        friend class basic_asio;
        friend class detail::list<timer>;
        using asio_timer = detail::asio_timer;

        basic_asio& service_;
        callback callback_;      // guarded by the service's lock, as is all but wait_ and pass_
        bool armed_ = false;     // in one of the service's lists
        block* block_ = nullptr; // of the wait that is under way
        std::uint64_t pass_ = 0; // in which a callback armed it, 0 outside any; only the polling thread
        // Used without the lock: the caller serialises calls, and cancel first waits for a callback that may be arming.
        // In a union, because in a forked child it is left alone: Asio's mutex may be locked for ever.
        union {
            asio_timer wait_;
        };
    };

    /// Throws what Asio throws when it cannot have its file descriptors, std::system_error when no thread can be started.
    basic_asio() : engine_{std::make_unique<engine>()} {
        if constexpr (Options.own_thread()) {
            engine_->thread =
                detail::start_driver("tb_asio", [&context = engine_->context] { context.run(); });
        }
    }
    basic_asio(const basic_asio&) = delete;
    basic_asio& operator=(const basic_asio&) = delete;
    ~basic_asio() {
        stop();
        if (fork_.in_child()) {
            // The epoll instance is the parent's too, and locks may be held for ever: nothing of it may be touched.
            (void)engine_.release();
        }
    }

    /// Besides what every service promises: throws std::bad_alloc, and nothing is armed then.
    bool arm(timer& t, duration d, callback c) {
        if (fork_.in_child()) {
            return false;
        }
        auto owned = std::make_unique<block>(*this, t);
        {
            const std::lock_guard lock{lock_};
            if (stopped_ || running_.bars(&t)) {
                return false;
            }
            t.callback_ = c;
            t.armed_ = true;
            t.block_ = owned.get();
            armed_list_.push_back(t);
            armed_.add();
            pending_.add();
        }
        if constexpr (!Options.own_thread()) {
            t.pass_ = in_pass_ ? pass_ : 0;
        }
        // A negative duration must not sort before timers that are due: its callback could then starve them for ever.
        t.wait_.expires_at(saturating_add(std::chrono::steady_clock::now(), std::max(d, duration::zero())));
        // From here on the callback may run and destroy the timer.
        t.wait_.async_wait(handler{std::move(owned)});
        return true;
    }

    bool cancel(timer& t) { return withdraw(t, false); }

    /// Driven by a loop: from the polling thread, or when nobody polls any more.
    void stop() {
        if (fork_.in_child()) {
            // The lists may be in any state. The armed marks lose their meaning with `stopped_`.
            stopped_ = true;
            dropped_.add(pending_.get());
            pending_.set(0);
            return;
        }
        const std::lock_guard once{stopping_};
        {
            const std::lock_guard lock{lock_};
            stopped_ = true;
            backlog_.set(0);
            drop(armed_list_);
            drop(parked_list_);
        }
        drained_.notify_all();
        if constexpr (Options.own_thread()) {
            if (engine_->thread.joinable()) {
                engine_->context.stop();
                engine_->thread.join();
            }
        }
    }

    /// Runs what is due; see `loop_service`.
    std::size_t poll() requires(!Options.own_thread()) {
        if (stopped_ || fork_.in_child()) {
            return 0;
        }
        begin_pass();
        run_parked();
        engine_->context.poll();
        in_pass_ = false;
        return ran_;
    }

    /// Runs what is due, waiting for it until `t` at most; see `loop_service`.
    std::size_t poll_until(time_point t) requires(!Options.own_thread()) {
        if (stopped_ || fork_.in_child()) {
            return 0;
        }
        begin_pass();
        run_parked();
        while (ran_ == 0 && std::chrono::steady_clock::now() < t) {
            engine_->context.run_one_until(t);
        }
        engine_->context.poll();
        in_pass_ = false;
        return ran_;
    }

    /// Cancelled waits whose handlers have not been delivered; each holds its block.
    [[nodiscard]] std::size_t backlog() const noexcept { return backlog_.get(); }

    /// Returns when the handlers of all waits cancelled before the call have been delivered, or the service stops. Not
    /// inside a callback. Driven by a loop it polls, and so may run callbacks.
    void drain() {
        if (fork_.in_child()) {
            return;
        }
        if constexpr (Options.own_thread()) {
            // Handlers run in the order in which they were queued.
            const auto reached = std::make_shared<bool>(false); // guarded by lock_
            boost::asio::post(engine_->context, [this, reached] {
                {
                    const std::lock_guard lock{lock_};
                    *reached = true;
                }
                drained_.notify_all();
            });
            std::unique_lock lock{lock_};
            drained_.wait(lock, [&] { return *reached || stopped_; });
        } else {
            poll();
        }
    }

    [[nodiscard]] timerbench::counters counters() const {
        timerbench::counters c;
        if constexpr (Options.locked) {
            if (!fork_.in_child()) {
                const std::lock_guard lock{lock_};
                c = totals();
                c.pending = armed_list_.size() + parked_list_.size();
                return c;
            }
        }
        // Nobody else may walk what the loop's thread works on without a lock: the length is kept instead.
        c = totals();
        c.pending = pending_.get();
        return c;
    }

    [[nodiscard]] service_traits traits() const {
        service_traits t;
        t.resolution = duration{1};
        t.latest = std::chrono::microseconds{
            1}; // Asio waits in whole microseconds, and once more if that was too short
        t.cancel_frees = false;
        t.driver = Options.driver;
        if (!Options.own_thread()) {
            t.arm_from = callable_from::loop_thread;
            t.cancel_from = Options.locked ? callable_from::any_thread : callable_from::loop_thread;
        }
        t.allocates = "one block for our state and Asio's operation, freed when the handler is delivered";
        return t;
    }

  private:
    struct block {
        block(basic_asio& s, timer& t) noexcept : service{s}, serves{&t} {}
        basic_asio& service;
        timer* serves; // null: cancelled; guarded by the service's lock
        detail::operation_room room;
    };

    class handler {
      public:
        using allocator_type = detail::room_allocator<void>;

        explicit handler(std::unique_ptr<block> b) noexcept : block_{std::move(b)} {}
        [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_type{block_->room}; }

        // A wait that Asio aborts was withdrawn before, so the error code tells nothing new.
        void operator()(const boost::system::error_code&) {
            basic_asio& service = block_->service;
            service.deliver(std::move(block_));
        }

      private:
        std::unique_ptr<block> block_;
    };

    struct engine {
        boost::asio::io_context context{detail::asio_hint<Options>};
        detail::asio_guard guard{context.get_executor()};
        std::thread thread;
    };

    bool withdraw(timer& t, bool destroying) {
        if (fork_.in_child()) {
            const bool withdrawn = std::exchange(t.armed_, false) && !stopped_;
            if (withdrawn) {
                cancelled_.add();
                pending_.subtract();
            }
            return withdrawn;
        }
        bool withdrawn = false;
        bool waiting = false;
        {
            std::unique_lock lock{lock_};
            if (t.armed_) {
                withdrawn = true;
                waiting = detach(t);
                unlink(t);
                cancelled_.add();
            }
            if constexpr (Options.locked) {
                if (running_.running(&t)) {
                    if (!detail::callback_scope::inside(this)) {
                        running_.await(lock, &t);
                    } else if (destroying) { // inside its own callback: there is one driver
                        running_.forget(&t);
                        detail::callback_scope::forget(&t);
                    }
                }
            }
        }
        if (waiting) {
            t.wait_.cancel();
        }
        return withdrawn;
    }

    // The lock is held in these four.
    bool detach(timer& t) noexcept {
        block* const b = std::exchange(t.block_, nullptr);
        if (b == nullptr) {
            return false; // put by for the next pass: Asio is done with it
        }
        b->serves = nullptr;
        if (!stopped_) {
            backlog_.add();
        }
        return true;
    }

    void unlink(timer& t) noexcept {
        t.unlink();
        t.armed_ = false;
        pending_.subtract();
    }

    // Asio keeps the waits until their timers are destroyed; their handlers serve nobody any more.
    void drop(detail::list<timer>& timers) noexcept {
        while (timer* t = timers.front()) {
            detach(*t);
            unlink(*t);
            dropped_.add();
        }
    }

    callback begin(timer& t, typename running_set::record& running) noexcept {
        unlink(t);
        fired_.add();
        running_.begin(running, &t);
        return t.callback_;
    }

    void deliver(std::unique_ptr<block> b) noexcept {
        callback c;
        typename running_set::record running;
        timer* t = nullptr;
        {
            const std::lock_guard lock{lock_};
            t = b->serves;
            if (t == nullptr) {
                if (!stopped_) {
                    backlog_.subtract();
                }
                return;
            }
            t->block_ = nullptr;
            if constexpr (!Options.own_thread()) {
                if (t->pass_ == pass_) {
                    t->unlink();
                    parked_list_.push_back(*t);
                    return;
                }
            }
            c = begin(*t, running);
        }
        b.reset(); // so that the callback's own arm finds it free
        run(c, t, running);
    }

    // The timer may be gone as soon as the callback has begun; `t` is only a name here.
    void run(callback c, const timer* t, typename running_set::record& running) noexcept {
        ++ran_;
        bool threw = false;
        {
            const detail::callback_scope scope{this, t};
            threw = detail::run_guarded(c);
        }
        const std::lock_guard lock{lock_};
        running_.end(running);
        if (threw) {
            threw_.add();
        }
    }

    void begin_pass() noexcept {
        ++pass_;
        in_pass_ = true;
        ran_ = 0;
    }

    // Those that earlier passes put by stand in front of those of this pass.
    void run_parked() noexcept {
        for (;;) {
            callback c;
            typename running_set::record running;
            timer* t = nullptr;
            {
                const std::lock_guard lock{lock_};
                t = parked_list_.front();
                if (t == nullptr || t->pass_ == pass_) {
                    return;
                }
                c = begin(*t, running);
            }
            run(c, t, running);
        }
    }

    [[nodiscard]] timerbench::counters totals() const noexcept {
        return {.armed = armed_.get(),
                .fired = fired_.get(),
                .cancelled = cancelled_.get(),
                .dropped = dropped_.get(),
                .threw = threw_.get()};
    }

    std::unique_ptr<engine> engine_;
    detail::fork_guard fork_;
    std::mutex stopping_; // held while the own thread is joined
    // Only the thread that runs the context.
    std::uint64_t pass_ = 0;
    std::size_t ran_ = 0; // callbacks in this pass
    bool in_pass_ = false;

    // Never held while Asio is called. Guards all below, and what the timers and blocks say of themselves.
    mutable lock_type lock_;
    std::condition_variable_any drained_;
    detail::list<timer>
        armed_list_; // linked in the order in which Asio links its timers, so that neighbours are warm
    detail::list<timer> parked_list_; // expired in the pass that armed them
    running_set running_;
    detail::tally armed_;
    detail::tally fired_;
    detail::tally cancelled_;
    detail::tally dropped_;
    detail::tally threw_;
    detail::tally pending_;
    detail::tally backlog_;
    bool stopped_ = false;
};

static_assert(timer_service<basic_asio<asio_options{}>> && deferring_service<basic_asio<asio_options{}>>);
static_assert(loop_service<basic_asio<asio_options{.driver = driven_by::caller_loop, .locked = false}>>);

} // namespace timerbench
