// with_timeout and stop tokens for the coroutines of Boost.Asio, 1.74 and later.
//
// How it works
//   An operation of Asio's is stopped by cancelling the object that it works on: socket, acceptor, timer. That is what `cancel` does here, a function of
//   the caller's. It runs on the coroutine's executor, posted there from whichever thread asks, because Asio's objects are not safe to share.
//   Cancelling reaches only the operation that is outstanding at that moment. A composed one such as async_read may be just between two of its parts, and the
//   coroutine may start another. So `cancel` is called again every millisecond until the operation has ended.
//   Asio has cancellation slots since 1.77. What is said here with one function for every release would be said there with another one, and gain
//   nothing: the object's `cancel` exists in all of them.
// What it costs
//   A coroutine frame, which Asio recycles, and one allocation for what a late cancel may still look at. An awaitable of Asio's is never ready before it
//   has been started, so the timer is always armed: one clock reading, one arm, one cancel. A timeout posts to the executor, and Asio allocates for it.
// What it is bad at
//   The executor must run one handler at a time: an io_context run by one thread, or a strand.
//   Connections whose exchange was cut short are out of step with the other side; close them.
#pragma once

#include "timers/clock.hpp"
#include "timers/deadline.hpp"
#include "timers/detail/watched_timer.hpp"
#include "timers/scope.hpp"
#include "timers/service.hpp"
#include "timers/with_timeout.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/error_code.hpp>

#if !defined(BOOST_ASIO_HAS_CO_AWAIT)
#error "this Boost.Asio has no coroutines with this compiler"
#endif

#include <atomic>
#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <variant>

namespace timerbench {

namespace detail {

/// Calls `cancel` on the executor once asked, and again until it is told that the operation has ended. Shared with the handlers that it posts. All but `ask` is
/// called on the executor.
template <class Executor, class Cancel>
class asio_canceller : public std::enable_shared_from_this<asio_canceller<Executor, Cancel>> {
  public:
    asio_canceller(const Executor& executor, Cancel cancel)
        : executor_{executor},
          cancel_{std::move(cancel)},
          again_{executor} {}

    /// From any thread.
    void ask() {
        boost::asio::post(executor_, [self = this->shared_from_this()] { self->cancel_now(); });
    }

    void operation_ended() {
        ended_ = true;
        again_.cancel();
    }

  private:
    static constexpr std::chrono::milliseconds pause{1};

    void cancel_now() {
        if (ended_) {
            return;
        }
        cancel_();
        again_.expires_after(pause);
        again_.async_wait(
            [self = this->shared_from_this()](const boost::system::error_code&) { self->cancel_now(); });
    }

    const Executor executor_;
    Cancel cancel_;
    boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                      boost::asio::wait_traits<std::chrono::steady_clock>, Executor>
        again_;
    bool ended_ = false;
};

/// What the timer's callback needs of a waiting coroutine.
template <class Executor, class Cancel>
struct asio_wait {
    std::shared_ptr<asio_canceller<Executor, Cancel>> canceller;
    // The coroutine and the timer's callback; the first to replace none settles how it ends.
    std::atomic<stop_cause> cause{stop_cause::none};

    void stop_as(stop_cause why) {
        stop_cause running = stop_cause::none;
        if (cause.compare_exchange_strong(running, why, std::memory_order_acq_rel)) {
            canceller->ask();
        }
    }

