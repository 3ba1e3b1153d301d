// Scopes and timeouts on every service of the list, in real time.
#include "timers/scope.hpp"
#include "timers/services.hpp"
#include "timers/tests/after/support.hpp"
#include "timers/with_timeout.hpp"

namespace timerbench::testing {
namespace {

// Returns once `condition` holds; a loop-driven service is polled meanwhile.
template <class Service, class Condition>
bool drive(Service& service, Condition condition) {
    return eventually([&] {
        if constexpr (loop_service<Service>) {
            service.poll();
        }
        return condition();
    });
}

// Early by design within what the traits say, so not compared with the deadline here.
template <class Service>
void scope_is_stopped(Service& service) {
    stop_cause seen = stop_cause::none;
    {
        scope s{service, deadline::in(15ms)};
        const scope below{s, service, deadline::none()};
        // Made late, the one below is stopped before the timer above has fired.
        EXPECT_TRUE(
            drive(service, [&] { return s.token().stop_requested() && below.token().stop_requested(); }));
        seen = s.cause();
        EXPECT_EQ(below.origin(), stop_cause::deadline);
    }
    EXPECT_EQ(seen, stop_cause::deadline);
}

template <class Service>
void scope_left_in_time_leaves_nothing(Service& service) {
    { const scope s{service, deadline::in(100s)}; }
    EXPECT_TRUE(drive(service, [&] { return service.counters().pending == 0; }));
    EXPECT_TRUE(service.counters().balanced());
}

template <class Service>
void await_is_stopped(Service& service) {
    std::stop_source source;
    event e{source.get_token(), event::on_stop::is_noted};
    timed_await<int> result;
    std::atomic<bool> over{false}; // set by whoever resumes the coroutine
    const auto body = [&]() -> detached {
        result = co_await with_timeout(service, deadline::in(15ms), e, source);
        over = true;
    };
    body();
    // Ended by this thread, outside the callback: some services may not be called inside one.
    EXPECT_TRUE(drive(service, [&] { return e.saw_stop(); }));
    e.finish(3);
    EXPECT_TRUE(over);
    EXPECT_EQ(result.value, 3);
    EXPECT_EQ(result.cause, stop_cause::deadline);
}

// The operation ends inside its stop, so that the coroutine goes on inside the callback of its own timer.
template <class Service>
void await_goes_on_inside_the_callback(Service& service) {
    if (!service.traits().callback_may_call) {
        return;
    }
    std::stop_source source;
    event e{source.get_token()};
    std::atomic<bool> over{false}; // set by whoever resumes the coroutine
    const auto body = [&]() -> detached {
        const timed_await<int> r = co_await with_timeout(service, deadline::in(5ms), e, source);
        EXPECT_TRUE(r.elapsed());
        {
            const scope s{service, deadline::in(1s)};
            EXPECT_EQ(s.cause(), stop_cause::none);
        }
        over = true;
    };
    body();
    EXPECT_TRUE(drive(service, [&] { return over.load(); }));
}

template <class Service>
void stopped_is_unenforceable(Service& service) {
    service.stop();
    const scope s{service, deadline::in(1s)};
    EXPECT_EQ(s.cause(), stop_cause::unenforceable);
}

TEST(pieces_on_every_service, stop_in_time_and_leave_nothing) {
    all_services::for_each([]<class Entry>() {
        SCOPED_TRACE(Entry::name);
        if (!why_unavailable<typename Entry::service>().empty()) {
            return;
        }
        const auto service = Entry::make();
        scope_is_stopped(*service);
        scope_left_in_time_leaves_nothing(*service);
        await_is_stopped(*service);
        await_goes_on_inside_the_callback(*service);
        EXPECT_TRUE(drive(*service, [&] { return service->counters().pending == 0; }));
        EXPECT_TRUE(service->counters().balanced());
        stopped_is_unenforceable(*service);
    });
}

} // namespace
} // namespace timerbench::testing
