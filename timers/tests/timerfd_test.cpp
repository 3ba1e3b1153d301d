// What is particular to one kernel timer for each timeout: descriptors, how many there are, who closes them, and what a forked
// child may do to them.
#include "timers/tests/support/process.hpp"
#include "timers/tests/support/rig.hpp"
#include "timers/timerfd.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using testing::eventually;

int open_descriptors() {
    int n = 0;
    if (DIR* const open = opendir("/proc/self/fd")) {
        while (readdir(open) != nullptr) {
            ++n;
        }
        closedir(open);
    }
    return n;
}

callback nothing() {
    return {[](void*) {}, nullptr};
}

callback count_up(std::atomic<int>& n) {
    return {[](void* p) { ++*static_cast<std::atomic<int>*>(p); }, &n};
}

TEST(timerfd, takes_a_descriptor_with_the_first_arm_and_gives_it_back) {
    timerfd_service service;
    const int before = open_descriptors();
    std::atomic<int> fires{0};
    {
        std::deque<timerfd_service::timer> timers;
        for (int i = 0; i < 20; ++i) {
            timers.emplace_back(service);
        }
        EXPECT_EQ(open_descriptors(), before) << "idle ones have none";
        for (auto& t : timers) {
            ASSERT_TRUE(service.arm(t, 1h, nothing()));
        }
        EXPECT_EQ(open_descriptors(), before + 20);
        for (auto& t : timers) {
            ASSERT_TRUE(service.cancel(t));
            ASSERT_TRUE(service.arm(t, 1ms, count_up(fires)));
        }
        EXPECT_EQ(open_descriptors(), before + 20) << "the descriptor stays with its timer";
        EXPECT_TRUE(eventually([&] { return fires == 20; }));
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST(timerfd, raises_the_limit_and_says_how_many_there_may_be) {
    const pid_t child = testing::fork_helper([] {
        rlimit limit{};
        if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < 2'000) {
            return 0; // nothing to raise
        }
        const rlim_t hard = limit.rlim_max;
        limit.rlim_cur = 1'024;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            return 1;
        }
        const timerfd_service service;
        getrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur != hard) {
            return 2;
        }
        const std::size_t most = service.traits().most_timers;
        return most > 1'024 && most < hard ? 0 : 3;
    });
    const testing::outcome end = testing::wait_for(child, 20s);
    EXPECT_TRUE(end.passed()) << end.text();
}

TEST(timerfd, refuses_when_there_is_no_descriptor_and_recovers) {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the undefined behaviour sanitizer needs descriptors for its own checks of object types";
#endif
    const pid_t child = testing::fork_helper([] {
        const rlim_t few = static_cast<rlim_t>(open_descriptors()) + 100;
        const rlimit limit{few, few};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            return 1;
        }
        timerfd_service service;
        const std::size_t most = service.traits().most_timers;
        if (most == 0 || most >= few) {
            return 2;
        }
        std::deque<timerfd_service::timer> timers;
        std::size_t armed = 0;
        while (armed < few && service.arm(timers.emplace_back(service), 1h, nothing())) {
            ++armed;
        }
        if (armed < most || armed >= few) {
            return 3;
        }
        if (service.counters().armed != armed || service.counters().pending != armed ||
            service.cancel(timers.back())) {
            return 4;
        }
        if (service.arm(timers.back(), 1h, nothing())) {
            return 5;
        }
        timers.pop_front(); // makes room for another
        std::atomic<int> fires{0};
        if (!service.arm(timers.back(), 1ms, count_up(fires)) || !eventually([&] { return fires == 1; })) {
            return 6;
        }
        service.stop();
        return service.counters().balanced() && service.counters().dropped == armed - 1 ? 0 : 7;
    });
    const testing::outcome end = testing::wait_for(child, 60s);
    EXPECT_TRUE(end.passed()) << end.text();
}

