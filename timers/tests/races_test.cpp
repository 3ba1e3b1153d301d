// On the machine's clock, with real threads: what only shows when a fire meets a call. What must hold whatever the
// scheduler does is counted exactly; nothing is decided by how long something took.
#include "timers/tests/support/rig.hpp"

#include <deque>
#include <mutex>
#include <queue>
#include <random>

namespace timerbench::testing {
namespace {

class races : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(races);

// Long enough for thousands of rounds without a tick, and a few with one.
bool time_left(time_point start, const rig& r) {
    return steady_time::now() < start + std::max(duration{250ms}, 4 * r.traits().resolution);
}

TEST_P(races, cancel_in_the_turn_of_the_expiry) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_SKIP_IF(r.traits().cancel_from == callable_from::loop_thread && !r.looped(),
                       "nobody may cancel");
    std::mt19937 random{11};
    probe p{r};
    const int most = repeat(100'000);
    int arms = 0;
    int cancelled = 0;
    for (const time_point start = steady_time::now(); arms < most && steady_time::now() < start + 1s;
         ++arms) {
        ASSERT_TRUE(p.arm(duration::zero()));
        if (r.looped() && random() % 2 == 0) {
            r.service().poll();
        }
        for (unsigned spin = random() % 8 == 0 ? random() % 4'000 : 0; spin > 0; --spin) {
            (void)p.fires();
        }
        cancelled += p.cancel() ? 1 : 0;
        ASSERT_EQ(p.fires() + cancelled, arms + 1) << "each arm ends in exactly one way";
    }
    RecordProperty("cancelled", cancelled);
    r.pass(r.unit());
    EXPECT_EQ(p.fires() + cancelled, arms);
}

TEST_P(races, foreign_cancel_against_own_rearm) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    TIMERBENCH_SKIP_IF(r.traits().cancel_from == callable_from::loop_thread,
                       "only the loop's thread may cancel");
    std::mt19937 random{12};
    probe p{r};
    p.then = [&] { (void)p.arm(duration::zero()); };
    int rounds = 0;
    for (const time_point start = steady_time::now(); time_left(start, r); ++rounds) {
        const int before = p.fires();
        ASSERT_TRUE(p.arm(duration::zero())) << "after cancel the timer is idle and may be armed";
        r.drive_elsewhere();
        ASSERT_TRUE(eventually([&] { return p.fires() > before; }));
        for (unsigned spin = random() % 2'000; spin > 0; --spin) {
            (void)p.fires();
        }
        p.cancel();
        const int fires = p.fires();
        ASSERT_FALSE(p.cancel()) << "armed again behind the cancel, round " << rounds;
        ASSERT_EQ(p.fires(), fires);
        ASSERT_EQ(r.service().counters().pending, 0U);
        r.drive_here();
    }
    const int fires = p.fires();
    r.pass(r.unit());
    EXPECT_EQ(p.fires(), fires);
    RecordProperty("rounds", rounds);
}

TEST_P(races, foreign_destroy_against_own_rearm) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(r);
    TIMERBENCH_SKIP_IF(r.traits().cancel_from == callable_from::loop_thread,
                       "only the loop's thread may destroy");
    std::mt19937 random{13};
    for (const time_point start = steady_time::now(); time_left(start, r);) {
        probe p{r};
        p.then = [&] { (void)p.arm(duration::zero()); };
        ASSERT_TRUE(p.arm(duration::zero()));
        r.drive_elsewhere();
        if (random() % 2 == 0) {
            ASSERT_TRUE(eventually([&] { return p.fires() > 0; }));
        }
        for (unsigned spin = random() % 2'000; spin > 0; --spin) {
            (void)p.fires();
        }
        p.destroy();
        ASSERT_EQ(r.service().counters().pending, 0U);
        r.drive_here();
    }
}

