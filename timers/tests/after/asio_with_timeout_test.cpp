// Timeouts around Asio's own awaitables, over TCP on loopback.
#include "timers/asio_with_timeout.hpp"

#include "timers/locked_heap.hpp"
#include "timers/tests/after/support.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <functional>

namespace timerbench::testing {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;

// Two ends of a connection on one io_context, run by this thread.
struct connection {
    asio::io_context context{1};
    tcp::socket near{context};
    tcp::socket far{context};
    locked_heap<steady_time> service;
    bool done = false;

    connection() {
        tcp::acceptor acceptor{context, tcp::endpoint{asio::ip::address_v4::loopback(), 0}};
        near.connect(acceptor.local_endpoint());
        acceptor.accept(far);
    }

    void run(std::function<asio::awaitable<void>()> body) {
        // The function outlives the coroutine, which refers to what it has captured.
        asio::co_spawn(
            context,
            [this, &body]() -> asio::awaitable<void> {
                co_await body();
                done = true;
            },
            [](const std::exception_ptr& error) {
                if (error) {
                    std::rethrow_exception(error);
                }
            });
        context.run_for(10s);
        EXPECT_TRUE(done);
    }
};

asio::awaitable<std::size_t> read_some(tcp::socket& socket, std::array<char, 16>& room) {
    co_return co_await socket.async_read_some(asio::buffer(room), use_awaitable);
}

TEST(timed_asio_awaits, give_their_value_in_time) {
    connection c;
    asio::write(c.far, asio::buffer("hello", 5));
    c.run([&]() -> asio::awaitable<void> {
        std::array<char, 16> room{};
        const timed_await<std::size_t> r =
            co_await with_timeout(c.service, deadline::in(10s), read_some(c.near, room), c.near);
        EXPECT_EQ(r.value, 5U);
        EXPECT_EQ(r.cause, stop_cause::none);
    });
    EXPECT_EQ(c.service.counters().cancelled, 1U);
}

TEST(timed_asio_awaits, are_cancelled_at_their_deadline) {
    connection c;
    c.run([&]() -> asio::awaitable<void> {
        std::array<char, 16> room{};
        const deadline until = deadline::in(20ms);
        const timed_await<std::size_t> r =
            co_await with_timeout(c.service, until, read_some(c.near, room), c.near);
        EXPECT_TRUE(r.elapsed());
        EXPECT_EQ(r.cause, stop_cause::deadline);
        EXPECT_TRUE(until.expired());
        try {
            std::rethrow_exception(r.error);
        } catch (const boost::system::system_error& e) {
            EXPECT_EQ(e.code(), asio::error::operation_aborted);
        }
        // The connection can still be used.
        co_await asio::async_write(c.far, asio::buffer("x", 1), use_awaitable);
        const timed_await<std::size_t> next =
            co_await with_timeout(c.service, deadline::in(10s), read_some(c.near, room), c.near);
        EXPECT_EQ(next.value, 1U);
    });
}

TEST(timed_asio_awaits, that_are_too_late_are_cancelled_at_once) {
    connection c;
    c.run([&]() -> asio::awaitable<void> {
        std::array<char, 16> room{};
        const timed_await<std::size_t> r =
            co_await with_timeout(c.service, deadline::in(-1s), read_some(c.near, room), c.near);
        EXPECT_EQ(r.cause, stop_cause::deadline);
        EXPECT_TRUE(r.elapsed());
    });
    EXPECT_EQ(c.service.counters().armed, 0U);
}

TEST(timed_asio_awaits, on_a_service_that_has_stopped_are_cancelled) {
    connection c;
    c.service.stop();
    c.run([&]() -> asio::awaitable<void> {
        std::array<char, 16> room{};
        const timed_await<std::size_t> r =
            co_await with_timeout(c.service, deadline::in(10s), read_some(c.near, room), c.near);
        EXPECT_EQ(r.cause, stop_cause::unenforceable);
        EXPECT_TRUE(r.elapsed());
    });
}

TEST(timed_asio_awaits, without_a_deadline_touch_no_timer) {
    connection c;
    asio::write(c.far, asio::buffer("hello", 5));
    c.run([&]() -> asio::awaitable<void> {
        std::array<char, 16> room{};
        EXPECT_EQ((co_await with_timeout(c.service, deadline::none(), read_some(c.near, room), c.near)).value,
                  5U);
    });
    EXPECT_EQ(c.service.counters().armed, 0U);
}

asio::awaitable<void> fails() {
    throw std::runtime_error{"of its own"};
    co_return;
}

TEST(timed_asio_awaits, pass_exceptions_on) {
    connection c;
    c.run([&]() -> asio::awaitable<void> {
        bool caught = false;
        try {
            (void)co_await with_timeout(c.service, deadline::in(10s), fails(), c.near);
        } catch (const std::runtime_error&) {
            caught = true;
        }
        EXPECT_TRUE(caught);
    });
    EXPECT_EQ(c.service.counters().cancelled, 1U);
}

// Goes on to another operation after one that was cancelled: a cancel reaches only what is outstanding.
asio::awaitable<int> stubborn(asio::steady_timer& timer, int rounds) {
    int cancelled = 0;
    for (int i = 0; i < rounds; ++i) {
        timer.expires_after(5s);
        boost::system::error_code error;
        co_await timer.async_wait(asio::redirect_error(use_awaitable, error));
        cancelled += error == asio::error::operation_aborted ? 1 : 0;
    }
    co_return cancelled;
}

TEST(timed_asio_awaits, are_cancelled_until_they_end) {
    connection c;
    c.run([&]() -> asio::awaitable<void> {
        asio::steady_timer timer{co_await asio::this_coro::executor};
        const timed_await<int> r =
            co_await with_timeout(c.service, deadline::in(5ms), stubborn(timer, 4), [&] { timer.cancel(); });
        EXPECT_EQ(r.value, 4);
        EXPECT_EQ(r.cause, stop_cause::deadline);
    });
}

TEST(timed_asio_awaits, are_stopped_by_a_scope) {
    connection c;
    c.run([&]() -> asio::awaitable<void> {
        const scope s{c.service, deadline::in(15ms)};
        std::array<char, 16> room{};
        boost::system::error_code ignored;
        bool aborted = false;
        {
            const cancel_on_stop stopper{s.token(), co_await asio::this_coro::executor,
                                         [&] { c.near.cancel(ignored); }};
            try {
                (void)co_await read_some(c.near, room);
            } catch (const boost::system::system_error& e) {
                aborted = e.code() == asio::error::operation_aborted;
            }
        }
        EXPECT_TRUE(aborted);
        EXPECT_EQ(s.cause(), stop_cause::deadline);
    });
}

// A context that goes down with coroutines waiting: their timers go first.
TEST(timed_asio_awaits, may_be_dropped_with_their_context) {
    locked_heap<steady_time> service;
    {
        asio::io_context context{1};
        asio::co_spawn(
            context,
            [&]() -> asio::awaitable<void> {
                asio::steady_timer timer{co_await asio::this_coro::executor};
                (void)co_await with_timeout(service, deadline::in(30s), stubborn(timer, 1),
                                            [&] { timer.cancel(); });
            },
            asio::detached);
        context.run_for(20ms);
        EXPECT_EQ(service.counters().pending, 1U);
    }
    EXPECT_EQ(service.counters().pending, 0U);
    EXPECT_TRUE(service.counters().balanced());
}

// Values and deadlines that come at about the same time.
TEST(timed_asio_awaits, settle_value_and_deadline) {
    connection c;
    int in_time = 0;
    int late = 0;
    c.run([&]() -> asio::awaitable<void> {
        for (int i = 0; i < 200; ++i) {
            asio::steady_timer timer{co_await asio::this_coro::executor};
            const auto operation = [](asio::steady_timer& t, duration d) -> asio::awaitable<int> {
                t.expires_after(d);
                co_await t.async_wait(use_awaitable);
                co_return 1;
            };
            const timed_await<int> r = co_await with_timeout(
                c.service, deadline::in(300us), operation(timer, std::chrono::microseconds{200 + i}), timer);
            if (r.cause == stop_cause::none) {
                EXPECT_EQ(r.value, 1);
                ++in_time;
            } else {
                EXPECT_NE(r.value.has_value(), r.error != nullptr);
                ++late;
            }
        }
    });
    EXPECT_EQ(in_time + late, 200);
}

} // namespace
} // namespace timerbench::testing
