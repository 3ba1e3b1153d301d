// Stops that come from a deadline, from above, by call, by failure and by leaving.
#include "timers/scope.hpp"

#include "timers/coarse_slot.hpp"
#include "timers/detail/task.hpp"
#include "timers/locked_heap.hpp"
#include "timers/tests/after/support.hpp"

#include <array>
#include <barrier>
#include <memory>

namespace timerbench::testing {
namespace {

using detail::task;
using counted_scope = scope<counting_service, counting_clock>;
using service_type = locked_heap<manual_time>;

struct counted {
    counting_service service;
    counting_clock clock;

    [[nodiscard]] deadline in(duration d) const { return deadline::in(d, clock.at); }
};

TEST(scopes, are_stopped_by_their_deadline_and_not_before) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    scope s{service, deadline::in(50ms, clock.now()), clock};
    clock.advance(49ms);
    EXPECT_FALSE(s.token().stop_requested());
    EXPECT_EQ(s.cause(), stop_cause::none);
    clock.advance(1ms);
    EXPECT_TRUE(s.token().stop_requested());
    EXPECT_EQ(s.cause(), stop_cause::deadline);
    EXPECT_EQ(s.origin(), stop_cause::deadline);
}

TEST(scopes, keep_the_first_cause) {
    counted c;
    counted_scope s{c.service, c.in(1s), c.clock};
    EXPECT_TRUE(s.stop());
    EXPECT_FALSE(s.stop(stop_cause::left));
    EXPECT_FALSE(s.fail(std::make_exception_ptr(stopped_error{})));
    c.service.fire();
    EXPECT_EQ(s.cause(), stop_cause::requested);
    EXPECT_EQ(s.error(), nullptr);
}

TEST(scopes, keep_what_failed) {
    counted c;
    counted_scope s{c.service, deadline::none(), c.clock};
    try {
        throw stopped_error{};
    } catch (...) {
        EXPECT_TRUE(s.fail());
    }
    EXPECT_FALSE(s.fail(nullptr));
    EXPECT_TRUE(s.token().stop_requested());
    EXPECT_EQ(s.cause(), stop_cause::failure);
    EXPECT_THROW(std::rethrow_exception(s.error()), stopped_error);
}

TEST(scopes, pass_a_stop_down_and_not_up) {
    counted c;
    counted_scope top{c.service, deadline::none(), c.clock};
    counted_scope middle{top, c.service, deadline::none(), c.clock};
    counted_scope low{middle, c.service, deadline::none(), c.clock};
    counted_scope sibling{top, c.service, deadline::none(), c.clock};
    middle.fail(nullptr);
    EXPECT_EQ(top.cause(), stop_cause::none);
    EXPECT_EQ(sibling.cause(), stop_cause::none);
    EXPECT_EQ(low.cause(), stop_cause::parent);
    EXPECT_EQ(low.origin(), stop_cause::failure);
    EXPECT_TRUE(low.token().stop_requested());
    top.stop();
    EXPECT_EQ(sibling.cause(), stop_cause::parent);
    EXPECT_EQ(sibling.origin(), stop_cause::requested);
    EXPECT_EQ(middle.cause(), stop_cause::failure);
    EXPECT_EQ(low.origin(), stop_cause::failure);
}

TEST(scopes, made_below_a_stopped_one_are_stopped) {
    counted c;
    counted_scope top{c.service, deadline::none(), c.clock};
    top.stop();
    const counted_scope low{top, c.service, c.in(1s), c.clock};
    EXPECT_EQ(low.cause(), stop_cause::parent);
    EXPECT_EQ(low.origin(), stop_cause::requested);
    EXPECT_TRUE(c.service.untouched());
}

TEST(scopes, hang_under_a_bare_token_too) {
    counted c;
    std::stop_source outer;
    const counted_scope s{outer.get_token(), c.service, c.in(1s), c.clock};
    EXPECT_EQ(s.cause(), stop_cause::none);
    outer.request_stop();
    EXPECT_EQ(s.cause(), stop_cause::parent);
    EXPECT_EQ(s.origin(), stop_cause::parent);
}

TEST(scopes, with_a_deadline_arm_once_and_cancel_once) {
    counted c;
    {
        const counted_scope s{c.service, c.in(30ms), c.clock};
        EXPECT_EQ(c.service.asked(), 30ms);
        EXPECT_EQ(c.clock.readings, 1);
    }
    EXPECT_EQ(c.clock.readings, 1);
    EXPECT_EQ(c.service.arms, 1);
    EXPECT_EQ(c.service.cancels, 1);
    EXPECT_EQ(c.service.destroyed_armed, 0);
    EXPECT_EQ(c.service.timers_made, c.service.timers_gone);
}

TEST(scopes, without_one_touch_nothing) {
    counted c;
    { const counted_scope s{c.service, deadline::none(), c.clock}; }
    EXPECT_TRUE(c.service.untouched());
    EXPECT_EQ(c.clock.readings, 0);
}

TEST(scopes, whose_deadline_has_passed_are_stopped_at_once) {
    for (const duration d : {duration{0}, duration{-1}, duration{-5h}}) {
        counted c;
        const counted_scope s{c.service, c.in(d), c.clock};
        EXPECT_EQ(s.cause(), stop_cause::deadline);
        EXPECT_TRUE(s.token().stop_requested());
        EXPECT_TRUE(c.service.untouched());
    }
}

// The timer above has not fired yet: its slot is not over.
TEST(scopes, below_a_deadline_that_has_passed_are_stopped_at_once) {
    using slots = coarse_slot<manual_time>;
    manual_time clock;
    slots service{clock};
    scope<slots, manual_time> request{service, deadline::in(11ms, clock.now()), clock};
    clock.shift(12ms);
    const scope<slots, manual_time> step{request, service, deadline::none(), clock};
    EXPECT_TRUE(step.token().stop_requested());
    EXPECT_EQ(step.cause(), stop_cause::deadline);
    EXPECT_EQ(step.origin(), stop_cause::deadline);
    EXPECT_EQ(request.cause(), stop_cause::none) << "this test is about what comes before the timer";
}

TEST(scopes, on_a_service_that_has_stopped_are_stopped_at_once) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    service.stop();
    const scope s{service, deadline::in(1s, clock.now()), clock};
    EXPECT_EQ(s.cause(), stop_cause::unenforceable);
    EXPECT_TRUE(s.token().stop_requested());
    const scope unbounded{service, deadline::none(), clock};
    EXPECT_EQ(unbounded.cause(), stop_cause::none);
}

