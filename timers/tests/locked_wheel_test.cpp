// What is particular to the locked wheel: its geometry against an ordered map, deadlines beyond its span, and when its driver
// gets up.
#include "timers/locked_wheel.hpp"
#include "timers/tests/support/rig.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace timerbench {
namespace {

using namespace std::chrono_literals;

struct item : detail::list_link {
    std::uint64_t tick = 0;
    std::uint16_t place = 0xFFFF;
    int number = 0;
};
using wheel = detail::aligned_wheel<item>;

std::vector<int> popped(wheel& w, std::uint64_t tick) {
    std::vector<int> numbers;
    while (const item* const i = w.pop(tick)) {
        EXPECT_EQ(i->place, wheel::nowhere);
        numbers.push_back(i->number);
    }
    return numbers;
}

TEST(aligned_wheel, gives_each_span_its_level) {
    // The highest bit that differs from the present gives the level, so the next look is at the slot's beginning.
    struct {
        std::uint64_t now, tick, event;
    } const cases[]{
        {0, 1, 1},
        {0, 63, 63},
        {0, 64, 64},
        {0, 100, 64},
        {0, 4'095, 4'032},
        {0, 4'096, 4'096},
        {0, 300'000, 262'144},
        {80, 120, 120}, // a slot of level 1 that has begun is in reach of level 0
        {80, 130, 128},
        {63, 64, 64}, // next to each other, a level apart
        {4'095, 4'096, 4'096},
        {0, (1ULL << 36) - 1, 63ULL << 30},
        {0, 1ULL << 36, 1ULL << 36},       // beyond the span: the slot that now is in, a turn later
        {0, (5ULL << 36) + 7, 1ULL << 36}, // looked at once a turn
        {1ULL << 30, 1ULL << 36, 1ULL << 36},
        {(1ULL << 36) - 1, 1ULL << 36, 1ULL << 36},
        {(1ULL << 36) + 5, (1ULL << 36) + 6, (1ULL << 36) + 6},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(std::to_string(c.now) + " " + std::to_string(c.tick));
        wheel w;
        EXPECT_EQ(w.pop(c.now), nullptr);
        EXPECT_EQ(w.next_event(), std::nullopt);
        item i;
        i.number = 1;
        w.insert(i, c.tick);
        EXPECT_TRUE(w.check());
        EXPECT_EQ(w.next_event(), c.event);
        EXPECT_EQ(popped(w, c.tick - 1), std::vector<int>{});
        EXPECT_EQ(popped(w, c.tick), std::vector{1});
        EXPECT_EQ(w.next_event(), std::nullopt);
        EXPECT_TRUE(w.check());
    }
}

TEST(aligned_wheel, takes_what_is_served_already_as_due) {
    wheel w;
    EXPECT_EQ(w.pop(500), nullptr);
    item a;
    a.number = 1;
    item b;
    b.number = 2;
    w.insert(a, 500);
    w.insert(b, 3);
    EXPECT_TRUE(w.has_due());
    EXPECT_EQ(w.count(), 2u);
    EXPECT_EQ(popped(w, 500), (std::vector{1, 2}));
}

TEST(aligned_wheel, agrees_with_an_ordered_map) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random{seed};
        wheel w;
        std::vector<std::unique_ptr<item>> items;
        std::multimap<std::uint64_t, int> expected; // equal ticks stay in the order of their inserts
        std::vector<std::multimap<std::uint64_t, int>::iterator> at;
        for (int i = 0; i < 300; ++i) {
            items.push_back(std::make_unique<item>());
            items.back()->number = i;
            at.push_back(expected.end());
        }
        const auto any_distance = [&] { return (random() >> (random() % 64)) % (std::uint64_t{1} << 41); };
        for (int step = 0; step < 5'000; ++step) {
            const auto n = static_cast<std::size_t>(random() % items.size());
            const auto dice = random() % 10;
            if (dice < 6) {
                if (at[n] == expected.end()) {
                    const std::uint64_t tick =
                        w.now() + 1 + (random() % 4 == 0 ? random() % 8 : any_distance());
                    w.insert(*items[n], tick);
                    at[n] = expected.emplace(tick, static_cast<int>(n));
                }
            } else if (dice < 8) {
                if (at[n] != expected.end()) {
                    w.remove(*items[n]);
                    expected.erase(std::exchange(at[n], expected.end()));
                }
            } else {
                const std::uint64_t tick = w.now() + (random() % 2 == 0 ? random() % 100 : any_distance());
                std::vector<int> due;
                for (auto i = expected.begin(); i != expected.end() && i->first <= tick;
                     i = expected.erase(i)) {
                    due.push_back(i->second);
                    at[static_cast<std::size_t>(i->second)] = expected.end();
                }
                ASSERT_EQ(popped(w, tick), due);
                ASSERT_EQ(w.now(), tick);
            }
            ASSERT_TRUE(w.check());
            ASSERT_EQ(w.count(), expected.size());
            const auto next = w.next_event();
            ASSERT_EQ(next.has_value(), !expected.empty());
            if (next) {
                ASSERT_GT(*next, w.now());
                ASSERT_LE(*next, expected.begin()->first) << "the driver would oversleep";
            }
        }
        std::size_t left = 0;
        w.clear([&](item&) { ++left; });
        EXPECT_EQ(left, expected.size());
        EXPECT_EQ(w.count(), 0u);
        EXPECT_TRUE(w.check());
    }
}

