// Durations at the edges: zero, negative, the largest; and the clock reading that they are added to (clauses 2, 7, 9).
#include "timers/tests/support/rig.hpp"

#include <array>
#include <deque>
#include <limits>

namespace timerbench::testing {
namespace {

class durations : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(durations);

// The largest and smallest value of each unit, as somebody who means "for ever" writes it. Those of coarse units do not
// fit the duration; how one converts them is saturation too.
constexpr std::array huge{duration::max(), duration::max() - 1ns, duration::max() - 1h, duration::max() / 2,
                          duration{std::chrono::hours{24 * 365 * 200}}};
constexpr std::array negative{duration{-1ns}, duration{-46ms}, duration{-1h}, duration::min() + 1ns,
                              duration::min()};

TEST_P(durations, huge_ones_saturate) {
    rig r{GetParam()};
    std::deque<probe> probes;
    for (const duration d : huge) {
        ASSERT_TRUE(probes.emplace_back(r).arm(d)) << d.count();
    }
    probe other{r};
    ASSERT_TRUE(other.arm(r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return other.fires() == 1; })) << "huge ones hurt another timer";
    r.pass(200ms);
    if (r.manual()) {
        r.pass(24h * 365);
    }
    for (std::size_t i = 0; i < probes.size(); ++i) {
        EXPECT_EQ(probes[i].fires(), 0) << huge[i].count() << " ns fired";
        EXPECT_TRUE(probes[i].cancel()) << huge[i].count() << " ns";
        EXPECT_FALSE(probes[i].cancel()) << huge[i].count() << " ns";
    }
}

// The same from the other ways to arm: again after a cancel, again after a fire, inside the own callback.
TEST_P(durations, huge_ones_from_every_entry_point) {
    rig r{GetParam()};
    for (const duration d : {duration::max(), duration::max() - 1ns}) {
        probe p{r};
        ASSERT_TRUE(p.arm(r.unit()));
        ASSERT_TRUE(p.cancel());
        ASSERT_TRUE(p.arm(d));
        r.pass(r.unit());
        EXPECT_EQ(p.fires(), 0);
        EXPECT_TRUE(p.cancel());
        ASSERT_TRUE(p.arm(duration::zero()));
        ASSERT_TRUE(r.drive_until([&] { return p.fires() == 1; }));
        ASSERT_TRUE(p.arm(d));
        r.pass(r.unit());
        EXPECT_EQ(p.fires(), 1);
        EXPECT_TRUE(p.cancel());
        if (!r.traits().callback_may_call) {
            continue;
        }
        bool rearmed = false;
        p.then = [&] { rearmed = p.arm(d); };
        ASSERT_TRUE(p.arm(duration::zero()));
        ASSERT_TRUE(r.drive_until([&] { return p.fires() == 2; }));
        r.pass(r.unit());
        EXPECT_TRUE(rearmed);
        EXPECT_EQ(p.fires(), 2);
        EXPECT_TRUE(p.cancel());
    }
}

TEST_P(durations, zero_and_negative_fire_at_the_next_opportunity) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF_BREAKS(r, 7);
    for (const duration d : {duration::zero(), duration{-1ns}, duration{-46ms}, duration{-1h},
                             duration::min() + 1ns, duration::min()}) {
        probe p{r};
        const std::thread::id here = std::this_thread::get_id();
        ASSERT_TRUE(p.arm(d)) << d.count();
        if (r.looped()) {
            EXPECT_EQ(p.fires(), 0) << d.count() << " ns fired inside arm";
        }
        if (r.manual()) {
            r.pass(std::min(r.traits().latest, 2 * r.traits().resolution));
        }
        ASSERT_TRUE(r.drive_until([&] { return p.fires() == 1; }, r.manual() ? duration::zero() : patience()))
            << d.count() << " ns did not fire within two ticks";
        if (!r.looped()) {
            EXPECT_NE(p.fired_on(), here) << d.count() << " ns fired inside arm";
        }
    }
}

// What is due already is not put behind what is not.
TEST_P(durations, negative_before_a_later_timer) {
    rig r{GetParam()};
    probe later{r};
    ASSERT_TRUE(later.arm(8 * r.unit()));
    std::deque<probe> probes;
    for (const duration d : negative) {
        ASSERT_TRUE(probes.emplace_back(r).arm(d));
    }
    ASSERT_TRUE(r.drive_until([&] { return later.fires() == 1; }));
    for (std::size_t i = 0; i < probes.size(); ++i) {
        EXPECT_EQ(probes[i].fires(), 1) << negative[i].count() << " ns had not fired";
        EXPECT_TRUE(r.manual() || probes[i].fired_at() <= later.fired_at());
    }
}

