#include "timers/tests/support/rig.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <unistd.h>

namespace timerbench::testing {

namespace {
// The process in which the last rig was made: in a child forked since, a lock may be held by a thread that is not there.
pid_t home = 0;
} // namespace

rig::rig(std::string_view name, clocks which, std::optional<time_point> start) {
    home = getpid();
    const kind& k = kind_named(name);
    if (which == clocks::manual_if_possible && k.make_on != nullptr) {
        clock_ = start ? std::make_unique<manual_time>(*start) : std::make_unique<manual_time>();
        service_ = k.make_on(*clock_);
    } else {
        service_ = k.make();
    }
    traits_ = service_->traits();
    // Real time costs real seconds; virtual time is free.
    unit_ = manual() ? std::max(4 * traits_.resolution, duration{100ms})
                     : std::max(2 * traits_.resolution, duration{20ms});
}

rig::~rig() {
    drive_here();
    if (getpid() != home) {
        return;
    }
    const counters totals = service_->counters();
    EXPECT_TRUE(totals.balanced()) << "armed " << totals.armed << ", cancelled " << totals.cancelled
                                   << ", fired " << totals.fired << ", dropped " << totals.dropped
                                   << ", pending " << totals.pending;
}

std::string rig::breaks(int clause) const {
    for (const fault& f : traits_.faults) {
        if (f.clause == clause) {
            return std::string{f.name} + ", " + std::string{f.what};
        }
    }
    return {};
}

time_point rig::now() const {
    return manual() ? clock_->now() : steady_time::now();
}

void rig::poll_all() {
    // A bound, so that a loop that never runs dry ends.
    for (int i = 0; i < 100'000 && service_->poll() > 0; ++i) {}
}

// As an event loop does that sleeps no longer than the service asks for.
void rig::pass_in_loop(time_point end) {
    poll_all();
    for (auto next = service_->next_expiry(); next && *next < end; next = service_->next_expiry()) {
        clock_->advance(std::max(*next - clock_->now(), duration{}));
        poll_all();
    }
    clock_->advance(end - clock_->now());
    poll_all();
}

void rig::pass(duration d) {
    if (manual() && looped() && !loop_.joinable()) {
        pass_in_loop(saturating_add(clock_->now(), d));
        return;
    }
    if (manual()) {
        clock_->advance(d);
        return;
    }
    // A service may run late, but it starts what is due in order up to its resolution; early ones are given what they
    // are early by.
    erased_service::timer sentinel{*service_};
    std::atomic<bool> fired{false}; // set by the driver, read here
    const bool armed = service_->arm(
        sentinel, d + traits_.resolution - std::min(traits_.earliest, duration{}),
        callback{[](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &fired});
    EXPECT_TRUE(armed) << "the sentinel was not armed";
    EXPECT_TRUE(drive_until([&] { return fired.load(); })) << "the sentinel did not fire";
    service_->cancel(sentinel);
}

void rig::shift(duration d) {
    if (manual()) {
        clock_->shift(d);
    }
}

bool rig::shift_until(const std::function<bool()>& condition) {
    return eventually([&] {
        if (!condition()) {
            shift(slack());
        }
        return condition();
    });
}

void rig::settle() {
    if (manual()) {
        clock_->settle();
        if (looped() && !loop_.joinable()) {
            poll_all();
        }
    } else {
        pass(duration::zero());
    }
}

bool rig::drive_until(const std::function<bool()>& condition, duration bound) {
    if (manual()) {
        const duration step = std::max(traits_.resolution, duration{1ms});
        for (duration passed{}; !condition(); passed += step) {
            if (passed > bound) {
                return false;
            }
            pass(step);
        }
        return true;
    }
    if (!looped() || loop_.joinable()) {
        return eventually(condition, bound);
    }
    const time_point end = steady_time::now() + bound;
    while (!condition()) {
        const time_point at = steady_time::now();
        if (at > end) {
            return false;
        }
        service_->poll_until(at + 2ms);
    }
    return true;
}

void rig::drive_elsewhere() {
    if (!looped() || loop_.joinable()) {
        return;
    }
    leave_loop_ = false;
    loop_ = std::thread{[this] {
        while (!leave_loop_) {
            if (manual()) {
                service_->poll();
                std::this_thread::yield();
            } else {
                service_->poll_until(steady_time::now() + 1ms);
            }
        }
    }};
}

void rig::drive_here() {
    if (loop_.joinable()) {
        leave_loop_ = true;
        loop_.join();
    }
}

void rig::stop() {
    drive_here();
    service_->stop();
}

namespace {
bool showing_defects() {
    return std::getenv(show_defects_variable) != nullptr;
}
} // namespace

duration patience() {
    return showing_defects() ? 2s : 20s;
}

bool eventually(const std::function<bool()>& condition, duration bound) {
    const time_point end = steady_time::now() + bound;
    for (int looks = 0; !condition(); ++looks) {
        if (steady_time::now() > end) {
            return condition();
        }
        if (looks < 100) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(100us);
        }
    }
    return true;
}

void probe::on_fire(void* context) {
    probe& self = *static_cast<probe*>(context);
    const time_point at = self.rig_.now();
    const time_point earliest = saturating_add(self.deadline(), self.rig_.traits().earliest);
    EXPECT_TRUE(at >= earliest) << "fired " << (earliest - at).count()
                                << " ns before the earliest allowed start";
    self.fired_at_.store(at.time_since_epoch().count(), std::memory_order_relaxed);
    self.fired_on_ = std::this_thread::get_id();
    // Copied, because the callback may destroy the probe; the copy is made before the test sees the fire.
    const std::function<void()> next = self.then;
    self.fires_.fetch_add(1, std::memory_order_release);
    if (next) {
        next();
    }
}

void start_watchdog(unsigned seconds) {
    std::signal(SIGALRM, [](int) {
        constexpr char text[] = "the test hangs; ended by its watchdog\n";
        (void)!::write(STDERR_FILENO, text, sizeof text - 1);
        std::abort();
    });
    alarm(seconds);
}

void stop_watchdog() {
    alarm(0);
}

void service_test::SetUp() {
    if (const std::string_view why = kind_named(GetParam()).unavailable; !why.empty()) {
        GTEST_SKIP() << why;
    }
    start_watchdog(showing_defects() ? 5 : 100);
}
void service_test::TearDown() {
    stop_watchdog();
}

} // namespace timerbench::testing
