// The timeout around a polled operation, and sleep, over every service.
#include "timers/timeout.hpp"

#include "timers/tests/support/rig.hpp"

#include <memory>
#include <string>

namespace timerbench::testing {
namespace {

class timeouts : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(timeouts);

// Something another party finishes. The value cannot be copied, so that a copy on the way would not compile.
struct job {
    std::unique_ptr<int>* result;
    int* polls;

    std::optional<std::unique_ptr<int>> poll(const waker&) const {
        ++*polls;
        if (*result == nullptr) {
            return std::nullopt;
        }
        return std::move(*result);
    }
};

struct wakes {
    // Raised by the driver, read by the test.
    std::atomic<int> count{0};
    waker to_this() {
        return {[](void* at) { ++static_cast<wakes*>(at)->count; }, this};
    }
};

// The concept wants a type that objects can be made of, which an abstract class is not.
class handle {
  public:
    class timer {
      public:
        explicit timer(handle& service) : inner_{service.to_} {}

      private:
        friend handle;
        erased_service::timer inner_;
    };

    explicit handle(rig& r) : to_{r.service()} {}
    [[nodiscard]] bool arm(timer& t, duration d, callback c) { return to_.arm(t.inner_, d, c); }
    bool cancel(timer& t) { return to_.cancel(t.inner_); }
    void stop() { to_.stop(); }
    [[nodiscard]] timerbench::counters counters() const { return to_.counters(); }
    [[nodiscard]] service_traits traits() const { return to_.traits(); }

  private:
    erased_service& to_;
};

using job_timeout = timeout<handle, job>;

TEST_P(timeouts, ready_at_once_touches_no_timer) {
    rig r{GetParam()};
    handle service{r};
    wakes w;
    int polls = 0;
    for (const duration d : {duration::zero(), duration{-1s}, duration{1h}, duration::max()}) {
        auto value = std::make_unique<int>(7);
        job_timeout t{service, d, {&value, &polls}};
        auto result = t.poll(w.to_this());
        ASSERT_TRUE(result.has_value());
        EXPECT_FALSE(result->elapsed());
        EXPECT_EQ(**result->value, 7);
    }
    EXPECT_EQ(r.service().counters().armed, 0U);
    EXPECT_EQ(polls, 4);
    EXPECT_EQ(w.count, 0);
}

TEST_P(timeouts, elapses) {
    rig r{GetParam()};
    handle service{r};
    wakes w;
    int polls = 0;
    std::unique_ptr<int> value;
    job_timeout t{service, r.unit(), {&value, &polls}};
    const time_point start = r.now();
    ASSERT_FALSE(t.poll(w.to_this()).has_value());
    EXPECT_EQ(r.service().counters().armed, 1U);
    EXPECT_FALSE(t.poll(w.to_this()).has_value());
    EXPECT_EQ(r.service().counters().armed, 1U) << "armed once, however often it is polled";
    ASSERT_TRUE(r.drive_until([&] { return w.count == 1; }));
    EXPECT_GE((r.now() - start).count(), (r.unit() + r.traits().earliest).count());
    const auto result = t.poll(w.to_this());
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->elapsed());
    EXPECT_EQ(polls, 3) << "the operation is asked first";
}

TEST_P(timeouts, the_value_wins) {
    rig r{GetParam()};
    handle service{r};
    wakes w;
    int polls = 0;
    std::unique_ptr<int> value;
    job_timeout t{service, r.unit(), {&value, &polls}};
    ASSERT_FALSE(t.poll(w.to_this()).has_value());
    ASSERT_TRUE(r.drive_until([&] { return w.count == 1; }));
    value = std::make_unique<int>(8);
    const auto result = t.poll(w.to_this());
    ASSERT_TRUE(result.has_value());
    ASSERT_FALSE(result->elapsed());
    EXPECT_EQ(**result->value, 8);
}

TEST_P(timeouts, time_counts_from_the_first_pending_poll) {
    rig r{GetParam()};
    handle service{r};
    wakes w;
    int polls = 0;
    std::unique_ptr<int> value;
    job_timeout t{service, 3 * r.unit(), {&value, &polls}};
    r.pass(5 * r.unit());
    EXPECT_EQ(r.service().counters().armed, r.manual() ? 0U : 1U) << "made, but not yet polled";
    const time_point start = r.now();
    ASSERT_FALSE(t.poll(w.to_this()).has_value());
    ASSERT_TRUE(r.drive_until([&] { return w.count == 1; }));
    EXPECT_GE((r.now() - start).count(), (3 * r.unit() + r.traits().earliest).count());
}

TEST_P(timeouts, destroying_cancels) {
    rig r{GetParam()};
    handle service{r};
    wakes w;
    int polls = 0;
    std::unique_ptr<int> value;
    {
        job_timeout t{service, r.unit(), {&value, &polls}};
        ASSERT_FALSE(t.poll(w.to_this()).has_value());
    }
    EXPECT_EQ(r.service().counters().cancelled, 1U);
    r.pass(3 * r.unit());
    EXPECT_EQ(w.count, 0);
}

TEST_P(timeouts, elapses_at_once_after_stop) {
    rig r{GetParam()};
    handle service{r};
    wakes w;
    int polls = 0;
    std::unique_ptr<int> value;
    job_timeout t{service, 1h, {&value, &polls}};
    r.stop();
    const auto result = t.poll(w.to_this());
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->elapsed());
}

TEST_P(timeouts, wakes_the_last_waker) {
    rig r{GetParam()};
    handle service{r};
    wakes first;
    wakes second;
    int polls = 0;
    std::unique_ptr<int> value;
    job_timeout t{service, 4 * r.unit(), {&value, &polls}};
    ASSERT_FALSE(t.poll(first.to_this()).has_value());
    ASSERT_FALSE(t.poll(second.to_this()).has_value());
    ASSERT_TRUE(r.drive_until([&] { return second.count == 1; }));
    EXPECT_EQ(first.count, 0);
}

TEST_P(timeouts, sleep_ends_when_the_time_is_up) {
    rig r{GetParam()};
    handle service{r};
    for (const duration d : {duration::zero(), duration{-1ms}, r.unit(), 2 * r.unit()}) {
        wakes w;
        sleep<handle> s{service, d};
        const time_point start = r.now();
        // A service may run a timer that is due already before the poll that armed it returns.
        auto result = s.poll(w.to_this());
        ASSERT_TRUE(r.drive_until([&] { return w.count == 1 || result.has_value(); }));
        EXPECT_GE((r.now() - start).count(), std::min(d, d + r.traits().earliest).count());
        result = s.poll(w.to_this());
        ASSERT_TRUE(result.has_value());
        EXPECT_TRUE(result->elapsed());
    }
}

TEST_P(timeouts, for_ever) {
    rig r{GetParam()};
    handle service{r};
    wakes w;
    for (const duration d : {duration::max(), duration::max() - 1ns}) {
        int polls = 0;
        std::unique_ptr<int> value;
        job_timeout t{service, d, {&value, &polls}};
        sleep<handle> s{service, d};
        EXPECT_FALSE(t.poll(w.to_this()).has_value());
        EXPECT_FALSE(s.poll(w.to_this()).has_value());
        r.pass(r.unit());
        EXPECT_FALSE(t.poll(w.to_this()).has_value());
        EXPECT_FALSE(s.poll(w.to_this()).has_value());
    }
    EXPECT_EQ(w.count, 0);
    EXPECT_EQ(r.service().counters().cancelled, r.manual() ? 4U : r.service().counters().cancelled);
}

} // namespace
} // namespace timerbench::testing