// A timer that arms itself anew with zero must not keep others from being served.
TEST_P(durations, zero_rearm_lets_others_through) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    probe spinning{r};
    probe other{r};
    constexpr int starved = 5'000'000; // ends a starved run so that it fails instead of hanging
    spinning.then = [&] {
        if (other.fires() == 0 && spinning.fires() < starved) {
            (void)spinning.arm(duration::zero());
        }
    };
    ASSERT_TRUE(spinning.arm(duration::zero()));
    ASSERT_TRUE(other.arm(5ms));
    ASSERT_TRUE(r.drive_until([&] { return other.fires() == 1; })) << "starved by a zero re-arm";
    spinning.cancel();
    EXPECT_LT(spinning.fires(), starved) << "starved by a zero re-arm";
    EXPECT_LT(other.lateness().count(), duration{r.traits().latest + 5s}.count());
}

TEST_P(durations, zero_rearm_runs_once_in_a_pass) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(!r.looped(), "its own thread drives it; there is no single pass to look at");
    probe p{r};
    p.then = [&] { EXPECT_TRUE(p.arm(duration::zero())); };
    ASSERT_TRUE(p.arm(duration::zero()));
    for (int fires = 1; fires <= 100; ++fires) {
        // A pass may come before the clock has moved on at all.
        std::size_t ran = 0;
        for (const time_point end = steady_time::now() + patience(); ran == 0 && steady_time::now() < end;) {
            r.shift(r.slack());
            ran = r.service().poll();
        }
        ASSERT_EQ(ran, 1U);
        ASSERT_EQ(p.fires(), fires);
    }
    EXPECT_TRUE(p.cancel());
}

// A first delay of zero and a period behind it: one fire, not two, before the period is over.
TEST_P(durations, zero_then_a_period_fires_once_at_first) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    probe p{r};
    const duration period = 50 * r.unit();
    p.then = [&] { EXPECT_TRUE(p.arm(period)); };
    ASSERT_TRUE(p.arm(duration::zero()));
    ASSERT_TRUE(r.drive_until([&] { return p.fires() > 0; }));
    r.settle();
    r.pass(r.unit());
    EXPECT_EQ(p.fires(), 1);
    EXPECT_TRUE(p.cancel());
}

void burn(duration d) {
    for (const time_point end = steady_time::now() + d; steady_time::now() < end;) {}
}

// The duration counts from the arm, not from a reading of the clock that the service keeps. How far a service that keeps
// one is off is recorded, and bounded by the time for which it was kept.
TEST_P(durations, count_from_the_arm_after_the_loop_was_busy) {
    rig r{GetParam(), clocks::real};
    const duration busy = 50ms;
    const bool cached = r.traits().earliest < duration::zero();
    {
        erased_service::timer t{r.service()};
        struct account {
            time_point armed;
            std::atomic<duration::rep> waited{-1}; // set by the driver, read by the test
        } a;
        ASSERT_TRUE(r.service().arm(t, 1ms, callback{[](void*) {}, nullptr}));
        r.pass(2ms);
        burn(busy);
        a.armed = steady_time::now();
        ASSERT_TRUE(r.service().arm(t, 60ms,
                                    callback{[](void* at) {
                                                 auto& to = *static_cast<account*>(at);
                                                 to.waited = (steady_time::now() - to.armed).count();
                                             },
                                             &a}));
        ASSERT_TRUE(r.drive_until([&] { return a.waited >= 0; }));
        RecordProperty("after_a_busy_loop_ns", std::to_string(a.waited.load() - duration{60ms}.count()));
        EXPECT_GE(a.waited.load(), duration{60ms + r.traits().earliest}.count());
    }
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    struct account {
        rig& r;
        erased_service::timer t{r.service()};
        time_point armed{};
        std::atomic<duration::rep> waited{-1}; // set by the driver, read by the test
    } a{r};
    const time_point begin = steady_time::now();
    ASSERT_TRUE(r.service().arm(a.t, 1ms,
                                callback{[](void* at) {
                                             auto& outer = *static_cast<account*>(at);
                                             burn(50ms);
                                             outer.armed = steady_time::now();
                                             (void)outer.r.service().arm(
                                                 outer.t, 60ms,
                                                 callback{[](void* inner) {
                                                              auto& to = *static_cast<account*>(inner);
                                                              to.waited =
                                                                  (steady_time::now() - to.armed).count();
                                                          },
                                                          &outer});
                                         },
                                         &a}));
    ASSERT_TRUE(r.drive_until([&] { return a.waited >= 0; }));
    RecordProperty("inside_a_busy_callback_ns", std::to_string(a.waited.load() - duration{60ms}.count()));
    // A kept reading is no older than all of this; it is as old as the callback has run, which the scheduler stretches.
    const duration kept = cached ? std::min(r.traits().earliest, begin - a.armed) : duration::zero();
    EXPECT_GE(a.waited.load(), duration{60ms + kept}.count() - (cached ? 5'000'000 : 0));
}

} // namespace
} // namespace timerbench::testing