// Whatever threads may do by the contract, each with its own timers; every arm ends in a fire or in a cancel that said so.
TEST_P(races, random_work_keeps_account) {
    rig r{GetParam(), clocks::real};
    const bool alone = r.traits().arm_from == callable_from::loop_thread;
    if (!alone) {
        r.drive_elsewhere();
    }
    const auto work = [&](unsigned seed) {
        struct one {
            std::unique_ptr<probe> p;
            int arms = 0;
            int cancels = 0;
        };
        std::mt19937 random{seed};
        std::vector<one> timers(16);
        const auto decide = [&](one& at) {
            at.cancels += at.p->cancel() ? 1 : 0;
            EXPECT_EQ(at.p->fires() + at.cancels, at.arms) << "seed " << seed;
        };
        for (int n = repeat(8'000); n > 0 && !::testing::Test::HasFailure(); --n) {
            one& at = timers[random() % timers.size()];
            if (at.p == nullptr || random() % 64 == 0) {
                at = one{std::make_unique<probe>(r)}; // destroyed while armed, perhaps while it fires
            } else {
                decide(at);
            }
            EXPECT_TRUE(at.p->arm(random() % 16 == 0 ? duration{1h} : duration{random() % 16 * 125us}));
            ++at.arms;
            if (alone) {
                r.service().poll();
            }
            if (random() % 8 == 0) {
                std::this_thread::yield();
            }
        }
        for (one& at : timers) {
            if (at.p != nullptr) {
                decide(at);
            }
        }
    };
    if (alone) {
        work(1);
        return;
    }
    std::vector<std::thread> threads;
    for (unsigned t = 1; t <= 4; ++t) {
        threads.emplace_back([&, t] { work(t); });
    }
    for (std::thread& t : threads) {
        t.join();
    }
    r.drive_here();
    EXPECT_EQ(r.service().counters().pending, 0U);
}

TEST_P(races, armed_here_and_cancelled_there) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_SKIP_IF(r.traits().arm_from == callable_from::loop_thread, "only the loop's thread may arm");
    TIMERBENCH_SKIP_IF(r.traits().cancel_from == callable_from::loop_thread,
                       "only the loop's thread may cancel");
    r.drive_elsewhere();
    std::mutex mutex;
    std::queue<probe*> handed_over; // guarded by mutex
    std::deque<probe> probes;
    const int n = repeat(5'000);
    for (int i = 0; i < n; ++i) {
        probes.emplace_back(r);
    }
    int cancelled = 0;
    std::thread other{[&] {
        for (int taken = 0; taken < n;) {
            probe* p = nullptr;
            {
                const std::lock_guard lock{mutex};
                if (!handed_over.empty()) {
                    p = handed_over.front();
                    handed_over.pop();
                }
            }
            if (p == nullptr) {
                std::this_thread::yield();
                continue;
            }
            ++taken;
            const bool withdrawn = p->cancel();
            cancelled += withdrawn ? 1 : 0;
            EXPECT_EQ(p->fires(), withdrawn ? 0 : 1);
        }
    }};
    for (int i = 0; i < n; ++i) {
        probe& p = probes[static_cast<std::size_t>(i)];
        EXPECT_TRUE(p.arm(i % 4 * 50us));
        const std::lock_guard lock{mutex};
        handed_over.push(&p);
    }
    other.join();
    r.drive_here();
    const counters totals = r.service().counters();
    EXPECT_EQ(totals.cancelled, static_cast<std::uint64_t>(cancelled));
    EXPECT_EQ(totals.fired + totals.cancelled, static_cast<std::uint64_t>(n));
}

// A shorter timer that comes between the look at the next deadline and the wait for it is served at its own time. The
// bound is far above what a busy machine adds and far below the 10 s of the long timer.
TEST_P(races, short_timers_beside_a_long_one) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_SKIP_IF_BREAKS(r, 1);
    probe long_one{r};
    ASSERT_TRUE(long_one.arm(1min));
    const bool alone = r.traits().arm_from == callable_from::loop_thread;
    if (!alone) {
        r.drive_elsewhere();
    }
    // Written under the mutex by any thread.
    std::mutex mutex;
    duration worst{};
    const time_point start = steady_time::now();
    const auto work = [&](unsigned seed) {
        std::mt19937 random{seed};
        probe p{r};
        while (time_left(start, r)) {
            const int before = p.fires();
            EXPECT_TRUE(p.arm(1ms + random() % 5 * 1ms));
            if (!(alone ? r.drive_until([&] { return p.fires() > before; })
                        : eventually([&] { return p.fires() > before; }))) {
                ADD_FAILURE() << "a short timer was not served beside a long one";
                return;
            }
            const std::lock_guard lock{mutex};
            worst = std::max(worst, p.lateness());
        }
    };
    std::vector<std::thread> threads;
    if (alone) {
        work(1);
    }
    for (unsigned t = 1; t <= 8 && !alone; ++t) {
        threads.emplace_back([&, t] { work(t); });
    }
    for (std::thread& t : threads) {
        t.join();
    }
    r.drive_here();
    EXPECT_LT(worst.count(), duration{r.traits().latest + (under_tsan || under_asan ? 5s : 2s)}.count());
    RecordProperty("worst_lateness_ns", std::to_string(worst.count()));
    EXPECT_TRUE(long_one.cancel());
}

