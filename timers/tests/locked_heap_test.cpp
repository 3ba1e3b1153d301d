// What is particular to the heap: its order under random scripts, when its driver wakes, its life around a fork, and its
// use inside another service.
#include "timers/locked_heap.hpp"
#include "timers/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using manual_heap = locked_heap<manual_time>;
using real_heap = locked_heap<steady_time>;
using lazy_heap = lazy_locked_heap<manual_time>;

// Appends its number to a log. The log is read only while the driver sleeps, after `advance`.
struct entry_log {
    std::vector<int>* fired;
    int number;
    callback on_fire() {
        return {[](void* p) {
                    const auto& self = *static_cast<entry_log*>(p);
                    self.fired->push_back(self.number);
                },
                this};
    }
};

callback set_flag(std::atomic<bool>& flag) {
    return {[](void* p) { static_cast<std::atomic<bool>*>(p)->store(true); }, &flag};
}

// Blocks its callback until it is let go.
struct gate {
    std::promise<void> entered;
    std::promise<void> open;
    callback on_fire() {
        return {[](void* p) {
                    auto& self = *static_cast<gate*>(p);
                    self.entered.set_value();
                    self.open.get_future().wait();
                },
                this};
    }
};

int driver_threads() {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::ifstream comm{task.path() / "comm"};
        std::string name;
        std::getline(comm, name);
        count += name == "tb_heap";
    }
    return count;
}

TEST(locked_heap, starts_its_driver_with_the_first_arm) {
    real_heap heap;
    real_heap::timer t{heap};
    EXPECT_FALSE(heap.cancel(t));
    EXPECT_EQ(driver_threads(), 0);
    std::atomic<bool> fired{false};
    ASSERT_TRUE(heap.arm(t, 1ms, set_flag(fired)));
    while (!fired) {
        std::this_thread::yield();
    }
    EXPECT_EQ(driver_threads(), 1);
    heap.stop();
    EXPECT_EQ(driver_threads(), 0);
}

TEST(locked_heap, wakes_for_a_new_head_and_not_for_a_cancelled_one) {
    manual_time clock;
    manual_heap heap{clock};
    std::vector<int> fired;
    std::array<entry_log, 4> logs{{{&fired, 0}, {&fired, 1}, {&fired, 2}, {&fired, 3}}};
    manual_heap::timer a{heap};
    manual_heap::timer b{heap};
    manual_heap::timer c{heap};
    ASSERT_TRUE(heap.arm(a, 10s, logs[0].on_fire()));
    clock.settle();
    ASSERT_TRUE(heap.arm(b, 1s, logs[1].on_fire()));
    ASSERT_TRUE(heap.arm(c, 2s, logs[2].on_fire()));
    clock.settle();
    EXPECT_TRUE(heap.cancel(b));
    clock.advance(1s);
    EXPECT_EQ(fired, std::vector<int>{});
    clock.advance(1s - 1ns);
    EXPECT_EQ(fired, std::vector<int>{});
    clock.advance(1ns);
    EXPECT_EQ(fired, (std::vector{2}));
    ASSERT_TRUE(heap.arm(b, 3s, logs[3].on_fire()));
    clock.advance(3s);
    EXPECT_EQ(fired, (std::vector{2, 3}));
    clock.advance(5s);
    EXPECT_EQ(fired, (std::vector{2, 3, 0}));
    EXPECT_TRUE(heap.counters().balanced());
}