TEST(scopes, survive_a_service_that_stops_later) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    {
        const scope s{service, deadline::in(1s, clock.now()), clock};
        service.stop();
        EXPECT_EQ(s.cause(), stop_cause::none);
    }
    EXPECT_TRUE(service.counters().balanced());
}

TEST(scopes, pass_on_what_arm_throws) {
    counted c;
    c.service.throws = true;
    EXPECT_THROW((counted_scope{c.service, c.in(1s), c.clock}), std::bad_alloc);
    counted_scope top{c.service, deadline::none(), c.clock};
    EXPECT_THROW((counted_scope{top, c.service, c.in(1s), c.clock}), std::bad_alloc);
    EXPECT_EQ(top.children(), 0U);
}

TEST(scopes, that_ask_for_more_than_there_is_above_get_what_is_above) {
    counted c;
    counted_scope top{c.service, c.in(30ms), c.clock};
    const counted_scope more{top, c.service, c.in(3s), c.clock};
    EXPECT_EQ(more.until(), c.in(30ms));
    const counted_scope nothing_said{top, c.service, deadline::none(), c.clock};
    EXPECT_EQ(nothing_said.until(), c.in(30ms));
    EXPECT_EQ(c.service.arms, 1);
    c.service.fire();
    EXPECT_EQ(more.cause(), stop_cause::parent);
    EXPECT_EQ(more.origin(), stop_cause::deadline);
    EXPECT_EQ(nothing_said.origin(), stop_cause::deadline);
}

TEST(scopes, that_ask_for_less_get_it) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    scope top{service, deadline::in(30ms, clock.now()), clock};
    const scope less{top, service, deadline::in(10ms, clock.now()), clock};
    clock.advance(10ms);
    EXPECT_EQ(less.cause(), stop_cause::deadline);
    EXPECT_EQ(top.cause(), stop_cause::none);
}

