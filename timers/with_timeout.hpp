// A deadline around one awaited operation of a C++20 coroutine.
//
//   timed_await<reply> r = co_await with_timeout(service, until, connection.read(source.get_token()), source);
//
// How it works
//   The operation is asked first: one that is ready gives its value, and no timer, no clock and no allocation is touched. Else a timer is armed
//   for what is left of the deadline, and the operation starts. When the timer fires, it requests stop on the operation and does nothing else: the
//   coroutine goes on only when the operation itself has ended, so that nothing runs on behind its back with references into its frame.
//   Value and timeout are settled by one compare-and-swap. A value that is there counts, even if the timer was first.
// What it costs
//   Everything lies in the awaiting coroutine's frame; nothing is allocated on either path. Pending: one clock reading, one arm, one cancel.
// What it is bad at
//   An operation that cannot be stopped cannot be timed out, and does not compile unless the caller says how. One that takes its time to stop is waited
//   for: the deadline bounds when it is asked to end.
//   An operation that ends inside its stop resumes the coroutine on the thread that requested the stop, which after a timeout is the service's driver. Not
//   to be used so with a service whose traits say callback_may_call is false.
//   gcc 12 destroys aggregates and closures that are made inside a co_await expression twice. Those that own something need a name:
//     auto stop = [kept] { ... };
//     co_await with_timeout(service, until, operation, std::move(stop));
// Boost.Asio's awaitables can only be awaited by Boost.Asio's coroutines: see asio_with_timeout.hpp.
#pragma once

#include "timers/clock.hpp"
#include "timers/deadline.hpp"
#include "timers/detail/coroutine.hpp"
#include "timers/detail/watched_timer.hpp"
#include "timers/scope.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <concepts>
#include <exception>
#include <functional>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <variant>

namespace timerbench {

/// How a timed operation ended.
template <class T>
struct timed_await {
    std::optional<T> value; ///< What the operation gave, in time or while it was being stopped.
    /// Why it was asked to stop: none (it ended by itself), deadline, or unenforceable (the service refused to arm). An operation that
    /// reports its stop as a value is told from a late success by this.
    stop_cause cause = stop_cause::none;
    std::exception_ptr
        error; ///< What it threw after it had been asked to stop. Before that, exceptions pass through.

    /// Whether there is no value.
    [[nodiscard]] bool elapsed() const noexcept { return !value.has_value(); }
};

namespace detail {

template <class A>
concept member_co_await = requires(A&& a) {
    std::forward<A>(a).operator co_await();
};
template <class A>
concept free_co_await = requires(A&& a) {
    operator co_await(std::forward<A>(a));
};

/// The awaiter of an awaitable, as co_await finds it.
template <class A>
decltype(auto) awaiter_of(A&& a) {
    if constexpr (member_co_await<A>) {
        return std::forward<A>(a).operator co_await();
    } else if constexpr (free_co_await<A>) {
        return operator co_await(std::forward<A>(a));
    } else {
        return std::forward<A>(a);
    }
}

template <class A>
using awaiter_type = decltype(awaiter_of(std::declval<A>()));

/// void becomes std::monostate; references are copied from.
template <class R>
using awaited_value = std::conditional_t<std::is_void_v<R>, std::monostate, std::remove_cvref_t<R>>;

/// Requests stop on a source of the caller's. A copy is asked, because the stop may lead to the end of the source.
struct stop_by_source {
    std::stop_source* source;
    template <class Awaitable>
    void operator()(Awaitable&) const noexcept {
        std::stop_source kept = *source;
        kept.request_stop();
    }
};

/// Calls a function of the caller's. Moved out first, because the stop may lead to the end of the place where it lies.
template <class F>
struct stop_by_call {
    F call;
    template <class Awaitable>
    void operator()(Awaitable&) {
        F kept = std::move(call);
        kept();
    }
};

/// Asks the operation itself.
struct stop_by_member {
    template <class Awaitable>
    void operator()(Awaitable& operation) const noexcept {
        operation.request_stop();
    }
};

template <class Service, class Clock, class Awaitable, class Stop>
class timeout_awaiter {
  public:
    using awaiter = awaiter_type<Awaitable&&>;
    using raw_result = decltype(std::declval<std::remove_reference_t<awaiter>&>().await_resume());
    using result = timed_await<awaited_value<raw_result>>;

    timeout_awaiter(Service& service, deadline until, Clock& clock, Awaitable&& operation, Stop stop)
        : service_{service},
          clock_{clock},
          until_{until},
          operation_{std::forward<Awaitable>(operation)},
          awaiter_(awaiter_of(std::forward<Awaitable>(operation_))),
          stop_{std::move(stop)} {}
    timeout_awaiter(const timeout_awaiter&) = delete;
    timeout_awaiter& operator=(const timeout_awaiter&) = delete;
    // Also of a coroutine that is destroyed while it waits: the timer goes before the operation that it would stop.
    ~timeout_awaiter() = default;

    bool await_ready() { return static_cast<bool>(awaiter_.await_ready()); }

    // The timer is armed before the operation starts: afterwards this object may be gone.
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> waiter) {
        guard();
        return awaiter_.await_suspend(waiter);
    }

