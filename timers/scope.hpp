// The life of a piece of work as a tree: whoever starts work is stopped no later than it ends, and leaves no earlier than what it has started.
//
// How it works
//   A scope owns a std::stop_source. It is stopped by its deadline, by the scope above it, by a call, by a failure, or by being left, whichever
//   comes first: one compare-and-swap settles the cause, before the stop is requested, so that everybody who sees the stop reads
//   the same cause. A scope below another registers a std::stop_callback there and takes the earlier of the two deadlines.
//   The deadline arms one timer on the service. When it fires, the stop is requested on the service's driver; leaving cancels it. Where the
//   scope above stops no later anyway, no timer is armed.
//   Work that runs elsewhere holds a ticket (`enter`), a scope below holds one of its own. Leaving requests stop and waits until all tickets
//   are back.
// What it costs
//   One allocation: the state of the std::stop_source. With a deadline one clock reading, one arm and one cancel. A deadline that is none, that has
//   passed, or that is not before the one above touches no timer.
// What it is bad at
//   It asks, it does not force: work that does not look at its token runs on, and leaving waits for it. The time between two looks is what a stop takes.
//   The destructor blocks its thread. Where the work inside needs that very thread, as coroutines of one event loop do, first `co_await leave()`.
#pragma once

#include "timers/clock.hpp"
#include "timers/deadline.hpp"
#include "timers/detail/coroutine.hpp"
#include "timers/detail/watched_timer.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <type_traits>
#include <utility>

namespace timerbench {

/// Why work was asked to stop.
enum class stop_cause : std::uint8_t {
    none,          ///< It was not.
    deadline,      ///< The deadline has passed.
    parent,        ///< What is above was stopped; see `scope_base::origin`.
    requested,     ///< Somebody called `stop`.
    failure,       ///< Somebody called `fail`.
    left,          ///< The scope was left, with nothing of the above before.
    unenforceable, ///< The service refused to arm, so that nothing would have kept the deadline.
};

[[nodiscard]] constexpr std::string_view to_string(stop_cause cause) noexcept {
    switch (cause) {
    case stop_cause::none:
        return "none";
    case stop_cause::deadline:
        return "deadline";
    case stop_cause::parent:
        return "parent";
    case stop_cause::requested:
        return "requested";
    case stop_cause::failure:
        return "failure";
    case stop_cause::left:
        return "left";
    case stop_cause::unenforceable:
        return "unenforceable";
    }
    return "unknown";
}

class scope_base;

/// The scope that issued it waits for it to come back: by destruction, by being assigned to, or by `release`. One ticket is used by one thread
/// at a time; it may travel between threads.
class scope_ticket {
  public:
    scope_ticket() noexcept = default;
    scope_ticket(scope_ticket&& other) noexcept : scope_{std::exchange(other.scope_, nullptr)} {}
    scope_ticket& operator=(scope_ticket&& other) noexcept {
        if (this != &other) {
            // Given back at the end: that may be the end of whatever holds this ticket.
            const scope_ticket old{std::move(*this)};
            scope_ = std::exchange(other.scope_, nullptr);
        }
        return *this;
    }
    ~scope_ticket() { release(); }

    /// The last ticket to come back resumes the coroutine that awaits `leave`, on this thread. Afterwards the scope must not be touched: it may be gone.
    void release() noexcept;

  private:
    friend class scope_base;
    explicit scope_ticket(scope_base& scope) noexcept : scope_{&scope} {}

    scope_base* scope_ = nullptr;
};

/// What does not depend on the service: a scope can hang under a scope on another service. Every member may be called from any thread, unless it says
/// otherwise, by whoever holds a ticket or otherwise knows that the scope has not been left.
class scope_base {
  public:
    scope_base(const scope_base&) = delete;
    scope_base& operator=(const scope_base&) = delete;

    /// Stopped as soon as anything stops the scope. A token may outlive its scope.
    [[nodiscard]] std::stop_token token() const noexcept { return source_.get_token(); }

    /// The deadline in force: the scope's own, or the one above where that is earlier.
    [[nodiscard]] deadline until() const noexcept { return until_; }

    /// Requests stop, unless that has been done, and runs the callbacks of the token here. True: `cause` is the cause that counts. When it returns,
    /// the token is stopped. `cause` is not none.
    bool stop(stop_cause cause = stop_cause::requested) noexcept { return stop_as(cause, cause); }

