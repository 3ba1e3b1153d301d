// What a conformance test works with: one service under test, time that passes, and timers that keep account.
//
//   rig     the service on a manual clock where it takes one (or on the machine's clock where a test asks for it), and
//           ways to let time pass that fit either. Checks the balance of the counters when it goes.
//   probe   a timer that counts its fires, and checks with every fire that it is not early beyond what the traits allow
//
// On the machine's clock nothing is decided by a sleep: `drive_until` waits for an event with a generous bound, and
// `pass` is the firing of another timer.
#pragma once

#include "timers/tests/support/erased.hpp"
#include "timers/tests/support/registry.hpp"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define TIMERBENCH_TEST_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define TIMERBENCH_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIMERBENCH_TEST_ASAN 1
#elif __has_feature(thread_sanitizer)
#define TIMERBENCH_TEST_TSAN 1
#endif
#endif

namespace timerbench::testing {

using namespace std::chrono_literals;

#ifdef TIMERBENCH_TEST_ASAN
inline constexpr bool under_asan = true;
#else
inline constexpr bool under_asan = false;
#endif
#ifdef TIMERBENCH_TEST_TSAN
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif

/// Repetitions of a loop: all of them, or a part of them where a sanitizer makes each one dear.
[[nodiscard]] constexpr int repeat(int full) noexcept {
    return under_tsan ? full / 10 : under_asan ? full / 4 : full;
}

/// How long an event on the machine's clock may take before the test gives up. Short while defects are shown, because
/// there the tests are meant to fail.
[[nodiscard]] duration patience();

enum class clocks { manual_if_possible, real };

class rig {
  public:
    /// A manual clock starts at `start`, where one is given.
    explicit rig(std::string_view name, clocks which = clocks::manual_if_possible,
                 std::optional<time_point> start = std::nullopt);
    rig(const rig&) = delete;
    rig& operator=(const rig&) = delete;
    ~rig();

    [[nodiscard]] erased_service& service() noexcept { return *service_; }
    [[nodiscard]] const service_traits& traits() const noexcept { return traits_; }
    [[nodiscard]] bool manual() const noexcept { return clock_ != nullptr; }
    [[nodiscard]] bool looped() const noexcept { return service_->has_loop(); }
    /// The first fault that breaks the clause; empty if none does.
    [[nodiscard]] std::string breaks(int clause) const;
    [[nodiscard]] time_point now() const;

    /// Long against the resolution and against the time to wake a thread; no more than a few ticks.
    [[nodiscard]] duration unit() const noexcept { return unit_; }
    /// From the deadline on, when a timer must have fired: the latest start plus one step of the service.
    [[nodiscard]] duration slack() const noexcept { return traits_.latest + traits_.resolution; }

    /// At least `d` passes, and what was due by then has started (on a manual clock: has returned). Not in callbacks.
    void pass(duration d);
    /// Lets `d` pass on a manual clock without waiting for any callback. On the machine's clock time passes anyway.
    void shift(duration d);
    /// The same again and again until the condition holds; false if it does not within the patience. For callbacks that
    /// get stuck, and for drivers that only begin to wait after time has moved.
    [[nodiscard]] bool shift_until(const std::function<bool()>& condition);
    /// What is due now starts. On a manual clock without any time passing.
    void settle();
    /// Drives until the condition holds; false if it does not within the bound. Steps a manual clock.
    [[nodiscard]] bool drive_until(const std::function<bool()>& condition, duration bound = patience());

    /// Hands a loop over to a thread of its own, for tests that call the service from elsewhere meanwhile. Nothing to
    /// do for a service with its own thread.
    void drive_elsewhere();
    /// Takes it back. Only when no callback is stuck.
    void drive_here();

    void stop();

  private:
    void poll_all();
    void pass_in_loop(time_point end);

    std::unique_ptr<manual_time> clock_;
    std::unique_ptr<erased_service> service_;
    service_traits traits_;
    duration unit_{};
    std::thread loop_;
    // Written by drive_here, read by the loop's thread; a plain flag that orders nothing.
    std::atomic<bool> leave_loop_{false};
};

/// Returns whether the condition came true within the bound. Looks at it again and again; drives nothing.
[[nodiscard]] bool eventually(const std::function<bool()>& condition, duration bound = patience());

class probe {
  public:
    explicit probe(rig& r) : rig_{r}, timer_{std::make_unique<erased_service::timer>(r.service())} {}
    probe(const probe&) = delete;
    probe& operator=(const probe&) = delete;

