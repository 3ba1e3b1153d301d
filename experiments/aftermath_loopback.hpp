// The real form of bench_aftermath: the same chain over TCP on the loopback interface, in real time.
//
// How it works. Each connection of each pool is a TCP connection, made before the run. Requests, answers and the word to stop are frames of 24
// bytes; a frame carries what is left of the deadline, never a time of day. A hard abort closes the connection, the callee sees the end of the
// stream, and a new connection takes its place. Work is time that passes, not a processor that is busy. Timeouts are armed on a timer
// service that the loop drives; it and the steps of the calls share one Asio timer with the sockets' loop. Users are made in the process.
//
// One thread runs caller and callee, which meet in the records of calls only for the books: what they decide they learn from frames and
// timers. How late the loop's own steps are is kept, for whoever has to judge whether the machine was quiet.
#pragma once

#include "experiments/aftermath_chain.hpp"
#include "experiments/aftermath_timers.hpp"
#include "harness/interrupt.hpp"
#include "timers/clock.hpp"

#include <boost/asio.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace timerbench::experiments::aftermath {

/// A service that a loop drives and that says when it wants to be polled.
template <class Service>
concept polled_on_time = loop_service<Service> && requires(Service s) {
    { s.next_expiry() } -> std::same_as<std::optional<time_point>>;
};

template <polled_on_time Service>
class loopback {
  public:
    /// The service lives on the steady clock, and longer.
    loopback(Service& service, const parameters& p, const policy& how)
        : p_{p},
          how_{how},
          service_{service},
          timers_{service} {}
    loopback(const loopback&) = delete;
    loopback& operator=(const loopback&) = delete;

    /// Runs until the last user's limit is over. Trouble (no sockets, an interrupt) is in the results.
    [[nodiscard]] results run() {
        const std::int64_t cpu = read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        out_.open(p_);
        try {
            connect_all();
            origin_ = steady_time::now() + std::chrono::milliseconds{50};
            chain_.emplace(*this, p_, how_, out_, origin_);
            end_ = origin_ + duration{out_.arrival.back()} + p_.limit + std::chrono::milliseconds{20};
            pump();
            io_.run();
        } catch (const std::exception& e) {
            out_.trouble = std::string{"loopback TCP: "} + e.what();
        }
        if (harness::interrupted()) {
            out_.trouble = "interrupted";
        }
        if (chain_) {
            if (!out_.calls_at_cut) {
                chain_->cut();
            }
            chain_->close_books(steady_time::now());
        }
        std::sort(out_.lateness_ms.begin(), out_.lateness_ms.end());
        out_.timers = service_.counters();
        out_.cpu_ns = read_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        return std::move(out_);
    }

    // ---- what the chain asks for ----

    void send_request(std::size_t layer, std::uint32_t slot, call_id id, std::optional<duration> remaining) {
        write(*clients_[layer][slot], {id, frame::kind::request, status::ok, remaining});
    }
    void send_reply(std::size_t, std::uint32_t, call_id id, status s) {
        if (const auto& server = server_of(id.index)) {
            write(*server, {id, frame::kind::reply, s, {}});
        }
    }
    void send_cancel(std::size_t layer, std::uint32_t slot, call_id id) {
        write(*clients_[layer][slot], {id, frame::kind::cancel, status::ok, {}});
    }
    bool close(std::size_t layer, std::uint32_t slot, call_id) {
        clients_[layer][slot]->shut();
        reconnect(layer, slot);
        return false;
    }
    void post_reply(call_id id, status s) { posted_.push_back({id, s}); }
    bool arm(call_id id, time_point due) { return timers_.arm(id, due, steady_time::now()); }
    void disarm(call_id id) { timers_.disarm(id); }
    void note(time_point at, call_id id, std::uint32_t epoch, step::kind what) {
        agenda_.add(at, id, epoch, what);
    }

  private:
    using tcp = boost::asio::ip::tcp;

    struct frame {
        enum class kind : std::uint8_t { request, reply, cancel };
        static constexpr std::size_t size = 24;
        static constexpr std::int64_t no_deadline = -1;

