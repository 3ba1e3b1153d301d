// The faults that the faithful coarse slot service keeps on purpose: each is there, and none goes beyond its bound.
#include "timers/coarse_slot_faithful.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <dirent.h>
#include <fstream>
#include <future>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace timerbench {
namespace {

using namespace std::chrono_literals;
using service = coarse_slot_faithful<manual_time>;
constexpr auto generous = 60s;

static_assert(timer_service<service> && seamed_service<service>);
// Its pause keeps the clock thread, so it must not pass for a service that can be forked.
static_assert(!forkable_service<service>);

struct fire_log {
    manual_time* clock = nullptr;
    std::vector<time_point> at;
    static void record(void* context) {
        auto& self = *static_cast<fire_log*>(context);
        self.at.push_back(self.clock->now());
    }
    callback cb() { return {&fire_log::record, this}; }
};

struct fire_count {
    std::atomic<int> n{0}; // raised by clock threads, read by the test
    static void record(void* context) { ++static_cast<fire_count*>(context)->n; }
    callback cb() { return {&fire_count::record, this}; }
};

// A callback that stays until it is let go.
class gate {
  public:
    callback cb() { return {&gate::pass, this}; }
    bool wait_until_entered() {
        std::unique_lock lock{mutex_};
        return changed_.wait_for(lock, generous, [this] { return entered_; });
    }
    void open() {
        const std::lock_guard lock{mutex_};
        open_ = true;
        changed_.notify_all();
    }

