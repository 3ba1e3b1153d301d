// What is particular to the coarse slot service; the contract itself is tested over all services elsewhere.
#include "timers/coarse_slot.hpp"
#include "timers/twin.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <dirent.h>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using service = coarse_slot<manual_time>;

struct fire_log {
    manual_time* clock = nullptr;
    std::vector<time_point> at; // read when the clock has settled
    std::mutex mutex{};         // the clock thread and the precise service's driver may fire at the same time
    static void record(void* context) {
        auto& self = *static_cast<fire_log*>(context);
        const std::lock_guard lock{self.mutex};
        self.at.push_back(self.clock->now());
    }
    callback cb() { return {&fire_log::record, this}; }
};

int threads_named(const std::string& name) {
    int n = 0;
    if (DIR* tasks = opendir("/proc/self/task")) {
        while (const dirent* entry = readdir(tasks)) {
            std::ifstream comm{std::string{"/proc/self/task/"} + entry->d_name + "/comm"};
            std::string found;
            n += std::getline(comm, found) && found == name ? 1 : 0;
        }
        closedir(tasks);
    }
    return n;
}

TEST(coarse_slot, fires_at_the_first_boundary_at_or_after_the_deadline) {
    manual_time clock;
    service s{clock};
    const time_point zero = clock.now();
    clock.advance(3ms + 1ns);
    for (const duration d : {duration{0}, duration{1}, duration{6'999'998}, duration{6'999'999},
                             duration{7'000'000}, duration{10ms}, duration{16'999'999}, duration{-5ms}}) {
        fire_log log{&clock, {}};
        service::timer t{s};
        const time_point deadline = std::max(clock.now(), clock.now() + d);
        ASSERT_TRUE(s.arm(t, d, log.cb()));
        const std::int64_t slots = ceil_ticks(deadline - zero, 10ms);
        const time_point due = zero + slots * 10ms;
        clock.advance(due - clock.now() - 1ns);
        EXPECT_TRUE(log.at.empty()) << d.count();
        clock.advance(1ns);
        ASSERT_EQ(log.at.size(), 1U) << d.count();
        EXPECT_EQ(log.at[0], due) << d.count();
        clock.advance(3ms + 1ns);
    }
}