// A child has copies of the descriptors, and what it does to the kernel's timers it does to the parent's.
TEST(timerfd, a_forked_child_leaves_the_parents_timers_alone) {
    auto service = std::make_unique<timerfd_service>();
    std::atomic<int> fires{0};
    std::optional<timerfd_service::timer> a{std::in_place, *service};
    std::optional<timerfd_service::timer> b{std::in_place, *service};
    std::optional<timerfd_service::timer> c{std::in_place, *service};
    ASSERT_TRUE(service->arm(*a, 300ms, count_up(fires)));
    ASSERT_TRUE(service->arm(*b, 300ms, count_up(fires)));
    ASSERT_TRUE(service->arm(*c, 1h, count_up(fires)));
    const pid_t child = testing::fork_helper([&] {
        if (!service->cancel(*a) || service->cancel(*a) || service->arm(*a, 1ms, count_up(fires))) {
            return 1;
        }
        a.reset();
        b.reset();
        c.reset();
        service.reset();
        return 0;
    });
    const testing::outcome end = testing::wait_for(child, 20s);
    EXPECT_TRUE(end.passed()) << end.text();
    EXPECT_TRUE(eventually([&] { return fires == 2; }));
    EXPECT_TRUE(service->cancel(*c));
    std::atomic<int> later{0};
    ASSERT_TRUE(service->arm(*c, 1ms, count_up(later)));
    EXPECT_TRUE(eventually([&] { return later == 1; })) << "the driver was told to leave";
}

duration processor_time() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds{t.tv_sec} + duration{t.tv_nsec};
}

// Kills the child and waits for it.
struct child_end {
    pid_t child;
    ~child_end() {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
};

// A timer that has expired and was not read is destroyed while a child holds a copy of its descriptor. The copy is ready for
// ever, which must keep the driver neither busy nor from its work.
TEST(timerfd, a_descriptor_that_lives_on_in_a_child_keeps_nobody_busy) {
    timerfd_service service;
    struct doors {
        testing::gate entered;
        testing::gate leave;
    } stuck_at;
    std::atomic<int> fires{0};
    timerfd_service::timer stuck{service};
    timerfd_service::timer later{service};
    std::optional<timerfd_service::timer> gone{std::in_place, service};
    ASSERT_TRUE(service.arm(stuck, 0ns,
                            {[](void* p) {
                                 auto& at = *static_cast<doors*>(p);
                                 at.entered.open();
                                 at.leave.wait();
                             },
                             &stuck_at}));
    EXPECT_TRUE(stuck_at.entered.wait());
    EXPECT_TRUE(service.arm(*gone, 0ns, count_up(fires)));
    const child_end child{testing::fork_helper([] {
        alarm(60);
        for (;;) {
            pause();
        }
        return 0;
    })};
    const time_point expired = steady_time::now() + 2ms;
    EXPECT_TRUE(eventually([&] { return steady_time::now() > expired; }));
    gone.reset();
    stuck_at.leave.open();
    const duration before = processor_time();
    ASSERT_TRUE(service.arm(later, 300ms, count_up(fires)));
    EXPECT_TRUE(eventually([&] { return fires == 1; }));
    const duration used = processor_time() - before;
    if (!testing::under_tsan && !testing::under_asan) {
        EXPECT_LT(used, duration{100ms}) << "the driver was busy while it had nothing to do";
    }
}

// How often the driver has gone to sleep; -1 if there is none.
long sleeps_of_the_driver() {
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::ifstream status{task.path() / "status"};
        bool driver = false;
        for (std::string line; std::getline(status, line);) {
            driver |= line == "Name:\ttb_timerfd";
            constexpr std::string_view key = "voluntary_ctxt_switches:";
            if (driver && line.starts_with(key)) {
                return std::stol(line.substr(key.size()));
            }
        }
    }
    return -1;
}