template <class Heap>
void expect_agreement_with_the_model() {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random{seed};
        manual_time clock;
        Heap heap{clock};
        model oracle{clock.now()};
        constexpr int timers = 100;
        std::vector<int> fired;
        std::vector<entry_log> logs;
        std::vector<std::unique_ptr<typename Heap::timer>> handles;
        for (int i = 0; i < timers; ++i) {
            logs.push_back({&fired, i});
            handles.push_back(std::make_unique<typename Heap::timer>(heap));
        }
        for (int step = 0; step < 1'500; ++step) {
            const auto id = static_cast<std::size_t>(random() % timers);
            const std::uint64_t what = random() % 100;
            if (what < 55) {
                // Few different durations, so that deadlines collide.
                const duration d = what == 0   ? duration::max()
                                   : what == 1 ? duration::min()
                                               : duration{(random() % 40) * 50};
                if (!oracle.armed(id)) {
                    // The heap takes a negative duration for zero.
                    ASSERT_TRUE(oracle.arm(id, std::max(d, duration::zero())));
                    ASSERT_TRUE(heap.arm(*handles[id], d, logs[id].on_fire()));
                }
                clock.settle(); // what is due at once has fired
            } else if (what < 80) {
                ASSERT_EQ(heap.cancel(*handles[id]), oracle.cancel(id));
            } else if (what < 84) {
                oracle.cancel(id);
                handles[id] = std::make_unique<typename Heap::timer>(heap);
            } else {
                clock.advance(duration{random() % 300});
            }
            if (what >= 84 || what < 55) {
                const std::vector<model::id> expected = oracle.advance_to(clock.now());
                ASSERT_TRUE(std::equal(fired.begin(), fired.end(), expected.begin(), expected.end(),
                                       [](int a, model::id b) { return static_cast<model::id>(a) == b; }));
                fired.clear();
            }
            ASSERT_TRUE(heap.check());
            ASSERT_EQ(heap.counters().pending, oracle.counters().pending);
        }
        heap.stop();
        oracle.stop();
        EXPECT_EQ(heap.counters().fired, oracle.counters().fired);
        EXPECT_EQ(heap.counters().cancelled, oracle.counters().cancelled);
        EXPECT_EQ(heap.counters().dropped, oracle.counters().dropped);
        EXPECT_TRUE(heap.counters().balanced());
    }
}

TEST(locked_heap, agrees_with_the_model_to_the_nanosecond_and_in_order) {
    expect_agreement_with_the_model<manual_heap>();
}

TEST(lazy_locked_heap, agrees_with_the_model_to_the_nanosecond_and_in_order) {
    expect_agreement_with_the_model<lazy_heap>();
}

// A callback that arms its own timer again must not keep others from firing, whatever its duration.
TEST(locked_heap, a_timer_that_arms_itself_again_at_once_starves_nobody) {
    for (const duration d : {0ns, -1ns, duration::min()}) {
        real_heap heap;
        struct greedy {
            real_heap& heap;
            duration again;
            real_heap::timer timer{heap};
            std::atomic<std::uint64_t> laps{0};
            static void run(void* p) {
                auto& self = *static_cast<greedy*>(p);
                ++self.laps;
                self.heap.arm(self.timer, self.again, {run, p});
            }
        } g{heap, d};
        real_heap::timer other{heap};
        std::promise<void> other_fired;
        ASSERT_TRUE(heap.arm(g.timer, d, {greedy::run, &g}));
        ASSERT_TRUE(heap.arm(
            other, 2ms, {[](void* p) { static_cast<std::promise<void>*>(p)->set_value(); }, &other_fired}));
        EXPECT_EQ(other_fired.get_future().wait_for(60s), std::future_status::ready);
        EXPECT_GT(g.laps.load(), 1u);
        heap.stop();
        EXPECT_TRUE(heap.counters().balanced());
    }
}

TEST(locked_heap, keeps_what_is_armed_before_and_during_a_pause) {
    manual_time clock;
    manual_heap heap{clock};
    std::vector<int> fired;
    std::array<entry_log, 4> logs{{{&fired, 0}, {&fired, 1}, {&fired, 2}, {&fired, 3}}};
    manual_heap::timer before{heap};
    manual_heap::timer during{heap};
    manual_heap::timer later{heap};
    manual_heap::timer cancelled{heap};
    ASSERT_TRUE(heap.arm(before, 2s, logs[0].on_fire()));
    heap.pause_for_fork();
    heap.pause_for_fork();
    EXPECT_EQ(driver_threads(), 0);
    ASSERT_TRUE(heap.arm(during, 1s, logs[1].on_fire()));
    ASSERT_TRUE(heap.arm(later, 5s, logs[2].on_fire()));
    ASSERT_TRUE(heap.arm(cancelled, 1s, logs[3].on_fire()));
    clock.advance(3s);
    EXPECT_EQ(fired, std::vector<int>{});
    EXPECT_TRUE(heap.cancel(cancelled));
    EXPECT_EQ(heap.counters().pending, 3u);
    heap.resume();
    clock.settle();
    EXPECT_EQ(fired, (std::vector{1, 0}));
    clock.advance(2s);
    EXPECT_EQ(fired, (std::vector{1, 0, 2}));
}