    /// Stops with the cause failure and keeps `error` if that was first. Scopes above are not stopped: that is for whoever sees the failure to decide.
    bool fail(std::exception_ptr error = std::current_exception()) noexcept {
        bool first = false;
        {
            const std::lock_guard lock{mutex_};
            first = settle(stop_cause::failure, stop_cause::failure);
            if (first) {
                error_ = std::move(error);
            }
        }
        request_stop();
        return first;
    }

    /// Of the first `fail`, if the cause is failure; may be null then too.
    [[nodiscard]] std::exception_ptr error() const noexcept {
        const std::lock_guard lock{mutex_};
        return error_;
    }

    /// None until the scope is stopped. Never changes afterwards. Whoever sees the token stopped does not read none.
    [[nodiscard]] stop_cause cause() const noexcept {
        return static_cast<stop_cause>(ending_.load(std::memory_order_acquire) & 0xFFU);
    }

    /// Where `cause` is parent, the cause of the topmost scope that the stop came from (parent if it came from a bare token); else `cause`.
    [[nodiscard]] stop_cause origin() const noexcept {
        return static_cast<stop_cause>(ending_.load(std::memory_order_acquire) >> 8U);
    }

    /// A ticket for work that runs elsewhere. Also given out once the scope is stopped: the work then sees that in its token.
    [[nodiscard]] scope_ticket enter() noexcept {
        const std::lock_guard lock{mutex_};
        ++inside_;
        return scope_ticket{*this};
    }

    /// Tickets out, those of the scopes directly below included.
    [[nodiscard]] std::size_t children() const noexcept {
        const std::lock_guard lock{mutex_};
        return inside_;
    }

    /// Blocks until no ticket is out. Requests nothing.
    void wait() noexcept {
        std::unique_lock lock{mutex_};
        empty_.wait(lock, [this] { return inside_ == 0; });
    }

    /// What `co_await leave()` awaits: requests stop with the cause left and goes on when no ticket is out, on the thread that gave back the last. At most
    /// one coroutine awaits it at a time, for which there is room in the scope. The destructor then has nothing to wait for.
    class leaving {
      public:
        explicit leaving(scope_base& scope) noexcept : scope_{scope} {}
        leaving(const leaving&) = delete;
        leaving& operator=(const leaving&) = delete;
        /// A coroutine that is destroyed while it waits is not resumed. Not while the last ticket is being given back, which resumes it.
        ~leaving() {
            if (waits_) {
                const std::lock_guard lock{scope_.mutex_};
                scope_.waiter_ = nullptr;
            }
        }
        [[nodiscard]] bool await_ready() const noexcept {
            scope_.stop(stop_cause::left);
            return scope_.children() == 0;
        }
        [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiter) noexcept {
            const std::lock_guard lock{scope_.mutex_};
            if (scope_.inside_ == 0) {
                return false;
            }
            // Before the lock is given back: from then on the coroutine may be resumed, and this be gone.
            waits_ = true;
            scope_.waiter_ = waiter;
            return true;
        }
        void await_resume() noexcept { waits_ = false; }

      private:
        scope_base& scope_;
        bool waits_ = false;
    };

    [[nodiscard]] leaving leave() noexcept { return leaving{*this}; }

  protected:
    scope_base(std::stop_token outer, scope_base* parent, deadline until)
        : place_{parent != nullptr ? parent->enter() : scope_ticket{}},
          until_{parent != nullptr ? earlier(until, parent->until_) : until},
          parent_{parent},
          above_{std::move(outer), follow{*this}} {}

    ~scope_base() = default;

    // The destructor of the derived class disarms its timer and calls this before anything is gone.
    void leave_and_wait() noexcept {
        stop(stop_cause::left);
        wait();
    }

    // For the timer: what is left to do is to request stop on the source, which is a copy because that may end the scope.
    [[nodiscard]] std::stop_source settle_for_timer() noexcept {
        settle(stop_cause::deadline, stop_cause::deadline);
        return source_;
    }

  private:
    friend class scope_ticket;

    struct follow {
        scope_base& scope;
        void operator()() const noexcept {
            const stop_cause origin = scope.parent_ != nullptr ? scope.parent_->origin() : stop_cause::parent;
            scope.stop_as(stop_cause::parent, origin);
        }
    };

    bool stop_as(stop_cause cause, stop_cause origin) noexcept {
        const bool first = settle(cause, origin);
        request_stop();
        return first;
    }