TEST(scopes, ask_to_stop_when_they_are_left) {
    counted c;
    stop_cause seen{};
    const scope_base* at = nullptr;
    const auto look = [&] { seen = at->cause(); };
    std::optional<std::stop_callback<decltype(look)>> watch;
    {
        const counted_scope s{c.service, c.in(1s), c.clock};
        at = &s;
        watch.emplace(s.token(), look);
    }
    EXPECT_EQ(seen, stop_cause::left);
}

TEST(scopes, wait_for_their_tickets) {
    counted c;
    std::atomic<bool> ended{false};
    std::thread worker;
    {
        counted_scope s{c.service, c.in(1s), c.clock};
        worker = std::thread{[ticket = s.enter(), token = s.token(), &ended]() mutable {
            EXPECT_TRUE(eventually([&] { return token.stop_requested(); }));
            std::this_thread::sleep_for(20ms);
            ended = true;
            ticket.release();
        }};
        EXPECT_EQ(s.children(), 1U);
    }
    EXPECT_TRUE(ended);
    worker.join();
}

TEST(scopes, wait_for_the_scopes_below) {
    counted c;
    std::atomic<bool> below_left{false};
    std::atomic<bool> below_there{false};
    std::thread worker;
    {
        counted_scope top{c.service, deadline::none(), c.clock};
        worker = std::thread{[&] {
            {
                const counted_scope low{top, c.service, deadline::none(), c.clock};
                below_there = true;
                EXPECT_TRUE(eventually([&] { return low.token().stop_requested(); }));
                std::this_thread::sleep_for(20ms);
                below_left = true;
            }
        }};
        ASSERT_TRUE(eventually([&] { return below_there.load(); }));
        EXPECT_EQ(top.children(), 1U);
    }
    EXPECT_TRUE(below_left);
    worker.join();
}

TEST(scopes, tickets_can_be_moved) {
    counted c;
    counted_scope a{c.service, deadline::none(), c.clock};
    counted_scope b{c.service, deadline::none(), c.clock};
    scope_ticket one = a.enter();
    scope_ticket other = b.enter();
    other = std::move(one);
    EXPECT_EQ(a.children(), 1U);
    EXPECT_EQ(b.children(), 0U);
    const scope_ticket third{std::move(other)};
    EXPECT_EQ(a.children(), 1U);
    other.release();
    EXPECT_EQ(a.children(), 1U);
}

task<void> leave_scope(scope_base& s, bool& gone) {
    co_await s.leave();
    gone = true;
}

// The slot's clock and the driver of long durations run callbacks at the same time.
TEST(scopes, left_inside_another_callback_wait_for_their_own) {
    using slots = coarse_slot<manual_time>;
    manual_time clock;
    slots service{clock, {.threshold_s = 0}};
    auto request = std::make_unique<scope<slots, manual_time>>(service, deadline::in(2s, clock.now()), clock);
    std::atomic<bool> held{false};
    std::atomic<bool> release{false};
    const std::stop_callback hold{request->token(), [&] {
                                      held = true;
                                      while (!release) {
                                          std::this_thread::yield();
                                      }
                                  }};
    struct leaver {
        decltype(request)& leaves;
        std::atomic<bool> begun{false};
        std::atomic<bool> gone{false};
        static void run(void* at) {
            auto& self = *static_cast<leaver*>(at);
            self.begun = true;
            self.leaves.reset();
            self.gone = true;
        }
    } other{request};
    const auto until = [](const std::atomic<bool>& flag) {
        while (!flag) {
            std::this_thread::yield();
        }
    };
    clock.shift(3s);
    until(held);
    slots::timer t{service};
    ASSERT_TRUE(service.arm(t, 1ms, {&leaver::run, &other}));
    clock.shift(100ms);
    until(other.begun);
    // Nothing is proved by its not being gone yet; but a scope that does not wait is gone by the end of this.
    for (int i = 0; i < 10'000 && !other.gone; ++i) {
        std::this_thread::yield();
    }
    EXPECT_FALSE(other.gone);
    release = true;
    until(other.gone);
    clock.settle();
}

// The coroutine owns its frame and what hangs below its scope.
detached lead(service_type& service, manual_time& clock, std::thread& helper, std::atomic<bool>& over) {
    scope<service_type, manual_time> request{service, deadline::none(), clock};
    std::optional<scope<service_type, manual_time>> step;
    step.emplace(request, service, deadline::none(), clock);
    helper = std::thread{[&] {
        while (step->cause() == stop_cause::none) {
            std::this_thread::yield();
        }
        step.reset(); // resumes the coroutine, which then takes `step` with it
    }};
    co_await request.leave();
    over = true;
}