// Runs `body` in a forked child that gets 30 s, and returns its exit status.
template <class Body>
int in_child(Body body) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        _exit(body());
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

TEST(locked_heap, fires_in_parent_and_child_after_a_paused_fork) {
    real_heap heap;
    std::atomic<bool> fired{false};
    std::atomic<bool> again{false};
    real_heap::timer t{heap};
    real_heap::timer u{heap};
    ASSERT_TRUE(heap.arm(t, 5ms, set_flag(fired)));
    heap.pause_for_fork();
    const auto both_fire = [&] {
        heap.resume();
        if (!heap.arm(u, 1ms, set_flag(again))) {
            return 1;
        }
        while (!fired || !again) {
            std::this_thread::yield();
        }
        heap.stop();
        return heap.counters().balanced() && heap.counters().fired == 2 ? 0 : 2;
    };
    EXPECT_EQ(in_child(both_fire), 0);
    EXPECT_EQ(both_fire(), 0);
}

TEST(locked_heap, refuses_in_a_child_forked_without_a_pause_and_is_destroyed_there) {
    manual_time clock;
    auto heap = std::make_unique<manual_heap>(clock);
    auto t = std::make_unique<manual_heap::timer>(*heap);
    auto u = std::make_unique<manual_heap::timer>(*heap);
    std::atomic<bool> fired{false};
    ASSERT_TRUE(heap->arm(*t, 1h, set_flag(fired)));
    ASSERT_TRUE(heap->arm(*u, 1h, set_flag(fired)));
    clock.settle(); // the driver waits, and the child inherits what it waits on
    EXPECT_EQ(in_child([&] {
                  if (!heap->cancel(*u) || heap->cancel(*u) || heap->arm(*u, 1ms, set_flag(fired))) {
                      return 1;
                  }
                  heap->resume(); // changes nothing without a pause
                  if (heap->arm(*u, 1ms, set_flag(fired))) {
                      return 2;
                  }
                  t.reset();
                  u.reset();
                  heap.reset();
                  return 0;
              }),
              0);
    EXPECT_TRUE(heap->cancel(*t));
    EXPECT_TRUE(heap->cancel(*u));
}

// Inside a callback of the service that embeds the heap, cancel does not wait for a callback of the heap's driver.
TEST(locked_heap, takes_the_callbacks_of_its_owner_for_its_own) {
    int owner = 0;
    real_heap heap{steady(), {}, &owner};
    real_heap::timer t{heap};
    gate blocked;
    ASSERT_TRUE(heap.arm(t, 0ns, blocked.on_fire()));
    blocked.entered.get_future().wait();
    {
        const detail::callback_scope scope{&owner, nullptr};
        EXPECT_FALSE(heap.cancel(t)); // returns, although the callback runs
    }
    blocked.open.set_value();
    EXPECT_FALSE(heap.cancel(t));
    EXPECT_EQ(heap.counters().fired, 1u);
}

TEST(locked_heap, arms_at_a_deadline_on_its_clock) {
    manual_time clock;
    manual_heap heap{clock};
    std::vector<int> fired;
    std::array<entry_log, 2> logs{{{&fired, 0}, {&fired, 1}}};
    manual_heap::timer a{heap};
    manual_heap::timer never{heap};
    ASSERT_TRUE(heap.arm_at(a, clock.now() + 7ns, logs[0].on_fire()));
    ASSERT_TRUE(heap.arm_at(never, time_point::max(), logs[1].on_fire()));
    clock.advance(6ns);
    EXPECT_EQ(fired, std::vector<int>{});
    clock.advance(1ns);
    EXPECT_EQ(fired, (std::vector{0}));
    clock.advance(24h * 365 * 100);
    EXPECT_TRUE(heap.cancel(never));
}

TEST(locked_heap, holds_nothing_of_what_is_cancelled) {
    manual_time clock;
    manual_heap heap{clock};
    std::vector<int> fired;
    entry_log log{&fired, 0};
    manual_heap::timer t{heap};
    for (int i = 0; i < 1'000; ++i) {
        ASSERT_TRUE(heap.arm(t, 1h, log.on_fire()));
        ASSERT_TRUE(heap.cancel(t));
    }
    EXPECT_EQ(heap.held(), 0u);
    EXPECT_TRUE(heap.traits().cancel_frees);
    EXPECT_FALSE(heap.traits().cancelled_held_to_deadline);
}

