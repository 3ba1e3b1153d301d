// The executor's promises: woken means polled, not woken means not polled, one poll at a time, on the home's thread. The
// stress tests hammer the edges of the protocol from many threads; a wake that gets lost leaves work undone, which is
// waited for with a bound far beyond what a working executor needs.
#include "harness/executor.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace timerbench::harness {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 60s;

template <class Condition>
[[nodiscard]] bool eventually(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(200us);
    }
    return true;
}

// A task that counts its polls and checks that they do not overlap.
struct counting_task : task {
    counting_task() : task{&counting_task::poll_me} {}

    static outcome poll_me(task& self, const waker&) noexcept {
        auto& me = static_cast<counting_task&>(self);
        if (me.inside.exchange(true)) {
            me.overlapped = true;
        }
        ++me.polls;
        me.inside = false;
        return me.end_at != 0 && me.polls >= me.end_at ? outcome::done : outcome::pending;
    }

    int end_at = 0;
    std::atomic<int> polls{0};
    std::atomic<bool> inside{false};
    std::atomic<bool> overlapped{false};
};

// Waits until the home of `t` has polled everything queued before this call: the queue is first in, first out.
void pass_through_home(executor& e, std::size_t home) {
    counting_task sentinel;
    sentinel.end_at = 1;
    e.spawn(sentinel, home);
    ASSERT_TRUE(eventually([&] { return sentinel.finished(); }));
}

TEST(Executor, PollsOnceWhenSpawnedAndThenOnlyWhenWoken) {
    executor e{2};
    counting_task quiet;
    counting_task busy;
    e.spawn(quiet, 0);
    e.spawn(busy, 0);
    for (int i = 2; i <= 200; ++i) {
        pass_through_home(e, 0);
        busy.self_waker()();
        ASSERT_TRUE(eventually([&] { return busy.polls == i; }));
    }
    EXPECT_EQ(quiet.polls, 1);
    EXPECT_TRUE(quiet.idle());
    quiet.self_waker()();
    EXPECT_TRUE(eventually([&] { return quiet.polls == 2; }));
    e.stop();
}

TEST(Executor, WakesOfAQueuedTaskMakeOnePoll) {
    executor e{1};
    std::mutex gate;
    struct blocker : task {
        explicit blocker(std::mutex& m) : task{&blocker::poll_me}, gate{m} {}
        static outcome poll_me(task& self, const waker&) noexcept {
            auto& me = static_cast<blocker&>(self);
            me.entered = true;
            const std::lock_guard lock{me.gate};
            return outcome::done;
        }
        std::mutex& gate;
        std::atomic<bool> entered{false};
    } b{gate};
    counting_task t;
    {
        const std::lock_guard lock{gate};
        e.spawn(b, 0);
        ASSERT_TRUE(eventually([&] { return b.entered.load(); }));
        e.spawn(t, 0);
        for (int i = 0; i < 100; ++i) {
            t.self_waker()();
        }
        EXPECT_FALSE(t.idle());
    }
    pass_through_home(e, 0);
    EXPECT_EQ(t.polls, 1);
}