    result await_resume() {
        if (!guarded_) {
            return finish(stop_cause::none);
        }
        stop_cause cause = stop_cause::none;
        // A timer that fires from now on leaves the operation alone.
        if (!cause_.compare_exchange_strong(cause, ended, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
            timer_.reset();
            return finish_stopped(cause);
        }
        timer_.reset();
        return finish(stop_cause::none);
    }

  private:
    // No cause that anybody is told of: the operation ended before it was asked to.
    static constexpr auto ended = static_cast<stop_cause>(0xFF);

    void guard() {
        if (until_.is_none()) {
            return;
        }
        guarded_ = true;
        const duration left = until_.remaining(clock_.now());
        if (left == duration::zero()) {
            stop_as(stop_cause::deadline);
        } else if (!timer_.emplace().arm(service_, left, callback{&timeout_awaiter::on_deadline, this})) {
            stop_as(stop_cause::unenforceable);
        }
    }

    void stop_as(stop_cause cause) {
        stop_cause running = stop_cause::none;
        if (cause_.compare_exchange_strong(running, cause, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
            stop_(operation_);
        }
    }

    static void on_deadline(void* at) { static_cast<timeout_awaiter*>(at)->stop_as(stop_cause::deadline); }

    using value = awaited_value<raw_result>;

    // Converts to the operation's value, so that it is built where it stays. For types of plain data, which gcc otherwise copies in
    // pieces that the processor has to wait for: on the ready path more than all else here. Not for types that take anything.
    struct value_of {
        std::remove_reference_t<awaiter>& from;
        operator value() const { return from.await_resume(); } // NOLINT(google-explicit-constructor)
    };
    struct anything {};
    static constexpr bool in_place =
        std::is_trivially_copyable_v<value> && !std::is_constructible_v<value, anything>;

    result finish(stop_cause cause) {
        if constexpr (std::is_void_v<raw_result>) {
            awaiter_.await_resume();
            return result{std::monostate{}, cause, nullptr};
        } else if constexpr (in_place) {
            return result{std::optional<value>{std::in_place, value_of{awaiter_}}, cause, nullptr};
        } else {
            return result{awaiter_.await_resume(), cause, nullptr};
        }
    }

    result finish_stopped(stop_cause cause) {
        try {
            return finish(cause);
        } catch (...) {
            return result{std::nullopt, cause, std::current_exception()};
        }
    }

    Service& service_;
    Clock& clock_;
    const deadline until_;
    Awaitable operation_; // a reference where the caller keeps it
    awaiter awaiter_;     // a reference to operation_ where that is its own awaiter
    [[no_unique_address]] Stop stop_;
    bool guarded_ = false;
    // The coroutine and the timer's callback. The first to replace none settles how it ends; the acquire of the second pairs with the release of
    // the first. Everything else that the two share is ordered by the disarm of the timer.
    std::atomic<stop_cause> cause_{stop_cause::none};
    // Made by an operation that is pending, so that a ready one pays nothing for it. Last: gone, and with it the callback, before
    // what the callback touches.
    std::optional<watched_timer<Service>> timer_;
};

template <class Awaitable>
concept stops_itself = requires(std::remove_reference_t<Awaitable>& a) {
    { a.request_stop() }
    noexcept;
};

} // namespace detail

/// Awaits `operation` until `until`. To be awaited at once, in the expression that makes it: an lvalue operation, the service, the clock and `source` must outlive
/// the await. `clock` is the one that `until` and the service count on. The coroutine must be one that may await any awaitable.
///
/// `source` is asked to stop when the time is up; the operation watches a token of it. Any thread may request stop on the source for reasons of its
/// own: the operation then ends by itself as far as this is concerned (cause none).
///
/// A deadline that has passed: a ready operation gives its value, another is asked to stop before it starts and still awaited. A service that
/// refuses to arm: the same, with the cause unenforceable. No deadline: the operation alone.
///
/// Throws what the operation throws, and what the service's `arm` throws (the operation has then not started).
template <timer_service Service, class Awaitable, clock_source Clock = steady_time>
[[nodiscard]] auto with_timeout(Service& service, deadline until, Awaitable&& operation,
                                std::stop_source& source, Clock& clock = steady()) {
    return detail::timeout_awaiter<Service, Clock, Awaitable, detail::stop_by_source>{
        service, until, clock, std::forward<Awaitable>(operation), detail::stop_by_source{&source}};
}

/// The same with `stop()` as the way to ask the operation to stop: called at most once, on the service's driver or, where the time is up at the start, on the
/// awaiting thread. It must not throw, may be called before the operation starts (which must then end too), and while the operation ends by itself.
template <timer_service Service, class Awaitable, std::invocable Stop, clock_source Clock = steady_time>
[[nodiscard]] auto with_timeout(Service& service, deadline until, Awaitable&& operation, Stop stop,
                                Clock& clock = steady()) {
    return detail::timeout_awaiter<Service, Clock, Awaitable, detail::stop_by_call<Stop>>{
        service, until, clock, std::forward<Awaitable>(operation),
        detail::stop_by_call<Stop>{std::move(stop)}};
}

/// The same for an operation with a member `request_stop() noexcept`, under the same rules as `stop()` above. It does not touch the operation any more after it
/// has resumed the coroutine.
template <timer_service Service, detail::stops_itself Awaitable, clock_source Clock = steady_time>
[[nodiscard]] auto with_timeout(Service& service, deadline until, Awaitable&& operation,
                                Clock& clock = steady()) {
    return detail::timeout_awaiter<Service, Clock, Awaitable, detail::stop_by_member>{
        service, until, clock, std::forward<Awaitable>(operation), detail::stop_by_member{}};
}

} // namespace timerbench
