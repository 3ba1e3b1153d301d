// That timers fire, once, when they should: clauses 1, 2 and 11, order, and periods made of re-arms.
#include "timers/tests/support/rig.hpp"

#include <algorithm>
#include <deque>
#include <random>
#include <set>

namespace timerbench::testing {
namespace {

class firing : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(firing);

// A handful of durations, few enough for a service that is made for few different ones.
std::vector<duration> palette(const rig& r, std::mt19937_64& random) {
    std::vector<duration> all{duration::zero(), r.unit(), r.unit() + 1ns, r.unit() + 999'999ns};
    std::uniform_int_distribution<duration::rep> any{0, 3 * r.unit().count()};
    while (all.size() < 24) {
        all.emplace_back(any(random));
    }
    return all;
}

TEST_P(firing, once_per_arm) {
    rig r{GetParam()};
    probe p{r};
    EXPECT_EQ(p.fires(), 0);
    for (int arm = 1; arm <= 3; ++arm) {
        ASSERT_TRUE(p.arm(r.unit()));
        ASSERT_TRUE(r.drive_until([&] { return p.fires() == arm; })) << "arm " << arm << " did not fire";
        r.pass(2 * r.unit());
        EXPECT_EQ(p.fires(), arm) << "fired again without an arm";
    }
    const counters totals = r.service().counters();
    EXPECT_EQ(totals.armed, totals.fired + totals.cancelled);
    EXPECT_EQ(totals.pending, 0U);
    EXPECT_EQ(totals.dropped, 0U);
    EXPECT_EQ(totals.threw, 0U);
}

TEST_P(firing, counters_follow) {
    rig r{GetParam()};
    std::deque<probe> probes;
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(probes.emplace_back(r).arm(1h));
    }
    counters totals = r.service().counters();
    EXPECT_EQ(totals.armed, 5U);
    EXPECT_EQ(totals.pending, 5U);
    EXPECT_TRUE(probes[0].cancel());
    probes[1].destroy();
    totals = r.service().counters();
    EXPECT_EQ(totals.cancelled, 2U) << "a cancel and the destruction of an armed timer";
    EXPECT_EQ(totals.pending, 3U);
    ASSERT_TRUE(probes[0].arm(r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return probes[0].fires() == 1; }));
    totals = r.service().counters();
    EXPECT_EQ(totals.armed, 6U);
    EXPECT_EQ(totals.fired, 1U);
    EXPECT_EQ(totals.pending, 3U);
    r.stop();
    totals = r.service().counters();
    EXPECT_EQ(totals.dropped, 3U);
    EXPECT_EQ(totals.pending, 0U);
}

// One step before the earliest start nothing has fired, at the latest start it has, whatever the phase.
TEST_P(firing, within_the_bounds_of_the_traits) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(!r.manual(),
                       "takes no clock; firing.never_early_on_the_machines_clock holds its lower bound");
    std::mt19937_64 random{1};
    const std::vector<duration> durations = palette(r, random);
    std::uniform_int_distribution<duration::rep> phase{0, 2 * r.traits().resolution.count() + 1'000'000};
    for (int round = 0; round < repeat(400); ++round) {
        r.pass(duration{phase(random)});
        const duration d = durations[random() % durations.size()];
        probe p{r};
        const time_point start = r.now();
        ASSERT_TRUE(p.arm(d));
        const duration first = d + r.traits().earliest;
        if (first > duration::zero()) {
            r.pass(first - 1ns);
            ASSERT_EQ(p.fires(), 0) << "round " << round << ", " << d.count()
                                    << " ns: fired before its earliest start";
        }
        r.pass(start + d + r.traits().latest - r.now());
        ASSERT_EQ(p.fires(), 1) << "round " << round << ", " << d.count()
                                << " ns: not fired at its latest start";
    }
}

