// What is particular to the libevent services: the conversion of durations, common timeouts, the two faults of the defaults,
// activations that are on their way. The contract itself is tested for all services elsewhere.
#include "timers/libevent.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace timerbench {
namespace {

using namespace std::chrono_literals;

constexpr libevent_options loop_options{.driver = driven_by::caller_loop};
using own_thread = basic_libevent<libevent_options{}>;
using own_thread_common = basic_libevent<libevent_options{.common_queues = true}>;
using per_thread = basic_libevent<loop_options>;
using per_thread_common =
    basic_libevent<libevent_options{.driver = driven_by::caller_loop, .common_queues = true}>;
using per_thread_default =
    basic_libevent<libevent_options{.driver = driven_by::caller_loop, .library_defaults = true}>;

time_point now() {
    return std::chrono::steady_clock::now();
}

// Far more than anything here takes; a bound for tests that would otherwise hang.
time_point patience() {
    return now() + 60s;
}

void count(void* counter) {
    ++*static_cast<std::atomic<int>*>(counter);
}

void expect_timeval(timeval tv, time_t sec, suseconds_t usec) {
    EXPECT_EQ(tv.tv_sec, sec);
    EXPECT_EQ(tv.tv_usec, usec);
}

TEST(libevent, durations_become_timevals_without_overflow) {
    expect_timeval(to_timeval(0ns), 0, 0);
    expect_timeval(to_timeval(-1ns), 0, 0);
    expect_timeval(to_timeval(-1s), 0, 0);
    expect_timeval(to_timeval(duration::min()), 0, 0);
    expect_timeval(to_timeval(std::chrono::hours::min()), 0, 0);
    expect_timeval(to_timeval(1ns), 0, 1);
    expect_timeval(to_timeval(1us), 0, 1);
    expect_timeval(to_timeval(1001ns), 0, 2);
    expect_timeval(to_timeval(999'999'001ns), 1, 0);
    expect_timeval(to_timeval(1s), 1, 0);
    expect_timeval(to_timeval(90min), 5400, 0);
    // The end of the range of nanoseconds, 292 years, from whatever is beyond it.
    expect_timeval(to_timeval(duration::max()), 9'223'372'036, 854'776);
    expect_timeval(to_timeval(std::chrono::microseconds::max()), 9'223'372'036, 854'776);
    expect_timeval(to_timeval(std::chrono::seconds::max()), 9'223'372'036, 854'776);
    expect_timeval(to_timeval(std::chrono::hours::max()), 9'223'372'036, 854'776);
    expect_timeval(to_timeval(std::chrono::duration<std::int64_t, std::ratio<31'556'952>>::max()),
                   9'223'372'036, 854'776);
}

TEST(libevent, a_margin_is_added_before_rounding_and_not_to_what_is_due) {
    constexpr duration margin = detail::clock_cut;
    expect_timeval(to_timeval(0ns, margin), 0, 0);
    expect_timeval(to_timeval(-5ms, margin), 0, 0);
    expect_timeval(to_timeval(1ns, margin), 0, 1);
    expect_timeval(to_timeval(2ns, margin), 0, 2);
    expect_timeval(to_timeval(1us, margin), 0, 2);
    expect_timeval(to_timeval(999'999us, margin), 1, 0);
    expect_timeval(to_timeval(duration::max(), margin), 9'223'372'036, 854'776);
}

template <class Service>
class libevent_loop : public ::testing::Test {};
using loops = ::testing::Types<per_thread, per_thread_common, per_thread_default>;
TYPED_TEST_SUITE(libevent_loop, loops);

template <class Service>
struct rearming {
    explicit rearming(Service& s) : service{s} {}
    Service& service;
    typename Service::timer timer{service};
    int fired = 0;
    bool arm() { return service.arm(timer, 0ns, callback{&rearming::on_fire, this}); }
    static void on_fire(void* context) {
        auto& self = *static_cast<rearming*>(context);
        ++self.fired;
        self.arm();
    }
};

TYPED_TEST(libevent_loop, a_zero_rearm_waits_for_the_next_pass) {
    TypeParam service;
    rearming<TypeParam> again{service};
    ASSERT_TRUE(again.arm());
    for (int pass = 1; pass <= 100; ++pass) {
        const std::size_t ran = pass % 2 == 0 ? service.poll() : service.poll_until(patience());
        ASSERT_EQ(ran, 1U);
        ASSERT_EQ(again.fired, pass);
        ASSERT_EQ(service.counters().pending, 1U);
    }
    EXPECT_TRUE(service.cancel(again.timer));
    EXPECT_EQ(service.poll(), 0U);
    EXPECT_TRUE(service.counters().balanced());
}

TYPED_TEST(libevent_loop, poll_until_ends_at_its_bound) {
    TypeParam service;
    std::atomic<int> fired{0};
    typename TypeParam::timer t{service};
    ASSERT_TRUE(service.arm(t, 1h, callback{count, &fired}));
    const time_point bound = now() + 5ms;
    EXPECT_EQ(service.poll_until(bound), 0U);
    EXPECT_GE(now(), bound);
    EXPECT_EQ(service.poll_until(time_point::min()), 0U);
    service.stop();
    EXPECT_EQ(service.poll_until(time_point::max()), 0U);
    EXPECT_EQ(service.counters().dropped, 1U);
}

struct shot {
    time_point deadline;
    duration lateness = duration::max();
    static void on_fire(void* context) {
        auto& self = *static_cast<shot*>(context);
        self.lateness = now() - self.deadline;
    }
};

template <class Service>
duration earliest_of(Service& service, int shots) {
    std::vector<shot> fired(static_cast<std::size_t>(shots));
    std::vector<std::unique_ptr<typename Service::timer>> timers;
    for (std::size_t i = 0; i < fired.size(); ++i) {
        timers.push_back(std::make_unique<typename Service::timer>(service));
        // Every phase within a microsecond, at any phase of libevent's own reading.
        const duration d = 300us + duration{static_cast<duration::rep>(i) * 37};
        fired[i].deadline = now() + d;
        EXPECT_TRUE(service.arm(*timers[i], d, callback{&shot::on_fire, &fired[i]}));
        if constexpr (requires { service.poll(); }) {
            service.poll();
        }
    }
    while (service.counters().pending != 0) {
        if constexpr (requires { service.poll(); }) {
            service.poll_until(patience());
        } else {
            std::this_thread::yield();
        }
    }
    service.stop(); // the last callback has returned
    duration least = duration::max();
    for (const shot& s : fired) {
        least = std::min(least, s.lateness);
    }
    return least;
}

TEST(libevent, ours_is_never_early_although_libevent_cuts_to_microseconds) {
    own_thread own;
    EXPECT_GE(earliest_of(own, 5'000), 0ns);
    own_thread_common common;
    EXPECT_GE(earliest_of(common, 5'000), 0ns);
    per_thread loop;
    EXPECT_GE(earliest_of(loop, 5'000), 0ns);
}

TEST(libevent, the_defaults_are_early_within_their_trait) {
    per_thread_default service;
    const service_traits traits = service.traits();
    EXPECT_TRUE(traits.has_fault("early_by_coarse_clock"));
    EXPECT_TRUE(traits.has_fault("early_by_cached_time"));
    EXPECT_GE(earliest_of(service, 5'000), traits.earliest);
    EXPECT_TRUE(per_thread{}.traits().faults.empty());
}

// A callback that blocks and then arms: how long after that arm does the timer fire?
template <class Service>
duration armed_after_blocking(duration block, duration d) {
    struct state {
        explicit state(Service& s) : service{s} {}
        Service& service;
        typename Service::timer first{service};
        typename Service::timer second{service};
        duration block{};
        duration length{};
        time_point armed{};
        duration elapsed = duration::min();
    };
    Service service;
    state s{service};
    s.block = block;
    s.length = d;
    EXPECT_TRUE(service.arm(s.first, 0ns,
                            callback{[](void* context) {
                                         auto& self = *static_cast<state*>(context);
                                         const time_point end = now() + self.block;
                                         while (now() < end) {}
                                         self.armed = now();
                                         self.service.arm(self.second, self.length,
                                                          callback{[](void* inner) {
                                                                       auto& outer =
                                                                           *static_cast<state*>(inner);
                                                                       outer.elapsed = now() - outer.armed;
                                                                   },
                                                                   context});
                                     },
                                     &s}));
    while (s.elapsed == duration::min()) {
        service.poll_until(patience());
    }
    return s.elapsed;
}

TEST(libevent, only_the_cached_time_counts_from_before_a_blocking_callback) {
    EXPECT_GE(armed_after_blocking<per_thread>(50ms, 60ms), 60ms);
    EXPECT_GE(armed_after_blocking<per_thread_common>(50ms, 60ms), 60ms);
    const duration cached = armed_after_blocking<per_thread_default>(50ms, 60ms);
    EXPECT_GE(cached, 60ms - 50ms + per_thread_default{}.traits().earliest);
}

template <class Service>
void more_durations_than_queues() {
    static std::atomic<int> warnings{0};
    warnings = 0;
    event_set_log_callback([](int severity, const char*) { warnings += severity >= EVENT_LOG_WARN ? 1 : 0; });
    {
        Service service;
        std::atomic<int> fired{0};
        std::vector<std::unique_ptr<typename Service::timer>> timers;
        // Twice, so that both a made queue and a refused one are found again.
        for (int i = 0; i < 600; ++i) {
            timers.push_back(std::make_unique<typename Service::timer>(service));
            ASSERT_TRUE(service.arm(*timers.back(), (i % 300) * 10us + 1ms, callback{count, &fired}));
        }
        const time_point end = patience();
        while (fired != 600 && now() < end) {
            if constexpr (requires { service.poll(); }) {
                service.poll_until(end);
            } else {
                std::this_thread::yield();
            }
        }
        service.stop();
        EXPECT_EQ(fired, 600);
        EXPECT_TRUE(service.counters().balanced());
    }
    event_set_log_callback(nullptr);
    EXPECT_EQ(warnings, 0);
}

TEST(libevent, durations_beyond_256_go_to_the_heap) {
    more_durations_than_queues<own_thread_common>();
    more_durations_than_queues<per_thread_common>();
    EXPECT_EQ(own_thread_common{}.traits().most_durations, 256U);
}

// Cancelled just when it is about to fire, then armed for much later. The activation is on its way from the moment when libevent
// lets go of its lock until the service takes its own, which is short. A thread that keeps the service's lock busy by
// counting many timers holds it open.
template <class Service>
void an_old_activation_does_not_fire_a_new_arm() {
    Service service;
    std::atomic<int> unwanted{0};
    std::vector<std::unique_ptr<typename Service::timer>> population;
    for (int i = 0; i < 5'000; ++i) {
        population.push_back(std::make_unique<typename Service::timer>(service));
        ASSERT_TRUE(service.arm(*population.back(), 1h, callback{count, &unwanted}));
    }
    std::atomic<bool> done{false};
    std::thread counting{[&] {
        while (!done) {
            EXPECT_GE(service.counters().pending, 5'000U);
            std::this_thread::sleep_for(50us); // leaves the lock to others now and then: it is not fair
        }
    }};
    std::atomic<int> fired{0};
    int withdrawn = 0;
    int arms = 0;
    int early = 0;
    typename Service::timer t{service};
    for (int round = 0; round < 300; ++round) {
        EXPECT_TRUE(service.arm(t, std::chrono::microseconds{round % 60}, callback{count, &fired}));
        const time_point until = now() + std::chrono::microseconds{round % 200};
        while (now() < until) {}
        withdrawn += service.cancel(t) ? 1 : 0;
        EXPECT_TRUE(service.arm(t, 1h, callback{count, &unwanted}));
        std::this_thread::yield();
        early += service.cancel(t) ? 0 : 1;
        arms += 2;
    }
    done = true;
    counting.join();
    EXPECT_EQ(early, 0);
    EXPECT_EQ(unwanted, 0);
    EXPECT_EQ(fired + withdrawn, arms / 2);
    EXPECT_EQ(service.counters().pending, 5'000U);
    EXPECT_TRUE(service.counters().balanced());
}

TEST(libevent, an_old_activation_does_not_fire_a_new_arm) {
    an_old_activation_does_not_fire_a_new_arm<own_thread>();
    an_old_activation_does_not_fire_a_new_arm<own_thread_common>();
}

TEST(libevent, a_foreign_cancel_beats_the_callback_that_arms_again) {
    own_thread service;
    for (int round = 0; round < 500; ++round) {
        auto again = std::make_unique<rearming<own_thread>>(service);
        ASSERT_TRUE(again->arm());
        std::this_thread::yield();
        service.cancel(again->timer);
        ASSERT_EQ(service.counters().pending, 0U);
        // The end of the storage is the test: nothing of it may be in the base any more.
        again.reset();
    }
    EXPECT_TRUE(service.counters().balanced());
}

TEST(libevent, stop_meets_arms_of_other_threads) {
    for (int round = 0; round < 50; ++round) {
        own_thread service;
        std::atomic<int> fired{0};
        std::atomic<bool> begun{false};
        std::thread other{[&] {
            std::vector<std::unique_ptr<own_thread::timer>> timers;
            for (int i = 0; i < 2'000; ++i) {
                timers.push_back(std::make_unique<own_thread::timer>(service));
                if (!service.arm(*timers.back(), std::chrono::microseconds{i}, callback{count, &fired})) {
                    break;
                }
                begun = true;
            }
        }};
        while (!begun) {
            std::this_thread::yield();
        }
        service.stop();
        const int after = fired;
        other.join();
        ASSERT_EQ(fired, after);
        const counters c = service.counters();
        ASSERT_EQ(c.pending, 0U);
        ASSERT_TRUE(c.balanced());
    }
}

TEST(libevent, a_service_may_stop_before_its_loop_has_begun) {
    for (int round = 0; round < 200; ++round) {
        own_thread service;
        service.stop();
    }
}

template <class Direct>
void direct_agrees_with_itself(Direct& direct, int rounds) {
    std::atomic<int> fired{0};
    int withdrawn = 0;
    typename Direct::timer t{direct};
    for (int round = 0; round < rounds; ++round) {
        ASSERT_TRUE(direct.arm(t, std::chrono::microseconds{round % 40}, callback{count, &fired}));
        if constexpr (requires { direct.poll(); }) {
            if (round % 3 == 0) {
                direct.poll();
            }
        } else if (round % 3 == 0) {
            std::this_thread::yield();
        }
        withdrawn += direct.cancel(t) ? 1 : 0;
        ASSERT_EQ(fired + withdrawn, round + 1);
    }
    EXPECT_GT(withdrawn, 0);
}

TEST(libevent, direct_use_tells_the_truth_about_cancel) {
    own_thread::direct own;
    direct_agrees_with_itself(own, 20'000);
    own_thread_common::direct common;
    direct_agrees_with_itself(common, 20'000);
    per_thread::direct loop;
    direct_agrees_with_itself(loop, 20'000);
    per_thread_common::direct loop_common;
    direct_agrees_with_itself(loop_common, 20'000);
}

TEST(libevent, direct_use_is_never_early) {
    per_thread::direct loop;
    shot s;
    per_thread::direct::timer t{loop};
    s.deadline = now() + 2ms;
    ASSERT_TRUE(loop.arm(t, 2ms, callback{&shot::on_fire, &s}));
    EXPECT_EQ(loop.poll_until(patience()), 1U);
    EXPECT_GE(s.lateness, 0ns);
    own_thread::direct own;
    own_thread::direct::timer left{own};
    ASSERT_TRUE(own.arm(left, 1h, callback{count, nullptr}));
}

} // namespace
} // namespace timerbench
