// What the gateway, A, B and the store do with a request, by a policy. The simulated and the real form run this same code.
//
// How it works. The chain is told what happened (a user came, a message arrived, a timeout fired, a step is due) and answers by asking its world
// to send messages, arm timeouts and note steps; it never waits and reads no clock. One thread uses it. A world is:
//   send_request(layer, slot, id, remaining)   over the connection `slot` to the layer; arrives as on_request
//   send_reply(layer, slot, id, status)        the callee's answer; arrives as on_reply
//   send_cancel(layer, slot, id)               tells the callee to stop; arrives as on_cancel, after the request
//   close(layer, slot, id) -> bool             closes the connection; the callee sees it as on_closed. True: it can be used again at once;
//                                              else `connection_ready` follows
//   post_reply(id, status)                     a reply without a connection, from the caller's own line; arrives as on_reply
//   arm(id, time) -> bool, disarm(id)          one timeout a call; arrives as on_timeout, at the earliest at that time
//   note(time, id, epoch, kind)                arrives as on_step
// Nothing arrives before the function that asked for it has returned.
//
// Decisions about retries are those of `retry_run` and `retry_budget`, and what is left of a deadline is `deadline`'s; only the naive
// retry is written here, because the pieces have none.
//
// Structured where it is cooperative: whoever has told a call to stop waits for its end before it goes on.
#pragma once

#include "experiments/aftermath_calls.hpp"

#include <memory>
#include <numeric>

namespace timerbench::experiments::aftermath {

template <class World>
class chain {
  public:
    chain(World& world, const parameters& p, const policy& how, results& out, time_point origin)
        : world_{world},
          p_{p},
          how_{how},
          out_{out},
          origin_{origin} {
        for (std::size_t layer = 1; layer < layers; ++layer) {
            pools_[layer].open(p.connections[layer], origin + p.incident_at, origin + p.span());
            budgets_[layer] =
                std::make_unique<retry_budget>(p.most_tokens, p.tokens_per_success, p.most_tokens);
        }
    }

    /// The user was to come at `origin + arrival[user]`; nothing of it is forgiven when the world is late.
    void user_comes(std::uint32_t user, time_point now) {
        ++out_.calls[gateway];
        const std::uint64_t room = std::uint64_t{p_.connections[gateway + 1]} + p_.line;
        if (at_gateway_ >= room) {
            ++out_.refused;
            end_user(user, status::busy, now);
            return;
        }
        ++at_gateway_;
        const std::uint32_t i = records_.take();
        call& c = records_[i];
        c.user = user;
        c.layer = gateway;
        c.key = mixed(p_.seed ^ mixed(user));
        c.left_at = comes_at(user) + p_.limit;
        if (how_.cancel == cancelling::deadline) {
            c.until = deadline::in(p_.limit, comes_at(user));
        }
        begin_work(c, i, now);
    }

    void on_step(const step& s, time_point now) {
        call* const c = records_.find(s.who);
        if (c == nullptr || c->epoch != s.epoch) {
            return;
        }
        if (s.what == step::kind::pause_end) {
            attempt_again(*c, s.who.index, now);
            return;
        }
        book_work(*c, now);
        if (c->stopping) {
            end(*c, s.who.index, status::cancelled, now);
        } else if (c->layer == store) {
            end(*c, s.who.index, p_.fails(c->key) ? status::error : status::ok, now);
        } else {
            call_below(*c, s.who.index, now);
        }
    }

    /// The callee has the request before it.
    void on_request(call_id id, std::optional<duration> remaining, time_point now) {
        call* const c = records_.find(id);
        if (c == nullptr || c->where != stand::sent) {
            return;
        }
        c->until = deadline::from_remaining(remaining, now);
        if (c->until.expired(now)) {
            ++out_.not_begun;
            end(*c, id.index, status::expired, now);
        } else {
            begin_work(*c, id.index, now);
        }
    }

    /// The caller has the answer before it.
    void on_reply(call_id id, status s, time_point now) {
        call* const c = records_.find(id);
        if (c == nullptr) {
            return;
        }
        disarm(*c, id);
        if (c->slot != nobody) {
            pools_[c->layer].release(c->slot, now);
            serve_line(c->layer, now);
        }
        if (c->parent == nobody) {
            discard(*c, id.index);
            return;
        }
        finish_attempt(*c, id.index, c->given_up ? status::timed_out : s, now);
    }

