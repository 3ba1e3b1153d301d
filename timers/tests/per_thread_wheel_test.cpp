// What is particular to the per-thread wheels: readings that lag, the biased lock, the sleeping driver. The contract itself is tested over
// all services elsewhere.
#include "timers/per_thread_wheel.hpp"
#include "timers/per_thread_wheel_loop.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace timerbench {
namespace {

using namespace std::chrono_literals;

// A coarse reading that the test stops and lets go. One test at a time.
struct stuck_reading {
    static inline std::atomic<std::int64_t> held_at{0}; // ns; 0: moves on in steps of the grain
};

template <class Clock>
class stalling_reading {
  public:
    static constexpr bool may_stall = true;
    static std::string_view unavailable() noexcept { return {}; }
    static duration allowance() noexcept { return 4ms; }
    static duration longest_stall() noexcept { return 1s; }
    static time_point read(const Clock& clock) {
        if (const std::int64_t at = stuck_reading::held_at.load(); at != 0) {
            return time_point{duration{at}};
        }
        const duration now = clock.now().time_since_epoch();
        return time_point{now - now % 4ms};
    }
};
using stalling_wheel = basic_per_thread_wheel<manual_time, stalling_reading>;

struct fire_log {
    manual_time* clock = nullptr;
    std::vector<time_point> at;
    static void record(void* context) {
        auto& self = *static_cast<fire_log*>(context);
        self.at.push_back(self.clock->now());
    }
    callback cb() { return {&fire_log::record, this}; }
};

TEST(per_thread_wheel, a_reading_that_stood_still_fires_nobody_early) {
    for (const duration stall :
         {duration{0}, duration{3ms}, duration{9ms}, duration{30ms}, duration{120ms}}) {
        SCOPED_TRACE(stall.count());
        manual_time clock;
        stalling_wheel s{clock};
        fire_log warm{&clock, {}};
        stalling_wheel::timer first{s};
        ASSERT_TRUE(s.arm(first, 1h, warm.cb()));
        // The reading now stands, while time and arms go on.
        stuck_reading::held_at =
            (clock.now().time_since_epoch() - clock.now().time_since_epoch() % 4ms).count();
        std::deque<stalling_wheel::timer> timers;
        std::deque<fire_log> logs;
        std::vector<time_point> deadlines;
        const time_point until = clock.now() + stall;
        for (;;) {
            for (const duration d : {duration{0}, duration{1ms}, duration{20ms}, duration{200ms}}) {
                logs.push_back({&clock, {}});
                deadlines.push_back(clock.now() + d);
                ASSERT_TRUE(s.arm(timers.emplace_back(s), d, logs.back().cb()));
            }
            if (clock.now() >= until) {
                break;
            }
            clock.advance(1ms);
        }
        stuck_reading::held_at = 0;
        for (int i = 0; i < 2'000; ++i) {
            clock.advance(500us);
        }
        for (std::size_t i = 0; i < timers.size(); ++i) {
            ASSERT_EQ(logs[i].at.size(), 1U) << i;
            EXPECT_GE(logs[i].at[0], deadlines[i]) << i;
            EXPECT_LE(logs[i].at[0], deadlines[i] + stall + 4ms + 4ms + 2ms + 1ms) << i;
        }
        EXPECT_TRUE(s.counters().balanced());
    }
}

TEST(per_thread_wheel, a_reading_that_moves_costs_no_more_than_tick_and_grain) {
    manual_time clock;
    stalling_wheel s{clock};
    std::deque<stalling_wheel::timer> timers;
    std::deque<fire_log> logs;
    std::vector<time_point> deadlines;
    for (int i = 0; i < 400; ++i) {
        logs.push_back({&clock, {}});
        deadlines.push_back(clock.now() + 50ms);
        ASSERT_TRUE(s.arm(timers.emplace_back(s), 50ms, logs.back().cb()));
        clock.advance(250us);
    }
    for (int i = 0; i < 1'000; ++i) {
        clock.advance(100us);
    }
    for (std::size_t i = 0; i < timers.size(); ++i) {
        ASSERT_EQ(logs[i].at.size(), 1U);
        EXPECT_GE(logs[i].at[0], deadlines[i]);
        EXPECT_LE(logs[i].at[0], deadlines[i] + 4ms + 1ms + 100us);
    }
}

TEST(per_thread_wheel, a_loop_that_was_away_fires_nobody_early) {
    for (const duration away : {duration{0}, duration{900us}, duration{50ms}, duration{3s}}) {
        manual_time clock;
        per_thread_wheel_loop<manual_time> s{clock};
        clock.advance(7ms + 300us);
        s.poll();
        clock.advance(away); // the cached time is now this old
        fire_log log{&clock, {}};
        per_thread_wheel_loop<manual_time>::timer t{s};
        const time_point deadline = clock.now() + 60ms;
        ASSERT_TRUE(s.arm(t, 60ms, log.cb()));
        for (int i = 0; i < 10'000 && log.at.empty(); ++i) {
            s.poll();
            clock.advance(100us);
        }
        ASSERT_EQ(log.at.size(), 1U);
        EXPECT_GE(log.at[0], deadline) << away.count();
        EXPECT_LE(log.at[0], deadline + 2ms + 100us) << away.count();
    }
}

TEST(per_thread_wheel, the_driver_never_wakes_for_timers_that_were_cancelled_before_it_slept) {
    manual_time clock;
    basic_per_thread_wheel<manual_time, steady_reading> s{clock};
    fire_log log{&clock, {}};
    std::deque<basic_per_thread_wheel<manual_time, steady_reading>::timer> timers;
    for (int i = 0; i < 1'000; ++i) {
        ASSERT_TRUE(s.arm(timers.emplace_back(s), duration{1s} * (i % 50), log.cb()));
    }
    for (auto& t : timers) {
        EXPECT_TRUE(s.cancel(t));
    }
    clock.advance(1h);
    EXPECT_TRUE(log.at.empty());
    const auto c = s.counters();
    EXPECT_EQ(c.cancelled, 1'000U);
    EXPECT_TRUE(c.balanced());
}

// A manual clock that counts how often a driver is woken.
struct watched_time : manual_time {
    static inline std::atomic<unsigned> wakes{0};
    class parker : public manual_time::parker {
      public:
        explicit parker(watched_time& clock) : manual_time::parker{clock} {}
        void wake() {
            ++wakes;
            manual_time::parker::wake();
        }
    };
};

// Far away a slot is wide: the driver was promised for its beginning, and an earlier deadline within it changes nothing.
TEST(per_thread_wheel, ever_earlier_deadlines_far_out_wake_the_driver_once_a_slot) {
    watched_time clock;
    per_thread_wheel_steady<watched_time> s{clock};
    fire_log log{&clock, {}};
    std::deque<per_thread_wheel_steady<watched_time>::timer> timers;
    ASSERT_TRUE(s.arm(timers.emplace_back(s), 1h, log.cb()));
    watched_time::wakes = 0;
    for (int i = 0; i < 4'000; ++i) {
        ASSERT_TRUE(s.arm(timers.emplace_back(s), 60s - 1ms * i, log.cb()));
    }
    EXPECT_LE(watched_time::wakes, 2U);
    EXPECT_GE(watched_time::wakes, 1U);
    clock.advance(60s - 1ms * 3'999);
    EXPECT_GE(log.at.size(), 1U) << "and the earliest of them is not late";
    clock.advance(4s);
    EXPECT_EQ(log.at.size(), 4'000U);
}

TEST(per_thread_wheel, refuses_a_tick_out_of_range) {
    manual_time clock;
    EXPECT_THROW((per_thread_wheel<manual_time>{clock, {.tick_ns = 999}}), std::invalid_argument);
    EXPECT_THROW((per_thread_wheel<manual_time>{clock, {.tick_ns = 2'000'000'000}}), std::invalid_argument);
    EXPECT_THROW((per_thread_wheel_loop<manual_time>{clock, {.tick_ns = 0}}), std::invalid_argument);
}

TEST(biased_lock, gives_the_owner_its_fast_way_back_after_enough_entries_without_a_visit) {
    detail::biased_lock lock;
    if (!lock.biased()) {
        GTEST_SKIP() << "there is no membarrier here";
    }
    const auto enter = [&lock](unsigned times) {
        for (unsigned i = 0; i < times; ++i) {
            const detail::biased_lock::owner_guard guard{lock};
        }
    };
    const auto visit = [&lock] {
        lock.lock();
        lock.unlock();
    };
    visit();
    EXPECT_FALSE(lock.biased());
    enter(detail::biased_lock::entries_until_biased - 1);
    EXPECT_FALSE(lock.biased());
    visit();
    enter(detail::biased_lock::entries_until_biased - 1);
    EXPECT_FALSE(lock.biased()) << "a visit starts the count anew";
    enter(1);
    EXPECT_TRUE(lock.biased());
}

// Owner, visitors and a bias that comes back again and again: the plain counter is the witness.
TEST(biased_lock, excludes_the_owner_and_visitors_from_each_other) {
    detail::biased_lock lock;
    std::uint64_t guarded = 0;
    std::atomic<bool> done{false};
    std::uint64_t visits = 0;
    std::thread visitor{[&] {
        for (int i = 0; i < 20'000; ++i) {
            lock.lock();
            ++guarded;
            ++visits;
            lock.unlock();
            for (int patience = 0; i % 16 == 0 && !lock.biased() && patience < 100'000; ++patience) {
                std::this_thread::yield();
            }
        }
        done.store(true);
    }};
    std::uint64_t mine = 0;
    while (!done.load()) {
        for (int i = 0; i < 100; ++i) {
            const detail::biased_lock::owner_guard guard{lock};
            ++guarded;
            ++mine;
        }
    }
    visitor.join();
    EXPECT_EQ(guarded, mine + visits);
}

// Real clock: arms on their own threads, cancels from others, everything accounted for and nobody early.
template <class Wheel>
void stress() {
    steady_time clock;
    Wheel s{clock};
    struct job {
        explicit job(Wheel& s) : t{s} {}
        typename Wheel::timer t;
        std::atomic<std::int64_t> earliest_allowed{0};
        std::atomic<int> early{0};
        static void fire(void* context) {
            auto& self = *static_cast<job*>(context);
            const auto now = std::chrono::steady_clock::now().time_since_epoch();
            if (std::chrono::nanoseconds{now}.count() < self.earliest_allowed.load()) {
                self.early.fetch_add(1);
            }
        }
    };
    constexpr int threads = 4;
    std::vector<std::unique_ptr<std::deque<job>>> jobs;
    for (int i = 0; i < threads; ++i) {
        auto& mine = *jobs.emplace_back(std::make_unique<std::deque<job>>());
        for (int j = 0; j < 200; ++j) {
            mine.emplace_back(s);
        }
    }
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&, i] {
            unsigned random = 12'345U * static_cast<unsigned>(i + 1);
            for (int round = 0; round < 30; ++round) {
                for (job& j : *jobs[static_cast<std::size_t>(i)]) {
                    random = random * 1'664'525U + 1'013'904'223U;
                    const duration d{random % 3'000'000U};
                    (void)s.cancel(j.t);
                    j.earliest_allowed.store(
                        (std::chrono::steady_clock::now().time_since_epoch() + d).count());
                    ASSERT_TRUE(s.arm(j.t, d, {&job::fire, &j}));
                }
            }
        });
    }
    for (std::thread& w : workers) {
        w.join();
    }
    // All of these are foreign now: their threads are gone.
    for (auto& some : jobs) {
        for (job& j : *some) {
            (void)s.cancel(j.t);
            EXPECT_EQ(j.early.load(), 0);
        }
    }
    const counters c = s.counters();
    EXPECT_EQ(c.pending, 0U);
    EXPECT_TRUE(c.balanced());
    EXPECT_EQ(c.armed, static_cast<std::uint64_t>(threads) * 200 * 30);
}

TEST(per_thread_wheel, stress_coarse) {
    stress<per_thread_wheel<steady_time>>();
}
TEST(per_thread_wheel, stress_steady) {
    stress<per_thread_wheel_steady<steady_time>>();
}
TEST(per_thread_wheel, stress_tsc) {
    if (const auto reason = per_thread_wheel_tsc<steady_time>::unavailable(); !reason.empty()) {
        GTEST_SKIP() << reason;
    }
    stress<per_thread_wheel_tsc<steady_time>>();
}

static_assert(timer_service<per_thread_wheel<steady_time>> && timer_service<per_thread_wheel<manual_time>>);

} // namespace
} // namespace timerbench
