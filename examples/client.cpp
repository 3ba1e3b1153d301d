// A client that gives every request one deadline, for connecting, asking, waiting and asking again.
//
// What is left of the deadline goes with each request, so that the server stops when this client does. A request that was turned away, or whose connection
// broke, is asked again while the deadline has room and the budget has tokens. A timeout closes the connection: its answer would
// be taken for the next one's. One record for each request goes to standard output as it ends, a summary to standard error.
//
//   example_client --port 7000 --requests 20 --timeout-ms 50
//
// Exit code 0: every request was answered or ended at its deadline; 1: some ended otherwise; 2: unusable options.
#include "examples/options.hpp"
#include "examples/wire.hpp"
#include "timers/asio_with_timeout.hpp"
#include "timers/deadline.hpp"
#include "timers/per_thread_wheel.hpp"
#include "timers/request_record.hpp"
#include "timers/retry.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace timerbench::examples {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;

struct options {
    long port = 7000;
    long requests = 20;
    long timeout_ms = 50;
    long attempts = 3;
    long seed = 1;
};

class client {
  public:
    client(asio::io_context& context, per_thread_wheel<steady_time>& service, const options& o)
        : context_{context},
          service_{service},
          options_{o},
          server_{asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(o.port)},
          socket_{context},
          policy_{.idempotent = true,
                  .most_attempts = static_cast<int>(o.attempts),
                  .first_backoff = std::chrono::milliseconds{4},
                  .longest_backoff = std::chrono::milliseconds{100},
                  .minimum_attempt = std::chrono::milliseconds{1}} {}

    asio::awaitable<void> run() {
        for (long i = 1; i <= options_.requests; ++i) {
            co_await ask(i);
        }
        const auto counted = [](long count, const char* one, const char* several) {
            return std::to_string(count) + ' ' + (count == 1 ? one : several);
        };
        std::fprintf(stderr, "%s: %ld answered, %s, %ld otherwise; %s\n",
                     counted(options_.requests, "request", "requests").c_str(), answered_,
                     counted(late_, "ended at its deadline", "ended at their deadline").c_str(),
                     options_.requests - answered_ - late_,
                     counted(attempts_, "attempt", "attempts").c_str());
    }

    [[nodiscard]] int exit_code() const { return answered_ + late_ == options_.requests ? 0 : 1; }

  private:
    asio::awaitable<void> ask(long number) {
        const time_point entry = steady_time::now();
        const deadline until = deadline::in(std::chrono::milliseconds{options_.timeout_ms}, entry);
        request_record record{.request = std::to_string(number),
                              .route = "/orders",
                              .left_at_entry = until.to_remaining(entry)};
        hop_record hop{.hop = "server", .left_at_entry = record.left_at_entry, .attempts = 0};
        retry_run attempts{policy_, until, static_cast<std::uint64_t>(options_.seed + number), &budget_};
        duration waited{};
        while (attempts.begin(steady_time::now())) {
            const time_point begin = steady_time::now();
            const std::string status = co_await attempt(record, until);
            hop.spent += steady_time::now() - begin;
            if (status == "OK") {
                attempts.succeeded();
                break;
            }
            const bool retryable = status == "BUSY" || status == "lost";
            const std::optional<duration> wait = attempts.failed(retryable, steady_time::now());
            if (!wait) {
                record.ended =
                    status == "LATE" || until.expired() ? "deadline" : std::string{to_string(attempts.end())};
                break;
            }
            asio::steady_timer pause{context_};
            pause.expires_after(*wait);
            co_await pause.async_wait(use_awaitable);
            waited += *wait;
        }
        if (attempts.end() == retry_end::deadline) {
            record.ended = "deadline";
        }
        answered_ += attempts.end() == retry_end::success ? 1 : 0;
        late_ += record.ended == "deadline" ? 1 : 0;
        attempts_ += attempts.attempts();
        hop.attempts = attempts.attempts();
        record.attempts = attempts.attempts();
        record.hops.push_back(hop);
        record.hops.push_back({.hop = "backoff", .spent = waited, .attempts = 0});
        record.took = steady_time::now() - entry;
        const std::string line = json_line(record) + '\n';
        std::fwrite(line.data(), 1, line.size(), stdout);
        std::fflush(stdout); // whole lines, though another program may write to the same pipe
    }

    // "OK", "BUSY", "LATE" or "BAD" from the server; "LATE" too if it has not answered in time; "lost" without a connection.
    asio::awaitable<std::string> attempt(request_record& record, deadline until) {
        std::string status;
        bool lost = false;
        try {
            timed_await<std::string> r = co_await with_timeout(
                service_, until, exchange(record.request, record.route, until), [this] { close(); });
            if (r.value.has_value()) {
                status = std::move(*r.value);
            } else {
                status = "LATE";
                record.cancelled = {"server"};
            }
        } catch (const boost::system::system_error&) {
            lost = true;
        }
        if (lost) {
            close();
            status = "lost";
        }
        co_return status;
    }

    asio::awaitable<std::string> exchange(std::string request, std::string route, deadline until) {
        if (!socket_.is_open()) {
            co_await socket_.async_connect(server_, use_awaitable);
            socket_.set_option(tcp::no_delay{true});
            input_.clear();
        }
        const std::string line = to_line(
            request_line{.request = request, .route = route, .left = until.to_remaining(steady_time::now())});
        co_await asio::async_write(socket_, asio::buffer(line), use_awaitable);
        const std::size_t length =
            co_await asio::async_read_until(socket_, asio::dynamic_buffer(input_, 4096), '\n', use_awaitable);
        const answer_line answer = parse_answer(input_.substr(0, length));
        input_.erase(0, length);
        co_return answer.request == request ? answer.status : "BAD";
    }

    void close() {
        error_code ignored;
        socket_.close(ignored);
    }

    asio::io_context& context_;
    per_thread_wheel<steady_time>& service_;
    const options options_;
    const tcp::endpoint server_;
    tcp::socket socket_;
    std::string input_;
    const retry_policy policy_;
    retry_budget budget_{3, 0.2, 10};
    long answered_ = 0;
    long late_ = 0;
    long attempts_ = 0;
};

int run(int argc, char** argv) {
    options o;
    read_options(argc, argv, "example_client",
                 {{"port", "the server's port on loopback", &o.port, 1, 65535},
                  {"requests", "how many, one after the other", &o.requests, 1, 1'000'000},
                  {"timeout-ms", "deadline of each, retries included", &o.timeout_ms, 0, 3'600'000},
                  {"attempts", "most attempts of each", &o.attempts, 1, 100},
                  {"seed", "of the waits between attempts", &o.seed, 0, 1'000'000'000}});
    per_thread_wheel<steady_time> service{steady()};
    asio::io_context context{1};
    client c{context, service, o};
    asio::co_spawn(context, c.run(), [](const std::exception_ptr& error) {
        if (error != nullptr) {
            std::rethrow_exception(error);
        }
    });
    context.run();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fprintf(stderr, "example_client: standard output cannot be written; the records are lost\n");
        return 2;
    }
    return c.exit_code();
}

} // namespace
} // namespace timerbench::examples

int main(int argc, char** argv) {
    try {
        return timerbench::examples::run(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "example_client: %s\n", e.what());
        return 1;
    }
}