  private:
    static void pass(void* context) {
        auto& self = *static_cast<gate*>(context);
        std::unique_lock lock{self.mutex_};
        self.entered_ = true;
        self.changed_.notify_all();
        self.changed_.wait(lock, [&self] { return self.open_; });
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool entered_ = false; // guarded by mutex_, as is open_
    bool open_ = false;
};

// Lets a callback go even if the test gives up before it does so. Declared after the timers.
struct opened_at_end {
    gate& g;
    ~opened_at_end() { g.open(); }
};

// Waits for an event that has nothing to wait on.
template <class Happened>
bool eventually(Happened happened) {
    const auto limit = std::chrono::steady_clock::now() + generous;
    while (!happened()) {
        if (std::chrono::steady_clock::now() > limit) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

int clock_threads() {
    int n = 0;
    if (DIR* tasks = opendir("/proc/self/task")) {
        while (const dirent* entry = readdir(tasks)) {
            std::ifstream comm{std::string{"/proc/self/task/"} + entry->d_name + "/comm"};
            std::string found;
            n += std::getline(comm, found) && found == service::thread_name ? 1 : 0;
        }
        closedir(tasks);
    }
    return n;
}

bool thread_sleeps(pid_t tid) {
    std::ifstream stat{"/proc/self/task/" + std::to_string(tid) + "/stat"};
    std::string line;
    std::getline(stat, line);
    const auto name_end = line.rfind(')');
    return name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] == 'S';
}

TEST(coarse_slot_faithful, lists_each_fault_once_with_a_clause_and_a_bound) {
    manual_time clock;
    const service s{clock};
    std::set<std::string_view> names;
    for (const fault& f : s.traits().faults) {
        EXPECT_GE(f.clause, 1) << f.name;
        EXPECT_LE(f.clause, 11) << f.name;
        EXPECT_FALSE(f.what.empty()) << f.name;
        EXPECT_TRUE(names.insert(f.name).second) << f.name;
    }
    EXPECT_EQ(names,
              (std::set<std::string_view>{"early_by_truncation", "early_while_paused", "herd_under_lock",
                                          "inline_fire", "lost_wakeup", "second_clock_thread"}));
    EXPECT_FALSE(s.traits().callback_may_call);
    EXPECT_FALSE(s.traits().cancel_frees);
}

TEST(coarse_slot_faithful, is_early_by_the_fraction_of_a_millisecond_that_it_cuts_off) {
    for (const duration phase : {0ns, 1ns, 250'000ns, 999'999ns}) {
        manual_time clock;
        service s{clock};
        fire_count other;
        fire_log log{&clock, {}};
        service::timer first{s};
        service::timer t{s};
        // The clock thread starts here, so that its rounds fall on whole milliseconds.
        ASSERT_TRUE(s.arm(first, 5min, other.cb()));
        clock.advance(phase);
        const time_point deadline = clock.now() + 10ms;
        ASSERT_TRUE(s.arm(t, 10ms, log.cb()));
        clock.advance(10ms - phase - 1ns);
        EXPECT_TRUE(log.at.empty());
        clock.advance(1ns);
        ASSERT_EQ(log.at.size(), 1U);
        EXPECT_EQ(log.at[0] - deadline, -phase);
        EXPECT_GE(log.at[0] - deadline, s.traits().earliest);
        EXPECT_TRUE(s.counters().balanced());
    }
}

TEST(coarse_slot_faithful, never_leaves_the_bounds_that_its_traits_state) {
    manual_time clock;
    service s{clock};
    std::mt19937_64 random{7};
    const duration step = 100us + 7ns;
    duration lowest = duration::max();
    duration highest = duration::min();
    int early = 0;
    for (int i = 0; i < 400; ++i) {
        clock.advance(duration{static_cast<std::int64_t>(random() % 3'000'000)});
        const duration d{static_cast<std::int64_t>(random() % 30'000'000)};
        fire_log log{&clock, {}};
        service::timer t{s};
        const time_point deadline = clock.now() + d;
        ASSERT_TRUE(s.arm(t, d, log.cb()));
        for (int waited = 0; log.at.empty() && waited < 1'000; ++waited) {
            clock.advance(step);
        }
        ASSERT_EQ(log.at.size(), 1U);
        lowest = std::min(lowest, log.at[0] - deadline);
        highest = std::max(highest, log.at[0] - deadline);
        early += log.at[0] < deadline ? 1 : 0;
    }
    EXPECT_GT(early, 0);
    EXPECT_GE(lowest, s.traits().earliest);
    EXPECT_GT(highest, service::slot_width)
        << "the clock should sleep a whole slot from whenever it finished";
    EXPECT_LE(highest, s.traits().latest + step);
}

// Arms in a thread of its own, which stays in the window until that is closed.
struct held_arm {
    held_arm(service& s, duration d, callback c)
        : t{s},
          armed{std::async(std::launch::async, [this, &s, d, c] { return s.arm(t, d, c); })} {}
    service::timer t;
    std::future<bool> armed;
};

TEST(coarse_slot_faithful, loses_a_fire_between_reading_the_flag_and_registering) {
    manual_time clock;
    service s{clock};
    fire_count fired;
    s.hold_window(1h);
    held_arm held{s, 10ms, fired.cb()};
    ASSERT_TRUE(eventually([&] { return s.held_in_window() == 1; }));
    clock.advance(30ms);
    EXPECT_EQ(s.slots(), 0U) << "the clock should have fired the slot";
    s.hold_window(0ns);
    ASSERT_TRUE(held.armed.get());
    for (int i = 0; i < 100; ++i) {
        clock.advance(1s);
    }
    EXPECT_EQ(fired.n, 0);
    EXPECT_EQ(s.counters().pending, 1U);
    EXPECT_TRUE(s.counters().balanced());
    EXPECT_TRUE(s.cancel(held.t));
    EXPECT_FALSE(s.cancel(held.t));
    EXPECT_EQ(s.counters().cancelled, 1U);
    EXPECT_EQ(s.counters().pending, 0U);
    EXPECT_TRUE(s.counters().balanced());
}

TEST(coarse_slot_faithful, fires_when_the_window_closes_before_the_slot_is_due) {
    manual_time clock;
    service s{clock};
    fire_count fired;
    s.hold_window(1h);
    held_arm held{s, 100ms, fired.cb()};
    ASSERT_TRUE(eventually([&] { return s.held_in_window() == 1; }));
    clock.advance(50ms);
    s.hold_window(0ns);
    ASSERT_TRUE(held.armed.get());
    clock.advance(100ms);
    EXPECT_EQ(fired.n, 1);
    EXPECT_TRUE(s.counters().balanced());
}

TEST(coarse_slot_faithful, a_window_lasts_as_long_as_it_is_told_to) {
    manual_time clock;
    service s{clock};
    fire_count fired;
    s.hold_window(50ms);
    held_arm held{s, 0ns, fired.cb()};
    ASSERT_TRUE(eventually([&] { return s.held_in_window() == 1; }));
    clock.advance(50ms - 1ns);
    EXPECT_EQ(s.held_in_window(), 1U);
    clock.advance(1ns);
    ASSERT_TRUE(held.armed.get());
    EXPECT_EQ(s.held_in_window(), 0U);
    clock.advance(1s);
    EXPECT_EQ(fired.n, 0);
    s.stop();
    EXPECT_EQ(s.counters().dropped, 1U) << "stop should find a timer whose slot is in no map any more";
    EXPECT_EQ(s.counters().pending, 0U);
    EXPECT_TRUE(s.counters().balanced());
    EXPECT_FALSE(s.cancel(held.t));
}

TEST(coarse_slot_faithful, loses_it_on_the_real_clock_too) {
    coarse_slot_faithful<steady_time> s{steady()};
    fire_count fired;
    coarse_slot_faithful<steady_time>::timer t{s};
    coarse_slot_faithful<steady_time>::timer later{s};
    s.hold_window(generous);
    auto armed = std::async(std::launch::async, [&] { return s.arm(t, 0ns, fired.cb()); });
    ASSERT_TRUE(eventually([&] { return s.held_in_window() == 1; }));
    ASSERT_TRUE(eventually([&] { return s.slots() == 0; }));
    s.hold_window(0ns);
    ASSERT_TRUE(armed.get());
    fire_count sentinel;
    ASSERT_TRUE(s.arm(later, 30ms, sentinel.cb()));
    ASSERT_TRUE(eventually([&] { return sentinel.n == 1; }));
    EXPECT_EQ(fired.n, 0);
    EXPECT_EQ(s.counters().pending, 1U);
    EXPECT_TRUE(s.cancel(t));
}

void pause(service& s, manual_time& clock) {
    auto paused = std::async(std::launch::async, [&s] { s.pause_for_fork(); });
    while (paused.wait_for(0s) != std::future_status::ready) {
        clock.advance(5ms);
        std::this_thread::yield();
    }
}

TEST(coarse_slot_faithful, fires_at_once_and_inline_what_is_armed_while_paused) {
    manual_time clock;
    service s{clock};
    fire_count before;
    service::timer pending{s};
    ASSERT_TRUE(s.arm(pending, 5min, before.cb()));
    pause(s, clock);

    fire_log log{&clock, {}};
    service::timer t{s};
    const time_point at = clock.now();
    ASSERT_TRUE(s.arm(t, 10min, log.cb()));
    ASSERT_EQ(log.at.size(), 1U) << "the callback should have run inside arm";
    EXPECT_EQ(log.at[0], at);
    EXPECT_FALSE(s.cancel(t));

    clock.advance(6min);
    EXPECT_EQ(before.n, 0) << "the clock takes no lock while paused";
    EXPECT_EQ(clock_threads(), 1) << "a paused clock still stores its watchdog word";
    s.unpause();
    clock.advance(20ms);
    EXPECT_EQ(before.n, 1);
    EXPECT_EQ(s.counters().fired, 2U);
    EXPECT_TRUE(s.counters().balanced());
    fire_log after{&clock, {}};
    ASSERT_TRUE(s.arm(t, 10ms, after.cb()));
    EXPECT_TRUE(after.at.empty());
    clock.advance(20ms);
    EXPECT_EQ(after.at.size(), 1U);
}

TEST(coarse_slot_faithful, a_pause_lasts_two_slots) {
    manual_time clock;
    service s{clock};
    auto paused = std::async(std::launch::async, [&] {
        const time_point from = clock.now();
        s.pause_for_fork();
        return clock.now() - from;
    });
    while (paused.wait_for(0s) != std::future_status::ready) {
        clock.advance(1ms);
        std::this_thread::yield();
    }
    EXPECT_GE(paused.get(), 2 * service::slot_width);
}

TEST(coarse_slot_faithful, starts_a_second_clock_thread_after_a_stall_and_keeps_the_first) {
    manual_time clock;
    service s{clock};
    ASSERT_EQ(clock_threads(), 0);
    fire_count fired;
    service::timer here{s};
    // This thread's map comes first in a round, so that the second clock thread gets to it.
    ASSERT_TRUE(s.arm(here, 1min, fired.cb()));
    ASSERT_TRUE(s.cancel(here));
    ASSERT_TRUE(eventually([] { return clock_threads() == 1; }));

    gate stall;
    service::timer stuck{s};
    const opened_at_end opened{stall};
    std::async(std::launch::async, [&] { ASSERT_TRUE(s.arm(stuck, 10ms, stall.cb())); }).get();
    clock.settle();
    clock.shift(20ms);
    ASSERT_TRUE(stall.wait_until_entered());

    clock.shift(1'500ms); // less than two whole seconds since the latest round
    ASSERT_TRUE(s.arm(here, 10ms, fired.cb()));
    clock.shift(2s);
    fire_count second;
    service::timer after{s};
    ASSERT_TRUE(s.arm(after, 10ms, second.cb()));
    ASSERT_TRUE(eventually([] { return clock_threads() >= 2; }));
    EXPECT_EQ(clock_threads(), 2) << "the shorter stall should not have started one";
    clock.shift(30ms);
    ASSERT_TRUE(eventually([&] { return second.n == 1; }))
        << "the second clock thread fires while the first is stuck";
    EXPECT_EQ(fired.n, 1);

    stall.open();
    clock.advance(1s);
    clock.advance(1s);
    EXPECT_EQ(clock_threads(), 2) << "the first should go on";
    EXPECT_TRUE(s.counters().balanced());
    EXPECT_EQ(s.counters().fired, 3U);
    s.stop();
    EXPECT_EQ(clock_threads(), 0);
}

TEST(coarse_slot_faithful, keeps_the_slot_of_a_cancelled_timer_until_its_time) {
    manual_time clock;
    service s{clock};
    fire_count fired;
    const auto spin = [&](duration d, int times) {
        service::timer t{s};
        std::size_t most = 0;
        for (int i = 0; i < times; ++i) {
            EXPECT_TRUE(s.arm(t, d, fired.cb()));
            EXPECT_TRUE(s.cancel(t));
            most = std::max(most, s.slots());
            clock.advance(1ms);
        }
        return most;
    };
    const std::size_t bound =
        1s / service::slot_width + 2; // both ends of the second, and the clock's own delay
    const std::size_t one_thread = spin(1s, 3'000);
    EXPECT_GE(one_thread, 1s / service::slot_width);
    EXPECT_LE(one_thread, bound);

    service::timer t{s};
    ASSERT_TRUE(s.arm(t, 1s, fired.cb()));
    ASSERT_TRUE(s.cancel(t));
    const std::size_t mine = s.slots();
    clock.advance(1s);
    clock.advance(20ms);
    EXPECT_EQ(s.slots(), 0U);
    EXPECT_GT(mine, 0U);

    // Threads share no slots: each has its own for one and the same deadline.
    std::deque<service::timer> timers;
    for (int i = 0; i < 3; ++i) {
        timers.emplace_back(s);
    }
    std::promise<void> done;
    const std::shared_future<void> all_armed = done.get_future().share();
    std::atomic<int> armed{0}; // raised by each thread once it has armed
    std::vector<std::future<void>> threads;
    for (service::timer& each : timers) {
        threads.push_back(std::async(std::launch::async, [&, all_armed] {
            EXPECT_TRUE(s.arm(each, 1s, fired.cb()));
            ++armed;
            all_armed.wait(); // a thread that ends gives its map to the next
        }));
    }
    ASSERT_TRUE(eventually([&] { return armed == 3; }));
    EXPECT_EQ(s.slots(), 3U);
    done.set_value();
    threads.clear();
    timers.clear();
    EXPECT_EQ(s.counters().pending, 0U);
    EXPECT_EQ(s.slots(), 3U);
    EXPECT_EQ(fired.n, 0);
}

TEST(coarse_slot_faithful, one_slot_serves_all_timers_of_a_thread_and_fires_each_once) {
    manual_time clock;
    service s{clock};
    std::deque<fire_log> logs(100, fire_log{&clock, {}});
    std::deque<service::timer> timers;
    for (fire_log& log : logs) {
        timers.emplace_back(s);
        ASSERT_TRUE(s.arm(timers.back(), 25ms, log.cb()));
    }
    EXPECT_EQ(s.slots(), 1U);
    clock.advance(50ms);
    clock.advance(1s);
    for (const fire_log& log : logs) {
        EXPECT_EQ(log.at.size(), 1U);
    }
    EXPECT_EQ(s.slots(), 0U);
    EXPECT_EQ(s.counters().fired, 100U);
    EXPECT_TRUE(s.counters().balanced());
}

TEST(coarse_slot_faithful, the_threshold_counts_whole_seconds_and_long_timers_hold_no_slot) {
    manual_time clock;
    service s{clock};
    fire_log log{&clock, {}};
    service::timer t{s};
    ASSERT_TRUE(s.arm(t, 900s + 999ms, log.cb()));
    EXPECT_EQ(s.slots(), 1U);
    ASSERT_TRUE(s.cancel(t));
    ASSERT_TRUE(s.arm(t, 901s, log.cb()));
    EXPECT_EQ(s.slots(), 1U) << "the one cancelled before, and no other";
    EXPECT_EQ(s.counters().pending, 1U);
    clock.advance(901s - 1ns);
    EXPECT_TRUE(log.at.empty()) << "the precise service is never early";
    clock.advance(1ns);
    EXPECT_EQ(log.at.size(), 1U);
    EXPECT_TRUE(s.counters().balanced());

    service without{clock, {.threshold_s = -1}};
    service::timer u{without};
    ASSERT_TRUE(without.arm(u, duration::max(), log.cb()));
    EXPECT_EQ(without.slots(), 1U);
    clock.advance(24h * 365);
    EXPECT_EQ(log.at.size(), 1U);
    EXPECT_TRUE(without.cancel(u));
}

TEST(coarse_slot_faithful, calls_the_herd_under_the_write_lock) {
    manual_time clock;
    service s{clock};
    gate blocked;
    service::timer t{s};
    service::timer again{s};
    fire_count fired;
    std::promise<void> go;
    std::atomic<pid_t> arming{0}; // the arming thread's id once it is about to arm for the second time
    std::atomic<bool> returned{false};
    std::promise<void> first_armed;
    const opened_at_end opened{blocked};
    auto worker = std::async(std::launch::async, [&] {
        EXPECT_TRUE(s.arm(t, 10ms, blocked.cb()));
        first_armed.set_value();
        go.get_future().wait();
        arming = gettid();
        EXPECT_TRUE(s.arm(again, 10ms, fired.cb()));
        returned = true;
    });
    first_armed.get_future().wait();
    clock.settle();
    clock.shift(20ms);
    ASSERT_TRUE(blocked.wait_until_entered());
    go.set_value();
    ASSERT_TRUE(eventually([&] { return arming != 0 && (returned || thread_sleeps(arming)); }));
    EXPECT_FALSE(returned) << "an arm of this thread should wait while its callbacks run";
    blocked.open();
    worker.get();
    clock.settle(); // the clock sleeps from when it has finished
    clock.advance(30ms);
    EXPECT_EQ(fired.n, 1);
}

TEST(coarse_slot_faithful, cancels_the_rest_of_a_herd_while_the_first_callback_runs) {
    manual_time clock;
    service s{clock};
    gate blocked;
    fire_count fired;
    service::timer first{s};
    ASSERT_TRUE(s.arm(first, 10ms, blocked.cb()));
    std::deque<service::timer> rest;
    const opened_at_end opened{blocked};
    for (int i = 0; i < 10; ++i) {
        rest.emplace_back(s);
        ASSERT_TRUE(s.arm(rest.back(), 10ms, fired.cb()));
    }
    clock.settle();
    clock.shift(20ms);
    ASSERT_TRUE(blocked.wait_until_entered());
    for (service::timer& t : rest) {
        EXPECT_TRUE(s.cancel(t));
    }
    EXPECT_EQ(s.counters().pending, 0U);
    std::atomic<pid_t> waiting{0}; // the cancelling thread's id once it is about to cancel
    std::atomic<bool> returned{false};
    auto cancelling = std::async(std::launch::async, [&] {
        waiting = gettid();
        EXPECT_FALSE(s.cancel(first));
        returned = true;
    });
    ASSERT_TRUE(eventually([&] { return waiting != 0 && (returned || thread_sleeps(waiting)); }));
    EXPECT_FALSE(returned) << "cancel should wait for the running callback";
    blocked.open();
    cancelling.get();
    clock.settle();
    EXPECT_EQ(fired.n, 0);
    EXPECT_TRUE(s.counters().balanced());
}

TEST(coarse_slot_faithful, a_callback_that_throws_is_counted_and_the_clock_goes_on) {
    manual_time clock;
    service s{clock};
    service::timer bad{s};
    service::timer good{s};
    fire_count fired;
    ASSERT_TRUE(s.arm(bad, 10ms, {[](void*) { throw std::runtime_error{"planned"}; }, nullptr}));
    ASSERT_TRUE(s.arm(good, 10ms, fired.cb()));
    clock.advance(30ms);
    EXPECT_EQ(fired.n, 1);
    EXPECT_EQ(s.counters().threw, 1U);
    EXPECT_EQ(s.counters().fired, 2U);
}

} // namespace
} // namespace timerbench