    /// The caller has waited long enough.
    void on_timeout(call_id id, time_point now) {
        call* const c = records_.find(id);
        if (c == nullptr) {
            return;
        }
        c->armed = false;
        if (c->parent == nobody || c->given_up) {
            return;
        }
        ++out_.timed_out;
        mark_left(*c, now);
        call& p = records_[c->parent];
        const std::uint32_t pi = c->parent;
        switch (how_.cancel) {
        case cancelling::no_timeout:
            break;
        case cancelling::detach:
            c->parent = p.child = nobody;
            attempt_ended(p, pi, status::timed_out, now);
            break;
        case cancelling::abort:
            p.child = nobody;
            abort_call(*c, id.index, now);
            attempt_ended(p, pi, status::timed_out, now);
            break;
        case cancelling::cooperative:
        case cancelling::deadline:
            c->given_up = true;
            stop_call(*c, id.index, now);
            break;
        }
    }

    /// The callee sees the token.
    void on_cancel(call_id id, time_point now) {
        call* const c = records_.find(id);
        if (c == nullptr || c->where == stand::ended) {
            return;
        }
        c->stopping = true;
        switch (c->where) {
        case stand::working: {
            // It looks whenever it has worked for `look` more.
            const std::int64_t looks = ceil_ticks(now - c->begun, how_.look);
            const time_point stop = c->begun + looks * how_.look;
            if (stop < c->work_end) {
                note_work_end(*c, id.index, stop);
            }
            break;
        }
        case stand::pausing:
            ++c->epoch;
            end(*c, id.index, status::cancelled, now);
            break;
        case stand::below: {
            const std::uint32_t di = c->child;
            call& d = records_[di];
            if (!d.given_up) {
                d.given_up = true;
                disarm(d, {di, d.generation});
                stop_call(d, di, now);
            }
            break;
        }
        default:
            break;
        }
    }

    /// The callee sees that its connection is gone.
    void on_closed(call_id id, time_point now) {
        call* const c = records_.find(id);
        if (c == nullptr) {
            return;
        }
        if (c->where == stand::working) {
            book_work(*c, now);
        } else if (c->where == stand::below) {
            abort_call(records_[c->child], c->child, now);
        }
        discard(*c, id.index);
    }

    void connection_ready(std::size_t layer, std::uint32_t slot, time_point now) {
        pools_[layer].release(slot, now);
        serve_line(layer, now);
    }

    /// When the last user's limit is over: what comes later is no part of the comparison.
    void cut() {
        out_.calls_at_cut = out_.calls;
        out_.left_ns_at_cut =
            std::accumulate(out_.left_by_bin.begin(), out_.left_by_bin.end(), std::int64_t{0});
    }

    /// Books what is still open in the pools. Once, at the end.
    void close_books(time_point now) {
        for (std::size_t layer = 1; layer < layers; ++layer) {
            out_.busy_ns[layer] = pools_[layer].busy_ns(now);
        }
        out_.most_alive = records_.most_alive();
        out_.alive_at_end = records_.alive();
    }
    [[nodiscard]] std::uint64_t alive() const noexcept { return records_.alive(); }
    [[nodiscard]] std::uint32_t busy(std::size_t layer) const noexcept { return pools_[layer].busy(); }
    [[nodiscard]] std::uint32_t waiting(std::size_t layer) const noexcept { return pools_[layer].waiting(); }

  private:
    [[nodiscard]] time_point comes_at(std::uint32_t user) const {
        return origin_ + duration{out_.arrival[user]};
    }
    /// The least that a call to `layer` takes, as its caller knows it: the mean without incident.
    [[nodiscard]] duration least(std::size_t layer) const { return p_.hold(layer); }

    // ---- the callee's side ----

    void begin_work(call& c, std::uint32_t i, time_point now) {
        c.where = stand::working;
        c.begun = now;
        note_work_end(c, i, now + p_.work_of(c.layer, c.key, now - origin_));
    }

    void note_work_end(call& c, std::uint32_t i, time_point at) {
        c.work_end = at;
        world_.note(at, {i, c.generation}, ++c.epoch, step::kind::work_end);
    }

