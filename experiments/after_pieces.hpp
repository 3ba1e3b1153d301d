// Loops over the pieces of timers/ that stand on a service, for timing them: each does `n` operations and returns how many it saw done, which
// must be `n`. Made on the thread that calls the loops; for a loop-driven service poll it between batches, not inside.
//
//   after_pieces<Entry::service> pieces{service};
//   sampler: time pieces.bare(n) and pieces.timed(n) as neighbours; their difference per operation is what with_timeout adds to an
//   awaitable that is ready, to be at most 0.2 of a clock reading. remaining(n) beside a bare clock reading. scope_enter_leave(n) beside an arm and a cancel.
//
// bare               co_await of an operation that is ready. Its await_ready is a call that the compiler cannot see through
// timed              the same in with_timeout, deadline in an hour
// remaining          deadline::remaining()
// scope_enter_leave  makes a scope with a deadline in an hour and leaves it: one allocation, one clock reading, one arm, one cancel
// scope_no_deadline  the same without a deadline: the stop state alone
// The loops of coroutines make one coroutine each, outside of what grows with `n`.
#pragma once

#include "harness/optimiser.hpp"
#include "timers/deadline.hpp"
#include "timers/detail/coroutine.hpp"
#include "timers/detail/task.hpp"
#include "timers/scope.hpp"
#include "timers/service.hpp"
#include "timers/with_timeout.hpp"

#include <cstdint>
#include <stop_token>

namespace timerbench::experiments {

/// Ready when it is asked, and gives a value that fits no two registers, as in bench_ready_path.
class ready_await {
  public:
    struct outcome {
        std::uint64_t bytes = 0;
        std::uint64_t error = 0;
    };

    explicit ready_await(std::uint64_t value) noexcept : value_{value} {}

    [[gnu::noinline]] bool await_ready() noexcept {
        // The compiler must not know here what comes back, nor in the caller what this reads and writes.
        bool ready = true;
        asm volatile("" : "+r"(ready), "+r"(value_) : : "memory");
        return ready;
    }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    [[nodiscard]] outcome await_resume() const noexcept { return {.bytes = value_}; }

  private:
    std::uint64_t value_;
};

template <timer_service Service>
class after_pieces {
  public:
    explicit after_pieces(Service& service) : service_{service} {}

    [[nodiscard]] std::uint64_t bare(std::uint64_t n) { return run(bare_loop(n)); }
    [[nodiscard]] std::uint64_t timed(std::uint64_t n) { return run(timed_loop(n)); }

    [[nodiscard]] std::uint64_t remaining(std::uint64_t n) const {
        std::uint64_t done = 0;
        for (std::uint64_t i = 0; i < n; ++i) {
            const duration left = until_.remaining();
            harness::do_not_optimize(left);
            done += left > duration::zero() ? 1 : 0;
        }
        return done;
    }

    [[nodiscard]] std::uint64_t scope_enter_leave(std::uint64_t n) { return scopes(n, until_); }
    [[nodiscard]] std::uint64_t scope_no_deadline(std::uint64_t n) { return scopes(n, deadline::none()); }

  private:
    static std::uint64_t run(detail::task<std::uint64_t> loop) {
        loop.start();
        return loop.done() ? loop.take() : 0;
    }

    detail::task<std::uint64_t> bare_loop(std::uint64_t n) {
        std::uint64_t done = 0;
        for (std::uint64_t i = 0; i < n; ++i) {
            const ready_await::outcome o = co_await ready_await{i + 1};
            harness::do_not_optimize(o);
            done += o.bytes == i + 1 ? 1 : 0;
        }
        co_return done;
    }

    detail::task<std::uint64_t> timed_loop(std::uint64_t n) {
        std::uint64_t done = 0;
        for (std::uint64_t i = 0; i < n; ++i) {
            const timed_await<ready_await::outcome> r =
                co_await with_timeout(service_, until_, ready_await{i + 1}, source_);
            harness::do_not_optimize(r.value);
            done += r.value.has_value() && r.value->bytes == i + 1 ? 1 : 0;
        }
        co_return done;
    }

    std::uint64_t scopes(std::uint64_t n, deadline until) {
        std::uint64_t done = 0;
        for (std::uint64_t i = 0; i < n; ++i) {
            scope<Service> s{service_, until};
            scope_base* seen = &s;
            harness::do_not_optimize(seen);
            done += seen->cause() == stop_cause::none ? 1 : 0;
        }
        return done;
    }

    Service& service_;
    deadline until_ = deadline::in(std::chrono::hours{1});
    std::stop_source source_;
};

} // namespace timerbench::experiments