        call_id who;
        kind what = kind::request;
        status how = status::ok;
        std::optional<duration> remaining;

        [[nodiscard]] std::array<unsigned char, size> bytes() const {
            std::array<unsigned char, size> b{};
            const std::int64_t left = remaining ? remaining->count() : no_deadline;
            std::memcpy(b.data(), &who.index, 4);
            std::memcpy(b.data() + 4, &who.generation, 4);
            std::memcpy(b.data() + 8, &left, 8);
            b[16] = static_cast<unsigned char>(what);
            b[17] = static_cast<unsigned char>(how);
            return b;
        }
        [[nodiscard]] static frame from(const std::array<unsigned char, size>& b) {
            frame f;
            std::int64_t left = 0;
            std::memcpy(&f.who.index, b.data(), 4);
            std::memcpy(&f.who.generation, b.data() + 4, 4);
            std::memcpy(&left, b.data() + 8, 8);
            f.what = static_cast<kind>(b[16]);
            f.how = static_cast<status>(b[17]);
            if (left != no_deadline) {
                f.remaining = duration{left};
            }
            return f;
        }
    };

    // One end of a connection.
    struct end_point {
        explicit end_point(boost::asio::io_context& io) : socket{io} {}
        void shut() {
            open = false;
            boost::system::error_code ignored;
            socket.close(ignored);
        }
        tcp::socket socket;
        std::array<unsigned char, frame::size> in{};
        call_id serves; // the callee's end: the last request that came over it
        bool open = true;
        bool is_server = false;
    };
    using end_pointer = std::shared_ptr<end_point>;

    struct posted_reply {
        call_id who;
        status how;
    };

    // Frames are small beside a socket's buffer, and a connection carries one call: a write that does not fit is a broken run.
    void write(end_point& e, const frame& f) {
        if (!e.open) {
            return;
        }
        const auto bytes = f.bytes();
        boost::system::error_code error;
        const std::size_t written = e.socket.write_some(boost::asio::buffer(bytes), error);
        if (!error && written != bytes.size()) {
            out_.trouble = "loopback TCP: a frame was cut";
        } else if (error && !e.is_server) {
            out_.trouble = "loopback TCP: " + error.message();
        } // else: the caller has closed it, which the next read says
    }

    void read(end_pointer e) {
        boost::asio::async_read(e->socket, boost::asio::buffer(e->in),
                                [this, e](const boost::system::error_code& error, std::size_t) {
                                    if (!e->open) {
                                        return;
                                    }
                                    if (error) {
                                        lost(*e);
                                    } else {
                                        received(e, frame::from(e->in));
                                        if (e->open) {
                                            read(e);
                                        }
                                    }
                                    pump();
                                });
    }

    void received(const end_pointer& e, const frame& f) {
        const time_point now = steady_time::now();
        switch (f.what) {
        case frame::kind::request:
            e->serves = f.who;
            server_of(f.who.index) = e;
            chain_->on_request(f.who, f.remaining, now);
            break;
        case frame::kind::cancel:
            chain_->on_cancel(f.who, now);
            break;
        case frame::kind::reply:
            chain_->on_reply(f.who, f.how, now);
            break;
        }
    }

    void lost(end_point& e) {
        e.shut();
        if (e.is_server) {
            chain_->on_closed(e.serves, steady_time::now());
        } else {
            out_.trouble = "loopback TCP: the callee closed a connection";
        }
    }

    [[nodiscard]] end_pointer& server_of(std::uint32_t i) {
        if (i >= servers_.size()) {
            servers_.resize(i + 1U);
        }
        return servers_[i];
    }

    static void make_ready(tcp::socket& s) {
        s.set_option(tcp::no_delay{true});
        s.non_blocking(true);
    }

