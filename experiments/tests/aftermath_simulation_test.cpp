#include "experiments/aftermath_figures.hpp"
#include "experiments/aftermath_simulation.hpp"

#include <gtest/gtest.h>
#include <set>
#include <utility>

namespace timerbench::experiments::aftermath {
namespace {

using namespace std::chrono_literals;

using on_loop = clocked<"per_thread_wheel_loop", per_thread_wheel_loop>;
using on_thread = clocked<"locked_heap", locked_heap>;

// No luck and no incident.
parameters calm(std::uint64_t requests, double rate) {
    parameters p;
    p.requests = requests;
    p.rate = rate;
    p.slowdown = 1;
    p.error_rate = 0;
    p.size_for_rate();
    p.incident_at = p.span() / 5;
    p.incident_for = p.span() / 10;
    return p;
}

// Small, and in trouble: the store takes ten times as long for two seconds.
parameters troubled() {
    parameters p;
    p.requests = 4'000;
    p.rate = 200;
    p.size_for_rate();
    p.incident_at = 4s;
    p.incident_for = 3s;
    p.seed = 3;
    return p;
}

// Only the store works, for exactly `work`, and one request after the other.
parameters alone(duration work, duration timeout, std::uint64_t requests = 20) {
    parameters p = calm(requests, 0.5);
    p.random_arrivals = false;
    p.spread = 0;
    p.work = {0ms, 0ms, 0ms, work};
    p.limit = 1900ms;
    p.timeout = timeout;
    p.connections = {0, 10, 10, 1};
    p.line = 10;
    return p;
}

policy with(cancelling c, retrying r, duration look = {}) {
    return {c, look, r};
}

double mean_ms(const std::vector<std::int64_t>& ns) {
    double sum = 0;
    for (const std::int64_t x : ns) {
        sum += static_cast<double>(x);
    }
    return sum / static_cast<double>(ns.size()) / 1e6;
}

double ms_a_request(std::int64_t ns, const parameters& p) {
    return static_cast<double>(ns) / 1e6 / static_cast<double>(p.requests);
}

TEST(AftermathPolicies, EachIsThereOnceUnderItsName) {
    std::set<std::string> names;
    for (const policy& p : all_policies()) {
        names.insert(name_of(p));
    }
    EXPECT_EQ(all_policies().size(), 28U);
    EXPECT_EQ(names.size(), 28U);
    EXPECT_TRUE(names.count(name_of(best_policy)) == 1 && names.count("deadline/budget") == 1);
    EXPECT_TRUE(names.count(name_of(worst_policy)) == 1 && names.count("detach/naive") == 1);
}

TEST(AftermathSimulation, WithoutTroubleNothingIsWastedByAnyPolicy) {
    const parameters p = calm(5'000, 500);
    for (const policy& how : all_policies()) {
        const results r = simulate<on_loop>(p, how);
        ASSERT_EQ(r.trouble, "") << name_of(how);
        EXPECT_EQ(wrong_books(r), "") << name_of(how);
        EXPECT_EQ(r.left_ns, 0) << name_of(how);
        EXPECT_EQ(r.lost_ns, 0) << name_of(how);
        EXPECT_EQ(r.useful_ns, r.work_ns) << name_of(how);
        for (std::size_t layer = 0; layer < layers; ++layer) {
            EXPECT_EQ(r.calls[layer], p.requests) << name_of(how);
        }
        const figures f = figures_of(r, p);
        EXPECT_EQ(f.affected.share(), 1.0) << name_of(how);
        EXPECT_NEAR(f.goodput, p.rate, 0.05 * p.rate) << name_of(how);
        EXPECT_LT(f.recovery_s.value_or(99), 2.0) << name_of(how);
        EXPECT_NEAR(ms_a_request(r.work_ns, p), 13.0, 0.5) << name_of(how);
        EXPECT_EQ(r.timers.fired, 0U) << name_of(how);
        EXPECT_EQ(r.timers.armed, how.cancel == cancelling::no_timeout ? 0 : 3 * p.requests) << name_of(how);
    }
}

// One server, constant work, exponential gaps: the mean time in line is rho * work / (2 (1 - rho)).
TEST(AftermathSimulation, OneConnectionWaitsAsMD1Says) {
    for (const double rho : {0.5, 0.8}) {
        parameters p = calm(200'000, rho * 100);
        p.spread = 0;
        p.work = {0ms, 0ms, 0ms, 10ms};
        p.connections[store] = 1;
        p.limit = 1h;
        const results r = simulate<on_loop>(p, with(cancelling::no_timeout, retrying::none));
        ASSERT_EQ(wrong_books(r), "");
        const double expected = 10 + rho * 10 / (2 * (1 - rho));
        EXPECT_NEAR(mean_ms(r.latency), expected, 0.03 * expected) << rho;
        EXPECT_NEAR(figures_of(r, p).occupancy[store], rho, 0.02) << rho;
    }
}

TEST(AftermathSimulation, AnAbortFreesAtOnce) {
    const parameters p = alone(1s, 100ms);
    const results r = simulate<on_loop>(p, with(cancelling::abort, retrying::none));
    ASSERT_EQ(wrong_books(r), "");
    // The timeout is late by as much as the wheel and the grid are, 3 ms in all.
    const double worked = ms_a_request(r.work_ns, p);
    EXPECT_GE(worked, 100);
    EXPECT_LE(worked, 103);
    EXPECT_EQ(r.left_ns, 0);
    EXPECT_EQ(r.lost_ns, r.work_ns);
    EXPECT_NEAR(figures_of(r, p).occupancy[store], 0.05, 0.002); // 100 ms of every 2 s
    EXPECT_GE(r.timed_out, p.requests);
}

TEST(AftermathSimulation, AnAbortAndAWordToStopReachWhatWorksFarBelow) {
    // A works for 50 ms first, so the gateway's 100 ms are over while B and the store have 50 ms of theirs.
    parameters p = alone(1s, 100ms);
    p.work = {0ms, 50ms, 0ms, 1s};
    for (const policy& how :
         {with(cancelling::abort, retrying::none), with(cancelling::cooperative, retrying::none, 1ms)}) {
        const results r = simulate<on_loop>(p, how);
        ASSERT_EQ(wrong_books(r), "") << name_of(how);
        EXPECT_GE(ms_a_request(r.work_ns, p), 100) << name_of(how);
        EXPECT_LE(ms_a_request(r.work_ns, p), 104) << name_of(how);
    }
}

TEST(AftermathSimulation, CooperativeWorkStopsAtItsNextLook) {
    const parameters p = alone(1s, 105ms);
    const std::pair<duration, double> cases[] = {{1ms, 106.0}, {10ms, 110.0}, {100ms, 200.0}};
    for (const auto& [look, until] : cases) {
        const results r = simulate<on_loop>(p, with(cancelling::cooperative, retrying::none, look));
        ASSERT_EQ(wrong_books(r), "");
        const double worked = ms_a_request(r.work_ns, p);
        EXPECT_GE(worked, until) << look / 1ms;
        EXPECT_LE(worked, until + (look == 1ms ? 3.0 : 0.0)) << look / 1ms;
        EXPECT_NEAR(ms_a_request(r.left_ns, p), worked - 106.5, 2) << look / 1ms;
    }
    const results whole = simulate<on_loop>(p, with(cancelling::cooperative, retrying::none, 700ms));
    EXPECT_NEAR(ms_a_request(whole.work_ns, p), 700, 1e-6);
    const results no_look = simulate<on_loop>(p, with(cancelling::cooperative, retrying::none, 5s));
    EXPECT_NEAR(ms_a_request(no_look.work_ns, p), 1000, 1e-6);
}

TEST(AftermathSimulation, DetachedWorkRunsToItsEndForNobody) {
    const parameters p = alone(1s, 100ms);
    const results r = simulate<on_loop>(p, with(cancelling::detach, retrying::none));
    ASSERT_EQ(wrong_books(r), "");
    EXPECT_NEAR(ms_a_request(r.work_ns, p), 1000, 1e-6);
    EXPECT_NEAR(ms_a_request(r.left_ns, p), 898.5, 2);
    EXPECT_EQ(r.useful_ns, 0);
    EXPECT_EQ(figures_of(r, p).affected.failed, figures_of(r, p).affected.users);
}

TEST(AftermathSimulation, WithoutTimeoutTheUserLeavesAndTheWorkGoesOn) {
    parameters p = alone(1s, 100ms);
    p.limit = 400ms;
    const results r = simulate<on_loop>(p, with(cancelling::no_timeout, retrying::none));
    ASSERT_EQ(wrong_books(r), "");
    EXPECT_NEAR(ms_a_request(r.left_ns, p), 600, 1e-6);
    EXPECT_NEAR(ms_a_request(r.lost_ns, p), 400, 1e-6);
    const figures f = figures_of(r, p);
    EXPECT_EQ(f.affected.left, f.affected.users);
    EXPECT_EQ(f.affected.p50_ms, 400);
}

TEST(AftermathSimulation, WhatCannotFinishInsideTheDeadlineIsNotBegun) {
    parameters p = alone(1s, 5s);
    p.limit = 300ms;
    const results r = simulate<on_loop>(p, with(cancelling::deadline, retrying::none, 10ms));
    ASSERT_EQ(wrong_books(r), "");
    EXPECT_EQ(r.work_ns, 0);
    EXPECT_EQ(r.calls[1], 0U);
    EXPECT_EQ(r.not_begun, p.requests);
    const figures f = figures_of(r, p);
    EXPECT_EQ(f.affected.failed, f.affected.users);
    EXPECT_EQ(f.affected.p99_ms, 0); // and the user knows at once
}

TEST(AftermathSimulation, OneDeadlineEndsTheWholeChain) {
    parameters p = alone(1s, 5s);
    p.limit = 1100ms;
    p.slowdown = 3; // what is known before the incident would fit
    p.incident_at = 0ms;
    p.incident_for = p.span() + 1h;
    const results r = simulate<on_loop>(p, with(cancelling::deadline, retrying::none, 10ms));
    ASSERT_EQ(wrong_books(r), "");
    EXPECT_NEAR(ms_a_request(r.work_ns, p), 1110, 1e-6);
    EXPECT_NEAR(ms_a_request(r.left_ns, p), 10, 1e-6);
    EXPECT_EQ(r.calls[store], p.requests);
}

TEST(AftermathSimulation, NaiveRetriesMultiplyFromLayerToLayer) {
    parameters p = calm(50, 1);
    p.error_rate = 1;
    const auto calls = [&p](retrying r) { return simulate<on_loop>(p, with(cancelling::detach, r)).calls; };
    const auto naive = calls(retrying::naive);
    EXPECT_EQ(naive[1], 4 * p.requests);
    EXPECT_EQ(naive[2], 16 * p.requests);
    EXPECT_EQ(naive[3], 64 * p.requests);
    EXPECT_EQ(calls(retrying::none)[3], p.requests);
    // With backoff the same number, as long as the span of 3 s holds them.
    EXPECT_GT(calls(retrying::inside)[3], 20 * p.requests);
    EXPECT_LE(calls(retrying::inside)[3], 64 * p.requests);
    // Nothing succeeds, so nothing is earned: ten tokens for those who call each layer.
    EXPECT_EQ(p.most_tokens, 10);
    const auto budget = calls(retrying::budget);
    EXPECT_EQ(budget[1], p.requests + 10);
    EXPECT_EQ(budget[2], p.requests + 20);
    EXPECT_EQ(budget[3], p.requests + 30);
}

TEST(AftermathSimulation, AFullLineRefuses) {
    parameters p = alone(1s, 5s, 40);
    p.rate = 100;
    p.connections = {0, 2, 10, 10};
    p.line = 3;
    p.limit = 1h;
    const results r = simulate<on_loop>(p, with(cancelling::no_timeout, retrying::none));
    ASSERT_EQ(wrong_books(r), "");
    EXPECT_EQ(r.refused, 35U); // 2 begin and 3 wait before the first answer, 0.4 s are over then
    EXPECT_EQ(seen_between(r, 0s, 1h).in_time, 5U);
}

TEST(AftermathSimulation, TheBooksBalanceInTroubleForEveryPolicy) {
    const parameters p = troubled();
    for (const policy& how : all_policies()) {
        const results r = simulate<on_loop>(p, how);
        ASSERT_EQ(r.trouble, "") << name_of(how);
        EXPECT_EQ(wrong_books(r), "") << name_of(how);
        EXPECT_LT(r.useful_ns, r.work_ns) << name_of(how);
        EXPECT_LE(r.most_alive, most_calls(p, how)) << name_of(how);
        std::int64_t work = 0;
        std::int64_t left = 0;
        std::uint64_t store_calls = 0;
        for (std::size_t bin = 0; bin < p.bins(); ++bin) {
            work += r.work_by_bin[bin];
            left += r.left_by_bin[bin];
            store_calls += r.store_calls_by_bin[bin];
        }
        EXPECT_EQ(work, r.work_ns) << name_of(how);
        EXPECT_EQ(left, r.left_ns) << name_of(how);
        EXPECT_EQ(store_calls, r.calls[store]) << name_of(how);
    }
}

TEST(AftermathSimulation, TheSameSeedGivesTheSameBytes) {
    const parameters p = troubled();
    parameters other = p;
    other.seed = 4;
    for (const policy& how : {worst_policy, best_policy, with(cancelling::abort, retrying::inside)}) {
        const std::uint64_t digest = simulate<on_loop>(p, how).digest();
        EXPECT_EQ(simulate<on_loop>(p, how).digest(), digest) << name_of(how);
        EXPECT_NE(simulate<on_loop>(other, how).digest(), digest) << name_of(how);
    }
    // A service with a thread of its own as well.
    const std::uint64_t digest = simulate<on_thread>(p, worst_policy).digest();
    EXPECT_EQ(simulate<on_thread>(p, worst_policy).digest(), digest);
    EXPECT_EQ(wrong_books(simulate<on_thread>(p, worst_policy)), "");
}

TEST(AftermathSimulation, MessagesCarryWhatIsLeftOfTheDeadline) {
    // The limit holds from the user's coming, however long it took to get to the store.
    parameters p = alone(200ms, 5s);
    p.work = {300ms, 300ms, 300ms, 200ms};
    p.connections = {0, 10, 10, 10};
    p.limit = 1s;
    p.slowdown = 1;
    const results r = simulate<on_loop>(p, with(cancelling::deadline, retrying::none, 10ms));
    ASSERT_EQ(wrong_books(r), "");
    EXPECT_EQ(r.calls[1], 0U) << "800 ms below the gateway do not fit into the 700 left";
    p.limit = 1101ms;
    EXPECT_EQ(
        seen_between(simulate<on_loop>(p, with(cancelling::deadline, retrying::none, 10ms)), 0s, 1h).in_time,
        p.requests);

    // Where A and B took longer than the mean, what they were handed is too little for the rest, though the gateway could not know.
    p.work = {0ms, 300ms, 300ms, 200ms};
    p.spread = 0.5;
    p.limit = 801ms;
    p.requests = 200;
    const results some = simulate<on_loop>(p, with(cancelling::deadline, retrying::none, 10ms));
    ASSERT_EQ(wrong_books(some), "");
    EXPECT_EQ(some.calls[1], p.requests);
    EXPECT_NEAR(static_cast<double>(some.calls[2]), 100, 40);
    EXPECT_LT(some.calls[store], some.calls[2] - 5) << "B was handed what A had left over";
}

} // namespace
} // namespace timerbench::experiments::aftermath