TEST(scopes, below_may_lie_in_the_frame_that_their_end_resumes) {
    manual_time clock;
    service_type service{clock};
    std::thread helper;
    std::atomic<bool> over{false};
    lead(service, clock, helper, over);
    helper.join();
    EXPECT_TRUE(over);
}

TEST(scopes, do_not_resume_a_coroutine_that_was_destroyed) {
    manual_time clock;
    service_type service{clock};
    scope<service_type, manual_time> request{service, deadline::none(), clock};
    scope_ticket ticket = request.enter();
    bool gone = false;
    {
        task<void> leaving = leave_scope(request, gone);
        leaving.start();
    }
    EXPECT_EQ(request.cause(), stop_cause::left);
    ticket.release();
    EXPECT_FALSE(gone);
}

TEST(scopes, can_be_left_by_a_coroutine_without_blocking) {
    counted c;
    counted_scope s{c.service, c.in(1s), c.clock};
    scope_ticket one = s.enter();
    scope_ticket two = s.enter();
    bool gone = false;
    task<void> leaver = leave_scope(s, gone);
    leaver.start();
    EXPECT_TRUE(s.token().stop_requested());
    EXPECT_EQ(s.cause(), stop_cause::left);
    one.release();
    EXPECT_FALSE(gone);
    two.release();
    EXPECT_TRUE(gone);

    bool at_once = false;
    task<void> second = leave_scope(s, at_once);
    second.start();
    EXPECT_TRUE(at_once);
}

// What a coroutine does that is resumed by its stop and returns: scope and callback end inside the callback, and nothing else holds the stop state.
template <class Scope>
struct ends_when_stopped {
    struct end {
        ends_when_stopped* self;
        void operator()() const {
            ends_when_stopped* const kept = self; // this object ends with the callback
            kept->watch.reset();
            kept->bystander.reset();
            kept->s.reset();
        }
    };

    template <class... Arguments>
    explicit ends_when_stopped(Arguments&&... arguments) {
        s.emplace(std::forward<Arguments>(arguments)...);
        bystander.emplace(s->token(), nothing{});
        watch.emplace(s->token(), end{this});
    }

    struct nothing {
        void operator()() const {}
    };

    std::optional<Scope> s;
    // A second callback: after the last one libstdc++ does not look at the stop state again.
    std::optional<std::stop_callback<nothing>> bystander;
    std::optional<std::stop_callback<end>> watch;
};

TEST(scopes, may_end_inside_the_stop_that_they_request) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    using real_scope = scope<locked_heap<manual_time>, manual_time>;
    ends_when_stopped<real_scope> by_deadline{service, deadline::in(5ms, clock.now()), clock};
    clock.advance(5ms);
    EXPECT_FALSE(by_deadline.s.has_value());
    EXPECT_EQ(service.counters().fired, 1U);

    ends_when_stopped<real_scope> by_call{service, deadline::in(5ms, clock.now()), clock};
    by_call.s->stop();
    EXPECT_FALSE(by_call.s.has_value());
    ends_when_stopped<real_scope> by_failure{service, deadline::in(5ms, clock.now()), clock};
    by_failure.s->fail(nullptr);
    EXPECT_FALSE(by_failure.s.has_value());
    EXPECT_EQ(service.counters().cancelled, 2U);
}

TEST(scopes, below_may_end_inside_the_stop_that_comes_from_above) {
    counted c;
    counted_scope top{c.service, c.in(5ms), c.clock};
    ends_when_stopped<counted_scope> low{top, c.service, c.in(4ms), c.clock};
    top.stop();
    EXPECT_FALSE(low.s.has_value());
    EXPECT_EQ(top.children(), 0U);
    EXPECT_EQ(c.service.cancels, 1);
}

