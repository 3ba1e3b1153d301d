// What cancel says and does: clause 3, and clause 5 where one thread can show it.
#include "timers/tests/support/rig.hpp"

#include <deque>

namespace timerbench::testing {
namespace {

class cancelling : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(cancelling);

// A loop is handed to a thread of its own only after the arms: not every loop lets others arm. What stays is the cancel.
#define TIMERBENCH_NEEDS_FOREIGN_CANCEL(the_rig)                                                             \
    TIMERBENCH_SKIP_IF((the_rig).traits().cancel_from == callable_from::loop_thread,                         \
                       "only the loop's thread may cancel, so nobody can while a callback runs")

TEST_P(cancelling, truth_in_every_state) {
    rig r{GetParam()};
    probe p{r};
    EXPECT_FALSE(p.cancel()) << "never armed";
    ASSERT_TRUE(p.arm(r.unit()));
    EXPECT_TRUE(p.cancel()) << "armed";
    EXPECT_FALSE(p.cancel()) << "cancelled";
    r.pass(3 * r.unit());
    EXPECT_EQ(p.fires(), 0) << "fired after cancel returned true";
    ASSERT_TRUE(p.arm(r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return p.fires() == 1; }));
    EXPECT_FALSE(p.cancel()) << "fired";
    EXPECT_FALSE(p.cancel()) << "fired, again";
}

TEST_P(cancelling, others_stay) {
    rig r{GetParam()};
    std::deque<probe> probes;
    for (int i = 0; i < 30; ++i) {
        ASSERT_TRUE(probes.emplace_back(r).arm((i % 3 + 1) * r.unit()));
    }
    for (std::size_t i = 0; i < probes.size(); i += 2) {
        EXPECT_TRUE(probes[i].cancel());
    }
    ASSERT_TRUE(r.drive_until([&] { return r.service().counters().fired == 15; }));
    r.pass(4 * r.unit());
    for (std::size_t i = 0; i < probes.size(); ++i) {
        EXPECT_EQ(probes[i].fires(), i % 2 == 0 ? 0 : 1) << i;
    }
}

// After a cancel or a fire no old expiry reaches the next wait.
TEST_P(cancelling, no_old_expiry_for_the_next_arm) {
    rig r{GetParam()};
    probe p{r};
    ASSERT_TRUE(p.arm(r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return p.fires() == 1; }));
    ASSERT_TRUE(p.arm(4 * r.unit())); // the probe itself checks that it is not early
    ASSERT_TRUE(r.drive_until([&] { return p.fires() == 2; }));
    ASSERT_TRUE(p.arm(r.unit()));
    ASSERT_TRUE(p.cancel());
    ASSERT_TRUE(p.arm(4 * r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return p.fires() == 3; }));
    r.pass(r.unit());
    EXPECT_EQ(p.fires(), 3);
    // Shorter anew: the longer one that was withdrawn neither delays it nor fires later.
    ASSERT_TRUE(p.arm(4 * r.unit()));
    ASSERT_TRUE(p.cancel());
    ASSERT_TRUE(p.arm(r.unit()));
    r.pass(r.unit() + (r.manual() ? r.slack() : r.unit()));
    EXPECT_EQ(p.fires(), 4);
    r.pass(6 * r.unit());
    EXPECT_EQ(p.fires(), 4);
}

// The earliest timer goes; the next one fires at its own time. From inside a callback, and from outside.
TEST_P(cancelling, the_earliest_takes_its_wakeup_along) {
    rig r{GetParam()};
    probe first{r};
    probe second{r};
    probe third{r};
    const auto check = [&](bool inside) {
        const int fires = third.fires();
        first.then = [&, inside] {
            if (inside) {
                EXPECT_TRUE(second.cancel());
            }
        };
        ASSERT_TRUE(first.arm(r.unit()));
        ASSERT_TRUE(second.arm(4 * r.unit()));
        ASSERT_TRUE(third.arm(7 * r.unit()));
        if (!inside) {
            EXPECT_TRUE(first.cancel());
            EXPECT_TRUE(second.cancel());
        }
        ASSERT_TRUE(r.drive_until([&] { return third.fires() == fires + 1; }));
        if (r.manual()) {
            EXPECT_LE(third.lateness().count(), duration{r.slack() + 1ms}.count());
        }
        EXPECT_EQ(second.fires(), 0);
    };
    check(false);
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    check(true);
}