    /// The timer must be idle. Reads the clock just before, which is what earliness is measured from.
    [[nodiscard]] bool arm(duration d) {
        const time_point deadline = saturating_add(rig_.now(), d);
        deadline_.store(deadline.time_since_epoch().count(), std::memory_order_relaxed);
        return rig_.service().arm(*timer_, d, callback{&probe::on_fire, this});
    }
    bool cancel() { return rig_.service().cancel(*timer_); }
    /// The pointer stays until the destructor is done: the callback may use the timer while a foreign destroy waits.
    void destroy() {
        delete timer_.get();
        (void)timer_.release();
    }
    [[nodiscard]] erased_service::timer& timer() noexcept { return *timer_; }

    [[nodiscard]] int fires() const noexcept { return fires_.load(std::memory_order_acquire); }
    /// When the last callback started.
    [[nodiscard]] time_point fired_at() const noexcept {
        return time_point{duration{fired_at_.load(std::memory_order_relaxed)}};
    }
    /// Relative to the reading just before the last arm.
    [[nodiscard]] duration lateness() const noexcept { return fired_at() - deadline(); }
    [[nodiscard]] time_point deadline() const noexcept {
        return time_point{duration{deadline_.load(std::memory_order_relaxed)}};
    }
    [[nodiscard]] std::thread::id fired_on() const noexcept { return fired_on_; }

    /// Runs inside the callback, after the account is made; may destroy the probe. Set while idle.
    std::function<void()> then;

  private:
    static void on_fire(void* context);

    rig& rig_;
    // Written by the driver in the callback, read by the test at any time. The count is raised last, with release, so
    // that who sees a fire sees its time. The deadline is written by the armer, and the service orders arm and fire.
    std::atomic<duration::rep> deadline_{0};
    std::atomic<duration::rep> fired_at_{0};
    std::atomic<int> fires_{0};
    std::thread::id fired_on_;
    std::unique_ptr<erased_service::timer>
        timer_; // last: destroyed, and so cancelled, before what the callback touches
};

/// A door that opens once. Waiting at it is bounded, so that a defect ends a test instead of hanging it.
class gate {
  public:
    void open() noexcept { open_.store(true, std::memory_order_release); }
    [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
    bool wait(duration bound = patience()) const {
        return eventually([this] { return is_open(); }, bound);
    }

  private:
    // Opened by one thread, looked at by others; release and acquire order what came before the opening.
    std::atomic<bool> open_{false};
};

/// Base of the suites: the parameter is the service's name. Ends the process if a test hangs.
class service_test : public ::testing::TestWithParam<std::string_view> {
  protected:
    void SetUp() override;
    void TearDown() override;
};

/// Arms the watchdog of service_test by hand, for tests that are no service_test.
void start_watchdog(unsigned seconds);
void stop_watchdog();

} // namespace timerbench::testing

/// Runs a suite over every service.
#define TIMERBENCH_OVER_ALL_SERVICES(suite)                                                                  \
    INSTANTIATE_TEST_SUITE_P(                                                                                \
        every, suite, ::testing::ValuesIn(::timerbench::testing::kind_names()),                              \
        [](const auto& info) { return ::timerbench::testing::test_name_of(info.param); })

#define TIMERBENCH_SKIP_IF(condition, why)                                                                   \
    if (condition)                                                                                           \
    GTEST_SKIP() << why

/// Where the traits list a fault of that clause, the test does not apply.
#define TIMERBENCH_SKIP_IF_BREAKS(the_rig, clause)                                                           \
    if (const std::string broken_by = (the_rig).breaks(clause); !broken_by.empty())                          \
    GTEST_SKIP() << "breaks clause " << clause << " by design: " << broken_by

#define TIMERBENCH_NEEDS_CALLS_IN_CALLBACKS(the_rig)                                                         \
    TIMERBENCH_SKIP_IF(!(the_rig).traits().callback_may_call, "callbacks may not call this service")