TEST(scopes, allocate_at_most_once) {
#if defined(TIMERBENCH_COUNTS_ALLOCATIONS)
    if (!harness::alloc_counting().available) {
        GTEST_SKIP() << harness::alloc_counting().reason;
    }
    counted c;
    { const counted_scope warm{c.service, c.in(1s), c.clock}; }
    const harness::alloc_window window;
    {
        counted_scope s{c.service, c.in(1s), c.clock};
        EXPECT_EQ(window.counts().allocations, 1U);
        const scope_ticket ticket = s.enter();
        s.stop();
    }
    EXPECT_EQ(window.counts().allocations, 1U);
    EXPECT_EQ(window.counts().frees, 1U);
#else
    GTEST_SKIP() << "built without the allocation counter";
#endif
}

constexpr int racers = 8;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int race_rounds = 300;
#else
constexpr int race_rounds = 2'000;
#endif

// Eight threads stop one scope for different reasons while its deadline fires. One of them wins, and all of them read the same.
TEST(scopes, agree_on_the_cause_among_eight_threads) {
    manual_time clock;
    locked_heap<manual_time> service{clock};
    std::array<int, 8> won{};
    for (int round = 0; round < race_rounds; ++round) {
        scope above{service, deadline::none(), clock};
        scope s{above, service, deadline::in(1ms, clock.now()), clock};
        std::barrier start{racers};
        std::array<stop_cause, racers> read{};
        std::array<stop_cause, racers> read_after_token{};
        std::atomic<int> winners{0}; // raised by those whose cause won
        std::vector<std::thread> threads;
        for (int i = 0; i < racers; ++i) {
            threads.emplace_back([&, i] {
                const std::stop_token token = s.token();
                start.arrive_and_wait();
                switch (i % 4) {
                case 0:
                    winners += s.stop() ? 1 : 0;
                    break;
                case 1:
                    winners += s.fail(nullptr) ? 1 : 0;
                    break;
                case 2:
                    above.stop();
                    break;
                default:
                    if (i == 3) {
                        clock.advance(1ms);
                    }
                    break;
                }
                while (!token.stop_requested()) {
                    std::this_thread::yield();
                }
                read_after_token[static_cast<std::size_t>(i)] = s.cause();
                read[static_cast<std::size_t>(i)] = s.cause();
            });
        }
        for (std::thread& t : threads) {
            t.join();
        }
        const stop_cause cause = s.cause();
        EXPECT_NE(cause, stop_cause::none);
        for (int i = 0; i < racers; ++i) {
            EXPECT_EQ(read[static_cast<std::size_t>(i)], cause);
            EXPECT_EQ(read_after_token[static_cast<std::size_t>(i)], cause);
        }
        const bool by_call = cause == stop_cause::requested || cause == stop_cause::failure;
        EXPECT_EQ(winners, by_call ? 1 : 0);
        EXPECT_EQ(s.origin(), cause == stop_cause::parent ? above.cause() : cause);
        ++won[static_cast<std::size_t>(cause)];
    }
    // Not a race if the same one wins always.
    EXPECT_GE(std::count_if(won.begin(), won.end(), [](int n) { return n > 0; }), 2);
}

// Trees that grow and are left while their deadlines fire: nothing runs once its scope is left.
TEST(scopes, leave_nothing_running_behind) {
    locked_heap<steady_time> service;
    std::vector<std::jthread> threads;
    for (int i = 0; i < racers; ++i) {
        threads.emplace_back([&service, i] {
            for (int round = 0; round < race_rounds / 20; ++round) {
                std::atomic<int> running{0}; // raised and lowered by the workers below
                std::vector<std::thread> workers;
                {
                    scope top{service, deadline::in(std::chrono::microseconds{50 * (i + round % 7)})};
                    for (int w = 0; w < 3; ++w) {
                        workers.emplace_back([&running, &top, &service, ticket = top.enter()]() mutable {
                            ++running;
                            {
                                scope low{top, service, deadline::in(30us)};
                                while (!low.token().stop_requested()) {
                                    std::this_thread::yield();
                                }
                                EXPECT_NE(low.cause(), stop_cause::none);
                            }
                            --running;
                            ticket.release();
                        });
                    }
                    if (round % 3 != 0) {
                        top.stop();
                    }
                }
                EXPECT_EQ(running, 0);
                for (std::thread& w : workers) {
                    w.join();
                }
            }
        });
    }
    threads.clear();
    EXPECT_TRUE(service.counters().balanced());
    EXPECT_EQ(service.counters().pending, 0U);
}

} // namespace
} // namespace timerbench::testing
