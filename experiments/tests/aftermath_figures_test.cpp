#include "experiments/aftermath_report.hpp"

#include <gtest/gtest.h>

namespace timerbench::experiments::aftermath {
namespace {

using namespace std::chrono_literals;

parameters ten_a_second() {
    parameters p;
    p.requests = 1'000;
    p.rate = 10;
    p.random_arrivals = false;
    p.size_for_rate();
    p.incident_at = 20s;
    p.incident_for = 10s;
    return p;
}

// All answered after 10 ms.
results all_well(const parameters& p) {
    results r;
    r.open(p);
    for (std::size_t i = 0; i < r.arrival.size(); ++i) {
        r.latency[i] = 10'000'000;
        r.ended[i] = outcome::in_time;
        r.times_ended[i] = 1;
    }
    return r;
}

void leave(results& r, const parameters& p, duration from, duration to) {
    for (std::size_t i = 0; i < r.arrival.size(); ++i) {
        if (r.arrival[i] >= from.count() && r.arrival[i] < to.count()) {
            r.latency[i] = p.limit.count();
            r.ended[i] = outcome::left;
        }
    }
}

TEST(AftermathFigures, RecoveryIsTheFirstNormalSecondAfterTheIncident) {
    const parameters p = ten_a_second();
    results r = all_well(p);
    EXPECT_EQ(figures_of(r, p).recovery_s, 0.0);
    leave(r, p, 20s, 37s);
    const figures f = figures_of(r, p);
    ASSERT_TRUE(f.recovery_s.has_value());
    EXPECT_NEAR(*f.recovery_s, 7.0, 0.11);
    EXPECT_EQ(f.incident.share(), 0.0);
    EXPECT_NEAR(f.after.share(), 63.0 / 70.0, 0.01);
    EXPECT_EQ(f.affected.p99_ms, 3000);
    EXPECT_EQ(f.affected.p50_ms, 10);
    EXPECT_NEAR(f.watched_s, 70, 0.01);
}

TEST(AftermathFigures, SlowAnswersAreNotNormal) {
    const parameters p = ten_a_second();
    results r = all_well(p);
    for (std::size_t i = 0; i < r.arrival.size(); ++i) {
        if (r.arrival[i] >= 20'000'000'000 && r.arrival[i] < 40'000'000'000) {
            r.latency[i] = 12'000'000;
        }
    }
    EXPECT_NEAR(figures_of(r, p).recovery_s.value_or(-1), 10, 0.11);
    leave(r, p, 20s, 200s);
    EXPECT_FALSE(figures_of(r, p).recovery_s.has_value());
}

TEST(AftermathFigures, WrongBooksAreSeen) {
    const parameters p = ten_a_second();
    EXPECT_EQ(wrong_books(all_well(p)), "");
    results r = all_well(p);
    r.times_ended[3] = 2;
    EXPECT_NE(wrong_books(r).find("1 requests did not end exactly once"), std::string::npos);
    r = all_well(p);
    r.times_ended[3] = 0;
    EXPECT_NE(wrong_books(r), "");
    r = all_well(p);
    r.work_ns = 5;
    r.lost_ns = 4;
    EXPECT_NE(wrong_books(r).find("is not the work of 5 ns"), std::string::npos);
    r = all_well(p);
    r.work_ns = r.useful_after_ns = 5;
    EXPECT_NE(wrong_books(r), "");
    r = all_well(p);
    r.alive_at_end = 1;
    EXPECT_NE(wrong_books(r), "");
    r = all_well(p);
    r.timers.armed = 1;
    EXPECT_NE(wrong_books(r), "");
}

TEST(AftermathFigures, FormsThatDifferAreSeenAndALateLoopIsAnExcuse) {
    const parameters p = ten_a_second();
    results model = all_well(p);
    model.calls[store] = 1'000;
    results real = model;
    real.lateness_ms = {0.1, 0.1, 0.2};
    EXPECT_TRUE(compare_forms(model, real, 10ms).agree());
    real.calls[store] = 1'099;
    EXPECT_TRUE(compare_forms(model, real, 10ms).agree());
    real.calls[store] = 1'101;
    EXPECT_FALSE(compare_forms(model, real, 10ms).agree());
    EXPECT_FALSE(compare_forms(model, real, 10ms).noisy);
    real.lateness_ms = {0.1, 0.1, 0.8};
    EXPECT_TRUE(compare_forms(model, real, 10ms).noisy);
    real.lateness_ms = {0.3, 0.3, 0.31};
    EXPECT_TRUE(compare_forms(model, real, 10ms).noisy);
    real.calls = model.calls;
    leave(real, p, 0s, 11s);
    EXPECT_NEAR(compare_forms(model, real, 10ms).goodput_gap, 0.11, 0.002);
    EXPECT_FALSE(compare_forms(model, real, 10ms).agree());
    // What came after the last user's limit does not count.
    real = model;
    real.calls_at_cut = model.calls;
    real.calls[store] = 5'000;
    EXPECT_TRUE(compare_forms(model, real, 10ms).agree());
}

TEST(AftermathFigures, ParametersThatMakeNoSenseAreRefusedWithTheFigure) {
    parameters p = ten_a_second();
    EXPECT_EQ(refuse(p), "");
    p.rate = 10'000;
    p.requests = 1'000'000;
    p.connections[store] = 100;
    EXPECT_NE(refuse(p).find("give more than 100"), std::string::npos) << refuse(p);
    p.connections[store] = 101;
    EXPECT_EQ(refuse(p), "");
    p.incident_for = 90s;
    EXPECT_NE(refuse(p).find("--incident-ms 90000 does not fit"), std::string::npos) << refuse(p);
    p.rate = 1;
    EXPECT_NE(refuse(p).find("come for 1000000 s"), std::string::npos) << refuse(p);
}

TEST(AftermathFigures, TheBoundOnMemoryFollowsWhatMayBeAlive) {
    parameters p;
    p.size_for_rate();
    const policy orphans = worst_policy;
    // The gateway takes 330 000, A and B 30 000 and 300 000 in line each, the store 200 and 300 000.
    EXPECT_EQ(most_calls(p, orphans), 330'000U + 330'000U + 330'000U + 300'200U);
    EXPECT_EQ(most_calls(p, best_policy), 330'000U + 330'000U + 330'000U + 300'200U);
    p.requests = 1'000;
    EXPECT_EQ(most_calls(p, {cancelling::detach, {}, retrying::none}), 4'000U);
    EXPECT_EQ(most_calls(p, orphans), 1'000U + 4'000U + 16'000U + 64'000U);
    EXPECT_EQ(most_calls(p, best_policy), 4'000U);
    EXPECT_GT(most_bytes(p, orphans, 128), most_calls(p, orphans) * (sizeof(call) + 128));
}

TEST(AftermathPool, CountsUseAndKeepsTheOrderOfTheLine) {
    call_records all;
    connection_pool pool;
    const time_point t{1h};
    pool.open(2, t, t + 10s);
    EXPECT_TRUE(pool.available());
    const std::uint32_t a = pool.take(t - 5s);
    const std::uint32_t b = pool.take(t + 4s);
    EXPECT_NE(a, b);
    EXPECT_FALSE(pool.available());
    pool.release(b, t + 5s);
    EXPECT_EQ(pool.busy(), 1U);
    pool.release(a, t + 50s);
    EXPECT_EQ(pool.busy_ns(t + 60s), (10s + 1s) / 1ns);

    std::uint32_t i[4];
    for (std::uint32_t& each : i) {
        each = all.take();
        pool.push(all, each);
    }
    EXPECT_EQ(pool.waiting(), 4U);
    pool.remove(all, i[1]);
    pool.remove(all, i[3]);
    EXPECT_EQ(pool.first(), i[0]);
    pool.remove(all, i[0]);
    EXPECT_EQ(pool.first(), i[2]);
    pool.push(all, i[0]);
    EXPECT_EQ(pool.first(), i[2]);
    pool.remove(all, i[2]);
    pool.remove(all, i[0]);
    EXPECT_EQ(pool.first(), nobody);
    EXPECT_EQ(pool.waiting(), 0U);
}

TEST(AftermathRecords, AnOldNameDoesNotMeanTheNextUse) {
    call_records all;
    const std::uint32_t i = all.take();
    const call_id old{i, all[i].generation};
    EXPECT_NE(all.find(old), nullptr);
    all.give_back(i);
    EXPECT_EQ(all.find(old), nullptr);
    EXPECT_EQ(all.take(), i);
    EXPECT_EQ(all.find(old), nullptr);
    EXPECT_EQ(all.find({nobody, 1}), nullptr);
    EXPECT_EQ(all.alive(), 1U);
    EXPECT_EQ(all.most_alive(), 1U);
}

TEST(AftermathAgenda, EarliestFirstAndThenAsNoted) {
    agenda a;
    const time_point t{1h};
    a.add(t + 2ms, {1, 1}, 1, step::kind::work_end);
    a.add(t + 1ms, {2, 1}, 1, step::kind::work_end);
    a.add(t + 1ms, {3, 1}, 1, step::kind::pause_end);
    EXPECT_EQ(a.next(), t + 1ms);
    EXPECT_EQ(a.pop().who.index, 2U);
    EXPECT_EQ(a.pop().who.index, 3U);
    EXPECT_EQ(a.pop().who.index, 1U);
    EXPECT_TRUE(a.empty());
    EXPECT_EQ(a.next(), time_point::max());
}

} // namespace
} // namespace timerbench::experiments::aftermath