// A manual clock whose parkers count: how often a driver went to sleep, and how often somebody woke it.
class counting_time {
  public:
    static constexpr bool is_manual = true;
    explicit counting_time(time_point start) : clock{start} {}
    [[nodiscard]] time_point now() const { return clock.now(); }

    manual_time clock;
    std::atomic<int> sleeps{0}; // by the driver
    std::atomic<int> wakes{0};  // by whoever arms

    class parker {
      public:
        explicit parker(counting_time& counting) : counting_{counting}, parker_{counting.clock} {}
        void wait_until(std::unique_lock<std::mutex>& lock, time_point t) {
            ++counting_.sleeps;
            parker_.wait_until(lock, t);
        }
        void wake() {
            ++counting_.wakes;
            parker_.wake();
        }

      private:
        counting_time& counting_;
        manual_time::parker parker_;
    };
};

static_assert(clock_source<counting_time>);

callback nothing() {
    return {[](void*) {}, nullptr};
}

TEST(locked_wheel, wakes_its_driver_for_earlier_deadlines_alone) {
    counting_time clock{time_point{24h}};
    using service_type = locked_wheel<counting_time>;
    service_type service{clock};
    service_type::timer first{service};
    service_type::timer later{service};
    service_type::timer earlier{service};
    ASSERT_TRUE(service.arm(first, 60ms, nothing()));
    clock.clock.settle();
    const int sleeps = clock.sleeps;
    const int wakes = clock.wakes;
    for (int i = 0; i < 1'000; ++i) {
        ASSERT_TRUE(service.arm(later, 60ms + i * 1ms, nothing()));
        ASSERT_TRUE(service.cancel(later));
    }
    clock.clock.settle();
    EXPECT_EQ(clock.wakes, wakes);
    EXPECT_EQ(clock.sleeps, sleeps);
    ASSERT_TRUE(service.arm(earlier, 59ms, nothing()));
    clock.clock.settle();
    EXPECT_EQ(clock.wakes, wakes + 1);
    EXPECT_EQ(clock.sleeps, sleeps + 1);
    clock.clock.advance(59ms);
    EXPECT_EQ(service.counters().fired, 1u);
    clock.clock.advance(1ms);
    EXPECT_EQ(service.counters().fired, 2u);
    // With nothing armed the driver stays where it is.
    const int asleep = clock.sleeps;
    clock.clock.advance(24h * 365);
    EXPECT_EQ(clock.sleeps, asleep);
}

TEST(locked_wheel, gets_up_once_a_level_for_a_far_deadline) {
    counting_time clock{time_point{24h}};
    locked_wheel<counting_time> service{clock};
    locked_wheel<counting_time>::timer t{service};
    ASSERT_TRUE(service.arm(t, 10min + 17ms, nothing()));
    clock.clock.settle();
    const int sleeps = clock.sleeps;
    for (int i = 0; i < 610; ++i) {
        clock.clock.advance(1s);
    }
    EXPECT_EQ(service.counters().fired, 1u);
    // 600 017 ticks are two slots of level 3, 18 of level 2, 31 of level 1 and 17 ticks: a look at each, one to fire included.
    EXPECT_LE(clock.sleeps - sleeps, 4);
}

TEST(locked_wheel, rounds_up_to_the_tick_and_not_beyond) {
    manual_time clock{time_point{24h}};
    locked_wheel<manual_time> service{clock};
    struct {
        duration phase, armed, fires;
    } const cases[]{
        {0ns, 1ms, 1ms}, {0ns, 1ns, 1ms},   {1ns, 1ms, 2ms},         {999'999ns, 1ns, 1ms},
        {5ns, 0ns, 1ms}, {0ns, 70ms, 70ms}, {1ns, 70ms - 1ns, 70ms}, {0ns, 5s + 1ns, 5s + 1ms},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(std::to_string(c.phase.count()) + " " + std::to_string(c.armed.count()));
        clock.advance(1ms - clock.now().time_since_epoch() % 1ms);
        clock.advance(c.phase);
        const std::uint64_t fired = service.counters().fired;
        locked_wheel<manual_time>::timer t{service};
        ASSERT_TRUE(service.arm(t, c.armed, nothing()));
        clock.advance(c.fires - c.phase - 1ns);
        EXPECT_EQ(service.counters().fired, fired);
        clock.advance(1ns);
        EXPECT_EQ(service.counters().fired, fired + 1);
    }
}

TEST(locked_wheel, serves_deadlines_beyond_its_span) {
    manual_time clock;
    locked_wheel<manual_time> service{clock};
    const duration span = std::chrono::milliseconds{1LL << 36};
    locked_wheel<manual_time>::timer far{service};
    locked_wheel<manual_time>::timer never{service};
    ASSERT_TRUE(service.arm(far, 3 * span + 5s, nothing()));
    ASSERT_TRUE(service.arm(never, duration::max(), nothing()));
    for (int i = 0; i < 3; ++i) {
        clock.advance(span);
        EXPECT_EQ(service.counters().fired, 0u);
        EXPECT_TRUE(service.check());
    }
    clock.advance(5s - 1ns);
    EXPECT_EQ(service.counters().fired, 0u);
    clock.advance(1ms);
    EXPECT_EQ(service.counters().fired, 1u);
    clock.advance(10 * span);
    EXPECT_TRUE(service.cancel(never));
    EXPECT_EQ(service.counters().pending, 0u);
}

} // namespace
} // namespace timerbench
