// A server that stops working for callers who have left.
//
// Every request is a scope below the server's own. It is stopped when the caller's deadline passes, when the caller closes the connection, or when the server
// goes down, whichever is first; the work looks at the scope's token every few milliseconds, and its waits are cancelled by it. One record for each request
// goes to standard output.
//
//   example_server --port 7000 --slow-every 10
//
// SIGINT and SIGTERM stop it: requests in flight are asked to stop and answered. Exit code 2: unusable options or port.
#include "examples/options.hpp"
#include "examples/wire.hpp"
#include "timers/asio_with_timeout.hpp"
#include "timers/deadline.hpp"
#include "timers/per_thread_wheel.hpp"
#include "timers/request_record.hpp"
#include "timers/scope.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace timerbench::examples {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;

struct options {
    long port = 0;
    long work_ms = 5;
    long slow_every = 0;
    long slow_ms = 200;
    long busy_every = 0;
    long look_ms = 2;
};

struct unusable_port : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class server {
  public:
    server(asio::io_context& context, scope_base& root, per_thread_wheel<steady_time>& service,
           const options& o)
        : context_{context},
          root_{root},
          service_{service},
          options_{o},
          acceptor_{listen(context, o.port)} {}

    [[nodiscard]] unsigned port() const { return acceptor_.local_endpoint().port(); }

    asio::awaitable<void> accept() {
        const cancel_on_stop stopper{root_.token(), context_.get_executor(), [this] {
                                         error_code ignored;
                                         acceptor_.close(ignored);
                                     }};
        while (!root_.token().stop_requested()) {
            error_code error;
            tcp::socket socket = co_await acceptor_.async_accept(asio::redirect_error(use_awaitable, error));
            if (!error) {
                asio::co_spawn(context_, serve(std::move(socket)), report);
            } else if (!root_.token().stop_requested()) {
                std::fprintf(stderr, "example_server: accept: %s\n", error.message().c_str());
                co_return;
            }
        }
    }