TEST(Executor, AWakeDuringThePollMakesAnother) {
    executor e{1};
    struct self_waking : task {
        self_waking() : task{&self_waking::poll_me} {}
        static outcome poll_me(task& self, const waker& w) noexcept {
            auto& me = static_cast<self_waking&>(self);
            if (++me.polls < 1'000) {
                w();
                w();
            }
            return outcome::pending;
        }
        std::atomic<int> polls{0};
    } t;
    e.spawn(t, 0);
    EXPECT_TRUE(eventually([&] { return t.polls == 1'000; }));
    pass_through_home(e, 0);
    EXPECT_EQ(t.polls, 1'000);
    EXPECT_TRUE(t.idle());
}

TEST(Executor, FinishedTasksIgnoreWakes) {
    executor e{1};
    counting_task t;
    t.end_at = 1;
    e.spawn(t, 0);
    ASSERT_TRUE(eventually([&] { return t.finished(); }));
    EXPECT_FALSE(t.idle());
    t.self_waker()();
    EXPECT_FALSE(e.poll_here(t));
    pass_through_home(e, 0);
    EXPECT_EQ(t.polls, 1);
    EXPECT_TRUE(t.finished());
}

TEST(Executor, EveryPollIsOnTheHomesThread) {
    executor e{4};
    struct homing : task {
        homing() : task{&homing::poll_me} {}
        static outcome poll_me(task& self, const waker&) noexcept {
            auto& me = static_cast<homing&>(self);
            if (me.polls++ == 0) {
                me.thread = std::this_thread::get_id();
            } else if (me.thread != std::this_thread::get_id()) {
                me.moved = true;
            }
            return outcome::pending;
        }
        std::thread::id thread; // only the poll
        std::atomic<int> polls{0};
        std::atomic<bool> moved{false};
    };
    std::deque<homing> tasks(4);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        e.spawn(tasks[i], i);
    }
    for (int round = 2; round < 50; ++round) {
        for (auto& t : tasks) {
            ASSERT_TRUE(eventually([&] { return t.polls >= round - 1; }));
            t.self_waker()();
        }
    }
    e.stop();
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        EXPECT_FALSE(tasks[i].moved);
        EXPECT_NE(tasks[i].thread, tasks[(i + 1) % tasks.size()].thread);
    }
}

// Work is handed over in plain variables guarded by nothing but the wake: a lost wake leaves work behind, and a poll that does not
// see what was written before the wake is a data race for the thread sanitizer.
TEST(Executor, StressNoWakeIsLostAndNoPollsOverlap) {
    struct mailbox : task {
        mailbox() : task{&mailbox::poll_me} {}
        static outcome poll_me(task& self, const waker&) noexcept {
            auto& me = static_cast<mailbox&>(self);
            if (me.inside.exchange(true, std::memory_order_relaxed)) {
                me.overlapped.store(true, std::memory_order_relaxed);
            }
            ++me.plain_polls; // a data race if polls overlap or are not ordered
            me.taken.fetch_add(me.posted.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
            me.inside.store(false, std::memory_order_relaxed);
            return outcome::pending;
        }
        std::atomic<std::uint64_t> posted{0};
        std::atomic<std::uint64_t> taken{0};
        std::atomic<bool> inside{false};
        std::atomic<bool> overlapped{false};
        std::uint64_t plain_polls = 0;
    };
    constexpr std::size_t wakers = 4;
    constexpr std::uint64_t posts = 60'000;
    for (const std::size_t workers : {std::size_t{1}, std::size_t{3}, std::size_t{8}}) {
        executor e{workers};
        std::deque<mailbox> tasks(5); // few, so that wakes meet every state
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            e.spawn(tasks[i], i % workers);
        }
        std::vector<std::thread> threads;
        for (std::size_t n = 0; n < wakers; ++n) {
            threads.emplace_back([&, n] {
                for (std::uint64_t i = 0; i < posts; ++i) {
                    mailbox& to = tasks[(i + n) % tasks.size()];
                    to.posted.fetch_add(1, std::memory_order_relaxed);
                    to.self_waker()();
                    if (i % 64 == n) {
                        std::this_thread::yield();
                    }
                }
            });
        }
        for (auto& t : threads) {
            t.join();
        }
        const auto taken = [&] {
            std::uint64_t sum = 0;
            for (const auto& t : tasks) {
                sum += t.taken.load();
            }
            return sum;
        };
        EXPECT_TRUE(eventually([&] { return taken() == wakers * posts; }))
            << workers << " workers: " << wakers * posts - taken() << " posts were never polled for";
        e.stop();
        std::uint64_t polls = 0;
        for (const auto& t : tasks) {
            EXPECT_FALSE(t.overlapped);
            polls += t.plain_polls;
        }
        EXPECT_EQ(e.count().polls, polls);
        EXPECT_LE(polls, wakers * posts + tasks.size());
        // A worker is woken for a task of its own, never on behalf of another.
        EXPECT_LE(e.count().sleeps, polls + workers);
    }
}

// Two tasks that pass one token: exactly one wake is under way at any time, so a single lost one stops the game.
TEST(Executor, StressPingPongNeverStops) {
    struct player : task {
        player() : task{&player::poll_me} {}
        static outcome poll_me(task& self, const waker&) noexcept {
            auto& me = static_cast<player&>(self);
            const int left = me.token;
            me.token = 0;
            if (left > 1) {
                me.other->token = left - 1; // plain: handed over by the wake alone
                me.other->self_waker()();
            } else if (left == 1) {
                me.ended = true;
            }
            return outcome::pending;
        }
        player* other = nullptr;
        int token = 0;
        std::atomic<bool> ended{false};
    };
    executor e{2};
    std::deque<player> pairs(16);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        pairs[i].other = &pairs[i ^ 1];
        e.adopt(pairs[i], i % 2);
    }
    for (std::size_t i = 0; i < pairs.size(); i += 2) {
        pairs[i].token = 5'000;
        pairs[i].self_waker()();
    }
    for (std::size_t i = 0; i < pairs.size(); i += 2) {
        EXPECT_TRUE(eventually([&] { return pairs[i].ended || pairs[i + 1].ended; }));
    }
    e.stop();
}

TEST(Executor, PollHereFollowsTheProtocol) {
    executor e{1};
    struct two_step : task {
        two_step() : task{&two_step::poll_me} {}
        static outcome poll_me(task& self, const waker& w) noexcept {
            auto& me = static_cast<two_step&>(self);
            if (me.polls++ == 0) {
                me.first = std::this_thread::get_id();
                w(); // comes back on the home's thread, and not before this poll has ended
                me.ended = true;
                return outcome::pending;
            }
            me.second = std::this_thread::get_id();
            me.in_order = me.ended;
            return outcome::done;
        }
        int polls = 0;
        bool ended = false;
        bool in_order = false;
        std::thread::id first;
        std::thread::id second;
    } t;
    e.adopt(t, 0);
    EXPECT_TRUE(t.idle());
    EXPECT_TRUE(e.poll_here(t));
    ASSERT_TRUE(eventually([&] { return t.finished(); }));
    EXPECT_EQ(t.first, std::this_thread::get_id());
    EXPECT_NE(t.second, std::this_thread::get_id());
    EXPECT_TRUE(t.in_order);
    EXPECT_FALSE(e.poll_here(t));
}

TEST(Executor, StopLeavesQueuedTasksAloneAndLaterWakesAreHarmless) {
    counting_task t;
    executor e{3};
    e.spawn(t, 1);
    ASSERT_TRUE(eventually([&] { return t.polls == 1 && t.idle(); }));
    e.stop();
    e.stop();
    t.self_waker()();
    EXPECT_FALSE(t.idle());
    EXPECT_EQ(t.polls, 1);
    EXPECT_EQ(e.count().polls, 1U);
}

TEST(Executor, RefusesAnAbsurdTeam) {
    EXPECT_THROW(executor{std::size_t{0}}, std::invalid_argument);
    EXPECT_THROW(executor{executor::most_workers + 1}, std::invalid_argument);
    EXPECT_THROW(executor{SIZE_MAX}, std::invalid_argument);
    executor e{2};
    counting_task t;
    EXPECT_THROW(e.spawn(t, 2), std::out_of_range);
}

// A loop with a queue of wakers to call: stands for a service that the caller's thread drives.
class fake_loop {
  public:
    // Polled with the loop: the waker is called on the loop's own thread.
    void fire_in_poll(waker w) {
        const std::lock_guard lock{mutex_};
        due_.push_back(w);
        more_.notify_one();
    }

    std::size_t poll() {
        std::deque<waker> now;
        {
            const std::lock_guard lock{mutex_};
            now.swap(due_);
            threads_moved_ = threads_moved_ || (polls_ > 0 && thread_ != std::this_thread::get_id());
            thread_ = std::this_thread::get_id();
            ++polls_;
        }
        for (const waker& w : now) {
            w();
        }
        return now.size();
    }

    std::size_t poll_until(time_point until) {
        {
            std::unique_lock lock{mutex_};
            const auto now = std::chrono::time_point_cast<duration>(std::chrono::steady_clock::now());
            out_of_bounds_ = out_of_bounds_ || until > now + executor::loop_bound;
            more_.wait_until(lock, until, [this] { return !due_.empty(); });
        }
        return poll();
    }

    [[nodiscard]] bool sound() {
        const std::lock_guard lock{mutex_};
        return !threads_moved_ && !out_of_bounds_ && polls_ > 0;
    }
    [[nodiscard]] std::thread::id thread() {
        const std::lock_guard lock{mutex_};
        return thread_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable more_;
    // Guarded by mutex_.
    std::deque<waker> due_;
    std::thread::id thread_;
    bool threads_moved_ = false;
    bool out_of_bounds_ = false;
    int polls_ = 0;
};

TEST(Executor, DrivesOneLoopPerWorkerWhileTasksRun) {
    std::deque<fake_loop> loops(2);
    const std::vector<loop> refs{loop_of(loops[0]), loop_of(loops[1])};
    executor e{refs};
    ASSERT_EQ(e.workers(), 2U);
    std::deque<counting_task> tasks(2);
    struct never_resting : task { // always queued: the loop must get its turn all the same
        never_resting() : task{&never_resting::poll_me} {}
        static outcome poll_me(task& self, const waker& w) noexcept {
            if (static_cast<never_resting&>(self).enough) {
                return outcome::done;
            }
            w();
            return outcome::pending;
        }
        std::atomic<bool> enough{false};
    } restless;
    e.spawn(restless, 0);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        e.spawn(tasks[i], i); // a wake from outside for a worker that may block in its loop
        for (int n = 2; n < 300; ++n) {
            ASSERT_TRUE(eventually([&] { return tasks[i].polls == n - 1 && tasks[i].idle(); }));
            loops[i].fire_in_poll(tasks[i].self_waker());
        }
    }
    restless.enough = true;
    EXPECT_TRUE(eventually([&] { return restless.finished(); }));
    e.stop();
    EXPECT_TRUE(loops[0].sound());
    EXPECT_TRUE(loops[1].sound());
    EXPECT_NE(loops[0].thread(), loops[1].thread());
}

} // namespace
} // namespace timerbench::harness
