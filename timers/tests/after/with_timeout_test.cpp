// A deadline around one awaited operation.
#include "timers/with_timeout.hpp"

#include "timers/detail/task.hpp"
#include "timers/locked_heap.hpp"
#include "timers/tests/after/support.hpp"
#include "timers/thread_per_timeout.hpp"

#include <any>
#include <memory>
#include <string>
#include <variant>

namespace timerbench::testing {
namespace {

using detail::task;
using int_result = timed_await<int>;

struct counted {
    counting_service service;
    counting_clock clock;
    std::stop_source source;

    [[nodiscard]] deadline in(duration d) const { return deadline::in(d, clock.at); }
};

template <class Service, class Clock>
task<int_result> await_event(Service& service, deadline until, event& e, std::stop_source& source,
                             Clock& clock) {
    co_return co_await with_timeout(service, until, e, source, clock);
}

task<int_result> await_ready_value(counted& c, deadline until) {
    co_return co_await with_timeout(c.service, until, ready_value{7}, c.clock);
}

TEST(timed_awaits, of_what_is_ready_touch_nothing) {
    counted c;
    for (const deadline until : {c.in(1s), c.in(-1s), deadline::none()}) {
        task<int_result> t = await_ready_value(c, until);
        t.start();
        ASSERT_TRUE(t.done());
        const int_result r = t.take();
        EXPECT_EQ(r.value, 7);
        EXPECT_EQ(r.cause, stop_cause::none);
        EXPECT_FALSE(r.elapsed());
    }
    EXPECT_TRUE(c.service.untouched());
    EXPECT_EQ(c.clock.readings, 0);
}

#if defined(TIMERBENCH_COUNTS_ALLOCATIONS)
task<int> many_ready_values(counted& c, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) {
        const int_result r = co_await with_timeout(c.service, c.in(1s), ready_value{1}, c.clock);
        sum += r.value.value_or(0);
        const int_result by_source =
            co_await with_timeout(c.service, c.in(1s), ready_value{1}, c.source, c.clock);
        sum += by_source.value.value_or(0);
    }
    co_return sum;
}

task<int> many_pending_values(counted& c, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) {
        struct pending {
            [[nodiscard]] bool await_ready() const noexcept { return false; }
            [[nodiscard]] bool await_suspend(std::coroutine_handle<>) const noexcept { return false; }
            [[nodiscard]] int await_resume() const noexcept { return 1; }
            void request_stop() const noexcept {}
        };
        const int_result r = co_await with_timeout(c.service, c.in(1s), pending{}, c.clock);
        sum += r.value.value_or(0);
    }
    co_return sum;
}

#endif

TEST(timed_awaits, allocate_nothing) {
#if defined(TIMERBENCH_COUNTS_ALLOCATIONS)
    if (!harness::alloc_counting().available) {
        GTEST_SKIP() << harness::alloc_counting().reason;
    }
    counted c;
    task<int> ready = many_ready_values(c, 100);
    task<int> pending = many_pending_values(c, 100);
    const harness::alloc_window window;
    ready.start();
    EXPECT_EQ(window.counts().allocations, 0U);
    EXPECT_TRUE(c.service.untouched());
    pending.start();
    EXPECT_EQ(window.counts().allocations, 0U);
    ASSERT_TRUE(ready.done() && pending.done());
    EXPECT_EQ(ready.take(), 200);
    EXPECT_EQ(pending.take(), 100);
    EXPECT_EQ(c.service.arms, 100);
    EXPECT_EQ(c.service.cancels, 100);
#else
    GTEST_SKIP() << "built without the allocation counter";
#endif
}

TEST(timed_awaits, that_end_in_time_arm_once_and_cancel_once) {
    counted c;
    event e{c.source.get_token()};
    task<int_result> t = await_event(c.service, c.in(30ms), e, c.source, c.clock);
    t.start();
    EXPECT_FALSE(t.done());
    EXPECT_EQ(c.service.asked(), 30ms);
    e.finish(5);
    ASSERT_TRUE(t.done());
    const int_result r = t.take();
    EXPECT_EQ(r.value, 5);
    EXPECT_EQ(r.cause, stop_cause::none);
    EXPECT_EQ(c.clock.readings, 1);
    EXPECT_EQ(c.service.arms, 1);
    EXPECT_EQ(c.service.cancels, 1);
    EXPECT_EQ(c.service.destroyed_armed, 0);
    EXPECT_EQ(c.service.timers_gone, 1);
    EXPECT_FALSE(c.source.stop_requested());
}