    void book_work(call& c, time_point now) {
        const std::int64_t all = (now - c.begun).count();
        const std::int64_t before = std::clamp<std::int64_t>((c.left_at - c.begun).count(), 0, all);
        c.before_ns += before;
        c.after_ns += all - before;
        out_.work_ns += all;
        const std::size_t bin = p_.bin_of(now - origin_);
        out_.work_by_bin[bin] += all;
        out_.left_by_bin[bin] += all - before;
    }

    void call_below(call& c, std::uint32_t i, time_point now) {
        if (how_.retry == retrying::naive) {
            begin_attempt(c, i, now);
            return;
        }
        switch (how_.cancel) {
        case cancelling::no_timeout:
            break;
        case cancelling::deadline:
            c.attempts_until = c.until;
            break;
        default:
            c.attempts_until = deadline::in(p_.timeout, now);
            break;
        }
        retry_policy rules;
        rules.idempotent = true;
        rules.most_attempts = how_.retry == retrying::none ? 1 : 1 + most_retries;
        rules.first_backoff = p_.first_backoff;
        rules.longest_backoff = p_.longest_backoff;
        // A layer that only knows its own span does not ask whether it is enough.
        rules.minimum_attempt = how_.cancel == cancelling::deadline || how_.retry != retrying::none
                                    ? least(c.layer + 1U)
                                    : duration{};
        c.run.emplace(rules, c.attempts_until, c.key,
                      how_.retry == retrying::budget ? budgets_[c.layer + 1U].get() : nullptr);
        attempt_again(c, i, now);
    }

    void attempt_again(call& c, std::uint32_t i, time_point now) {
        if (c.run->begin(now)) {
            begin_attempt(c, i, now);
        } else {
            ++out_.not_begun;
            end(c, i, status::expired, now);
        }
    }

    void end(call& c, std::uint32_t i, status s, time_point now) {
        c.where = stand::ended;
        ++c.epoch;
        if (c.layer != gateway) {
            world_.send_reply(c.layer, c.slot, {i, c.generation}, s);
            return;
        }
        --at_gateway_;
        if (end_user(c.user, s, now)) {
            out_.useful_ns += c.before_ns;
            out_.useful_after_ns += c.after_ns;
            c.before_ns = c.after_ns = 0;
        }
        discard(c, i);
    }

    // True: the user got the answer in time.
    bool end_user(std::uint32_t user, status s, time_point now) {
        const duration took = now - comes_at(user);
        out_.times_ended[user] =
            static_cast<std::uint8_t>(std::min<unsigned>(out_.times_ended[user] + 1U, 255U));
        if (took > p_.limit) {
            out_.latency[user] = p_.limit.count();
            out_.ended[user] = outcome::left;
        } else {
            out_.latency[user] = took.count();
            out_.ended[user] = s == status::ok ? outcome::in_time : outcome::failed;
        }
        return out_.ended[user] == outcome::in_time;
    }

    // ---- the caller's side; p is the call whose handler calls ----

    void begin_attempt(call& p, std::uint32_t pi, time_point now) {
        ++p.tries;
        p.where = stand::below;
        const std::uint32_t i = records_.take();
        call& c = records_[i];
        c.parent = pi;
        c.user = p.user;
        c.layer = static_cast<std::uint8_t>(p.layer + 1U);
        c.key = mixed(p.key + p.tries);
        c.left_at = p.left_at;
        c.until = p.until;
        p.child = i;
        ++out_.calls[c.layer];
        if (c.layer == store) {
            ++out_.store_calls_by_bin[p_.bin_of(now - origin_)];
        }
        const call_id id{i, c.generation};
        const deadline waits_until = p.run                                   ? p.attempts_until
                                     : how_.cancel == cancelling::no_timeout ? deadline::none()
                                     : how_.cancel == cancelling::deadline   ? p.until
                                                                             : deadline::in(p_.timeout, now);
        connection_pool& pool = pools_[c.layer];
        if (waits_until.expired(now)) {
            refuse(c, id, status::expired);
            return;
        }
        if (!waits_until.is_none()) {
            c.armed = world_.arm(id, waits_until.when());
            out_.not_armed += c.armed ? 0 : 1;
        }
        if (pool.available()) { // then nobody is in line
            take_connection(c, id, now);
        } else if (pool.waiting() < p_.line) {
            c.where = stand::lined;
            pool.push(records_, i);
        } else {
            ++out_.refused;
            refuse(c, id, status::busy);
        }
    }