TEST(coarse_slot, a_cancelled_slot_stays_until_its_time_and_no_longer) {
    manual_time clock;
    service s{clock};
    fire_log log{&clock, {}};
    service::timer t{s};
    for (int i = 0; i < 1'000'000; ++i) {
        ASSERT_TRUE(s.arm(t, duration{1s} + duration{i * 1'000}, log.cb()));
        ASSERT_TRUE(s.cancel(t));
    }
    EXPECT_GE(s.slots(), 100U);
    EXPECT_LE(s.slots(), 101U); // deadlines spread over 1 s, however many timers had them
    clock.advance(2s + 10ms);
    EXPECT_EQ(s.slots(), 0U);
    EXPECT_TRUE(log.at.empty());
    EXPECT_TRUE(s.counters().balanced());
}

TEST(coarse_slot, durations_are_compared_with_the_threshold_in_whole_seconds) {
    manual_time clock;
    service s{clock};
    fire_log log{&clock, {}};
    service::timer below{s};
    service::timer above{s};
    ASSERT_TRUE(s.arm(below, 15min + 999'999'999ns, log.cb()));
    EXPECT_EQ(s.slots(), 1U);
    ASSERT_TRUE(s.arm(above, 15min + 1s, log.cb()));
    EXPECT_EQ(s.slots(), 1U);
    EXPECT_EQ(s.counters().pending, 2U);
    EXPECT_TRUE(s.cancel(above));
    EXPECT_EQ(s.counters().pending, 1U); // the precise service frees on cancel
    ASSERT_TRUE(s.arm(above, 15min + 1s, log.cb()));
    const time_point exact = clock.now() + 15min + 1s;
    clock.advance(15min + 1s);
    ASSERT_EQ(log.at.size(), 2U);
    EXPECT_EQ(s.counters().fired, 2U);
    EXPECT_LE(log.at[1], exact);
}

TEST(coarse_slot, the_threshold_can_be_off) {
    manual_time clock;
    service s{clock, {.threshold_s = -1}};
    fire_log log{&clock, {}};
    service::timer t{s};
    ASSERT_TRUE(s.arm(t, 24h * 365, log.cb()));
    EXPECT_EQ(s.slots(), 1U);
    EXPECT_TRUE(s.cancel(t));
    ASSERT_TRUE(s.arm(t, duration::max(), log.cb()));
    clock.advance(24h * 365 * 10);
    EXPECT_TRUE(log.at.empty());
    EXPECT_TRUE(s.cancel(t));
}

TEST(coarse_slot, refuses_a_slot_that_is_too_short) {
    manual_time clock;
    EXPECT_THROW((service{clock, {.slot_ns = 999}}), std::invalid_argument);
    EXPECT_THROW((service{clock, {.slot_ns = 0}}), std::invalid_argument);
}

TEST(coarse_slot, many_slots_find_their_way_through_the_index) {
    manual_time clock;
    service s{clock};
    fire_log log{&clock, {}};
    std::deque<service::timer> timers;
    constexpr int n = 20'000;
    for (int i = 0; i < n; ++i) {
        // Every slot of 200 s, in an order that jumps about.
        const int slot = static_cast<int>((static_cast<long long>(i) * 7'919) % n);
        ASSERT_TRUE(s.arm(timers.emplace_back(s), slot * 10ms + 5ms, log.cb()));
    }
    EXPECT_EQ(s.slots(), static_cast<std::size_t>(n));
    for (int second = 0; second < 200; ++second) {
        clock.advance(1s);
        EXPECT_EQ(log.at.size(), 100U * (second + 1));
    }
    EXPECT_EQ(s.slots(), 0U);
}

struct gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool entered = false;
    bool open = false;
    static void block(void* context) {
        auto& self = *static_cast<gate*>(context);
        std::unique_lock lock{self.mutex};
        self.entered = true;
        self.changed.notify_all();
        self.changed.wait(lock, [&] { return self.open; });
    }
    void await_entered() {
        std::unique_lock lock{mutex};
        changed.wait(lock, [&] { return entered; });
    }
    void release() {
        const std::lock_guard lock{mutex};
        open = true;
        changed.notify_all();
    }
};

TEST(coarse_slot, a_stalled_clock_thread_is_replaced_and_leaves_without_touching_a_map) {
    manual_time clock;
    service s{clock};
    gate stuck;
    fire_log log{&clock, {}};
    service::timer blocking{s};
    service::timer behind{s};
    service::timer later{s};
    ASSERT_TRUE(s.arm(blocking, 10ms, {&gate::block, &stuck}));
    ASSERT_TRUE(s.arm(behind, 10ms, log.cb()));
    clock.shift(20ms);
    stuck.await_entered();
    EXPECT_EQ(threads_named("coarse_clock"), 1);

    clock.shift(1s);
    ASSERT_TRUE(s.arm(later, 10ms, log.cb())); // not silent for long enough: nothing happens
    EXPECT_EQ(threads_named("coarse_clock"), 1);

    clock.shift(2s);
    service::timer trigger{s};
    std::promise<void> fired;
    ASSERT_TRUE(
        s.arm(trigger, 10ms, {[](void* p) { static_cast<std::promise<void>*>(p)->set_value(); }, &fired}));
    clock.shift(20ms);
    ASSERT_EQ(fired.get_future().wait_for(30s), std::future_status::ready);
    // The new clock thread has served what the stalled one left in its list of due timers.
    EXPECT_EQ(s.counters().fired, 4U);
    stuck.release();
    clock.settle(); // returns only when the old thread has left
    EXPECT_EQ(log.at.size(), 2U);
    clock.advance(1s);
    EXPECT_EQ(s.counters().fired, 4U);
    EXPECT_EQ(s.counters().pending, 0U);
}

TEST(coarse_slot, what_is_armed_during_a_pause_is_kept_and_fires_after_resume) {
    manual_time clock;
    service s{clock};
    fire_log log{&clock, {}};
    service::timer before{s};
    service::timer during{s};
    service::timer long_one{s};
    ASSERT_TRUE(s.arm(before, 50ms, log.cb()));
    s.pause_for_fork();
    EXPECT_EQ(threads_named("coarse_clock"), 0);
    ASSERT_TRUE(s.arm(during, 10ms, log.cb()));
    ASSERT_TRUE(s.arm(long_one, 20min, log.cb()));
    clock.advance(20ms);
    EXPECT_TRUE(log.at.empty());
    s.resume();
    clock.advance(0ms);
    EXPECT_EQ(log.at.size(), 1U);
    clock.advance(40ms);
    EXPECT_EQ(log.at.size(), 2U);
    clock.advance(20min);
    EXPECT_EQ(log.at.size(), 3U);
    EXPECT_TRUE(s.counters().balanced());
}

TEST(coarse_slot, a_timer_moves_between_slot_and_precise_service_inside_its_own_callback) {
    manual_time clock;
    service s{clock};
    struct mover {
        service& s;
        service::timer t;
        int fires = 0;
        static void fire(void* context) {
            auto& self = *static_cast<mover*>(context);
            if (++self.fires < 6) {
                EXPECT_TRUE(self.s.arm(self.t, self.fires % 2 == 0 ? duration{20ms} : duration{16min},
                                       {&mover::fire, &self}));
            }
        }
    } m{s, service::timer{s}};
    ASSERT_TRUE(s.arm(m.t, 20ms, {&mover::fire, &m}));
    for (int i = 0; i < 6; ++i) {
        clock.advance(17min);
    }
    EXPECT_EQ(m.fires, 6);
    EXPECT_FALSE(s.cancel(m.t));
    EXPECT_TRUE(s.counters().balanced());
}

// Foreign cancels against a callback that re-arms into the other half of the service each time.
TEST(coarse_slot, cancel_wins_over_a_re_arm_that_changes_sides) {
    manual_time clock;
    service s{clock};
    struct mover {
        service& s;
        service::timer t;
        std::atomic<int> fires{0};
        static void fire(void* context) {
            auto& self = *static_cast<mover*>(context);
            const int n = self.fires.fetch_add(1);
            (void)self.s.arm(self.t, n % 2 == 0 ? duration{16min} : duration{10ms}, {&mover::fire, &self});
        }
    };
    std::atomic<bool> done{false};
    std::thread time{[&] {
        while (!done.load()) {
            clock.advance(17min);
        }
    }};
    for (int i = 0; i < 200; ++i) {
        mover m{s, service::timer{s}};
        ASSERT_TRUE(s.arm(m.t, i % 2 == 0 ? duration{10ms} : duration{16min}, {&mover::fire, &m}));
        while (m.fires.load() < i % 5) {
            std::this_thread::yield();
        }
        (void)s.cancel(m.t);
        const int seen = m.fires.load();
        EXPECT_FALSE(s.cancel(m.t));
        EXPECT_EQ(s.counters().pending, 0U);
        EXPECT_EQ(m.fires.load(), seen);
    }
    done.store(true);
    time.join();
    EXPECT_TRUE(s.counters().balanced());
}

TEST(coarse_slot, a_forked_child_that_resumes_fires_its_timers) {
    steady_time clock;
    coarse_slot<steady_time> s{clock};
    std::atomic<bool> fired{false};
    const callback set{[](void* p) { static_cast<std::atomic<bool>*>(p)->store(true); }, &fired};
    coarse_slot<steady_time>::timer inherited{s};
    ASSERT_TRUE(s.arm(inherited, 20ms, set));
    s.pause_for_fork();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        s.resume();
        const auto until = std::chrono::steady_clock::now() + 30s;
        while (!fired.load() && std::chrono::steady_clock::now() < until) {
            std::this_thread::yield();
        }
        _exit(fired.load() ? 0 : 1);
    }
    s.resume();
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static_assert(!std::is_same_v<coarse_slot<steady_time>, twin<steady_time>>);
static_assert(timer_service<coarse_slot<steady_time>> && timer_service<twin<manual_time>>);
static_assert(forkable_service<coarse_slot<steady_time>>);

} // namespace
} // namespace timerbench