TEST(timed_awaits, ask_to_stop_and_wait_for_the_end) {
    counted c;
    event e{c.source.get_token(), event::on_stop::is_noted};
    task<int_result> t = await_event(c.service, c.in(30ms), e, c.source, c.clock);
    t.start();
    c.service.fire();
    EXPECT_TRUE(e.saw_stop());
    EXPECT_FALSE(t.done());
    e.finish(9);
    ASSERT_TRUE(t.done());
    const int_result r = t.take();
    EXPECT_EQ(r.value, 9);
    EXPECT_EQ(r.cause, stop_cause::deadline);
}

TEST(timed_awaits, that_are_stopped_have_no_value_and_say_why) {
    counted c;
    event e{c.source.get_token()};
    task<int_result> t = await_event(c.service, c.in(30ms), e, c.source, c.clock);
    t.start();
    c.service.fire();
    ASSERT_TRUE(t.done());
    const int_result r = t.take();
    EXPECT_TRUE(r.elapsed());
    EXPECT_EQ(r.cause, stop_cause::deadline);
    EXPECT_THROW(std::rethrow_exception(r.error), stopped_error);
}

// The operation has its value when the stop comes: the stop's own callback gives it.
TEST(timed_awaits, let_the_value_win_a_tie) {
    counted c;
    event e{c.source.get_token(), event::on_stop::ends_with_value};
    task<int_result> t = await_event(c.service, c.in(30ms), e, c.source, c.clock);
    t.start();
    c.service.fire();
    ASSERT_TRUE(t.done());
    const int_result r = t.take();
    EXPECT_EQ(r.value, -1);
    EXPECT_FALSE(r.elapsed());
    EXPECT_EQ(r.cause, stop_cause::deadline);
}

TEST(timed_awaits, whose_deadline_has_passed_are_stopped_before_they_start) {
    for (const duration d : {duration{0}, duration{-1}, duration{-5h}}) {
        counted c;
        event e{c.source.get_token()};
        task<int_result> t = await_event(c.service, c.in(d), e, c.source, c.clock);
        t.start();
        ASSERT_TRUE(t.done());
        EXPECT_TRUE(e.started());
        const int_result r = t.take();
        EXPECT_TRUE(r.elapsed());
        EXPECT_EQ(r.cause, stop_cause::deadline);
        EXPECT_TRUE(c.service.untouched());
    }
}

TEST(timed_awaits, on_a_service_that_has_stopped_are_stopped) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    service.stop();
    std::stop_source source;
    event e{source.get_token()};
    task<int_result> t = await_event(service, deadline::in(1s, clock.now()), e, source, clock);
    t.start();
    ASSERT_TRUE(t.done());
    EXPECT_EQ(t.take().cause, stop_cause::unenforceable);
}

TEST(timed_awaits, without_a_deadline_are_the_operation_alone) {
    counted c;
    event e{c.source.get_token()};
    task<int_result> t = await_event(c.service, deadline::none(), e, c.source, c.clock);
    t.start();
    EXPECT_TRUE(c.service.untouched());
    EXPECT_EQ(c.clock.readings, 0);
    c.source.request_stop(); // somebody else's stop ends it as it would alone
    ASSERT_TRUE(t.done());
    EXPECT_THROW((void)t.take(), stopped_error);
}

TEST(timed_awaits, leave_the_stop_of_somebody_else_to_the_operation) {
    counted c;
    event e{c.source.get_token()};
    task<int_result> t = await_event(c.service, c.in(1s), e, c.source, c.clock);
    t.start();
    c.source.request_stop();
    ASSERT_TRUE(t.done());
    EXPECT_THROW((void)t.take(), stopped_error);
    EXPECT_TRUE(c.service.idle());
}

struct failing {
    bool ready = false;
    bool at_start = false;
    [[nodiscard]] bool await_ready() const noexcept { return ready; }
    [[nodiscard]] bool await_suspend(std::coroutine_handle<>) const {
        if (at_start) {
            throw std::logic_error{"not started"};
        }
        return false;
    }
    void await_resume() const { throw std::logic_error{"failed"}; }
    void request_stop() const noexcept {}
};

task<timed_await<std::monostate>> await_failing(counted& c, failing f) {
    co_return co_await with_timeout(c.service, c.in(1s), f, c.clock);
}

TEST(timed_awaits, pass_exceptions_on) {
    for (const failing f : {failing{.ready = true}, failing{}, failing{.at_start = true}}) {
        counted c;
        auto t = await_failing(c, f);
        t.start();
        ASSERT_TRUE(t.done());
        EXPECT_THROW((void)t.take(), std::logic_error);
        EXPECT_TRUE(c.service.idle());
        EXPECT_EQ(c.service.cancels, f.ready ? 0 : 1);
    }
}

TEST(timed_awaits, do_not_start_what_cannot_be_guarded) {
    counted c;
    c.service.throws = true;
    event e{c.source.get_token()};
    task<int_result> t = await_event(c.service, c.in(1s), e, c.source, c.clock);
    t.start();
    ASSERT_TRUE(t.done());
    EXPECT_THROW((void)t.take(), std::bad_alloc);
    EXPECT_FALSE(e.started());
}

