// A lease with a time to live whose holder is paused: what its store still accepts when the lease has long passed to another.
//
// Simulated on a manual clock, event by event. A trial: holders in a row want one lease. The holder is granted it with the next
// token and makes a number of writes, with work before each; then it gives the lease back. The lease ends after its TTL whether the
// holder knows or not; the next in the row looks every now and then and is granted it. Before its look at the clock,
// and between that look and the arrival of the write, a holder is paused with some probability, for a time uniform between 0 and
// twice the mean: a garbage collection, a page fault, a stopped machine, a packet that was held up.
//
// nothing            the holder writes on, whatever the time
// own clock          before each write it looks whether its lease has ended by its own steady clock
// token              the store refuses a token smaller than the largest that it has seen
// own clock + token  both
// token on grant     both, and the store learns the token when the lease is granted instead of with the first write
//
// A write is stale when it arrives after the lease was granted to another. One that is accepted although the store has a newer
// holder's write already has overwritten it: that is the damage. A stale write that comes before the newer holder's first is
// as if it had come in time, unless that holder has read what was there; "token on grant" refuses those too.
//
// Every protection meets the same pauses. Costs about 100 ns an event. Left out: clocks that run at different rates, a lease that is
// renewed, a store that forgets.
#pragma once

#include "harness/statistics.hpp"
#include "timers/clock.hpp"
#include "timers/deadline.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace timerbench::experiments {

struct lease_plan {
    duration ttl = std::chrono::seconds{3};
    duration work = std::chrono::milliseconds{100}; ///< before each write
    duration transit = std::chrono::milliseconds{1};
    duration look_again = std::chrono::milliseconds{50}; ///< how long the next holder takes at most to notice
    duration pause = std::chrono::seconds{5};            ///< mean
    double pause_chance = 0.005;                         ///< of each of the two places of a write
    std::size_t writes = 20;
    std::size_t holders = 3;
};

struct lease_guard {
    const char* name;
    bool own_clock;
    bool token;
    bool token_on_grant;
};

inline constexpr std::array lease_guards{
    lease_guard{"nothing", false, false, false},     lease_guard{"own clock", true, false, false},
    lease_guard{"token", false, true, false},        lease_guard{"own clock + token", true, true, false},
    lease_guard{"token on grant", true, true, true},
};

struct lease_counts {
    std::uint64_t leases = 0;
    std::uint64_t outlived = 0; ///< leases that passed on while their holder had not given them back
    std::uint64_t writes = 0;   ///< that arrived
    std::uint64_t stale = 0;    ///< of them, after the lease had passed on
    std::uint64_t stale_accepted = 0;
    std::uint64_t overwrites = 0;        ///< of those, over a newer holder's write
    std::uint64_t rejected = 0;          ///< by the store
    std::uint64_t rightful_rejected = 0; ///< of those, writes of the present holder

    friend bool operator==(const lease_counts&, const lease_counts&) = default;
};

/// The store: accepts a write, or not, by its token.
class fenced_store {
  public:
    explicit fenced_store(bool checks) noexcept : checks_{checks} {}

    void learn(std::uint64_t token) noexcept { seen_ = std::max(seen_, token); }
    /// Whether the write was accepted.
    bool write(std::uint64_t token) noexcept {
        if (checks_ && token < seen_) {
            return false;
        }
        learn(token);
        newest_ = std::max(newest_, token);
        return true;
    }
    /// The largest token among the writes that were accepted; 0: none.
    [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }

  private:
    bool checks_;
    std::uint64_t seen_ = 0;
    std::uint64_t newest_ = 0;
};

/// One trial at a time; the memory of the queue is kept.
class lease_simulation {
  public:
    lease_simulation(const lease_plan& plan, const lease_guard& guard) : plan_{plan}, guard_{guard} {}

    void run(std::uint64_t seed) {
        harness::random_source seeds{seed};
        store_ = fenced_store{guard_.token};
        holders_.clear();
        for (std::size_t i = 0; i < plan_.holders; ++i) {
            holders_.push_back({harness::random_source{seeds.next()}, deadline::none(), false});
        }
        granted_ = 0;
        at(clock_.now(), what::grant, 0);
        while (!events_.empty()) {
            const event e = events_.top();
            events_.pop();
            clock_.shift(e.when - clock_.now());
            happen(e);
        }
    }

