// The ends of things: timers destroyed while armed, services stopped, threads gone, memory given back (clauses 6 and 8).
#include "timers/tests/support/rig.hpp"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <unistd.h>

namespace timerbench::testing {
namespace {

class lifetime : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(lifetime);

TEST_P(lifetime, destroying_an_armed_timer_cancels_it) {
    rig r{GetParam()};
    probe p{r};
    ASSERT_TRUE(p.arm(r.unit()));
    p.destroy();
    EXPECT_EQ(r.service().counters().cancelled, 1U);
    r.pass(3 * r.unit());
    EXPECT_EQ(p.fires(), 0);
    EXPECT_EQ(r.service().counters().pending, 0U);
}

// What a destroyed timer occupied is not touched any more, be it cancelled, fired or armed when it went.
TEST_P(lifetime, destroyed_timers_are_not_touched) {
    rig r{GetParam()};
    const poison_scope poison;
    {
        std::deque<probe> probes;
        for (int i = 0; i < 60; ++i) {
            ASSERT_TRUE(probes.emplace_back(r).arm((i % 4) * r.unit()));
        }
        for (std::size_t i = 0; i < probes.size(); i += 3) {
            probes[i].cancel();
        }
        r.pass(r.unit() + r.unit() / 2);
    }
    std::size_t gone = 60;
    if (r.traits().callback_may_call) {
        auto* p = new probe{r};
        gate destroyed;
        p->then = [&destroyed, p] {
            delete p;
            destroyed.open();
        };
        ASSERT_TRUE(p->arm(duration::zero()));
        ASSERT_TRUE(r.drive_until([&] { return destroyed.is_open(); }));
        ++gone;
    }
    r.pass(5 * r.unit());
    const poison_scope::findings found = poison.inspect();
    EXPECT_EQ(found.touched, 0U);
    EXPECT_GE(found.intact, gone);
}

// The storage of something that owns two timers, one of which cancels the other as it goes.
TEST_P(lifetime, destructor_that_cancels_another_timer) {
    rig r{GetParam()};
    struct owner {
        explicit owner(rig& at) : a{at}, b{at} {}
        ~owner() {
            b.cancel();
            a.destroy();
            b.destroy();
        }
        probe a;
        probe b;
    };
    auto both = std::make_unique<owner>(r);
    ASSERT_TRUE(both->a.arm(r.unit()));
    ASSERT_TRUE(both->b.arm(r.unit()));
    both.reset();
    EXPECT_EQ(r.service().counters().cancelled, 2U);
    // The same inside a callback.
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    both = std::make_unique<owner>(r);
    probe p{r};
    gate done;
    p.then = [&] {
        both.reset();
        done.open();
    };
    ASSERT_TRUE(both->a.arm(4 * r.unit()));
    ASSERT_TRUE(both->b.arm(4 * r.unit()));
    ASSERT_TRUE(p.arm(r.unit()));
    ASSERT_TRUE(r.drive_until([&] { return done.is_open(); }));
}

TEST_P(lifetime, stop_drops_what_is_pending) {
    rig r{GetParam()};
    probe fired{r};
    ASSERT_TRUE(fired.arm(duration::zero()));
    ASSERT_TRUE(r.drive_until([&] { return fired.fires() == 1; }));
    std::deque<probe> probes;
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(probes.emplace_back(r).arm(i % 2 == 0 ? 10s : 10 * r.unit()));
    }
    EXPECT_TRUE(probes[0].cancel());
    r.stop();
    counters totals = r.service().counters();
    EXPECT_EQ(totals.dropped, 49U);
    EXPECT_EQ(totals.pending, 0U);
    for (probe& p : probes) {
        EXPECT_FALSE(p.cancel()) << "stopping leaves timers idle";
        EXPECT_FALSE(p.arm(duration::zero())) << "armed after stop";
    }
    r.shift(1h);
    if (r.looped()) {
        EXPECT_EQ(r.service().poll(), 0U);
    }
    r.stop();
    for (probe& p : probes) {
        EXPECT_EQ(p.fires(), 0) << "a callback ran after stop";
        p.destroy();
    }
    totals = r.service().counters();
    EXPECT_EQ(totals.dropped, 49U);
    EXPECT_EQ(totals.armed, 51U);
}

TEST_P(lifetime, stop_with_expired_timers) {
    rig r{GetParam()};
    std::deque<probe> probes;
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(probes.emplace_back(r).arm(duration::zero()));
    }
    // Some have fired, some have not; after stop that is settled.
    r.shift(r.slack());
    r.stop();
    std::uint64_t fires = 0;
    for (probe& p : probes) {
        fires += static_cast<std::uint64_t>(p.fires());
    }
    EXPECT_EQ(r.service().counters().fired, fires);
    EXPECT_EQ(r.service().counters().fired + r.service().counters().dropped, 50U);
    r.shift(1h);
    std::uint64_t later = 0;
    for (probe& p : probes) {
        later += static_cast<std::uint64_t>(p.fires());
        EXPECT_FALSE(p.cancel());
    }
    EXPECT_EQ(later, fires);
}

