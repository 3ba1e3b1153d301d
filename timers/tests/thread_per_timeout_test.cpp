// What is particular to a thread for each timeout: how many there are and when they go, what happens when there are no more
// to be had, and what may run at the same time.
#include "timers/tests/support/process.hpp"
#include "timers/tests/support/rig.hpp"
#include "timers/thread_per_timeout.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using real_threads = thread_per_timeout<steady_time>;
using manual_threads = thread_per_timeout<manual_time>;

// Those that have come to name themselves. One that was joined may be listed for a moment longer.
int threads_of_the_service() {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::ifstream comm{task.path() / "comm"};
        std::string name;
        std::getline(comm, name);
        count += name == "tb_timeout";
    }
    return count;
}

callback nothing() {
    return {[](void*) {}, nullptr};
}

callback count_up(std::atomic<int>& n) {
    return {[](void* p) { ++*static_cast<std::atomic<int>*>(p); }, &n};
}

TEST(thread_per_timeout, has_a_thread_for_each_that_goes_with_it) {
    manual_time clock;
    manual_threads service{clock};
    std::deque<manual_threads::timer> timers;
    EXPECT_EQ(threads_of_the_service(), 0);
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(service.arm(timers.emplace_back(service), i < 10 ? 1h : 2h, nothing()));
    }
    clock.settle();
    EXPECT_EQ(threads_of_the_service(), 20);
    for (std::size_t i = 10; i < 15; ++i) {
        EXPECT_TRUE(service.cancel(timers[i]));
        EXPECT_TRUE(eventually([i] { return threads_of_the_service() == 29 - static_cast<int>(i); }))
            << "cancel waits until the thread is gone";
    }
    clock.advance(1h);
    EXPECT_EQ(service.counters().fired, 10u);
    EXPECT_TRUE(eventually([] { return threads_of_the_service() == 5; })) << "who has fired leaves";
    service.stop();
    EXPECT_TRUE(eventually([] { return threads_of_the_service() == 0; }));
    EXPECT_EQ(service.counters().dropped, 5u);
}

TEST(thread_per_timeout, cancel_inside_a_callback_lets_the_thread_go) {
    manual_time clock;
    manual_threads service{clock};
    struct pair {
        manual_threads& service;
        manual_threads::timer mine{service};
        manual_threads::timer other{service};
        bool withdrawn = false;
    } p{service};
    ASSERT_TRUE(service.arm(p.other, 2s, nothing()));
    ASSERT_TRUE(service.arm(p.mine, 1s,
                            {[](void* at) {
                                 auto& self = *static_cast<pair*>(at);
                                 self.withdrawn = self.service.cancel(self.other);
                             },
                             &p}));
    clock.advance(1s);
    EXPECT_TRUE(p.withdrawn);
    EXPECT_TRUE(eventually([] { return threads_of_the_service() == 0; }));
    clock.advance(1h);
    EXPECT_EQ(service.counters().fired, 1u);
    EXPECT_EQ(service.counters().cancelled, 1u);
}

TEST(thread_per_timeout, refuses_beyond_the_most) {
    EXPECT_THROW((real_threads{steady(), {.most = 0}}), std::invalid_argument);
    manual_time clock;
    manual_threads service{clock, {.most = 3}};
    EXPECT_EQ(service.traits().most_timers, 3u);
    std::deque<manual_threads::timer> timers;
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(service.arm(timers.emplace_back(service), 1s, nothing()), i < 3);
    }
    EXPECT_FALSE(service.cancel(timers[4])) << "not armed";
    EXPECT_TRUE(service.cancel(timers[1]));
    EXPECT_TRUE(service.arm(timers[4], 1s, nothing()));
    EXPECT_FALSE(service.arm(timers[1], 1s, nothing()));
    clock.advance(1s);
    EXPECT_EQ(service.counters().armed, 4u);
    EXPECT_EQ(service.counters().fired, 3u);
    EXPECT_TRUE(service.arm(timers[1], 1s, nothing()));
}