// Three in one slot, each callback cancels the others: one fires, the driver lives.
TEST_P(cancelling, siblings_of_the_same_slot) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    TIMERBENCH_SKIP_IF(r.traits().several_drivers, "two siblings may begin at the same time on two drivers");
    for (int round = 0; round < (r.manual() ? 20 : 4); ++round) {
        std::deque<probe> probes;
        int cancelled = 0; // only the driver writes it, and drive_until orders the read
        for (std::size_t i = 0; i < 3; ++i) {
            probes.emplace_back(r).then = [&, i] {
                for (std::size_t other = 0; other < 3; ++other) {
                    cancelled += other != i && probes[other].cancel() ? 1 : 0;
                }
            };
        }
        for (probe& p : probes) {
            ASSERT_TRUE(p.arm(r.unit()));
        }
        probe later{r};
        ASSERT_TRUE(later.arm(r.unit() + r.unit() / 2));
        ASSERT_TRUE(r.drive_until([&] { return later.fires() == 1; })) << "the driver is gone";
        EXPECT_EQ(probes[0].fires() + probes[1].fires() + probes[2].fires(), 1);
        EXPECT_EQ(cancelled, 2);
    }
}

// Expired but not begun counts as armed, from inside a callback and, with the driver stuck in one, from outside.
TEST_P(cancelling, expired_but_not_begun_is_withdrawn) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF_BREAKS(r, 4);
    TIMERBENCH_NEEDS_FOREIGN_CANCEL(r);
    TIMERBENCH_SKIP_IF(r.traits().several_drivers, "the second driver serves what the first cannot");
    probe stuck{r};
    gate entered;
    gate leave;
    stuck.then = [&] {
        entered.open();
        leave.wait();
    };
    std::deque<probe> siblings;
    ASSERT_TRUE(stuck.arm(r.unit()));
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(siblings.emplace_back(r).arm(r.unit() + (r.manual() ? 0ns : 1ms)));
    }
    r.drive_elsewhere();
    r.shift(r.unit() + r.slack());
    ASSERT_TRUE(entered.wait());
    if (!r.manual()) {
        const time_point all_due = steady_time::now() + 5ms + r.slack();
        ASSERT_TRUE(eventually([&] { return steady_time::now() > all_due; }));
    }
    for (probe& p : siblings) {
        EXPECT_TRUE(p.cancel()) << "due, but its callback had not begun";
    }
    EXPECT_EQ(r.service().counters().pending, 0U) << "while the callback runs";
    leave.open();
    r.settle();
    EXPECT_FALSE(stuck.cancel());
    EXPECT_EQ(r.service().counters().pending, 0U);
    EXPECT_EQ(r.service().counters().cancelled, 10U);
    for (probe& p : siblings) {
        EXPECT_EQ(p.fires(), 0);
    }
}

TEST_P(cancelling, from_outside_waits_for_the_running_callback) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_FOREIGN_CANCEL(r);
    for (int round = 0; round < 5; ++round) {
        probe p{r};
        gate entered;
        gate cancelling_now;
        std::atomic<bool> left{false}; // set as the callback's last act, read by the canceller
        p.then = [&] {
            entered.open();
            cancelling_now.wait();
            // Long enough for a cancel that does not wait to return meanwhile; a cancel that does is not hurt by it.
            for (const time_point end = steady_time::now() + 10ms; steady_time::now() < end;) {
                std::this_thread::yield();
            }
            left = true;
        };
        ASSERT_TRUE(p.arm(duration::zero()));
        r.drive_elsewhere();
        ASSERT_TRUE(r.shift_until([&] { return entered.is_open(); }));
        cancelling_now.open();
        EXPECT_FALSE(p.cancel()) << "the callback had begun";
        EXPECT_TRUE(left) << "cancel returned while the callback ran";
        r.drive_here();
    }
}

TEST_P(cancelling, destroying_from_outside_waits_as_well) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_FOREIGN_CANCEL(r);
    probe p{r};
    gate entered;
    gate destroying_now;
    std::atomic<bool> left{false}; // set as the callback's last act, read by the destroyer
    p.then = [&] {
        entered.open();
        destroying_now.wait();
        for (const time_point end = steady_time::now() + 10ms; steady_time::now() < end;) {
            std::this_thread::yield();
        }
        left = true;
    };
    ASSERT_TRUE(p.arm(duration::zero()));
    r.drive_elsewhere();
    ASSERT_TRUE(r.shift_until([&] { return entered.is_open(); }));
    destroying_now.open();
    p.destroy();
    EXPECT_TRUE(left) << "the timer was destroyed under its callback";
}

