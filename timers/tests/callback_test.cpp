// What callbacks may do, and that one of them cannot hurt the others: clauses 4 and 10.
#include "timers/tests/support/rig.hpp"

#include <deque>
#include <stdexcept>

namespace timerbench::testing {
namespace {

class callbacks : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(callbacks);

TEST_P(callbacks, arm_cancel_and_destroy_others) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    probe armed{r};
    probe cancelled{r};
    auto destroyed = std::make_unique<probe>(r);
    auto idle = std::make_unique<probe>(r);
    probe p{r};
    bool cancel_said = false;
    bool arm_said = false;
    p.then = [&] {
        arm_said = armed.arm(r.unit());
        cancel_said = cancelled.cancel();
        destroyed.reset();
        idle.reset();
    };
    ASSERT_TRUE(cancelled.arm(4 * r.unit()));
    ASSERT_TRUE(destroyed->arm(4 * r.unit()));
    ASSERT_TRUE(p.arm(r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return armed.fires() == 1; }));
    r.pass(5 * r.unit());
    EXPECT_TRUE(arm_said);
    EXPECT_TRUE(cancel_said);
    EXPECT_EQ(cancelled.fires(), 0);
    EXPECT_EQ(r.service().counters().cancelled, r.manual() ? 2U : r.service().counters().cancelled);
    EXPECT_EQ(r.service().counters().pending, 0U);
}

TEST_P(callbacks, destroy_themselves) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    for (const bool rearmed : {false, true}) {
        for (int i = 0; i < 10; ++i) {
            auto* p = new probe{r};
            gate gone;
            p->then = [&gone, &r, p, rearmed] {
                if (rearmed) {
                    EXPECT_TRUE(p->arm(r.unit()));
                }
                delete p;
                gone.open();
            };
            ASSERT_TRUE(p->arm(i % 2 * r.unit()));
            ASSERT_TRUE(r.drive_until([&] { return gone.is_open(); })) << "waits for itself";
        }
    }
    probe later{r};
    ASSERT_TRUE(later.arm(2 * r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return later.fires() == 1; })) << "the driver is gone";
    EXPECT_EQ(r.service().counters().pending, 0U);
    EXPECT_EQ(r.service().counters().threw, 0U);
}

// A new timer at the address of one that destroyed itself is another timer: it may be armed in the same callback.
TEST_P(callbacks, destroy_themselves_and_reuse_the_storage) {
    rig r{GetParam()};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    struct host {
        rig& r;
        std::optional<erased_service::timer> t;
        gate second;
    } h{r, {}, {}};
    h.t.emplace(r.service());
    ASSERT_TRUE(r.service().arm(
        *h.t, r.unit(),
        callback{[](void* context) {
                     auto& at = *static_cast<host*>(context);
                     at.t.reset();
                     at.t.emplace(at.r.service());
                     EXPECT_TRUE(at.r.service().arm(
                         *at.t, at.r.unit(),
                         callback{[](void* inner) { static_cast<host*>(inner)->second.open(); }, &at}));
                 },
                 &h}));
    ASSERT_TRUE(r.drive_until([&] { return h.second.is_open(); }));
    r.settle();
    EXPECT_FALSE(r.service().cancel(*h.t));
}

// Destroyed from outside while the callback is inside arm and cancel all the time.
TEST_P(callbacks, reenter_while_they_are_destroyed_from_outside) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    TIMERBENCH_SKIP_IF(r.traits().cancel_from == callable_from::loop_thread,
                       "only the loop's thread may destroy");
    for (int round = 0; round < (r.traits().resolution > 5ms ? 5 : 50); ++round) {
        auto p = std::make_unique<probe>(r);
        auto sibling = std::make_unique<probe>(r);
        gate entered;
        p->then = [&, at = p.get(), other = sibling.get()] {
            entered.open();
            for (int i = 0; i < 50; ++i) {
                if (other->arm(1h)) {
                    other->cancel();
                }
                if (at->arm(1h) && i % 2 == 0) {
                    at->cancel();
                }
                at->cancel();
            }
            (void)at->arm(duration::zero());
        };
        ASSERT_TRUE(p->arm(duration::zero()));
        r.drive_elsewhere();
        ASSERT_TRUE(entered.wait());
        p->destroy();
        sibling->destroy();
        r.drive_here();
    }
    EXPECT_EQ(r.service().counters().pending, 0U);
}