std::size_t address_space() {
    std::size_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(thread_per_timeout, refuses_when_the_system_gives_no_thread) {
    if (testing::under_asan || testing::under_tsan) {
        GTEST_SKIP() << "a sanitizer needs all the address space there is";
    }
    const pid_t child = testing::fork_helper([] {
        real_threads service;
        std::deque<real_threads::timer> timers;
        for (int i = 0; i < 100; ++i) {
            timers.emplace_back(service);
        }
        rlimit limit{};
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = address_space() + (std::size_t{200} << 20); // no room for a hundred stacks
        if (setrlimit(RLIMIT_AS, &limit) != 0) {
            return 1;
        }
        std::size_t armed = 0;
        while (armed < timers.size() && service.arm(timers[armed], 1h, nothing())) {
            ++armed;
        }
        if (armed == 0 || armed == timers.size()) {
            return 2;
        }
        if (service.counters().armed != armed || service.counters().pending != armed ||
            service.cancel(timers[armed])) {
            return 3;
        }
        std::atomic<int> fires{0};
        if (!service.cancel(timers[0]) || !service.arm(timers[armed], 1ms, count_up(fires)) ||
            !eventually([&] { return fires == 1; })) {
            return 4;
        }
        service.stop();
        return service.counters().balanced() && service.counters().dropped == armed - 1 ? 0 : 5;
    });
    const testing::outcome end = testing::wait_for(child, 60s);
    EXPECT_TRUE(end.passed()) << end.text();
}

TEST(thread_per_timeout, callbacks_of_different_timers_run_at_the_same_time) {
    real_threads service;
    EXPECT_TRUE(service.traits().callbacks_overlap);
    struct side {
        testing::gate here;
        const testing::gate* there = nullptr;
        std::atomic<bool> met{false}; // set by the callback, read by the test
        callback on_fire() {
            return {[](void* p) {
                        auto& self = *static_cast<side*>(p);
                        self.here.open();
                        self.met = self.there->wait();
                    },
                    this};
        }
    } a, b;
    a.there = &b.here;
    b.there = &a.here;
    real_threads::timer t{service};
    real_threads::timer u{service};
    ASSERT_TRUE(service.arm(t, 0ns, a.on_fire()));
    ASSERT_TRUE(service.arm(u, 0ns, b.on_fire()));
    EXPECT_TRUE(eventually([&] { return a.met && b.met; }));
    EXPECT_FALSE(service.cancel(t));
    EXPECT_FALSE(service.cancel(u));
}

// A timer that its callback arms anew waits for that callback, however long it takes; it may be withdrawn or destroyed
// in the meantime.
TEST(thread_per_timeout, callbacks_of_one_timer_never_overlap) {
    real_threads service;
    enum : int { goes_on, withdraws, destroys };
    for (const int what : {goes_on, withdraws, destroys}) {
        SCOPED_TRACE(what);
        struct state {
            state(real_threads& at, int w) : service{at}, what{w} {}
            real_threads& service;
            const int what;
            std::optional<real_threads::timer> timer{std::in_place, service};
            std::atomic<int> inside{0};
            std::atomic<int> rounds{0};
            std::atomic<int> overlaps{0};
            testing::gate done;
            static void run(void* p) {
                auto& self = *static_cast<state*>(p);
                self.overlaps += self.inside++ != 0 ? 1 : 0;
                const int round = ++self.rounds;
                const bool last = round == 20;
                if (!last || self.what != goes_on) {
                    EXPECT_TRUE(self.service.arm(*self.timer, duration::zero(), {run, p}));
                }
                // Long enough for the thread of the new arm to stand at its deadline.
                for (const time_point end = steady_time::now() + 1ms; steady_time::now() < end;) {
                    std::this_thread::yield();
                }
                --self.inside;
                if (last) {
                    if (self.what == withdraws) {
                        EXPECT_TRUE(self.service.cancel(*self.timer));
                    } else if (self.what == destroys) {
                        self.timer.reset();
                    }
                    self.done.open();
                }
            }
        } s{service, what};
        ASSERT_TRUE(service.arm(*s.timer, duration::zero(), {state::run, &s}));
        EXPECT_TRUE(s.done.wait());
        if (s.timer) {
            EXPECT_FALSE(service.cancel(*s.timer));
        }
        EXPECT_EQ(s.overlaps, 0);
        EXPECT_EQ(s.rounds, 20);
        EXPECT_EQ(service.counters().pending, 0u);
    }
    service.stop();
    EXPECT_TRUE(eventually([] { return threads_of_the_service() == 0; }));
}

} // namespace
} // namespace timerbench
