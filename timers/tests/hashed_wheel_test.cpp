// What is particular to the wheel: rounds, jumps, the queue in front, and nodes that are used again.
#include "timers/hashed_wheel.hpp"
#include "timers/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using wheel = hashed_wheel<manual_time>;
using real_wheel = hashed_wheel<steady_time>;

constexpr duration tick = 10ms;
constexpr duration turn = wheel::slots * tick;
constexpr duration beyond = std::chrono::milliseconds{std::int64_t{1} << 36};

// A timer that notes on the manual clock when it fired. Read only while the worker sleeps.
struct noting {
    manual_time& clock;
    wheel::timer timer;
    std::vector<time_point> fired{};
    noting(wheel& w, manual_time& c) : clock{c}, timer{w} {}
    callback on_fire() {
        return {[](void* p) {
                    auto& self = *static_cast<noting*>(p);
                    self.fired.push_back(self.clock.now());
                },
                this};
    }
};

// Counts fires. Read only while the worker sleeps.
callback count_in(int& count) {
    return {[](void* p) { ++*static_cast<int*>(p); }, &count};
}

class both_cancels : public testing::TestWithParam<bool> {
  protected:
    manual_time clock;
    wheel w{clock, {.tick_ns = tick.count(), .mark = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(hashed_wheel, both_cancels, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "mark" : "queue"; });

TEST_P(both_cancels, fires_at_the_first_tick_that_is_not_before_the_deadline) {
    const time_point start = clock.now();
    for (const duration d : {1ns, tick - 1ns, tick, tick + 1ns, turn / 2, turn - tick, turn, turn + 1ns,
                             turn + tick, turn * 3 / 2, turn * 10, turn * 10 + tick - 1ns}) {
        SCOPED_TRACE(d.count());
        noting t{w, clock};
        ASSERT_TRUE(w.arm(t.timer, d, t.on_fire()));
        const time_point deadline = clock.now() + d;
        while (clock.now() < deadline + 2 * tick) {
            clock.advance(tick);
        }
        ASSERT_EQ(t.fired.size(), 1u);
        EXPECT_EQ(t.fired[0], start + ceil_ticks(deadline - start, tick) * tick);
    }
}

TEST_P(both_cancels, zero_and_negative_durations_fire_at_the_next_tick_and_endless_ones_never) {
    clock.advance(3 * tick);
    const time_point armed = clock.now();
    std::deque<noting> soon;
    for (const duration d : {0ns, -1ns, -46'000'000ns, duration::min()}) {
        soon.emplace_back(w, clock);
        ASSERT_TRUE(w.arm(soon.back().timer, d, soon.back().on_fire()));
    }
    noting never{w, clock};
    ASSERT_TRUE(w.arm(never.timer, duration::max(), never.on_fire()));
    EXPECT_TRUE(soon.front().fired.empty());
    clock.advance(tick);
    for (const noting& t : soon) {
        EXPECT_EQ(t.fired, std::vector{armed + tick});
    }
    clock.advance(beyond);
    EXPECT_TRUE(never.fired.empty());
    EXPECT_TRUE(w.cancel(never.timer));
}

TEST_P(both_cancels, goes_through_every_tick_that_it_missed) {
    noting t{w, clock};
    ASSERT_TRUE(w.arm(t.timer, 110 * tick, t.on_fire()));
    // Steps that are no multiple of the tick, and one that passes the slot in the middle.
    for (int i = 0; i < 40; ++i) {
        clock.advance(tick * 9 / 5);
        clock.advance(tick / 10);
    }
    EXPECT_TRUE(t.fired.empty());
    clock.advance(85 * tick / 2);
    EXPECT_EQ(t.fired.size(), 1u);
}

TEST_P(both_cancels, a_jump_over_many_turns_ends_at_once_and_fires_in_order_of_the_ticks) {
    noting first{w, clock};
    ASSERT_TRUE(w.arm(first.timer, 0ns, first.on_fire()));
    clock.advance(tick);
    clock.advance(beyond); // nothing armed
    const time_point start = clock.now();

    std::vector<int> order;
    struct numbered {
        std::vector<int>* order;
        int number;
    };
    std::deque<std::pair<wheel::timer, numbered>> timers;
    const std::array<duration, 6> after{beyond / 2, 3 * turn,          3 * turn - tick,
                                        tick,       beyond / 2 - turn, 5 * turn};
    for (int i = 0; i < 6; ++i) {
        timers.emplace_back(std::piecewise_construct, std::forward_as_tuple(w),
                            std::forward_as_tuple(numbered{&order, i}));
        ASSERT_TRUE(w.arm(timers.back().first, after[static_cast<std::size_t>(i)],
                          {[](void* p) {
                               const auto& self = *static_cast<numbered*>(p);
                               self.order->push_back(self.number);
                           },
                           &timers.back().second}));
    }
    noting late{w, clock};
    ASSERT_TRUE(w.arm(late.timer, beyond + tick, late.on_fire()));
    clock.advance(beyond);
    EXPECT_EQ(order, (std::vector{3, 2, 1, 5, 4, 0}));
    EXPECT_TRUE(late.fired.empty());
    clock.advance(2 * tick);
    ASSERT_EQ(late.fired.size(), 1u);

    noting again{w, clock};
    ASSERT_TRUE(w.arm(again.timer, 10s, again.on_fire()));
    clock.advance(10s - tick);
    EXPECT_TRUE(again.fired.empty());
    clock.advance(2 * tick);
    EXPECT_EQ(again.fired.size(), 1u);
    EXPECT_GT(clock.now(), start + beyond);
}

TEST_P(both_cancels, a_period_keeps_its_length_over_many_turns) {
    struct periodic {
        wheel& service;
        wheel::timer timer{service};
        int laps = 0;
        static void run(void* p) {
            auto& self = *static_cast<periodic*>(p);
            ++self.laps;
            self.service.arm(self.timer, 10s, {run, p});
        }
    } t{w};
    ASSERT_TRUE(w.arm(t.timer, 10s, {periodic::run, &t}));
    int before = 0;
    for (int span = 0; span < 6; ++span) {
        for (int i = 0; i < 12'000; ++i) {
            clock.advance(tick);
        }
        EXPECT_GE(t.laps - before, 11);
        EXPECT_LE(t.laps - before, 12);
        before = t.laps;
    }
}

TEST_P(both_cancels, agrees_with_the_model_within_a_tick) {
    for (std::uint32_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random{seed};
        manual_time own_clock;
        wheel own{own_clock, {.tick_ns = tick.count(), .mark = GetParam()}};
        model oracle{own_clock.now()};
        struct slot {
            std::vector<model::id>* fired;
            model::id id;
            std::unique_ptr<wheel::timer> timer{};
        };
        std::vector<model::id> fired;
        std::vector<slot> all;
        for (model::id i = 0; i < 80; ++i) {
            all.push_back({&fired, i, std::make_unique<wheel::timer>(own)});
        }
        for (int step = 0; step < 2'000; ++step) {
            slot& s = all[random() % all.size()];
            const std::uint64_t what = random() % 100;
            if (what < 50) {
                const std::int64_t most_ms = what < 30 ? 60 : what < 45 ? 12'000 : 400'000;
                const duration d =
                    what == 0 ? duration::max() : duration{std::int64_t(random() % (most_ms * 1'000'000))};
                if (!oracle.armed(s.id)) {
                    ASSERT_TRUE(oracle.arm(s.id, d));
                    ASSERT_TRUE(own.arm(*s.timer, d,
                                        {[](void* p) {
                                             const auto& self = *static_cast<slot*>(p);
                                             self.fired->push_back(self.id);
                                         },
                                         &s}));
                }
            } else if (what < 70) {
                ASSERT_EQ(own.cancel(*s.timer), oracle.cancel(s.id));
            } else if (what < 75) {
                oracle.cancel(s.id);
                s.timer = std::make_unique<wheel::timer>(own);
            } else if (what < 78) {
                own.drain();
                ASSERT_EQ(own.backlog(), 0u);
            } else {
                const std::int64_t most_ms = what < 98 ? 25 : what < 99 ? 9'000 : 90'000;
                own_clock.advance(duration{std::int64_t(random() % (most_ms * 1'000'000))});
                oracle.set_time(own_clock.now());
                for (const model::id id : fired) {
                    ASSERT_TRUE(oracle.fire(id)) << "early, twice or cancelled: " << id;
                }
                fired.clear();
                ASSERT_EQ(oracle.overdue(tick), std::vector<model::id>{});
            }
            ASSERT_EQ(own.counters().pending, oracle.counters().pending);
        }
        own.stop();
        oracle.stop();
        EXPECT_EQ(own.counters().fired, oracle.counters().fired);
        EXPECT_EQ(own.counters().dropped, oracle.counters().dropped);
        EXPECT_TRUE(own.counters().balanced());
    }
}

TEST_P(both_cancels, drain_takes_over_at_once_what_was_queued) {
    int count = 0;
    std::deque<wheel::timer> timers;
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(w.arm(timers.emplace_back(w), 25ms, count_in(count)));
    }
    EXPECT_TRUE(w.cancel(timers[1]));
    EXPECT_EQ(w.backlog(), GetParam() ? 5u : 6u);
    w.drain();
    EXPECT_EQ(w.backlog(), 0u);
    EXPECT_EQ(w.counters().pending, 4u);
    EXPECT_TRUE(w.cancel(timers[2]));
    EXPECT_EQ(w.backlog(), GetParam() ? 0u : 1u);
    w.drain();
    EXPECT_EQ(w.backlog(), 0u);
    clock.advance(20ms);
    EXPECT_EQ(count, 0);
    clock.advance(10ms);
    EXPECT_EQ(count, 3);
    w.stop();
    w.drain();
}

TEST_P(both_cancels, transfers_at_most_its_limit_in_a_tick) {
    int count = 0;
    std::deque<wheel::timer> timers;
    const int many = 2 * static_cast<int>(wheel::transfers_per_tick) + 50;
    for (int i = 0; i < many; ++i) {
        ASSERT_TRUE(w.arm(timers.emplace_back(w), 0ns, count_in(count)));
    }
    // The last half of the second tick's share is cancelled while it waits.
    const std::size_t limit = wheel::transfers_per_tick;
    clock.advance(tick);
    EXPECT_EQ(count, static_cast<int>(limit));
    EXPECT_EQ(w.backlog(), limit + 50);
    for (std::size_t i = limit + limit / 2; i < 2 * limit; ++i) {
        ASSERT_TRUE(w.cancel(timers[i]));
    }
    clock.advance(tick);
    // Dead nodes leave a queue at once, or take transfers where cancel only marks.
    EXPECT_EQ(w.backlog(), GetParam() ? 50u : 0u);
    clock.advance(tick);
    EXPECT_EQ(w.backlog(), 0u);
    EXPECT_EQ(count, static_cast<int>(limit + limit / 2 + 50));
    EXPECT_EQ(w.counters().pending, 0u);
    EXPECT_TRUE(w.counters().balanced());
}

// A timer that is idle keeps the address of the node it had, which belongs to others by then.
TEST_P(both_cancels, a_node_used_again_is_not_mistaken_for_the_old_timer) {
    int old_count = 0;
    int new_count = 0;
    wheel::timer fired{w};
    auto cancelled = std::make_unique<wheel::timer>(w);
    ASSERT_TRUE(w.arm(fired, 0ns, count_in(old_count)));
    ASSERT_TRUE(w.arm(*cancelled, 0ns, count_in(old_count)));
    ASSERT_TRUE(w.cancel(*cancelled));
    clock.advance(2 * tick);
    ASSERT_EQ(old_count, 1);
    std::deque<wheel::timer> timers;
    while (timers.size() < w.pool_size()) { // every node is in use again
        ASSERT_TRUE(w.arm(timers.emplace_back(w), 1s, count_in(new_count)));
    }
    EXPECT_FALSE(w.cancel(fired));
    EXPECT_FALSE(w.cancel(*cancelled));
    cancelled.reset();
    EXPECT_EQ(w.counters().pending, timers.size());
    clock.advance(1s + tick);
    EXPECT_EQ(new_count, static_cast<int>(timers.size()));
    EXPECT_EQ(w.counters().cancelled, 1u);
}

// The pool holds what is armed and what was cancelled since the tick before; with `mark`, what was cancelled in the wheel
// since a timeout before.
TEST_P(both_cancels, cancelled_nodes_return_to_the_pool) {
    int count = 0;
    constexpr std::size_t per_tick = 100;
    constexpr duration timeout = 1s;
    std::deque<wheel::timer> timers;
    for (std::size_t i = 0; i < per_tick; ++i) {
        timers.emplace_back(w);
    }
    for (int round = 0; round < 400; ++round) {
        for (wheel::timer& t : timers) {
            ASSERT_TRUE(w.arm(t, timeout, count_in(count)));
        }
        w.drain();
        for (wheel::timer& t : timers) {
            ASSERT_TRUE(w.cancel(t));
        }
        clock.advance(tick);
    }
    const std::size_t held = per_tick * (GetParam() ? static_cast<std::size_t>(timeout / tick) : 1);
    EXPECT_GE(w.pool_size(), held);
    EXPECT_LE(w.pool_size(), held + 2 * per_tick + 1'024);
    EXPECT_EQ(count, 0);
}

TEST_P(both_cancels, expired_timers_that_have_not_begun_are_withdrawn) {
    struct blocking {
        std::promise<void> entered;
        std::promise<void> open;
        static void run(void* p) {
            auto& self = *static_cast<blocking*>(p);
            self.entered.set_value();
            self.open.get_future().wait();
        }
    };
    // Often enough for the pool to grow if the withdrawn nodes did not come back to it.
    for (int round = 0; round < 150; ++round) {
        blocking first;
        int count = 0;
        std::deque<wheel::timer> timers;
        for (int i = 0; i < 11; ++i) {
            const callback c = i == 0 ? callback{blocking::run, &first} : count_in(count);
            ASSERT_TRUE(w.arm(timers.emplace_back(w), 5ms, c));
        }
        clock.shift(tick);
        first.entered.get_future().wait();
        for (std::size_t i = 1; i < timers.size(); ++i) {
            EXPECT_TRUE(w.cancel(timers[i]));
        }
        EXPECT_EQ(w.counters().pending, 0u);
        wheel::timer again{w};
        ASSERT_TRUE(w.arm(again, 5ms, count_in(count)));
        first.open.set_value();
        clock.settle();
        clock.advance(3 * tick);
        EXPECT_EQ(count, 1);
        EXPECT_EQ(w.backlog(), 0u);
        EXPECT_EQ(w.counters().pending, 0u);
        EXPECT_TRUE(w.counters().balanced());
    }
    EXPECT_EQ(w.pool_size(), 1'024u);
}

TEST_P(both_cancels, equal_deadlines_fire_in_the_order_of_their_arms) {
    struct numbered {
        std::vector<int>* order;
        int number;
    };
    std::vector<int> order;
    std::deque<wheel::timer> timers;
    std::deque<numbered> numbers;
    const time_point deadline = clock.now() + 2 * turn;
    for (int i = 0; i < 1'000; ++i) {
        if (i % 250 == 249) {
            clock.advance(turn / 3); // some wait in the wheel already, some come a turn later
        }
        ASSERT_TRUE(w.arm(timers.emplace_back(w), deadline - clock.now(),
                          {[](void* p) {
                               const auto& self = *static_cast<numbered*>(p);
                               self.order->push_back(self.number);
                           },
                           &numbers.emplace_back(numbered{&order, i})}));
    }
    clock.advance(2 * turn);
    ASSERT_EQ(order.size(), 1'000u);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(both_cancels, stop_drops_queued_and_placed_timers_alike) {
    int count = 0;
    std::deque<wheel::timer> timers;
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(w.arm(timers.emplace_back(w), 1s, count_in(count)));
    }
    w.drain();
    ASSERT_TRUE(w.cancel(timers[0]));
    ASSERT_TRUE(w.arm(timers[0], 0ns, count_in(count)));
    w.stop();
    w.stop();
    clock.advance(2s);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(w.counters().dropped, 10u);
    EXPECT_EQ(w.counters().pending, 0u);
    EXPECT_FALSE(w.cancel(timers[3]));
    EXPECT_FALSE(w.arm(timers[3], 1s, count_in(count)));
    EXPECT_TRUE(w.counters().balanced());
}

TEST(hashed_wheel, refuses_a_tick_that_it_cannot_keep) {
    EXPECT_THROW((real_wheel{steady(), {.tick_ns = 999}}), std::invalid_argument);
    EXPECT_THROW((real_wheel{steady(), {.tick_ns = -1}}), std::invalid_argument);
    EXPECT_NO_THROW((real_wheel{steady(), {.tick_ns = 1'000}}));
}

TEST(hashed_wheel, refuses_in_a_forked_child_and_is_destroyed_there) {
    manual_time clock;
    auto w = std::make_unique<wheel>(clock);
    auto t = std::make_unique<wheel::timer>(*w);
    int count = 0;
    ASSERT_TRUE(w->arm(*t, 1h, count_in(count)));
    clock.settle(); // the worker waits, and the child inherits what it waits on
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        const bool refused = w->cancel(*t) && !w->cancel(*t) && !w->arm(*t, 1ms, count_in(count));
        w->drain();
        t.reset();
        w.reset();
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(w->cancel(*t));
}

// Two threads arm, cancel and destroy timers of short durations, and take timers from each other.
TEST(hashed_wheel, stays_balanced_under_threads_in_real_time) {
    for (const bool mark : {false, true}) {
        real_wheel w{steady(), {.tick_ns = 200'000, .mark = mark}};
        std::atomic<std::uint64_t> ran{0};
        std::atomic<std::uint64_t> withdrawn{0};
        std::atomic<std::uint64_t> armed{0};
        // The mutex of a cell serialises the calls on its timer.
        struct cell {
            std::mutex mutex;
            std::unique_ptr<real_wheel::timer> timer;
        };
        std::array<cell, 64> cells;
        const auto work = [&](std::uint32_t seed) {
            std::mt19937 random{seed};
            for (int i = 0; i < 40'000; ++i) {
                cell& c = cells[random() % cells.size()];
                const std::lock_guard lock{c.mutex};
                if (c.timer == nullptr) {
                    c.timer = std::make_unique<real_wheel::timer>(w);
                }
                withdrawn += w.cancel(*c.timer);
                switch (random() % 8) {
                case 0:
                    c.timer.reset();
                    break;
                case 1:
                    w.drain();
                    [[fallthrough]];
                default:
                    armed += w.arm(*c.timer, duration{random() % 1'000'000},
                                   {[](void* p) { ++*static_cast<std::atomic<std::uint64_t>*>(p); }, &ran});
                }
            }
        };
        std::thread one{work, 1};
        std::thread two{work, 2};
        one.join();
        two.join();
        for (cell& c : cells) {
            if (c.timer != nullptr) {
                withdrawn += w.cancel(*c.timer);
            }
        }
        EXPECT_EQ(armed.load(), ran.load() + withdrawn.load());
        EXPECT_EQ(w.counters().armed, armed.load());
        EXPECT_EQ(w.counters().fired, ran.load());
        EXPECT_EQ(w.counters().pending, 0u);
        EXPECT_TRUE(w.counters().balanced());
        EXPECT_GT(ran.load(), 0u);
        w.drain();
        EXPECT_EQ(w.backlog(), 0u);
    }
}

} // namespace
} // namespace timerbench