TEST(timed_awaits, destroyed_while_they_wait_cancel_their_timer) {
    counted c;
    event e{c.source.get_token()};
    {
        task<int_result> t = await_event(c.service, c.in(1s), e, c.source, c.clock);
        t.start();
        EXPECT_FALSE(c.service.idle());
    }
    EXPECT_TRUE(c.service.idle());
    EXPECT_EQ(c.service.cancels, 1);
}

// Ways to be awaited and to be stopped.
struct by_member {
    event& e;
    event& operator co_await() const { return e; }
    void request_stop() const noexcept { e.finish(-2); }
};
struct by_function {
    event& e;
};
event& operator co_await(by_function f) {
    return f.e;
}
struct moves_only {
    std::unique_ptr<int> value;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    [[nodiscard]] bool await_suspend(std::coroutine_handle<>) const noexcept { return false; }
    std::unique_ptr<int> await_resume() { return std::move(value); }
};

task<int_result> await_by_member(counted& c, event& e) {
    co_return co_await with_timeout(c.service, c.in(1s), by_member{e}, c.clock);
}
task<int_result> await_by_function(counted& c, event& e, int& calls) {
    co_return co_await with_timeout(
        c.service, c.in(1s), by_function{e},
        [&e, &calls] {
            ++calls;
            e.finish(-3);
        },
        c.clock);
}
task<timed_await<std::unique_ptr<int>>> await_moves_only(counted& c) {
    // Both have names: gcc 12 destroys aggregates and closures that are made inside a co_await expression twice.
    moves_only operation{std::make_unique<int>(4)};
    auto stop = [kept = std::make_unique<int>(1)] { (void)kept; };
    co_return co_await with_timeout(c.service, c.in(1s), std::move(operation), std::move(stop), c.clock);
}

TEST(timed_awaits, take_what_can_be_awaited_and_stopped_in_any_way) {
    counted c;
    event one;
    task<int_result> t = await_by_member(c, one);
    t.start();
    c.service.fire();
    ASSERT_TRUE(t.done());
    EXPECT_EQ(t.take().value, -2);

    event two;
    int calls = 0;
    task<int_result> u = await_by_function(c, two, calls);
    u.start();
    c.service.fire();
    ASSERT_TRUE(u.done());
    EXPECT_EQ(u.take().value, -3);
    EXPECT_EQ(calls, 1);

    auto v = await_moves_only(c);
    v.start();
    ASSERT_TRUE(v.done());
    EXPECT_EQ(**v.take().value, 4);
}

// Values of many kinds come through as they are.
template <class T>
struct gives {
    T value;
    [[nodiscard]] bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    T await_resume() const { return value; }
    void request_stop() const noexcept {}
};

template <class T>
auto through(counted& c, T value) {
    const auto body = [](counted& on, gives<T> operation) -> task<timed_await<std::remove_cvref_t<T>>> {
        co_return co_await with_timeout(on.service, on.in(1s), operation, on.clock);
    };
    auto t = body(c, gives<T>{value});
    t.start();
    return *t.take().value;
}

struct takes_anything {
    const void* from = nullptr;
    takes_anything() = default;
    template <class T>
    explicit takes_anything(const T& what) : from{&what} {}
};

TEST(timed_awaits, give_values_of_any_type) {
    counted c;
    EXPECT_EQ(through(c, std::string{"a value that is too long for the small one"}),
              "a value that is too long for the small one");
    EXPECT_EQ(std::any_cast<int>(through(c, std::any{5})), 5);
    EXPECT_EQ(through(c, std::optional<int>{6}), 6);
    EXPECT_EQ(through(c, std::optional<int>{}), std::nullopt);
    EXPECT_EQ(std::get<double>(through(c, std::variant<int, double>{2.5})), 2.5);
    EXPECT_EQ(through(c, takes_anything{}).from, nullptr);
    int i = 0;
    int& reference = i;
    EXPECT_EQ((through<int&>(c, reference)), 0);
}

TEST(timed_awaits, elapse_at_their_time_on_a_real_service) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    std::stop_source source;
    event e{source.get_token()};
    task<int_result> t = await_event(service, deadline::in(50ms, clock.now()), e, source, clock);
    t.start();
    clock.advance(49ms);
    EXPECT_FALSE(e.saw_stop());
    clock.advance(1ms);
    EXPECT_TRUE(e.saw_stop());
    ASSERT_TRUE(t.done());
    EXPECT_EQ(t.take().cause, stop_cause::deadline);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int race_rounds = 200;
#else
constexpr int race_rounds = 1'500;
#endif