    static void report(const std::exception_ptr& error) {
        if (error == nullptr) {
            return;
        }
        try {
            std::rethrow_exception(error);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "example_server: %s\n", e.what());
        }
    }

  private:
    static tcp::acceptor listen(asio::io_context& context, long port) {
        try {
            return {context,
                    tcp::endpoint{asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)}};
        } catch (const boost::system::system_error& e) {
            throw unusable_port{"--port " + std::to_string(port) + " cannot be used: " + e.code().message() +
                                "; give another one, or 0 for any that is free"};
        }
    }

    asio::awaitable<void> serve(tcp::socket socket) {
        const cancel_on_stop stopper{root_.token(), context_.get_executor(), [&socket] {
                                         error_code ignored;
                                         socket.cancel(ignored);
                                     }};
        std::string input;
        while (!root_.token().stop_requested()) {
            error_code error;
            const std::size_t length = co_await asio::async_read_until(
                socket, asio::dynamic_buffer(input, 4096), '\n', asio::redirect_error(use_awaitable, error));
            if (error) {
                co_return;
            }
            const std::optional<request_line> request = parse_request(input.substr(0, length));
            input.erase(0, length);
            answer_line answer{.status = "BAD", .request = "-"};
            if (request) {
                answer.request = request->request;
                answer.status = co_await handle(*request, socket);
            }
            const std::string line = to_line(answer);
            co_await asio::async_write(socket, asio::buffer(line),
                                       asio::redirect_error(use_awaitable, error));
            if (error) {
                co_return;
            }
        }
    }

    asio::awaitable<std::string> handle(const request_line& request, tcp::socket& socket) {
        const time_point entry = steady_time::now();
        scope<per_thread_wheel<steady_time>> s{root_, service_,
                                               deadline::from_remaining(request.left, entry)};
        const long number = ++requests_;
        request_record record{.request = request.request,
                              .route = request.route,
                              .left_at_entry = s.until().to_remaining(entry)};
        if (options_.busy_every != 0 && number % options_.busy_every == 0) {
            record.ended = "busy";
        } else {
            const bool slow = options_.slow_every != 0 && number % options_.slow_every == 0;
            const std::shared_ptr<scope_base*> watched = stop_when_closed(socket, s);
            const bool finished =
                co_await store(s, std::chrono::milliseconds{slow ? options_.slow_ms : options_.work_ms});
            *watched = nullptr; // the handler may still come
            const time_point now = steady_time::now();
            record.hops.push_back(
                {.hop = "store", .left_at_entry = record.left_at_entry, .spent = now - entry});
            if (!finished) {
                record.ended = to_string(s.cause());
                record.cancelled.emplace_back("store");
            }
        }
        record.took = steady_time::now() - entry;
        std::printf("%s\n", json_line(record).c_str());
        std::fflush(stdout);
        co_return record.ended == "ok" ? "OK" : record.ended == "busy" ? "BUSY" : "LATE";
    }

    // Work that takes `work` and looks at the token between its parts; the wait inside a part is cancelled too. Whether it finished.
    asio::awaitable<bool> store(scope_base& s, duration work) {
        asio::steady_timer part{context_};
        const cancel_on_stop stopper{s.token(), context_.get_executor(), [&part] { part.cancel(); }};
        const duration look = std::chrono::milliseconds{options_.look_ms};
        for (duration done{}; done < work && !s.token().stop_requested(); done += look) {
            part.expires_after(std::min(look, work - done));
            error_code ignored;
            co_await part.async_wait(asio::redirect_error(use_awaitable, ignored));
        }
        co_return !s.token().stop_requested();
    }

    // A caller who closes the connection has left. The pointer is to be cleared before the scope is left.
    static std::shared_ptr<scope_base*> stop_when_closed(tcp::socket& socket, scope_base& s) {
        auto watched = std::make_shared<scope_base*>(&s);
        socket.async_wait(tcp::socket::wait_read, [watched, &socket](const error_code& error) {
            if (error || *watched == nullptr) {
                return;
            }
            char byte = 0;
            error_code closed;
            socket.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, closed);
            if (closed) {
                (*watched)->stop();
            }
        });
        return watched;
    }

    asio::io_context& context_;
    scope_base& root_;
    per_thread_wheel<steady_time>& service_;
    const options options_;
    tcp::acceptor acceptor_;
    long requests_ = 0;
};

int run(int argc, char** argv) {
    options o;
    read_options(
        argc, argv, "example_server",
        {{"port", "port on loopback, 0: any", &o.port, 0, 65535},
         {"work-ms", "work of a request", &o.work_ms, 0, 60'000},
         {"slow-every", "every so many requests are slow, 0: none", &o.slow_every, 0, 1'000'000},
         {"slow-ms", "work of a slow request", &o.slow_ms, 0, 60'000},
         {"busy-every", "every so many requests are turned away, 0: none", &o.busy_every, 0, 1'000'000},
         {"look-ms", "work between two looks at the token", &o.look_ms, 1, 60'000}});
    // In this order: what goes first was made last. Coroutines go with their context, before the scope above theirs.
    per_thread_wheel<steady_time> service{steady()};
    scope<per_thread_wheel<steady_time>> root{service, deadline::none()};
    asio::io_context context{1};
    server s{context, root, service, o};
    asio::signal_set signals{context, SIGINT, SIGTERM};
    signals.async_wait([&root](const error_code& error, int) {
        if (!error) {
            root.stop();
        }
    });
    std::printf("listening on 127.0.0.1:%u\n", s.port());
    std::fflush(stdout);
    asio::co_spawn(context, s.accept(), server::report);
    context.run();
    return 0;
}

} // namespace
} // namespace timerbench::examples

int main(int argc, char** argv) {
    try {
        return timerbench::examples::run(argc, argv);
    } catch (const timerbench::examples::unusable_port& e) {
        std::fprintf(stderr, "example_server: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "example_server: %s\n", e.what());
        return 1;
    }
}