    bool settle(stop_cause cause, stop_cause origin) noexcept {
        std::uint16_t running = 0;
        const auto ending =
            static_cast<std::uint16_t>(static_cast<unsigned>(cause) | static_cast<unsigned>(origin) << 8U);
        return ending_.compare_exchange_strong(running, ending, std::memory_order_acq_rel,
                                               std::memory_order_acquire);
    }

    // Also by those who came second: their callers rely on the token being stopped. A copy, because a callback of the token may
    // lead to the end of the scope.
    void request_stop() noexcept {
        std::stop_source source = source_;
        source.request_stop();
    }

    void take_back_ticket() noexcept {
        std::coroutine_handle<> waiter;
        {
            const std::lock_guard lock{mutex_};
            if (--inside_ == 0) {
                waiter = std::exchange(waiter_, nullptr);
                // Under the mutex: whoever waits may end the scope as soon as it has been given back.
                empty_.notify_all();
            }
        }
        if (waiter) {
            waiter.resume();
        }
    }

    // First, and so the last to go: to give it back may resume a coroutine that ends the parent and, with its frame, this object's memory.
    scope_ticket place_;
    const deadline until_;
    scope_base* const parent_;
    // Cause in the low byte, origin in the high one; zero until stopped. Any thread; written once, by the compare-and-swap that wins, whose
    // release pairs with the acquire of the readers.
    std::atomic<std::uint16_t> ending_{0};
    std::stop_source source_;
    mutable std::mutex mutex_; // guards the four below
    std::condition_variable empty_;
    std::size_t inside_ = 0;
    std::coroutine_handle<> waiter_;
    std::exception_ptr error_;
    // Last: a parent that has been stopped calls it at once. Its end waits for a stop from above that is being passed on.
    std::stop_callback<follow> above_;
};

inline void scope_ticket::release() noexcept {
    if (scope_base* scope = std::exchange(scope_, nullptr)) {
        scope->take_back_ticket();
    }
}

/// The service and the clock outlive the scope; the clock is the one that the service and the deadlines count on. Made and left by one thread or coroutine. The
/// stop runs callbacks of the token on the service's driver: what they do has to be short and must obey the service's traits (a service
/// with `callback_may_call` false may not be called there, which a coroutine that is resumed there may do).
///
/// A service that refuses to arm, because it has stopped, leaves the scope stopped from the beginning with the cause unenforceable. One that is stopped
/// later drops the timer: the deadline then still stands in `until`, but nobody is told that it has passed.
template <timer_service Service, clock_source Clock = steady_time>
class scope : public scope_base {
  public:
    /// A scope with nothing above it. Throws what the service's `arm` throws, and std::bad_alloc.
    scope(Service& service, deadline until, Clock& clock = default_clock())
        : scope_base{std::stop_token{}, nullptr, until} {
        enforce(service, clock, deadline::none());
    }

    /// Below `parent`, which must not have been left; `until` later than the parent's counts as the parent's.
    scope(scope_base& parent, Service& service, deadline until = deadline::none(),
          Clock& clock = default_clock())
        : scope_base{parent.token(), &parent, until} {
        enforce(service, clock, parent.until());
    }

    /// Below whatever stops `outer`, for example a std::jthread.
    scope(std::stop_token outer, Service& service, deadline until, Clock& clock = default_clock())
        : scope_base{std::move(outer), nullptr, until} {
        enforce(service, clock, deadline::none());
    }

    /// Requests stop (cause left), cancels the timer, and waits for every ticket and every scope below. Not by one of its own tickets.
    ~scope() {
        timer_.disarm();
        leave_and_wait();
    }

  private:
    static Clock& default_clock() {
        if constexpr (std::is_same_v<Clock, steady_time>) {
            return steady();
        } else {
            static_assert(std::is_same_v<Clock, steady_time>, "name the clock that the service counts on");
        }
    }

    void enforce(Service& service, Clock& clock, deadline above) {
        if (until().is_none() || cause() != stop_cause::none) {
            return;
        }
        // Also where it is the deadline above that has passed: the timer there may not have fired yet.
        const duration left = until().remaining(clock.now());
        if (left == duration::zero()) {
            stop(stop_cause::deadline);
        } else if (until() < above && !timer_.arm(service, left, callback{&scope::on_deadline, this})) {
            stop(stop_cause::unenforceable);
        }
    }

    static void on_deadline(void* at) {
        std::stop_source source = static_cast<scope*>(at)->settle_for_timer();
        source.request_stop();
    }

    detail::watched_timer<Service> timer_;
};

} // namespace timerbench
