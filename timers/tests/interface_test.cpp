// The vocabulary itself: arithmetic, the manual clock, and what the list of services promises by its traits.
#include "timers/clock.hpp"
#include "timers/services.hpp"
#include "timers/tests/support/rig.hpp"

#include <set>
#include <string>
#include <thread>

namespace timerbench::testing {
namespace {

constexpr time_point at(duration d) {
    return time_point{d};
}

TEST(saturating, addition) {
    EXPECT_EQ(saturating_add(at(5ns), 7ns), at(12ns));
    EXPECT_EQ(saturating_add(at(5ns), -7ns), at(-2ns));
    EXPECT_EQ(saturating_add(at(5ns), duration::max()), time_point::max());
    EXPECT_EQ(saturating_add(at(0ns), duration::max()), time_point::max());
    EXPECT_EQ(saturating_add(at(1ns), duration::max() - 1ns), time_point::max());
    EXPECT_EQ(saturating_add(at(5ns), duration::min()), at(duration::min() + 5ns));
    EXPECT_EQ(saturating_add(at(-5ns), duration::min()), time_point::min());
}

TEST(ticks, only_fractions_round_up) {
    EXPECT_EQ(ceil_ticks(0ns, 10ns), 0);
    EXPECT_EQ(ceil_ticks(1ns, 10ns), 1);
    EXPECT_EQ(ceil_ticks(9ns, 10ns), 1);
    EXPECT_EQ(ceil_ticks(10ns, 10ns), 1);
    EXPECT_EQ(ceil_ticks(11ns, 10ns), 2);
    EXPECT_EQ(ceil_ticks(-1ns, 10ns), 0);
    EXPECT_EQ(ceil_ticks(-10ns, 10ns), -1);
    EXPECT_EQ(ceil_ticks(duration::max(), 10ns), duration::max().count() / 10 + 1);
}

TEST(balance, is_the_sum_of_all_ends) {
    EXPECT_TRUE(counters{}.balanced());
    EXPECT_TRUE((counters{.armed = 10, .fired = 4, .cancelled = 3, .dropped = 2, .pending = 1}.balanced()));
    EXPECT_FALSE((counters{.armed = 10, .fired = 4, .cancelled = 3, .dropped = 2}.balanced()));
}

TEST(manual_clock, stands_still_until_it_is_moved) {
    manual_time clock{at(7ns)};
    EXPECT_EQ(clock.now(), at(7ns));
    clock.advance(3ns);
    EXPECT_EQ(clock.now(), at(10ns));
    clock.advance(duration::max());
    EXPECT_EQ(clock.now(), time_point::max());
}

// `advance` comes back when the driver has looked at the new time and sleeps again; a wake between two waits is kept.
TEST(manual_clock, advance_waits_for_drivers) {
    start_watchdog(60);
    manual_time clock;
    std::mutex mutex;
    manual_time::parker parker{clock};
    bool leave = false; // guarded by mutex, as is `seen`
    time_point seen = clock.now();
    std::thread driver{[&] {
        std::unique_lock lock{mutex};
        while (!leave) {
            seen = clock.now();
            parker.wait_until(lock, seen + 5ms);
        }
    }};
    for (int i = 0; i < 200; ++i) {
        clock.advance(5ms);
        const std::lock_guard lock{mutex};
        EXPECT_EQ(seen, clock.now()) << "advance returned before the driver had looked";
    }
    {
        const std::lock_guard lock{mutex};
        leave = true;
        parker.wake();
    }
    driver.join();
    stop_watchdog();
}

TEST(services, have_distinct_names_of_a_family_and_a_variant) {
    std::set<std::string> seen;
    for (const std::string_view name : all_services::names) {
        EXPECT_TRUE(seen.insert(test_name_of(name)).second) << name;
        EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_/"), std::string_view::npos)
            << name;
    }
    EXPECT_EQ(seen.size(), all_services::size);
}

class traits : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(traits);

TEST_P(traits, hang_together) {
    rig r{GetParam()};
    const service_traits& t = r.traits();
    EXPECT_GT(t.resolution.count(), 0);
    EXPECT_LE(t.earliest.count(), 0);
    EXPECT_GE(t.latest.count(), 0);
    EXPECT_EQ(t.loop_driven(), r.looped());
    EXPECT_EQ(r.manual(), t.manual_clock);
    EXPECT_FALSE(t.allocates.empty());
    EXPECT_TRUE(!r.looped() || t.arm_from == callable_from::loop_thread ||
                t.cancel_from == callable_from::any_thread)
        << "who may arm from anywhere must be able to withdraw";
    std::set<std::string_view> names;
    bool early = false;
    for (const fault& f : t.faults) {
        EXPECT_TRUE(f.clause >= 1 && f.clause <= 11) << f.name;
        EXPECT_TRUE(names.insert(f.name).second) << f.name;
        EXPECT_FALSE(f.what.empty()) << f.name;
        early = early || f.clause == 2;
    }
    EXPECT_EQ(early, t.earliest < duration::zero())
        << "an early service says so in its bounds and in its faults";
}

} // namespace
} // namespace timerbench::testing