    void refuse(call& c, call_id id, status s) {
        c.where = stand::posted;
        out_.not_begun += s == status::expired ? 1 : 0;
        world_.post_reply(id, s);
    }

    // A connection is free.
    void take_connection(call& c, call_id id, time_point now) {
        if (c.until.remaining(now) < (how_.cancel == cancelling::deadline ? least(c.layer) : duration{})) {
            refuse(c, id, status::expired);
            return;
        }
        c.slot = pools_[c.layer].take(now);
        c.where = stand::sent;
        world_.send_request(c.layer, c.slot, id, c.until.to_remaining(now));
    }

    void serve_line(std::size_t layer, time_point now) {
        connection_pool& pool = pools_[layer];
        while (pool.available() && pool.waiting() > 0) {
            const std::uint32_t i = pool.first();
            pool.remove(records_, i);
            take_connection(records_[i], {i, records_[i].generation}, now);
        }
    }

    void disarm(call& c, call_id id) {
        if (c.armed) {
            c.armed = false;
            world_.disarm(id);
        }
    }

    // From now on nobody wants what this call and those below it do.
    void mark_left(call& c, time_point now) {
        for (call* d = &c;; d = &records_[d->child]) {
            d->left_at = std::min(d->left_at, now);
            if (d->child == nobody) {
                return;
            }
        }
    }

    // Nobody waits for it any more, and it need not end by itself.
    void abort_call(call& c, std::uint32_t i, time_point now) {
        const call_id id{i, c.generation};
        c.parent = nobody;
        disarm(c, id);
        if (c.where == stand::lined) {
            pools_[c.layer].remove(records_, i);
            discard(c, i);
        } else if (c.where != stand::posted) {
            const std::uint32_t slot = c.slot;
            c.slot = nobody;
            if (world_.close(c.layer, slot, id)) {
                pools_[c.layer].release(slot, now);
                serve_line(c.layer, now);
            }
        }
    }

    // It was given up; its caller goes on once it has ended.
    void stop_call(call& c, std::uint32_t i, time_point now) {
        if (c.where == stand::lined) {
            pools_[c.layer].remove(records_, i);
            finish_attempt(c, i, status::timed_out, now);
        } else if (c.where != stand::posted && c.where != stand::ended) {
            world_.send_cancel(c.layer, c.slot, {i, c.generation});
        }
    }

    void finish_attempt(call& c, std::uint32_t i, status s, time_point now) {
        const std::uint32_t pi = c.parent;
        call& p = records_[pi];
        p.child = nobody;
        if (s == status::ok) {
            p.before_ns += c.before_ns;
            p.after_ns += c.after_ns;
            c.before_ns = c.after_ns = 0;
        }
        disarm(c, {i, c.generation});
        discard(c, i);
        attempt_ended(p, pi, s, now);
    }

    void attempt_ended(call& p, std::uint32_t pi, status s, time_point now) {
        if (p.stopping) {
            end(p, pi, status::cancelled, now);
        } else if (s == status::ok) {
            if (p.run) {
                p.run->succeeded();
            }
            end(p, pi, status::ok, now);
        } else if (!p.run) {
            if (p.tries <= most_retries) {
                begin_attempt(p, pi, now);
            } else {
                end(p, pi, status::failed, now);
            }
        } else {
            const bool worth_it = s != status::expired && s != status::cancelled;
            if (const std::optional<duration> wait = p.run->failed(worth_it, now)) {
                p.where = stand::pausing;
                world_.note(now + *wait, {pi, p.generation}, ++p.epoch, step::kind::pause_end);
            } else {
                end(p, pi, s == status::expired ? s : status::failed, now);
            }
        }
    }

    // Its work, as far as it is still in its own books, was for nothing.
    void discard(call& c, std::uint32_t i) {
        out_.lost_ns += c.before_ns;
        out_.left_ns += c.after_ns;
        records_.give_back(i);
    }

    World& world_;
    const parameters& p_;
    const policy how_;
    results& out_;
    const time_point origin_;
    call_records records_;
    std::array<connection_pool, layers> pools_;                 // to each layer
    std::array<std::unique_ptr<retry_budget>, layers> budgets_; // of those who call each layer
    std::uint64_t at_gateway_ = 0;
};

} // namespace timerbench::experiments::aftermath
