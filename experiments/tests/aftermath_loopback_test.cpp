#include "experiments/aftermath_figures.hpp"
#include "experiments/aftermath_loopback.hpp"
#include "experiments/aftermath_report.hpp"
#include "timers/per_thread_wheel_loop.hpp"

#include <gtest/gtest.h>

namespace timerbench::experiments::aftermath {
namespace {

using namespace std::chrono_literals;
using service = per_thread_wheel_loop<steady_time>;

parameters brief() {
    parameters p;
    p.requests = 120;
    p.rate = 200;
    p.limit = p.timeout = 300ms;
    p.work[store] = 4ms;
    p.error_rate = 0;
    p.first_backoff = 5ms;
    p.longest_backoff = 100ms;
    p.bin = 10ms;
    p.size_for_rate();
    p.incident_at = 100ms;
    p.incident_for = 200ms;
    return p;
}

results run_on_loopback(const parameters& p, const policy& how) {
    service s{steady()};
    return loopback<service>{s, p, how}.run();
}

TEST(AftermathLoopback, RequestsPassThroughEveryLayerAndBack) {
    parameters p = brief();
    p.slowdown = 1;
    p.limit = p.timeout = 3s; // however busy the machine is
    p.rate = 100;
    p.requests = 60;
    const results r = run_on_loopback(p, {cancelling::detach, {}, retrying::none});
    ASSERT_EQ(r.trouble, "");
    EXPECT_EQ(wrong_books(r), "");
    EXPECT_EQ(r.calls[store], p.requests);
    EXPECT_EQ(answered_share(r), 1.0);
    EXPECT_GT(seen_between(r, 0s, 1h).p50_ms, 4.0);
    EXPECT_GE(r.lateness_ms.size(), 5 * p.requests);
}

// Late answers, closed connections, words to stop: whatever the machine does, nobody ends twice and no work is booked twice.
TEST(AftermathLoopback, TroubleLeavesNobodyToEndTwice) {
    parameters p = brief();
    p.slowdown = 200;
    for (const policy& how : {policy{cancelling::abort, {}, retrying::naive}, worst_policy, best_policy,
                              policy{cancelling::cooperative, 1ms, retrying::inside}}) {
        const results r = run_on_loopback(p, how);
        ASSERT_EQ(r.trouble, "") << name_of(how);
        EXPECT_GT(r.timed_out, 0U) << name_of(how);
        EXPECT_EQ(r.not_armed, 0U) << name_of(how);
        EXPECT_EQ(r.useful_after_ns, 0) << name_of(how);
        EXPECT_LE(r.useful_ns + r.lost_ns + r.left_ns, r.work_ns) << name_of(how);
        for (const std::uint8_t n : r.times_ended) {
            ASSERT_LE(n, 1) << name_of(how);
        }
    }
}

} // namespace
} // namespace timerbench::experiments::aftermath