TEST(locked_heap, is_not_made_lazy_by_a_value) {
    manual_time clock;
    EXPECT_THROW((manual_heap{clock, locked_heap_options{.lazy = true}}), std::invalid_argument);
    EXPECT_THROW((lazy_heap{clock, locked_heap_options{}}), std::invalid_argument);
}

TEST(lazy_locked_heap, holds_what_is_cancelled_until_its_deadline) {
    manual_time clock;
    lazy_heap heap{clock};
    std::vector<int> fired;
    entry_log log{&fired, 7};
    constexpr std::size_t cancelled = 1'000;
    {
        lazy_heap::timer gone{
            heap}; // armed again over its dead entries, then destroyed while the last is alive
        for (std::size_t i = 0; i < cancelled; ++i) {
            ASSERT_TRUE(heap.arm(gone, 10s, log.on_fire()));
            ASSERT_EQ(heap.held(), i + 1);
            if (i + 1 < cancelled) {
                ASSERT_TRUE(heap.cancel(gone));
                ASSERT_FALSE(heap.cancel(gone));
            }
        }
    }
    lazy_heap::timer later{heap};
    ASSERT_TRUE(heap.arm(later, 20s, log.on_fire()));
    EXPECT_EQ(heap.counters().pending, 1u);
    EXPECT_EQ(heap.counters().cancelled, cancelled);
    EXPECT_TRUE(heap.check());
    clock.advance(10s - 1ns);
    EXPECT_EQ(heap.held(), cancelled + 1) << "no dead entry leaves before its deadline";
    clock.advance(1ns);
    EXPECT_EQ(heap.held(), 1u) << "none stays behind it";
    EXPECT_EQ(fired, std::vector<int>{});
    EXPECT_TRUE(heap.check());
    clock.advance(10s);
    EXPECT_EQ(fired, std::vector{7});
    EXPECT_EQ(heap.held(), 0u);
    EXPECT_FALSE(heap.traits().cancel_frees);
    EXPECT_TRUE(heap.traits().cancelled_held_to_deadline);
}

// A dead entry behind a live one keeps its place: what is below it in the heap stays in order.
TEST(lazy_locked_heap, fires_around_dead_entries_in_order) {
    manual_time clock;
    lazy_heap heap{clock};
    std::vector<int> fired;
    std::vector<entry_log> logs;
    std::vector<std::unique_ptr<lazy_heap::timer>> timers;
    for (int i = 0; i < 200; ++i) {
        logs.push_back({&fired, i});
        timers.push_back(std::make_unique<lazy_heap::timer>(heap));
    }
    std::vector<int> expected;
    for (int i = 0; i < 200; ++i) {
        const auto at = static_cast<std::size_t>(i * 67 % 200);
        ASSERT_TRUE(heap.arm(*timers[at], static_cast<int>(at) * 1ms, logs[at].on_fire()));
    }
    for (int i = 1; i < 200; ++i) {
        if (i % 3 == 0) {
            timers[static_cast<std::size_t>(i)].reset();
        } else {
            expected.push_back(i);
        }
    }
    clock.settle();
    ASSERT_EQ(fired, std::vector{0});
    fired.clear();
    clock.advance(1s);
    EXPECT_EQ(fired, expected);
    EXPECT_EQ(heap.held(), 0u);
}

TEST(lazy_locked_heap, stop_drops_the_living_alone) {
    manual_time clock;
    lazy_heap heap{clock};
    std::vector<int> fired;
    entry_log log{&fired, 0};
    lazy_heap::timer a{heap};
    lazy_heap::timer b{heap};
    ASSERT_TRUE(heap.arm(a, 1s, log.on_fire()));
    ASSERT_TRUE(heap.arm(b, 2s, log.on_fire()));
    ASSERT_TRUE(heap.cancel(a));
    heap.stop();
    EXPECT_EQ(heap.counters().dropped, 1u);
    EXPECT_EQ(heap.held(), 0u);
    EXPECT_TRUE(heap.counters().balanced());
    EXPECT_FALSE(heap.cancel(b));
}

} // namespace
} // namespace timerbench
