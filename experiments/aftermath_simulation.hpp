// The simulated form of bench_aftermath: the chain in virtual time.
//
// How it works. Messages take no time and arrive in the order in which they were sent. Steps come from an agenda. The timeouts are armed on a
// service that a manual clock drives: whenever virtual time has passed one more edge of its grid (the service's resolution, 1 to 10 ms), the clock is
// moved there, the service runs what is due, and what fired is handed to the chain. A timeout is therefore as late as the service is by construction,
// and up to one edge more; never early. One thread; the same parameters give the same bytes, for every service whose lateness is its design's.
//
// What it costs. Some hundred nanoseconds for each step and message, so about a microsecond and a half for a request without trouble; a service with a
// thread of its own adds two switches for each edge. Memory: see `most_bytes`.
#pragma once

#include "experiments/aftermath_chain.hpp"
#include "experiments/aftermath_timers.hpp"
#include "harness/interrupt.hpp"
#include "timers/clock.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace timerbench::experiments::aftermath {

template <class Entry>
class simulation {
  public:
    using service = typename Entry::template service_on<manual_time>;

    simulation(const parameters& p, const policy& how) : p_{p}, how_{how} {
        step_ = std::clamp<duration>(service_->traits().resolution, std::chrono::milliseconds{1},
                                     std::chrono::milliseconds{10});
    }

    [[nodiscard]] results run() {
        const std::int64_t cpu = read_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        out_.open(p_);
        chain_.emplace(*this, p_, how_, out_, origin_);
        const time_point cut = origin_ + duration{out_.arrival.empty() ? 0 : out_.arrival.back()} + p_.limit;
        while (out_.trouble.empty()) {
            deliver();
            const time_point comes = next_user_ < out_.arrival.size()
                                         ? origin_ + duration{out_.arrival[next_user_]}
                                         : time_point::max();
            const time_point next = std::min(agenda_.next(), comes);
            if (!out_.calls_at_cut && next > cut) {
                chain_->cut();
            }
            if (next == time_point::max() && timers_.outstanding() == 0) {
                break;
            }
            if (next >= looked_ + step_) {
                look(next);
                continue;
            }
            now_ = next;
            if (comes <= agenda_.next()) {
                chain_->user_comes(static_cast<std::uint32_t>(next_user_++), now_);
            } else {
                chain_->on_step(agenda_.pop(), now_);
            }
        }
        if (harness::interrupted()) {
            out_.trouble = "interrupted";
        } else if (chain_->alive() != 0 && out_.trouble.empty()) {
            out_.trouble = std::to_string(chain_->alive()) + " calls never ended";
        }
        chain_->close_books(now_);
        out_.timers = service_->counters();
        out_.cpu_ns = read_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        return std::move(out_);
    }

    [[nodiscard]] static constexpr std::size_t timer_bytes() noexcept {
        return timer_shelf<service>::bytes();
    }

    // ---- what the chain asks for ----

    void send_request(std::size_t, std::uint32_t, call_id id, std::optional<duration> remaining) {
        send({message::kind::request, status::ok, id, remaining});
    }
    void send_reply(std::size_t, std::uint32_t, call_id id, status s) {
        send({message::kind::reply, s, id, {}});
    }
    void post_reply(call_id id, status s) { send({message::kind::reply, s, id, {}}); }
    void send_cancel(std::size_t, std::uint32_t, call_id id) {
        send({message::kind::cancel, status::ok, id, {}});
    }
    bool close(std::size_t, std::uint32_t, call_id id) {
        send({message::kind::closed, status::ok, id, {}});
        return true;
    }
    bool arm(call_id id, time_point due) { return timers_.arm(id, due, looked_); }
    void disarm(call_id id) { timers_.disarm(id); }
    void note(time_point at, call_id id, std::uint32_t epoch, step::kind what) {
        agenda_.add(at, id, epoch, what);
    }

  private:
    struct message {
        enum class kind : std::uint8_t { request, reply, cancel, closed };
        kind what;
        status how;
        call_id who;
        std::optional<duration> remaining;
    };

    void send(const message& m) { messages_.push_back(m); }

    void deliver() {
        // Handling one may send more.
        for (std::size_t i = 0; i < messages_.size(); ++i) {
            const message m = messages_[i];
            switch (m.what) {
            case message::kind::request:
                chain_->on_request(m.who, m.remaining, now_);
                break;
            case message::kind::reply:
                chain_->on_reply(m.who, m.how, now_);
                break;
            case message::kind::cancel:
                chain_->on_cancel(m.who, now_);
                break;
            case message::kind::closed:
                chain_->on_closed(m.who, now_);
                break;
            }
        }
        messages_.clear();
    }

    // Moves the clock one edge on; as far as the last edge before `next` when no timeout can fire meanwhile.
    void look(time_point next) {
        duration by = step_;
        if (timers_.outstanding() == 0) {
            by = step_ * ((next - looked_) / step_);
        }
        looked_ += by;
        clock_.shift(by);
        catch_up(*service_);
        clock_.settle();
        now_ = looked_;
        for (const auto& fired : timers_.take_fired()) {
            chain_->on_timeout(fired.who, now_);
            deliver();
        }
        if (harness::interrupted()) {
            out_.trouble = "interrupted";
        }
    }

    const parameters p_;
    const policy how_;
    results out_;
    manual_time clock_;
    std::unique_ptr<service> service_ = Entry::make_on(clock_);
    timer_shelf<service> timers_{*service_};
    duration step_{};
    const time_point origin_ = clock_.now();
    time_point looked_ = origin_; // the manual clock
    time_point now_ = origin_;    // virtual time: at or after it by less than a step
    std::size_t next_user_ = 0;
    agenda agenda_;
    std::vector<message> messages_;
    std::optional<chain<simulation>> chain_;
};

template <class Entry>
[[nodiscard]] results simulate(const parameters& p, const policy& how) {
    return simulation<Entry>{p, how}.run();
}

} // namespace timerbench::experiments::aftermath