    void connect_all() {
        for (std::size_t layer = 1; layer < layers; ++layer) {
            auto& acceptor =
                acceptors_[layer].emplace(io_, tcp::endpoint{boost::asio::ip::address_v4::loopback(), 0});
            for (std::uint32_t slot = 0; slot < p_.connections[layer]; ++slot) {
                const auto client = std::make_shared<end_point>(io_);
                const auto server = std::make_shared<end_point>(io_);
                client->socket.connect(acceptor.local_endpoint());
                acceptor.accept(server->socket);
                server->is_server = true;
                make_ready(client->socket);
                make_ready(server->socket);
                clients_[layer].push_back(client);
                read(client);
                read(server);
            }
            accept_more(layer);
        }
    }

    void accept_more(std::size_t layer) {
        const auto server = std::make_shared<end_point>(io_);
        server->is_server = true;
        acceptors_[layer]->async_accept(server->socket,
                                        [this, layer, server](const boost::system::error_code& error) {
                                            if (error) {
                                                return;
                                            }
                                            boost::system::error_code gone;
                                            server->socket.set_option(tcp::no_delay{true}, gone);
                                            server->socket.non_blocking(true, gone);
                                            read(server);
                                            accept_more(layer);
                                        });
    }

    void reconnect(std::size_t layer, std::uint32_t slot) {
        const auto client = std::make_shared<end_point>(io_);
        clients_[layer][slot] = client;
        client->socket.async_connect(acceptors_[layer]->local_endpoint(),
                                     [this, layer, slot, client](const boost::system::error_code& error) {
                                         if (error || !client->open) {
                                             out_.trouble = "loopback TCP: " + error.message();
                                         } else {
                                             make_ready(client->socket);
                                             read(client);
                                             chain_->connection_ready(layer, slot, steady_time::now());
                                         }
                                         pump();
                                     });
    }

    // Does all that is due now, and sets the timer to what comes next.
    void pump() {
        const auto more = [this](time_point now) {
            if (!posted_.empty()) {
                const posted_reply next = posted_.front();
                posted_.pop_front();
                chain_->on_reply(next.who, next.how, now);
            } else if (next_user_ < out_.arrival.size() &&
                       origin_ + duration{out_.arrival[next_user_]} <= now) {
                late(now - origin_ - duration{out_.arrival[next_user_]});
                chain_->user_comes(static_cast<std::uint32_t>(next_user_++), now);
            } else if (agenda_.next() <= now) {
                late(now - agenda_.next());
                chain_->on_step(agenda_.pop(), now);
            } else {
                return false;
            }
            return true;
        };
        do {
            while (more(steady_time::now())) {}
            service_.poll();
            for (const auto& fired : timers_.take_fired()) {
                chain_->on_timeout(fired.who, steady_time::now());
            }
        } while (!posted_.empty());
        const time_point now = steady_time::now();
        if (now >= end_ || !out_.trouble.empty() || harness::interrupted()) {
            io_.stop();
            return;
        }
        time_point next = std::min(end_, agenda_.next());
        if (next_user_ < out_.arrival.size()) {
            next = std::min(next, origin_ + duration{out_.arrival[next_user_]});
        }
        next = std::min({next, service_.next_expiry().value_or(next), now + std::chrono::milliseconds{50}});
        if (next != waits_until_) {
            waits_until_ = next;
            wait_.expires_at(next);
            wait_.async_wait([this](const boost::system::error_code& error) {
                if (!error) {
                    waits_until_ = time_point::max();
                    pump();
                }
            });
        }
    }

    void late(duration by) {
        out_.lateness_ms.push_back(std::chrono::duration<double, std::milli>{by}.count());
    }

    const parameters p_;
    const policy how_;
    results out_;
    boost::asio::io_context io_{1};
    boost::asio::steady_timer wait_{io_};
    Service& service_;
    timer_shelf<Service> timers_;
    std::array<std::optional<tcp::acceptor>, layers> acceptors_;
    std::array<std::vector<end_pointer>, layers> clients_; // by layer and slot
    std::vector<end_pointer> servers_;                     // by record: where its request came from
    agenda agenda_;
    std::deque<posted_reply> posted_;
    time_point origin_{};
    time_point end_{};
    time_point waits_until_ = time_point::max();
    std::size_t next_user_ = 0;
    std::optional<chain<loopback>> chain_;
};

} // namespace timerbench::experiments::aftermath
