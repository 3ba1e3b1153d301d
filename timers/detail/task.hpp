// The least coroutine that can await anything and be awaited: for tests, measurements and small programs, not a library of coroutines.
//
// Lazy: it starts when it is awaited or `start` is called. The object owns the coroutine and destroys it, also while it waits. A finished task resumes whoever awaits it by
// symmetric transfer. No thread of its own: it runs on whichever thread resumes it, so `done` may be asked only by a thread that is ordered after the end.
#pragma once

#include "timers/detail/coroutine.hpp"

#include <exception>
#include <optional>
#include <utility>

namespace timerbench::detail {

template <class T>
class task;

struct task_promise_base {
    std::coroutine_handle<> waiter;
    std::exception_ptr error;

    struct at_end {
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
            const std::coroutine_handle<> waiter = ended.promise().waiter;
            return waiter ? waiter : std::noop_coroutine();
        }
        void await_resume() const noexcept {}
    };

    [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
    [[nodiscard]] at_end final_suspend() const noexcept { return {}; }
    void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <class T>
struct task_promise : task_promise_base {
    std::optional<T> value;
    task<T> get_return_object() noexcept;
    template <class U>
    void return_value(U&& v) {
        value.emplace(std::forward<U>(v));
    }
    T take() {
        if (error) {
            std::rethrow_exception(error);
        }
        return std::move(*value);
    }
};

template <>
struct task_promise<void> : task_promise_base {
    task<void> get_return_object() noexcept;
    void return_void() const noexcept {}
    void take() const {
        if (error) {
            std::rethrow_exception(error);
        }
    }
};

template <class T = void>
class [[nodiscard]] task {
  public:
    using promise_type = task_promise<T>;

    explicit task(std::coroutine_handle<promise_type> coroutine) noexcept : coroutine_{coroutine} {}
    task(task&& other) noexcept : coroutine_{std::exchange(other.coroutine_, nullptr)} {}
    task& operator=(task&&) = delete;
    ~task() {
        if (coroutine_) {
            coroutine_.destroy();
        }
    }

    /// Once, instead of awaiting it.
    void start() { coroutine_.resume(); }
    [[nodiscard]] bool done() const noexcept { return coroutine_.done(); }
    /// What it returned or threw. Once, when it is done.
    T take() { return coroutine_.promise().take(); }

    [[nodiscard]] bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) noexcept {
        coroutine_.promise().waiter = waiter;
        return coroutine_;
    }
    T await_resume() { return take(); }

  private:
    std::coroutine_handle<promise_type> coroutine_;
};

template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
    return task<T>{std::coroutine_handle<task_promise<T>>::from_promise(*this)};
}

inline task<void> task_promise<void>::get_return_object() noexcept {
    return task<void>{std::coroutine_handle<task_promise<void>>::from_promise(*this)};
}

} // namespace timerbench::detail