// Many in flight, started at phases spread over the millisecond.
TEST_P(firing, never_early_on_the_machines_clock) {
    rig r{GetParam(), clocks::real};
    std::mt19937_64 random{7};
    std::uniform_int_distribution<int> phase_ns{0, 40'000};
    const int arms = repeat(1'000);
    std::deque<probe> probes;
    for (int i = 0; i < arms; ++i) {
        const time_point go = steady_time::now() + duration{phase_ns(random)};
        while (steady_time::now() < go) {}
        ASSERT_TRUE(probes.emplace_back(r).arm(1ms));
        if (r.looped()) {
            r.service().poll();
        }
    }
    ASSERT_TRUE(r.drive_until([&] {
        return std::all_of(probes.begin(), probes.end(), [](const probe& p) { return p.fires() == 1; });
    }));
    duration least = duration::max();
    for (const probe& p : probes) {
        least = std::min(least, p.lateness());
    }
    EXPECT_GE(least.count(), r.traits().earliest.count());
    RecordProperty("least_lateness_ns", std::to_string(least.count()));
}

// What needs no rounding is not rounded: it may be late by what the service is late by anyway, but not by the step that
// rounding up may cost.
TEST_P(firing, exact_multiples_stay) {
    // Ticks may count from the clock's zero or from the service's birth; starting here both fall together.
    rig r{GetParam(), clocks::manual_if_possible, time_point{24h}};
    TIMERBENCH_SKIP_IF(!r.manual(), "takes no clock, so it cannot be armed exactly at a tick");
    const duration tick = r.traits().resolution;
    duration worst{};
    for (const duration d : {duration::zero(), tick, 10 * tick, std::max(duration{1s} / tick * tick, tick)}) {
        r.pass(tick - r.now().time_since_epoch() % tick);
        probe p{r};
        ASSERT_TRUE(p.arm(d));
        // What is due already waits for the next drive.
        const duration allowed =
            d == duration::zero() ? r.traits().latest : std::max(r.traits().latest - tick, duration::zero());
        r.pass(d + allowed);
        EXPECT_EQ(p.fires(), 1) << d.count() << " ns, " << allowed.count() << " ns allowed";
        worst = std::max(worst, p.lateness());
    }
    RecordProperty("worst_ns", std::to_string(worst.count()));
}

TEST_P(firing, far_beyond_one_turn) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(!r.manual(), "takes no clock; hours would have to pass");
    // The wheels here have 512 slots; a service that has none does not mind.
    const duration turn = 512 * std::max(r.traits().resolution, duration{1ms});
    for (const duration d : {turn / 2, turn, turn + turn / 2, 10 * turn}) {
        probe p{r};
        const time_point start = r.now();
        ASSERT_TRUE(p.arm(d));
        // In steps that are no divisor of the turn, so that it is driven at odd periods.
        while (r.now() + turn / 7 < start + d + r.traits().earliest) {
            r.pass(turn / 7);
            ASSERT_EQ(p.fires(), 0) << d.count() << " ns fired " << (r.now() - start).count()
                                    << " ns after its arm";
        }
        r.pass(start + d + r.traits().latest - r.now());
        EXPECT_EQ(p.fires(), 1) << d.count() << " ns";
    }
}

// One jump over many slots fires everything on the way, once.
TEST_P(firing, jump_over_many_slots) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(!r.manual(), "takes no clock; its time does not jump");
    std::deque<probe> probes;
    const duration step = std::max(r.traits().resolution, duration{1ms});
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(probes.emplace_back(r).arm(i * 61 * step / 3));
    }
    r.pass(200 * 61 * step / 3 + r.slack());
    for (const probe& p : probes) {
        EXPECT_EQ(p.fires(), 1);
    }
}

TEST_P(firing, after_a_long_life) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(!r.manual(), "takes no clock; years would have to pass");
    for (const duration age : {duration{24h}, duration{std::chrono::milliseconds{1LL << 36}}}) {
        r.pass(age);
        probe p{r};
        ASSERT_TRUE(p.arm(10s));
        r.pass(10s + r.traits().earliest - 1ns);
        EXPECT_EQ(p.fires(), 0);
        r.pass(r.slack() - r.traits().earliest + 1ns);
        EXPECT_EQ(p.fires(), 1) << "armed after " << age.count() << " ns of life";
    }
}

