// Processes that are stopped and continued, and processes that fork.
#include "timers/tests/support/process.hpp"
#include "timers/tests/support/rig.hpp"

#include <csignal>
#include <deque>
#include <map>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace timerbench::testing {
namespace {

// What a helper that was stopped for a while says about its service.
struct account {
    int fired_once = 0;
    int fired_otherwise = 0;
    int threads_before = 0;
    int threads_after = 0;
    bool later_fired = false;
    bool early = false;
    int late_ms = 0; ///< From the continuation, when time goes on for the helper, to the last overdue fire.
};

constexpr int timers_of_a_helper = 60;

int suspended(std::string_view name, int to_parent) {
    {
        rig r{name, clocks::real};
        probe first{r};
        if (!first.arm(duration::zero()) || !r.drive_until([&] { return first.fires() == 1; })) {
            return 1;
        }
        // Due while the process is stopped, all but a few that come later.
        std::deque<probe> probes;
        for (int i = 0; i < timers_of_a_helper; ++i) {
            if (!probes.emplace_back(r).arm(1s + i * 45ms)) {
                return 2;
            }
        }
        account a;
        a.threads_before = count_threads();
        const char ready = 'r';
        (void)!write(to_parent, &ready, 1);
        const bool all =
            r.drive_until([&] { return r.service().counters().fired >= 1 + timers_of_a_helper; }, 30s);
        const time_point end = steady_time::now();
        probe later{r};
        a.later_fired = all && later.arm(20ms) && r.drive_until([&] { return later.fires() == 1; });
        for (const probe& p : probes) {
            ++(p.fires() == 1 ? a.fired_once : a.fired_otherwise);
        }
        a.threads_after = count_threads();
        a.early = ::testing::Test::HasFailure();
        a.late_ms = static_cast<int>((end - probes.back().deadline()) / 1ms);
        (void)!write(to_parent, &a, sizeof a);
    }
    return 0;
}

// All services at once, because three seconds have to pass.
TEST(suspending, overdue_timers_fire_once_and_promptly) {
    start_watchdog(110);
    struct helper {
        std::string_view name;
        pid_t pid;
        int from_child;
    };
    std::deque<helper> helpers;
    for (const kind& k : kinds()) {
        if (!k.unavailable.empty()) {
            continue;
        }
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t pid = fork_helper([&] { return suspended(k.name, ends[1]); });
        ASSERT_GT(pid, 0);
        close(ends[1]);
        helpers.push_back({k.name, pid, ends[0]});
    }
    const auto readable = [](const helper& h, duration bound) {
        pollfd p{h.from_child, POLLIN, 0};
        return ::poll(&p, 1, static_cast<int>(bound / 1ms)) == 1 && (p.revents & POLLIN) != 0;
    };
    for (const helper& h : helpers) {
        char ready = 0;
        ASSERT_TRUE(readable(h, patience()) && read(h.from_child, &ready, 1) == 1)
            << h.name << " did not start";
        ASSERT_EQ(kill(h.pid, SIGSTOP), 0);
    }
    // Three seconds in which nothing may come.
    {
        std::vector<pollfd> all;
        for (const helper& h : helpers) {
            all.push_back({h.from_child, POLLIN, 0});
        }
        EXPECT_EQ(::poll(all.data(), all.size(), 3'000), 0) << "a helper was not stopped";
    }
    for (const helper& h : helpers) {
        kill(h.pid, SIGCONT);
    }
    for (const helper& h : helpers) {
        SCOPED_TRACE(std::string{h.name});
        account a;
        const bool reported = readable(h, 40s) && read(h.from_child, &a, sizeof a) == sizeof a;
        const outcome end = wait_for(h.pid, patience());
        close(h.from_child);
        EXPECT_TRUE(reported) << end.text();
        if (!reported) {
            continue;
        }
        EXPECT_TRUE(end.passed()) << end.text();
        EXPECT_EQ(a.fired_once, timers_of_a_helper);
        EXPECT_EQ(a.fired_otherwise, 0);
        EXPECT_TRUE(a.later_fired);
        EXPECT_FALSE(a.early) << "the helper's own checks failed, see above";
        EXPECT_LT(a.late_ms, 10'000);
        const service_traits traits = kind_named(h.name).make()->traits();
        if (traits.has_fault("second_clock_thread")) {
            EXPECT_LE(a.threads_after, a.threads_before + 1) << "one thread more for each stall";
        } else if (traits.several_drivers) {
            EXPECT_LE(a.threads_after, a.threads_before) << "a thread was left over";
        } else {
            EXPECT_EQ(a.threads_after, a.threads_before) << "another timer thread was started";
        }
    }
    stop_watchdog();
}

class forking : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(forking);

enum : int { child_fired = 10, child_never_fired = 11, child_was_refused = 12, child_hung_in_cancel = 13 };

// In the child: arms 20 ms, waits for it if it was armed, and makes away with the service as a process does at exit.
int arm_and_leave(std::unique_ptr<rig>& r, std::unique_ptr<probe>& p) {
    int code = child_was_refused;
    const int before = p->fires();
    if (p->arm(20ms)) {
        code = r->drive_until([&] { return p->fires() > before; }, 900ms) ? child_fired : child_never_fired;
    }
    p.reset();
    return code;
}

TEST_P(forking, child_arms_or_is_refused_and_leaves) {
    auto r = std::make_unique<rig>(GetParam(), clocks::real);
    auto p = std::make_unique<probe>(*r);
    probe soon{*r};
    probe far{*r};
    ASSERT_TRUE(p->arm(duration::zero())); // the driver runs by now
    ASSERT_TRUE(r->drive_until([&] { return p->fires() == 1; }));
    ASSERT_TRUE(soon.arm(3 * r->unit()));
    ASSERT_TRUE(far.arm(1h));
    const time_point start = steady_time::now();
    const pid_t child = fork_helper([&] {
        const int code = arm_and_leave(r, p);
        // What the parent had armed is of no use here, but must not be in the way.
        soon.destroy();
        far.destroy();
        r.reset();
        return code;
    });
    const outcome end = wait_for(child, under_tsan || under_asan ? duration{10s} : duration{5s});
    const duration took = steady_time::now() - start;
    EXPECT_TRUE(end.exited) << "the child hung: " << end.text();
    EXPECT_LT(took.count(), duration{under_tsan || under_asan ? 5s : 1s}.count());
    // A service that must be told of the fork beforehand may refuse as well.
    EXPECT_TRUE(end.code == child_was_refused || (r->traits().drives_after_fork && end.code == child_fired))
        << "the child ended with " << end.code;
    // The parent did not notice.
    ASSERT_TRUE(r->drive_until([&] { return soon.fires() == 1; }));
    EXPECT_TRUE(far.cancel());
}

// The thread that runs the callback is not in the child: there it never ends, and nobody may wait for it.
TEST_P(forking, child_of_a_running_callback_leaves) {
    auto r = std::make_unique<rig>(GetParam(), clocks::real);
    TIMERBENCH_SKIP_IF(r->looped(), "the loop's thread would have to fork inside the callback");
    auto stuck = std::make_unique<probe>(*r);
    gate entered;
    gate leave;
    stuck->then = [&] {
        entered.open();
        leave.wait();
    };
    ASSERT_TRUE(stuck->arm(duration::zero()));
    ASSERT_TRUE(entered.wait());
    const pid_t child = fork_helper([&] {
        stuck->cancel();
        stuck.reset();
        r.reset();
        return 0;
    });
    const outcome end = wait_for(child, 10s);
    leave.open();
    EXPECT_TRUE(end.exited && end.code == 0) << "the child hung: " << end.text();
    r->settle();
    EXPECT_EQ(stuck->fires(), 1);
}

TEST_P(forking, paused_around_the_fork) {
    auto r = std::make_unique<rig>(GetParam(), clocks::real);
    TIMERBENCH_SKIP_IF(!r->service().is_forkable(),
                       "cannot be paused around a fork; in a child its arm returns false");
    TIMERBENCH_SKIP_IF_BREAKS(*r, 8);
    const bool faithful = !r->traits().faults.empty();
    auto p = std::make_unique<probe>(*r);
    probe before{*r};
    probe during{*r};
    ASSERT_TRUE(p->arm(duration::zero()));
    ASSERT_TRUE(r->drive_until([&] { return p->fires() == 1; }));
    const int threads = count_threads();
    ASSERT_TRUE(before.arm(3 * r->unit()));
    r->service().pause_for_fork();
    if (!faithful) {
        // The kernel lists a joined thread for a moment longer.
        EXPECT_TRUE(r->drive_until([&] { return count_threads() < threads; }))
            << "a thread of the service exists";
        ASSERT_TRUE(during.arm(2 * r->unit())) << "what is armed during a pause is kept";
    }
    const pid_t child = fork_helper([&] {
        r->service().resume();
        const int code = arm_and_leave(r, p);
        const bool kept =
            r->drive_until([&] { return before.fires() == 1 && (faithful || during.fires() == 1); }, 900ms);
        before.destroy();
        during.destroy();
        r.reset();
        return code == child_fired && !kept ? child_never_fired : code;
    });
    r->service().resume();
    const outcome end = wait_for(child, 10s);
    EXPECT_TRUE(end.exited && end.code == (r->traits().drives_after_fork ? child_fired : child_was_refused))
        << end.text();
    ASSERT_TRUE(r->drive_until([&] { return before.fires() == 1 && (faithful || during.fires() == 1); }));
    EXPECT_TRUE(r->drive_until([&] { return count_threads() == threads; })) << count_threads() << " threads";
    ASSERT_TRUE(p->arm(r->unit()));
    ASSERT_TRUE(r->drive_until([&] { return p->fires() == 2; }));
}

} // namespace
} // namespace timerbench::testing