// One thread's share of a race: the operation ends at about its deadline.
template <class Service>
void race(Service& service, int thread, std::atomic<int>& in_time, std::atomic<int>& late) {
    for (int round = 0; round < race_rounds / 10; ++round) {
        std::stop_source source;
        event e{source.get_token(), round % 2 == 0 ? event::on_stop::ends : event::on_stop::is_noted};
        std::atomic<bool> over{false}; // set by whoever resumes the coroutine, as the last that it does
        const auto body = [&]() -> detached {
            const int_result r = co_await with_timeout(
                service, deadline::in(std::chrono::microseconds{20 + thread * 7}), e, source);
            if (r.cause == stop_cause::none) {
                EXPECT_TRUE(r.value.has_value());
                EXPECT_FALSE(source.stop_requested());
                ++in_time;
            } else {
                EXPECT_TRUE(source.stop_requested());
                EXPECT_NE(r.value.has_value(), r.error != nullptr);
                ++late;
            }
            over = true;
        };
        body();
        const auto pause = std::chrono::steady_clock::now() + std::chrono::microseconds{10 + round % 60};
        while (std::chrono::steady_clock::now() < pause) {}
        e.finish(1);
        ASSERT_TRUE(eventually([&] { return over.load(); }));
    }
}

template <class Service>
void race_of_eight(Service& service) {
    std::atomic<int> in_time{0};
    std::atomic<int> late{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&, i] { race(service, i, in_time, late); });
        }
    }
    EXPECT_EQ(in_time + late, 8 * (race_rounds / 10));
    EXPECT_TRUE(service.counters().balanced());
    EXPECT_EQ(service.counters().pending, 0U);
}

TEST(timed_awaits, settle_value_and_deadline_among_eight_threads) {
    locked_heap<steady_time> service;
    race_of_eight(service);
}

TEST(timed_awaits, settle_them_where_callbacks_overlap) {
    thread_per_timeout<steady_time> service{steady()};
    race_of_eight(service);
}

// The operation ends inside a callback of the same service, at the time of the deadline, perhaps while the deadline's callback runs on another thread: there
// the service's cancel does not wait.
TEST(timed_awaits, may_be_ended_by_callbacks_of_the_same_service) {
    thread_per_timeout<steady_time> service{steady()};
    for (int round = 0; round < race_rounds / 5; ++round) {
        std::stop_source source;
        event e{source.get_token(), event::on_stop::is_noted};
        std::atomic<bool> over{false}; // set by whoever resumes the coroutine
        const auto body = [&]() -> task<void> {
            const int_result r = co_await with_timeout(service, deadline::in(200us), e, source);
            EXPECT_EQ(r.value, 1);
            over = true;
        };
        thread_per_timeout<steady_time>::timer finisher{service};
        task<void> t = body();
        ASSERT_TRUE(service.arm(finisher, 200us, {[](void* at) { static_cast<event*>(at)->finish(1); }, &e}));
        t.start();
        ASSERT_TRUE(eventually([&] { return over.load(); }));
        service.cancel(finisher);
        ASSERT_TRUE(t.done());
    }
    EXPECT_TRUE(service.counters().balanced());
}

// The same, held open: the operation ends in one callback while the deadline's callback is still asking it to stop in another. The coroutine does not go on before
// that has left.
TEST(timed_awaits, wait_for_the_callback_that_asks_them_to_stop) {
    thread_per_timeout<steady_time> service{steady()};
    struct {
        event operation;
        std::atomic<bool> asking{false};    // set by the deadline's callback, as is the next but one
        std::atomic<bool> finishing{false}; // set by the other callback
        std::atomic<bool> asked{false};
        std::atomic<bool> over{false}; // set by whoever resumes the coroutine
    } shared;
    const auto ask = [&shared] {
        shared.asking = true;
        EXPECT_TRUE(eventually([&] { return shared.finishing.load(); }));
        std::this_thread::sleep_for(20ms);
        shared.asked = true;
    };
    const auto finish = [](void* at) {
        auto& s = *static_cast<decltype(&shared)>(at);
        EXPECT_TRUE(eventually([&] { return s.asking.load(); }));
        s.finishing = true;
        s.operation.finish(1);
    };
    const auto body = [&]() -> detached {
        const int_result r = co_await with_timeout(service, deadline::in(1ms), shared.operation, ask);
        EXPECT_TRUE(shared.asked);
        EXPECT_EQ(r.value, 1);
        EXPECT_EQ(r.cause, stop_cause::deadline);
        shared.over = true;
    };
    thread_per_timeout<steady_time>::timer finisher{service};
    ASSERT_TRUE(service.arm(finisher, 1ms, {finish, &shared}));
    body();
    EXPECT_TRUE(eventually([&] { return shared.over.load(); }));
    service.cancel(finisher);
}

} // namespace
} // namespace timerbench::testing
