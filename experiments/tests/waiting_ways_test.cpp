#include "experiments/waiting_handoff.hpp"
#include "experiments/waiting_ways.hpp"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace timerbench::experiments {
namespace {

using namespace std::chrono_literals;

// A clock and a park that end a wait after a part of what was asked for, as a spurious wake-up does.
struct restless {
    time_point now{1h};
    duration part;
    std::vector<duration> asked;
    explicit restless(duration p) : part{p} {}

    void park_until(time_point t) {
        asked.push_back(t - now);
        now = std::min(t, now + part);
    }
};

TEST(WaitBounded, GoesOnTowardsTheSameTimeAfterASpuriousWakeUp) {
    restless world{30ms};
    const time_point until = world.now + 100ms;
    const bool ready = wait_bounded(
        until, [] { return false; }, [&](time_point t) { world.park_until(t); }, [&] { return world.now; });
    EXPECT_FALSE(ready);
    EXPECT_EQ(world.now, until);
    EXPECT_EQ(world.asked, (std::vector<duration>{100ms, 70ms, 40ms, 10ms}));
}

TEST(WaitBounded, TakesWhatIsThereWithoutLookingAtTheClock) {
    const bool ready = wait_bounded(
        time_point{}, [] { return true; }, [](time_point) { FAIL() << "parked"; },
        []() -> time_point {
            ADD_FAILURE() << "looked at the clock";
            return {};
        });
    EXPECT_TRUE(ready);
}

TEST(WaitBounded, TakesWhatCameWhenTheTimeWasUp) {
    int looks = 0;
    const bool ready = wait_bounded(
        time_point{1s}, [&] { return ++looks > 1; }, [](time_point) { FAIL() << "parked"; },
        [] { return time_point{2s}; });
    EXPECT_TRUE(ready);
}

TEST(WrongLength, TellsEarlyAndTooLong) {
    EXPECT_EQ(wrong_length(30ms, 30ms, 10ms), "");
    EXPECT_EQ(wrong_length(30ms, 40ms, 10ms), "");
    EXPECT_NE(wrong_length(30ms, 30ms - 1ns, 10ms).find("early"), std::string::npos);
    EXPECT_NE(wrong_length(30ms, 40ms + 1ns, 10ms).find("too long"), std::string::npos);
}

template <class Way>
class Ways : public ::testing::Test {};
using all_ways = ::testing::Types<condition_wait, future_wait, futex_wait<0>, futex_wait<1>, futex_wait<50>>;
TYPED_TEST_SUITE(Ways, all_ways);

TYPED_TEST(Ways, TimesOutNeverEarly) {
    TypeParam way;
    for (const duration d : {duration{-1ms}, duration{0ms}, duration{1us}, duration{3ms}}) {
        const time_point until = steady_time::now() + d;
        EXPECT_FALSE(way.wait_until(until));
        EXPECT_GE(steady_time::now(), until);
        way.reset();
    }
}

TYPED_TEST(Ways, TakesANotificationThatIsThere) {
    TypeParam way;
    way.notify();
    EXPECT_TRUE(way.wait_until(steady_time::now() - 1s)) << "also after its time";
    way.reset();
    EXPECT_FALSE(way.wait_until(steady_time::now() + 1ms));
}

TYPED_TEST(Ways, IsNotifiedFromAnotherThreadAtAnyTime) {
    for (int i = 0; i < 100; ++i) {
        TypeParam way;
        std::thread other{[&way, i] {
            std::this_thread::sleep_for(i % 4 * 30us);
            way.notify();
        }};
        const time_point begin = steady_time::now();
        const bool notified = way.wait_until(begin + 20s);
        const duration lasted = steady_time::now() - begin;
        other.join();
        ASSERT_TRUE(notified);
        ASSERT_LT(lasted, 10s) << "a lost wake-up, found at the end of the time";
    }
}

TYPED_TEST(Ways, LastsAsLongAsWasAskedUnderAPlantedNotifierWithNothingToTell) {
    const poked_figures f = measure_poked<TypeParam>(40ms);
    EXPECT_FALSE(f.notified);
    EXPECT_GE(f.pokes, 5U);
    EXPECT_EQ(wrong_length(40ms, f.lasted, 1s), "");
}

// What the trial above must catch: a loop that starts its time anew, and a wait without a loop.
struct starts_anew : condition_wait {
    bool wait_until(time_point until) {
        const duration whole = until - steady_time::now();
        std::unique_lock lock{mutex};
        while (!told) {
            if (changed.wait_for(lock, whole) == std::cv_status::timeout) {
                return told;
            }
        }
        return true;
    }
    void poke() { changed.notify_one(); }
    std::mutex mutex;
    std::condition_variable changed;
    bool told = false;
};
struct takes_any_wake_up : starts_anew {
    bool wait_until(time_point until) {
        std::unique_lock lock{mutex};
        changed.wait_until(lock, until);
        return told;
    }
};

TEST(PlantedNotifier, CatchesALoopThatStartsItsTimeAnew) {
    const poked_figures f = measure_poked<starts_anew>(40ms);
    EXPECT_NE(wrong_length(40ms, f.lasted, 1s).find("too long"), std::string::npos);
}

TEST(PlantedNotifier, CatchesAWaitWithoutALoop) {
    const poked_figures f = measure_poked<takes_any_wake_up>(40ms);
    EXPECT_NE(wrong_length(40ms, f.lasted, 1s).find("early"), std::string::npos);
}

} // namespace
} // namespace timerbench::experiments