TEST_P(firing, period_of_a_self_rearm_does_not_grow) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    const duration period = r.manual() ? duration{10s} : r.unit() / 2;
    const int periods = r.manual() ? 30 : 12;
    std::vector<time_point> at; // outlives the probe, whose callback writes to it
    probe p{r};
    p.then = [&] {
        at.push_back(p.fired_at());
        if (std::ssize(at) < periods) {
            EXPECT_TRUE(p.arm(period));
        }
    };
    ASSERT_TRUE(p.arm(period));
    if (r.manual()) {
        // Driven in small steps: a callback of a clock that jumps starts late by the jump.
        const duration step = std::max(r.traits().resolution, duration{100ms});
        for (const time_point end = r.now() + periods * (period + r.slack() + step); r.now() < end;) {
            r.pass(step);
        }
        for (std::size_t i = 1; i < at.size(); ++i) {
            EXPECT_LE((at[i] - at[i - 1] - period).count(), (r.slack() + step).count()) << "period " << i;
        }
    }
    ASSERT_TRUE(r.drive_until([&] { return p.fires() == periods; }));
    EXPECT_FALSE(p.cancel()); // returns after the last callback, which writes to what goes away below
    EXPECT_EQ(p.fires(), periods);
}

// Each of these paths hands the service a thousand equal deadlines, which only a manual clock can make.
TEST_P(firing, equal_deadlines_in_order_of_arms) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(!r.traits().fifo, "its traits promise no order among equal deadlines");
    TIMERBENCH_SKIP_IF(!r.manual(), "takes no clock, so two arms never have the same deadline");
    std::vector<int> order;
    std::deque<probe> probes;
    for (int i = 0; i < 1'000; ++i) {
        probes.emplace_back(r).then = [&order, i] { order.push_back(i); };
    }
    const auto in_order = [&] {
        return order.size() == probes.size() && std::is_sorted(order.begin(), order.end());
    };
    for (probe& p : probes) {
        ASSERT_TRUE(p.arm(r.unit()));
    }
    r.pass(r.unit() + r.slack());
    EXPECT_TRUE(in_order()) << "armed once";
    order.clear();
    for (probe& p : probes) {
        ASSERT_TRUE(p.arm(5 * r.unit()));
    }
    for (probe& p : probes) {
        ASSERT_TRUE(p.cancel());
        ASSERT_TRUE(p.arm(r.unit()));
    }
    r.pass(r.unit() + r.slack());
    EXPECT_TRUE(in_order()) << "withdrawn and armed again";
    order.clear();
    if (r.traits().callback_may_call) {
        bool again = true;
        for (int i = 0; i < 1'000; ++i) {
            probe& p = probes[static_cast<std::size_t>(i)];
            p.then = [&, i] {
                order.push_back(i);
                if (again) {
                    EXPECT_TRUE(p.arm(r.unit()));
                }
            };
            ASSERT_TRUE(p.arm(r.unit()));
        }
        r.pass(r.unit() + r.slack());
        EXPECT_TRUE(in_order()) << "about to arm themselves again";
        order.clear();
        again = false;
        r.pass(r.unit() + r.slack());
        EXPECT_TRUE(in_order()) << "armed again by their callbacks";
    }
}

TEST_P(firing, many_in_one_slot) {
    rig r{GetParam()};
    std::deque<probe> probes;
    for (int i = 0; i < 3'000; ++i) {
        ASSERT_TRUE(probes.emplace_back(r).arm(r.unit()));
    }
    ASSERT_TRUE(r.drive_until([&] {
        return std::all_of(probes.begin(), probes.end(), [](const probe& p) { return p.fires() == 1; });
    }));
}

// Deadlines that come in any order fire in theirs, up to the resolution.
TEST_P(firing, order_of_deadlines) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(!r.manual(), "takes no clock; on the machine's a preempted arm moves its deadline");
    std::mutex mutex;
    std::vector<duration> order;
    std::deque<probe> probes;
    std::mt19937_64 random{3};
    const duration step = std::max(r.traits().resolution, duration{1ms});
    for (int i = 0; i < 200; ++i) {
        const duration d = static_cast<int>(random() % 300) * step;
        probe& p = probes.emplace_back(r);
        p.then = [&, d] {
            const std::lock_guard lock{mutex};
            order.push_back(d);
        };
        ASSERT_TRUE(p.arm(d));
    }
    for (int i = 0; i < 310; ++i) {
        r.pass(step);
    }
    r.pass(r.slack());
    ASSERT_EQ(order.size(), probes.size());
    for (std::size_t i = 1; i < order.size(); ++i) {
        EXPECT_LE((order[i - 1] - order[i]).count(), (r.slack() + step - r.traits().earliest).count());
    }
}

} // namespace
} // namespace timerbench::testing