// One of a hundred timers of one tick throws: the others fire, periodic ones go on, and it is counted.
TEST_P(callbacks, that_throw_are_swallowed_and_counted) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF_BREAKS(r, 10);
    std::uint64_t threw = 0;
    for (const int kind_of_throw : {0, 1}) {
        std::deque<probe> probes;
        for (int i = 0; i < 100; ++i) {
            probes.emplace_back(r);
        }
        probes[37].then = [kind_of_throw] {
            if (kind_of_throw == 0) {
                throw std::runtime_error{"thrown by a callback"};
            }
            throw 42;
        };
        probe& periodic = probes[60];
        if (r.traits().callback_may_call) {
            periodic.then = [&] {
                if (periodic.fires() < 5) {
                    EXPECT_TRUE(periodic.arm(r.unit()));
                }
            };
        }
        for (probe& p : probes) {
            ASSERT_TRUE(p.arm(r.unit()));
        }
        const int periods = r.traits().callback_may_call ? 5 : 1;
        ASSERT_TRUE(r.drive_until([&] { return periodic.fires() == periods; })) << "the driver is gone";
        r.pass(r.unit());
        for (std::size_t i = 0; i < probes.size(); ++i) {
            EXPECT_EQ(probes[i].fires(), i == 60 ? periods : 1) << i;
        }
        // An exception does not leave the timer behind as running.
        EXPECT_FALSE(probes[37].cancel());
        ++threw;
        EXPECT_EQ(r.service().counters().threw, threw);
    }
}

// A callback that takes long holds no lock: others may arm and cancel meanwhile.
TEST_P(callbacks, run_without_a_lock_of_the_service) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF_BREAKS(r, 4);
    TIMERBENCH_SKIP_IF(r.traits().arm_from == callable_from::loop_thread, "only the loop's thread may arm");
    TIMERBENCH_SKIP_IF(r.traits().cancel_from == callable_from::loop_thread,
                       "only the loop's thread may cancel");
    r.drive_elsewhere();
    probe slow{r};
    gate entered;
    gate leave;
    slow.then = [&] {
        entered.open();
        leave.wait(3 * patience()); // longer than the other thread is waited for below
    };
    ASSERT_TRUE(slow.arm(duration::zero()));
    ASSERT_TRUE(r.shift_until([&] { return entered.is_open(); }));
    probe other{r};
    gate worked;
    std::thread elsewhere{[&] {
        EXPECT_TRUE(other.arm(1h));
        EXPECT_TRUE(other.cancel());
        (void)r.service().counters();
        worked.open();
    }};
    EXPECT_TRUE(worked.wait()) << "an arm and a cancel wait for the callback of another timer";
    leave.open();
    elsewhere.join();
    r.drive_here();
}

// The same from a second thread while a callback waits for it: a lock held in the callback would deadlock.
TEST_P(callbacks, may_wait_for_a_thread_that_calls_the_service) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_SKIP_IF_BREAKS(r, 4);
    TIMERBENCH_SKIP_IF(r.traits().arm_from == callable_from::loop_thread, "only the loop's thread may arm");
    TIMERBENCH_SKIP_IF(r.traits().cancel_from == callable_from::loop_thread,
                       "only the loop's thread may cancel");
    gate done;
    std::atomic<bool> in_time{false}; // set by the callback, read when it is done
    probe p{r};
    p.then = [&] {
        std::thread other{[&] {
            probe q{r};
            EXPECT_TRUE(q.arm(1h));
            EXPECT_TRUE(q.cancel());
            done.open();
        }};
        in_time = done.wait();
        other.join();
    };
    ASSERT_TRUE(p.arm(duration::zero()));
    ASSERT_TRUE(r.drive_until([&] { return p.fires() == 1 && done.is_open(); }));
    p.cancel();
    EXPECT_TRUE(in_time);
}

// One callback is stuck and another timer is due, above the threshold where there is one: another driver serves those.
TEST_P(callbacks, of_two_timers_overlap_exactly_where_the_traits_say_so) {
    rig r{GetParam()};
    const service_traits& traits = r.traits();
    const bool beyond = r.manual() && traits.threshold > duration::zero();
    const duration later = beyond ? traits.threshold + 1s : 2 * r.unit();
    gate entered;
    gate leave;
    probe stuck{r};
    probe other{r};
    stuck.then = [&] {
        entered.open();
        leave.wait(3 * patience());
    };
    ASSERT_TRUE(stuck.arm(r.unit()));
    ASSERT_TRUE(other.arm(later));
    r.drive_elsewhere();
    r.shift(r.unit());
    EXPECT_TRUE(r.shift_until([&] { return entered.is_open(); }));
    r.shift(later + r.slack());
    // That it does not begin takes a wait: nothing tells of a driver that never comes. A slow machine only sees less.
    const bool met =
        eventually([&] { return other.fires() == 1; }, traits.callbacks_overlap ? patience() : 20ms);
    EXPECT_EQ(met, traits.callbacks_overlap);
    leave.open();
    r.drive_here();
    EXPECT_TRUE(r.drive_until([&] { return other.fires() == 1; }));
}

} // namespace
} // namespace timerbench::testing