    static void on_deadline(void* at) { static_cast<asio_wait*>(at)->stop_as(stop_cause::deadline); }
};

} // namespace detail

/// Awaits `operation` until `until`, in a coroutine of Asio's. When the time is up, `cancel()` is called on the coroutine's executor, again and again until the operation
/// has ended; it must not throw. The result is that of the other with_timeout, and so are the rules for a deadline that has passed and for
/// a service that refuses. Error codes that come as exceptions after a timeout are in `error`.
///
/// Service and clock outlive the coroutine and with it the io_context.
template <timer_service Service, class T, class Executor, std::invocable Cancel,
          clock_source Clock = steady_time>
[[nodiscard]] boost::asio::awaitable<timed_await<detail::awaited_value<T>>, Executor>
with_timeout(Service& service, deadline until, boost::asio::awaitable<T, Executor> operation, Cancel cancel,
             Clock& clock = steady()) {
    using canceller = detail::asio_canceller<Executor, Cancel>;
    timed_await<detail::awaited_value<T>> result;
    const Executor executor = co_await boost::asio::this_coro::executor;
    using waiting = detail::asio_wait<Executor, Cancel>;
    waiting wait;
    wait.canceller = std::make_shared<canceller>(executor, std::move(cancel));
    detail::watched_timer<Service> timer;
    if (!until.is_none()) {
        const duration left = until.remaining(clock.now());
        if (left == duration::zero()) {
            wait.stop_as(stop_cause::deadline);
        } else if (!timer.arm(service, left, callback{&waiting::on_deadline, &wait})) {
            wait.stop_as(stop_cause::unenforceable);
        }
    }
    std::exception_ptr error;
    try {
        if constexpr (std::is_void_v<T>) {
            co_await std::move(operation);
            result.value.emplace();
        } else {
            result.value.emplace(co_await std::move(operation));
        }
    } catch (...) {
        error = std::current_exception();
    }
    stop_cause cause = stop_cause::none;
    // Any value but none tells a timer that fires from now on that it came second.
    if (wait.cause.compare_exchange_strong(cause, stop_cause::left, std::memory_order_acq_rel)) {
        cause = stop_cause::none;
    }
    timer.disarm();
    wait.canceller->operation_ended();
    if (error != nullptr && cause == stop_cause::none) {
        std::rethrow_exception(error);
    }
    result.cause = cause;
    result.error = std::move(error);
    co_return result;
}

/// The same for an object of Asio's with `cancel(error_code&)` or `cancel()`, which outlives the await: `cancel` is called on it.
template <timer_service Service, class T, class Executor, class IoObject, clock_source Clock = steady_time>
requires(!std::invocable<IoObject&>) && requires(IoObject& object) {
    object.cancel();
}
[[nodiscard]] boost::asio::awaitable<timed_await<detail::awaited_value<T>>, Executor>
with_timeout(Service& service, deadline until, boost::asio::awaitable<T, Executor> operation,
             IoObject& object, Clock& clock = steady()) {
    return with_timeout(
        service, until, std::move(operation),
        [&object] {
            if constexpr (requires(boost::system::error_code & e) { object.cancel(e); }) {
                boost::system::error_code ignored; // an object that is closed has nothing to cancel
                object.cancel(ignored);
            } else {
                object.cancel();
            }
        },
        clock);
}

/// While it lives, a stop of the token calls `cancel()` on the executor, again and again. How a scope's stop, whatever its cause, reaches operations of Asio's:
///
///   const cancel_on_stop stopper{scope.token(), executor, [&] { socket.cancel(ignored); }};
///   co_await boost::asio::async_read(socket, ...);
///
/// Made and destroyed on the executor. `cancel` must not throw.
template <class Executor, std::invocable Cancel>
class cancel_on_stop {
  public:
    cancel_on_stop(std::stop_token token, const Executor& executor, Cancel cancel)
        : canceller_{std::make_shared<detail::asio_canceller<Executor, Cancel>>(executor, std::move(cancel))},
          callback_{std::in_place, std::move(token), ask{canceller_.get()}} {}
    cancel_on_stop(const cancel_on_stop&) = delete;
    cancel_on_stop& operator=(const cancel_on_stop&) = delete;
    ~cancel_on_stop() {
        callback_.reset();
        canceller_->operation_ended();
    }

  private:
    struct ask {
        detail::asio_canceller<Executor, Cancel>* canceller;
        void operator()() const { canceller->ask(); }
    };

    std::shared_ptr<detail::asio_canceller<Executor, Cancel>> canceller_;
    std::optional<std::stop_callback<ask>> callback_;
};

} // namespace timerbench