// Stopping a periodic timer while its callback runs: the callback's own re-arm is refused, nothing fires any more.
TEST_P(cancelling, wins_over_the_rearm_of_a_running_callback) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    TIMERBENCH_NEEDS_FOREIGN_CANCEL(r);
    for (const bool destroy : {false, true}) {
        probe p{r};
        gate entered;
        std::atomic<bool> rearmed_at_last{true}; // set by the callback, read after cancel has waited for it
        p.then = [&] {
            entered.open();
            // Withdrawn again and armed anew until the foreign cancel has begun, which nobody can observe but the
            // callback, by this very refusal.
            bool armed = true;
            for (const time_point end = steady_time::now() + patience() / 2;
                 armed && steady_time::now() < end;) {
                armed = p.arm(r.unit());
                if (armed) {
                    p.cancel();
                }
            }
            rearmed_at_last = armed;
        };
        ASSERT_TRUE(p.arm(duration::zero()));
        r.drive_elsewhere();
        ASSERT_TRUE(r.shift_until([&] { return entered.is_open(); }));
        if (destroy) {
            p.destroy();
        } else {
            p.cancel();
        }
        EXPECT_FALSE(rearmed_at_last) << "an arm succeeded although a foreign cancel had begun";
        const std::uint64_t fired = r.service().counters().fired;
        if (!destroy) {
            EXPECT_FALSE(p.cancel()) << "the timer was left armed";
        }
        EXPECT_EQ(r.service().counters().pending, 0U);
        r.shift(20 * r.unit());
        r.drive_here();
        r.settle();
        EXPECT_EQ(r.service().counters().fired - fired, r.manual() ? 0U : 1U) << "only the sentinel";
        if (!destroy) {
            ASSERT_TRUE(p.arm(r.unit())) << "a cancelled timer may be armed again";
            EXPECT_TRUE(p.cancel());
        }
    }
}

// Armed again by its callback and still running: cancel withdraws the new deadline and waits for the old callback.
TEST_P(cancelling, rearmed_and_still_running) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    TIMERBENCH_NEEDS_FOREIGN_CANCEL(r);
    probe p{r};
    gate rearmed;
    gate leave;
    std::atomic<bool> left{false}; // set as the callback's last act, read by the canceller
    p.then = [&] {
        EXPECT_TRUE(p.arm(1h));
        rearmed.open();
        leave.wait();
        left = true;
    };
    ASSERT_TRUE(p.arm(duration::zero()));
    r.drive_elsewhere();
    ASSERT_TRUE(r.shift_until([&] { return rearmed.is_open(); }));
    leave.open();
    EXPECT_TRUE(p.cancel()) << "it was armed anew";
    EXPECT_TRUE(left) << "cancel returned while the callback ran";
    EXPECT_FALSE(p.cancel());
    EXPECT_EQ(r.service().counters().pending, 0U);
}

TEST_P(cancelling, inside_a_callback_never_waits) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    probe self{r};
    self.then = [&] { EXPECT_FALSE(self.cancel()) << "its own callback runs"; };
    ASSERT_TRUE(self.arm(duration::zero()));
    ASSERT_TRUE(r.drive_until([&] { return self.fires() == 1; }));
    // Each callback waits a moment for the other to run as well, which it only can with two drivers, then cancels it.
    probe a{r};
    probe b{r};
    gate a_runs;
    gate b_runs;
    a.then = [&] {
        a_runs.open();
        b_runs.wait(20ms);
        b.cancel();
    };
    b.then = [&] {
        b_runs.open();
        a_runs.wait(20ms);
        a.cancel();
    };
    for (int round = 0; round < 5; ++round) {
        ASSERT_TRUE(a.arm(r.unit()));
        ASSERT_TRUE(b.arm(r.unit()));
        probe later{r};
        ASSERT_TRUE(later.arm(2 * r.unit()));
        ASSERT_TRUE(r.drive_until([&] { return later.fires() == 1; }));
        a.cancel();
        b.cancel();
    }
    EXPECT_GE(a.fires() + b.fires(), 5);
}

// A withdrawn timer and a withdrawn slot may be used again at once, any number of times.
TEST_P(cancelling, again_and_again) {
    rig r{GetParam()};
    std::deque<probe> probes;
    for (int i = 0; i < 8; ++i) {
        probes.emplace_back(r);
    }
    const int rounds = repeat(20'000);
    for (int i = 0; i < rounds; ++i) {
        probe& p = probes[static_cast<std::size_t>(i % 8)];
        ASSERT_TRUE(p.arm(1h + (i % 5) * r.unit()));
        ASSERT_TRUE(p.cancel());
    }
    const counters totals = r.service().counters();
    EXPECT_EQ(totals.cancelled, static_cast<std::uint64_t>(rounds));
    EXPECT_EQ(totals.pending, 0U);
}

} // namespace
} // namespace timerbench::testing
