// The waiter that times itself: its permit, its one absolute deadline, and the manual clock it may stand on.
#include "timers/tests/support/rig.hpp"
#include "timers/waiter_timed.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using testing::eventually;

// 0 while it waits, then 1 for notified, 2 for timed out.
template <class Clock>
class waiting_thread {
  public:
    waiting_thread(waiter_timed<Clock>& waiter, duration d)
        : thread_{[this, &waiter, d] {
              started_ = true;
              outcome_ = waiter.wait_for(d) ? 1 : 2;
          }} {}
    ~waiting_thread() { thread_.join(); }

    [[nodiscard]] int outcome() const { return outcome_; }
    [[nodiscard]] bool started() const { return started_; }
    [[nodiscard]] bool ends() const {
        return eventually([this] { return outcome_ != 0; });
    }

  private:
    std::atomic<bool> started_{false}; // set by the thread, read by the test
    std::atomic<int> outcome_{0};      // the same
    std::thread thread_;
};

TEST(waiter_timed, takes_a_permit_that_is_there_and_only_once) {
    waiter_timed<steady_time> waiter;
    waiter.notify();
    waiter.notify(); // there is at most one permit
    EXPECT_TRUE(waiter.wait_for(duration::min()));
    EXPECT_FALSE(waiter.wait_for(duration::zero()));
    waiter.notify();
    EXPECT_TRUE(waiter.wait_for(1h));
    EXPECT_FALSE(waiter.wait_for(1ms));
}

TEST(waiter_timed, never_gives_up_early) {
    waiter_timed<steady_time> waiter;
    for (const duration d :
         {duration::min(), duration{-1ns}, duration{0ns}, duration{1ns}, duration{700us}, duration{3ms}}) {
        const time_point start = steady_time::now();
        EXPECT_FALSE(waiter.wait_for(d));
        EXPECT_GE(steady_time::now() - start, d);
    }
    const time_point until = steady_time::now() + 2ms;
    EXPECT_FALSE(waiter.wait_until(until));
    EXPECT_GE(steady_time::now(), until);
    EXPECT_FALSE(waiter.wait_until(time_point::min()));
}

TEST(waiter_timed, is_woken_by_a_notify) {
    for (const duration d : {duration{1h}, duration::max()}) {
        waiter_timed<steady_time> waiter;
        waiting_thread<steady_time> thread{waiter, d};
        EXPECT_TRUE(eventually([&] { return thread.started(); }));
        EXPECT_EQ(thread.outcome(), 0);
        waiter.notify();
        EXPECT_TRUE(thread.ends());
        EXPECT_EQ(thread.outcome(), 1);
    }
}

TEST(waiter_timed, times_out_on_a_manual_clock) {
    manual_time clock;
    waiter_timed<manual_time> waiter{clock};
    const time_point start = clock.now();
    {
        waiting_thread<manual_time> thread{waiter, 1s};
        // The thread may come to its wait late, so that time passes before it reads the clock.
        EXPECT_TRUE(eventually([&] {
            clock.advance(100ms);
            return thread.outcome() != 0;
        }));
        EXPECT_EQ(thread.outcome(), 2);
    }
    EXPECT_GE(clock.now() - start, 1s);
    clock.settle(); // nobody is left whom the clock would wait for
}

// Wakes its waiter without a permit, as a condition variable may do, and counts.
class restless_time {
  public:
    static constexpr bool is_manual = false;
    static time_point now() { return steady_time::now(); }
    std::atomic<int> waits{0};
    // Deadlines that the waits had, all of them the same if the waiter holds on to one; guarded by the waiter's mutex.
    time_point first{};
    bool moved = false;

    class parker {
      public:
        explicit parker(restless_time& clock) : clock_{clock} {}
        void wait_until(std::unique_lock<std::mutex>& lock, time_point t) {
            clock_.moved |= clock_.waits != 0 && t != clock_.first;
            clock_.first = t;
            ++clock_.waits;
            lock.unlock();
            std::this_thread::yield();
            lock.lock();
        }
        void wake() {}

      private:
        restless_time& clock_;
    };
};

static_assert(clock_source<restless_time>);

TEST(waiter_timed, holds_on_to_one_deadline_over_spurious_wake_ups) {
    restless_time clock;
    waiter_timed<restless_time> waiter{clock};
    const time_point start = steady_time::now();
    EXPECT_FALSE(waiter.wait_for(5ms));
    EXPECT_GE(steady_time::now() - start, 5ms);
    EXPECT_GT(clock.waits, 1);
    EXPECT_FALSE(clock.moved);
    {
        clock.waits = 0;
        waiting_thread<restless_time> thread{waiter, 1h};
        EXPECT_TRUE(eventually([&] { return clock.waits > 3; }));
        EXPECT_EQ(thread.outcome(), 0) << "a wake-up without a permit passed for a notify";
        waiter.notify();
        EXPECT_TRUE(thread.ends());
        EXPECT_EQ(thread.outcome(), 1);
    }
}

// Each notify is taken exactly once, or found out to be late by a wait that takes what was left.
TEST(waiter_timed, loses_no_notify_against_the_deadline) {
    waiter_timed<steady_time> waiter;
    std::atomic<int> asked{0}; // raised by the waiter, followed by the notifier
    const int rounds = testing::repeat(5'000);
    std::thread notifier{[&] {
        for (int i = 1; i <= rounds; ++i) {
            while (asked < i) {
                std::this_thread::yield();
            }
            waiter.notify();
        }
    }};
    int late = 0;
    for (int i = 1; i <= rounds; ++i) {
        asked = i;
        if (!waiter.wait_for(i % 20 * 1us)) {
            ++late;
            if (!waiter.wait_for(testing::patience())) {
                ADD_FAILURE() << "the notify of round " << i << " is lost";
                asked = rounds; // lets the notifier go
                break;
            }
        }
    }
    notifier.join();
    EXPECT_FALSE(waiter.wait_for(duration::zero())) << "a notify was taken twice";
    RecordProperty("late", late);
}

} // namespace
} // namespace timerbench
