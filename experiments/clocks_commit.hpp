// Commit-wait on a clock that says how wrong it may be: whether the order of timestamps is the order in which things happened, and
// what that costs.
//
// The clock is TrueTime's, as published (Corbett et al., "Spanner: Google's Globally-Distributed Database", OSDI 2012, sections 3
// and 4.1.2): now() is an interval [earliest, latest] that contains the true time; the uncertainty is a sawtooth that grows from
// 1 to 7 ms over the 30 s between two synchronisations. Here the largest uncertainty is a parameter, the smallest a seventh of
// it. The clock of each machine is off by a share of its uncertainty, drawn anew at each synchronisation, so that it never leaves its
// interval and may be set back then.
//
// A chain of commits: one client commits on a machine, hears of it, and commits on another, chosen at random. A commit takes its timestamp,
// waits or not, and is then visible. Whoever has heard of a commit must get a larger timestamp than it: a pair of
// neighbours where that fails is an order violation.
//
// local clock       the timestamp is the machine's reading; no interval, no wait
// latest, no wait   the timestamp is now().latest
// commit-wait       the timestamp is now().latest; visible when now().earliest is beyond it
// overlapped        the same while the commit is replicated, which takes some ms anyhow; the cost is what comes on top
// steps of 2u       commit-wait that sleeps for the width of the interval at a time, without working out what is left
// understated       commit-wait where machines claim a quarter of the uncertainty that they have
//
// Simulated on a manual clock, every policy with the same machines, delays and seeds. About 200 ns a commit.
#pragma once

#include "harness/statistics.hpp"
#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace timerbench::experiments {

struct time_interval {
    time_point earliest;
    time_point latest;
};

/// What one machine's clock says. Reads true time from a manual clock that outlives it.
class interval_clock {
  public:
    static constexpr duration between_syncs = std::chrono::seconds{30};
    static constexpr std::int64_t floor_share = 7; ///< The smallest uncertainty is this part of the largest.

    /// `largest` above 0. `claimed`: the share of its uncertainty that the clock admits; 1 is honest.
    interval_clock(const manual_time& truth, duration largest, double claimed, std::uint64_t seed)
        : truth_{truth},
          largest_{largest},
          claimed_{claimed},
          seed_{seed},
          // Machines synchronise at different moments.
          phase_{static_cast<duration::rep>(
              harness::random_source{seed}.below(static_cast<std::uint64_t>(between_syncs.count())))} {}

    /// Half the width of the interval, were it claimed honestly.
    [[nodiscard]] duration uncertainty() const { return uncertainty_at(since_start()); }
    /// The machine's best guess.
    [[nodiscard]] time_point local() const {
        const duration t = since_start();
        // The same share during the whole stretch between two synchronisations.
        const auto stretch = static_cast<std::uint64_t>(t / between_syncs);
        const double share = 2 * harness::random_source{seed_ ^ (stretch * 0x9e3779b97f4a7c15U)}.unit() - 1;
        return truth_.now() + scaled(uncertainty_at(t), share);
    }
    [[nodiscard]] time_interval now() const {
        const duration half = scaled(uncertainty(), claimed_);
        const time_point middle = local();
        return {middle - half, middle + half};
    }

  private:
    [[nodiscard]] static duration scaled(duration d, double by) {
        return duration{static_cast<duration::rep>(static_cast<double>(d.count()) * by)};
    }
    [[nodiscard]] duration since_start() const { return truth_.now().time_since_epoch() + phase_; }
    [[nodiscard]] duration uncertainty_at(duration t) const {
        const duration smallest = largest_ / floor_share;
        const double part = static_cast<double>((t % between_syncs).count()) /
                            static_cast<double>(duration{between_syncs}.count());
        return smallest + scaled(largest_ - smallest, part);
    }

    const manual_time& truth_;
    duration largest_;
    double claimed_;
    std::uint64_t seed_;
    duration phase_;
};

struct commit_policy {
    const char* name;
    bool interval; ///< The timestamp is the interval's end, not the local reading.
    enum { no_wait, what_is_left, whole_widths } wait;
    bool overlapped;
    double claimed;
    bool in_order; ///< Whether it must never violate the order.
};

inline constexpr std::array commit_policies{
    commit_policy{"local clock", false, commit_policy::no_wait, false, 1, false},
    commit_policy{"latest, no wait", true, commit_policy::no_wait, false, 1, false},
    commit_policy{"commit-wait", true, commit_policy::what_is_left, false, 1, true},
    commit_policy{"overlapped", true, commit_policy::what_is_left, true, 1, true},
    commit_policy{"steps of 2u", true, commit_policy::whole_widths, false, 1, true},
    commit_policy{"understated", true, commit_policy::what_is_left, false, 0.25, false},
};

struct commit_plan {
    std::size_t machines = 5;
    std::uint64_t commits = 100'000;
    duration message = std::chrono::milliseconds{1}; ///< until the client has heard and asked again, at most
    duration replication = std::chrono::milliseconds{5}; ///< of the policy that overlaps
};

struct commit_result {
    std::uint64_t pairs = 0;
    std::uint64_t violations = 0;
    std::vector<double> wait_ms; ///< of each commit, beyond its replication
};

/// Waits until the interval lies beyond `stamp` as a whole. The wait gives time a nanosecond at least.
inline void commit_wait(manual_time& truth, const interval_clock& clock, time_point stamp,
                        bool whole_widths) {
    for (time_interval now = clock.now(); now.earliest <= stamp; now = clock.now()) {
        const duration d = whole_widths ? now.latest - now.earliest : stamp - now.earliest;
        truth.shift(std::max(d, duration{1}));
    }
}

[[nodiscard]] inline commit_result simulate_commits(const commit_plan& plan, const commit_policy& policy,
                                                    duration largest, std::uint64_t seed) {
    harness::random_source random{seed};
    manual_time truth;
    std::vector<interval_clock> machines;
    machines.reserve(plan.machines);
    for (std::size_t i = 0; i < plan.machines; ++i) {
        machines.emplace_back(truth, largest, policy.claimed, random.next());
    }
    commit_result result;
    result.wait_ms.reserve(plan.commits);
    time_point last = time_point::min();
    for (std::uint64_t i = 0; i < plan.commits; ++i) {
        const interval_clock& clock = machines[random.below(plan.machines)];
        const auto message =
            duration{static_cast<duration::rep>(random.unit() * static_cast<double>(plan.message.count()))};
        const time_point stamp = policy.interval ? clock.now().latest : clock.local();
        result.pairs += i > 0 ? 1 : 0;
        result.violations += i > 0 && stamp <= last ? 1 : 0;
        last = stamp;
        if (policy.overlapped) {
            truth.shift(plan.replication);
        }
        const time_point begin = truth.now();
        if (policy.wait != commit_policy::no_wait) {
            commit_wait(truth, clock, stamp, policy.wait == commit_policy::whole_widths);
        }
        result.wait_ms.push_back(static_cast<double>((truth.now() - begin).count()) * 1e-6);
        truth.shift(message);
    }
    return result;
}

} // namespace timerbench::experiments