TEST_P(lifetime, stop_waits_for_the_running_callback) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(r.looped(), "the caller drives it; who stops it is not inside a callback");
    probe p{r};
    gate entered;
    gate stopping;
    std::atomic<bool> left{false}; // set as the callback's last act, read by the stopping thread
    p.then = [&] {
        entered.open();
        stopping.wait();
        for (const time_point end = steady_time::now() + 10ms; steady_time::now() < end;) {
            std::this_thread::yield();
        }
        if (r.traits().callback_may_call) {
            // Whether this one is refused depends on how far the stop is; it must not fire in either case.
            (void)p.arm(duration::zero());
        }
        left = true;
    };
    ASSERT_TRUE(p.arm(duration::zero()));
    ASSERT_TRUE(r.shift_until([&] { return entered.is_open(); }));
    stopping.open();
    r.stop();
    EXPECT_TRUE(left) << "stop returned while a callback ran";
    EXPECT_EQ(p.fires(), 1);
    EXPECT_FALSE(p.cancel());
    EXPECT_EQ(r.service().counters().pending, 0U);
}

// Without a stop, as a service goes out of scope. Leaks are the leak checker's to find.
TEST_P(lifetime, destroying_a_service) {
    for (int i = 0; i < 5; ++i) {
        rig r{GetParam()};
        if (i == 0) {
            continue; // nothing was ever armed
        }
        probe p{r};
        probe q{r};
        ASSERT_TRUE(p.arm(10s));
        ASSERT_TRUE(q.arm(duration::zero()));
        if (i % 2 == 0) {
            ASSERT_TRUE(r.drive_until([&] { return q.fires() == 1; }));
        }
    }
}

TEST_P(lifetime, timers_of_an_exited_thread_fire) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(r.traits().arm_from == callable_from::loop_thread,
                       "only the loop's thread may arm, as its traits say");
    std::deque<probe> probes;
    for (int i = 0; i < 12; ++i) {
        probes.emplace_back(r);
    }
    for (std::size_t t = 0; t < 4; ++t) {
        std::thread{[&, t] {
            for (std::size_t i = 0; i < 3; ++i) {
                EXPECT_TRUE(probes[3 * t + i].arm((static_cast<int>(i) + 1) * r.unit()));
            }
        }}.join();
    }
    EXPECT_TRUE(probes[0].cancel()) << "armed by a thread that has exited";
    ASSERT_TRUE(r.drive_until([&] { return r.service().counters().fired == 11; }));
    r.pass(r.unit());
    for (std::size_t i = 1; i < probes.size(); ++i) {
        EXPECT_EQ(probes[i].fires(), 1) << i;
    }
}

// Threads come and go: what they leave behind is taken over, not piled up, and stays correct.
TEST_P(lifetime, many_short_lived_threads) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(r.traits().arm_from == callable_from::loop_thread,
                       "only the loop's thread may arm, as its traits say");
    std::deque<probe> probes;
    for (int i = 0; i < repeat(400); ++i) {
        probe& p = probes.emplace_back(r);
        std::thread{[&, i] { EXPECT_TRUE(p.arm(i % 3 * r.unit())); }}.join();
        if (i % 50 == 0) {
            r.settle();
        }
    }
    ASSERT_TRUE(r.drive_until([&] {
        return std::all_of(probes.begin(), probes.end(), [](const probe& p) { return p.fires() >= 1; });
    }));
    r.settle();
    for (const probe& p : probes) {
        EXPECT_EQ(p.fires(), 1);
    }
}

long resident_kib() {
    long pages = 0;
    if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
        (void)!std::fscanf(f, "%*d %ld", &pages);
        std::fclose(f);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

// Memory held by cancelled timers. Where cancel does not free at once, the bound is what the driver has not yet taken up
// or what the slots hold; both are far below a node for each arm.
TEST_P(lifetime, cancelled_timers_hold_no_memory) {
    rig r{GetParam()};
    TIMERBENCH_SKIP_IF(r.traits().cancelled_held_to_deadline,
                       "holds what was cancelled until its deadline, as its traits say");
    // A node of 64 bytes for each of the fewest rounds would be half as much again as the bound. Where the system keeps the
    // timers, a round takes microseconds and what it would leave behind is a page or more.
    const bool dear = r.traits().most_timers != 0;
    const int most = repeat(dear ? 20'000 : 1'000'000);
    const int fewest = repeat(dear ? 5'000 : 250'000);
    probe p{r};
    const auto work = [&](int n) {
        int done = 0;
        for (const time_point start = steady_time::now();
             done < n && (done < fewest || steady_time::now() < start + 1s); ++done) {
            (void)p.arm(1h);
            p.cancel();
            if (r.service().has_backlog() && done % 50'000 == 0) {
                r.pass(r.unit());
            }
        }
        return done;
    };
    work(most / 50);
    const long before = resident_kib();
    const int rounds = work(most);
    const long grown = resident_kib() - before;
    EXPECT_EQ(r.service().counters().pending, 0U);
    RecordProperty("grown_kib", std::to_string(grown));
    TIMERBENCH_SKIP_IF(under_asan || under_tsan,
                       "a sanitizer keeps freed memory; the rounds ran, their memory is not judged");
    EXPECT_LT(grown, 10'240) << "KiB after " << rounds << " arms and cancels";
}

} // namespace
} // namespace timerbench::testing