    [[nodiscard]] const lease_counts& counts() const noexcept { return counts_; }

  private:
    enum class what { grant, look, arrive };
    struct event {
        time_point when;
        std::uint64_t order; // of those at one moment, the first planned comes first
        what kind;
        std::size_t holder;
        std::size_t write;
        bool operator<(const event& other) const noexcept {
            return when != other.when ? when > other.when : order > other.order;
        }
    };
    struct holder_state {
        harness::random_source random;
        deadline lease;
        bool gave_back;
    };

    void at(time_point when, what kind, std::size_t holder, std::size_t write = 0) {
        events_.push({when, planned_++, kind, holder, write});
    }

    // Two draws whether paused or not, so that every protection meets the same pauses.
    duration maybe_paused(harness::random_source& random) {
        const bool paused = random.unit() < plan_.pause_chance;
        const double length = 2 * random.unit();
        return paused
                   ? duration{static_cast<duration::rep>(length * static_cast<double>(plan_.pause.count()))}
                   : duration::zero();
    }
    duration noticing(std::size_t holder) {
        return duration{static_cast<duration::rep>(holders_[holder].random.unit() *
                                                   static_cast<double>(plan_.look_again.count()))};
    }

    void happen(const event& e) {
        const time_point now = clock_.now();
        const std::uint64_t token = e.holder + 1;
        holder_state& h = holders_[e.holder];
        switch (e.kind) {
        case what::grant:
            if (granted_ >= token) {
                return; // was given back, and granted, before its end
            }
            if (e.holder > 0 && !holders_[e.holder - 1].gave_back) {
                ++counts_.outlived;
            }
            granted_ = token;
            ++counts_.leases;
            h.lease = deadline::in(plan_.ttl, now);
            if (guard_.token_on_grant) {
                store_.learn(token);
            }
            if (e.holder + 1 < plan_.holders) {
                at(now + plan_.ttl + noticing(e.holder + 1), what::grant, e.holder + 1);
            }
            at(now + plan_.work + maybe_paused(h.random), what::look, e.holder);
            return;
        case what::look: {
            const duration on_the_way = plan_.transit + maybe_paused(h.random);
            if (guard_.own_clock && h.lease.expired(now)) {
                return;
            }
            at(now + on_the_way, what::arrive, e.holder, e.write);
            return;
        }
        case what::arrive:
            take(token);
            if (e.write + 1 < plan_.writes) {
                at(now + plan_.work + maybe_paused(h.random), what::look, e.holder, e.write + 1);
            } else if (!h.lease.expired(now) && granted_ == token) {
                h.gave_back = true;
                if (e.holder + 1 < plan_.holders) {
                    at(now + plan_.transit, what::grant, e.holder + 1);
                }
            }
            return;
        }
    }

    void take(std::uint64_t token) {
        const bool stale = token < granted_;
        const bool newer_there = store_.newest() > token;
        const bool accepted = store_.write(token);
        ++counts_.writes;
        counts_.stale += stale ? 1 : 0;
        counts_.stale_accepted += stale && accepted ? 1 : 0;
        counts_.overwrites += newer_there && accepted ? 1 : 0;
        counts_.rejected += accepted ? 0 : 1;
        counts_.rightful_rejected += !accepted && !stale ? 1 : 0;
    }

    lease_plan plan_;
    lease_guard guard_;
    manual_time clock_;
    fenced_store store_{true};
    std::vector<holder_state> holders_;
    std::uint64_t granted_ = 0; // token of the present holder
    std::uint64_t planned_ = 0;
    std::priority_queue<event> events_;
    lease_counts counts_;
};

/// `trials` trials; the same seed gives every protection the same pauses.
[[nodiscard]] inline lease_counts simulate_leases(const lease_plan& plan, const lease_guard& guard,
                                                  std::uint64_t trials, std::uint64_t seed) {
    lease_simulation simulation{plan, guard};
    harness::random_source seeds{seed};
    for (std::uint64_t i = 0; i < trials; ++i) {
        simulation.run(seeds.next());
    }
    return simulation.counts();
}

} // namespace timerbench::experiments
