// A timeout around an operation that is polled, on top of any service.
//
// `timeout::poll` asks the operation first and arms the timer only when the operation is pending, so time counts from the
// first pending poll. On the ready path it therefore reads no clock, takes no lock and allocates nothing. When value and
// timeout are both there, the value wins. Firing only sets a flag and calls the waker; destroying cancels.
//
// Polls of one timeout are serialised by the caller. Firing may happen on any thread at any time: the flag and the waker
// are guarded by a lock of the timeout's own, so that a fire between the look at the flag and the registration of the
// waker cannot be missed.
#pragma once

#include "timers/detail/spin_lock.hpp"
#include "timers/service.hpp"

#include <mutex>
#include <optional>
#include <utility>

namespace timerbench {

/// How an operation or a timeout tells an executor that it is worth polling again. Trivially copyable. `wake` may be
/// called from any thread, also from inside `poll`, and must neither block nor call the service.
struct waker {
    void (*wake)(void* task) = nullptr;
    void* task = nullptr;

    void operator()() const {
        if (wake != nullptr) {
            wake(task);
        }
    }
};

/// Something that may not be done yet: `poll` returns the value once it is there, and before that sees to it that the waker
/// is called when another poll is worth it. Not polled again after it has returned a value.
template <class O>
concept operation = requires(O op, const waker& w) {
    { op.poll(w).has_value() } -> std::convertible_to<bool>;
    {*op.poll(w)};
};

/// How a timed operation ended.
template <class T>
struct timed {
    std::optional<T> value; ///< Empty: the time was up first.
    [[nodiscard]] bool elapsed() const noexcept { return !value.has_value(); }
};

template <timer_service Service, operation Operation>
class timeout {
  public:
    using value_type =
        std::remove_cvref_t<decltype(*std::declval<Operation&>().poll(std::declval<const waker&>()))>;
    using result = timed<value_type>;

    timeout(Service& service, duration d, Operation operation)
        : operation_{std::move(operation)},
          service_{service},
          duration_{d} {}
    timeout(const timeout&) = delete;
    timeout& operator=(const timeout&) = delete;

    /// Empty while pending. If the service refuses to arm (it has stopped), the timeout elapses at once: an operation
    /// that nobody bounds any more must not be waited for.
    [[nodiscard]] std::optional<result> poll(const waker& w) {
        // The operation's answer is built where this function's own will be and copied nowhere: on the ready path copies
        // of it would cost more than everything else here.
        std::optional<result> answer{std::in_place, answer_of{operation_, w}};
        if (!answer->value.has_value() && !elapsed(w)) {
            answer.reset();
        }
        return answer;
    }

    [[nodiscard]] Operation& inner() noexcept { return operation_; }

  private:
    // Converts to the operation's answer, so that it is made in place.
    struct answer_of {
        Operation& operation;
        const waker& w;
        operator result() const { return result{operation.poll(w)}; } // NOLINT(google-explicit-constructor)
    };

    // The operation is pending. Whether its time is up.
    bool elapsed(const waker& w) {
        {
            const std::lock_guard lock{lock_};
            if (fired_) {
                return true;
            }
            waker_ = w;
        }
        if (!timer_) {
            timer_.emplace(service_);
            // A service may run the callback before arm returns; its wake is then already under way.
            return !service_.arm(*timer_, duration_, callback{&timeout::on_fire, this});
        }
        return false;
    }

    static void on_fire(void* context) {
        auto& self = *static_cast<timeout*>(context);
        waker w;
        {
            const std::lock_guard lock{self.lock_};
            self.fired_ = true;
            w = self.waker_;
        }
        // Out of the lock: the wake may lead to a poll on another core at once. That poll may not destroy this object
        // before this callback has returned, because destroying cancels and cancelling waits for the callback.
        w();
    }

    Operation operation_;
    Service& service_;
    duration duration_;
    bool fired_ = false; // guarded by lock_
    waker waker_;        // guarded by lock_
    detail::spin_lock lock_;
    // Made by the first pending poll, so that the ready path pays nothing for it. Last: destroyed, and so cancelled, before what
    // its callback touches.
    std::optional<typename Service::timer> timer_;
};

/// An operation that never finishes.
struct never {
    std::optional<char> poll(const waker&) const noexcept { return std::nullopt; }
};

/// A sleep is a timeout around an operation that never finishes.
template <timer_service Service>
class sleep : public timeout<Service, never> {
  public:
    sleep(Service& service, duration d) : timeout<Service, never>{service, d, never{}} {}
};

} // namespace timerbench