// A single timer on a quiet service, again and again: the driver is going to sleep when the arm comes.
TEST_P(races, arm_while_the_driver_goes_to_sleep) {
    rig r{GetParam(), clocks::real};
    TIMERBENCH_SKIP_IF_BREAKS(r, 1);
    probe p{r};
    int rounds = 0;
    for (const time_point start = steady_time::now(); time_left(start, r); ++rounds) {
        ASSERT_TRUE(p.arm(duration{rounds % 50 * 1us}));
        ASSERT_TRUE(r.drive_until([&] { return p.fires() == rounds + 1; })) << "lost in round " << rounds;
    }
    RecordProperty("rounds", rounds);
}

TEST_P(races, stop_against_arms_and_fires) {
    for (int round = 0; round < 10; ++round) {
        rig r{GetParam(), clocks::real};
        TIMERBENCH_SKIP_IF(r.looped(), "its caller drives it and stops it, on one thread");
        std::atomic<int> refused{0}; // counts threads; each waits for the others at join
        std::deque<probe> probes;
        for (int i = 0; i < 3 * 16; ++i) {
            probes.emplace_back(r);
        }
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < 3; ++t) {
            threads.emplace_back([&, t] {
                for (std::size_t i = 0;; i = (i + 1) % 16) {
                    probe& p = probes[16 * t + i];
                    p.cancel();
                    if (!p.arm(i % 3 == 0 ? duration{1h} : duration::zero())) {
                        break;
                    }
                }
                ++refused;
            });
        }
        ASSERT_TRUE(eventually([&] { return r.service().counters().armed > 200; }));
        r.stop();
        for (std::thread& t : threads) {
            t.join();
        }
        EXPECT_EQ(refused, 3);
        const counters totals = r.service().counters();
        EXPECT_EQ(totals.pending, 0U);
        std::uint64_t fires = 0;
        for (probe& p : probes) {
            EXPECT_FALSE(p.cancel()) << "stopping leaves timers idle";
            fires += static_cast<std::uint64_t>(p.fires());
        }
        EXPECT_EQ(totals.fired, fires);
    }
}

// counters() may be called at any time from any thread.
TEST_P(races, counters_meanwhile) {
    rig r{GetParam(), clocks::real};
    gate done;
    std::thread reader{[&] {
        std::uint64_t last = 0;
        while (!done.is_open()) {
            const counters totals = r.service().counters();
            EXPECT_GE(totals.armed, last);
            last = totals.armed;
            std::this_thread::yield();
        }
    }};
    probe p{r};
    for (int i = 0; i < repeat(20'000); ++i) {
        EXPECT_TRUE(p.arm(i % 4 == 0 ? duration::zero() : duration{1h}));
        if (r.looped()) {
            r.service().poll();
        }
        p.cancel();
    }
    done.open();
    reader.join();
}

} // namespace
} // namespace timerbench::testing