TEST(timerfd, what_is_cancelled_wakes_nobody) {
    timerfd_service service;
    std::deque<timerfd_service::timer> timers;
    std::atomic<int> fires{0};
    timerfd_service::timer later{service};
    ASSERT_TRUE(service.arm(later, 0ns, count_up(fires)));
    EXPECT_TRUE(eventually([&] { return fires == 1; }));
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(service.arm(timers.emplace_back(service), 1s + i * 1ms, nothing()));
    }
    for (auto& t : timers) {
        ASSERT_TRUE(service.cancel(t));
    }
    const long before = sleeps_of_the_driver();
    ASSERT_GE(before, 0);
    ASSERT_TRUE(service.arm(later, 1'300ms, count_up(fires)));
    EXPECT_TRUE(eventually([&] { return fires == 2; }));
    EXPECT_LT(sleeps_of_the_driver() - before, 20);
}

// Arms the other of two timers for an hour, which nobody lives to see, after it has withdrawn it or put a new one in its place.
struct usurper {
    explicit usurper(timerfd_service& at, bool with_new_ones) : service{at}, replaces{with_new_ones} {
        two[0].emplace(service);
        two[1].emplace(service);
    }

    timerfd_service& service;
    const bool replaces;
    testing::gate entered;
    testing::gate leave;
    std::optional<timerfd_service::timer> two[2];
    std::atomic<int> fires{0}; // by the driver, as is `wrong`; read by the test
    std::atomic<int> wrong{0};

    template <int Mine>
    static void run(void* p) {
        auto& self = *static_cast<usurper*>(p);
        auto& other = self.two[1 - Mine];
        if (self.replaces) {
            other.reset();
            other.emplace(self.service); // gets the lowest free number, which is the one just closed
        } else {
            EXPECT_TRUE(self.service.cancel(*other));
        }
        EXPECT_TRUE(self.service.arm(*other, 1h, count_up(self.wrong)));
        ++self.fires;
    }

    static void block(void* p) {
        auto& self = *static_cast<usurper*>(p);
        self.entered.open();
        self.leave.wait();
    }
};

// Both are due when the driver comes to look, so that the kernel tells of both at once. What it told of the second is out of
// date when the first callback is done.
TEST(timerfd, an_expiry_that_is_known_already_can_be_taken_back) {
    for (const bool with_new_ones : {false, true}) {
        SCOPED_TRACE(with_new_ones);
        timerfd_service service;
        usurper u{service, with_new_ones};
        timerfd_service::timer stuck{service};
        ASSERT_TRUE(service.arm(stuck, 0ns, {usurper::block, &u}));
        EXPECT_TRUE(u.entered.wait());
        EXPECT_TRUE(service.arm(*u.two[0], 0ns, {usurper::run<0>, &u}));
        EXPECT_TRUE(service.arm(*u.two[1], 0ns, {usurper::run<1>, &u}));
        const time_point expired = steady_time::now() + 2ms;
        EXPECT_TRUE(eventually([&] { return steady_time::now() > expired; }));
        u.leave.open();
        EXPECT_TRUE(eventually([&] { return u.fires == 1; }));
        std::atomic<int> later{0};
        EXPECT_TRUE(service.arm(stuck, 1ms, count_up(later)));
        EXPECT_TRUE(eventually([&] { return later == 1; }));
        EXPECT_EQ(u.wrong, 0) << "an hour early";
        EXPECT_EQ(u.fires, 1);
    }
}

// A number that was closed and given to another timer, again and again, while expiries are on their way.
TEST(timerfd, no_expiry_reaches_the_next_owner_of_a_number) {
    timerfd_service service;
    std::atomic<int> fires{0};
    std::atomic<int> wrong{0};
    int rounds = 0;
    for (const time_point end = steady_time::now() + 300ms; steady_time::now() < end; ++rounds) {
        std::optional<timerfd_service::timer> brief{std::in_place, service};
        ASSERT_TRUE(service.arm(*brief, duration{rounds % 30 * 1us}, count_up(fires)));
        if (rounds % 2 == 0) {
            service.cancel(*brief);
        }
        brief.reset();
        timerfd_service::timer heir{service}; // gets the lowest free number, which is the one just closed
        ASSERT_TRUE(service.arm(heir, 1h, count_up(wrong)));
        ASSERT_TRUE(service.cancel(heir));
    }
    EXPECT_EQ(wrong, 0);
    const counters totals = service.counters();
    EXPECT_TRUE(totals.balanced());
    EXPECT_EQ(totals.fired, static_cast<std::uint64_t>(fires));
    RecordProperty("rounds", rounds);
}

} // namespace
} // namespace timerbench
