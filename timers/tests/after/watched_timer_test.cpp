// A timer that goes inside one callback while its own runs on another driver.
#include "timers/detail/watched_timer.hpp"

#include "timers/clock.hpp"
#include "timers/coarse_slot.hpp"
#include "timers/locked_heap.hpp"
#include "timers/tests/after/support.hpp"
#include "timers/thread_per_timeout.hpp"

#include <condition_variable>
#include <memory>

namespace timerbench::testing {
namespace {

// The test's thread and a driver. The driver is not done with a timer when its callback has returned, and shows whether somebody waits for it.
class lingering_service {
  public:
    class timer {
      public:
        explicit timer(lingering_service& service) : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { service_.destroyed_while_running |= service_.running_ == this; }

      private:
        friend lingering_service;
        lingering_service& service_;
        callback callback_;
    };

    bool arm(timer& t, duration /*d*/, callback c) {
        t.callback_ = c;
        armed_ = &t;
        return true;
    }
    // Fires; nothing is ever withdrawn.
    bool cancel(timer& t) {
        std::unique_lock lock{mutex_};
        if (!detail::callback_scope::inside(this)) {
            waits_ = true;
            changed_.notify_all();
            changed_.wait(lock, [&] { return running_ != &t; });
        }
        return false;
    }
    void stop() {}
    [[nodiscard]] timerbench::counters counters() const { return {}; }
    [[nodiscard]] service_traits traits() const { return {}; }

    // The driver's part.
    void fire() {
        timer& t = *armed_;
        {
            const std::lock_guard lock{mutex_};
            running_ = &t;
        }
        {
            const detail::callback_scope scope{this, &t};
            t.callback_.run(t.callback_.context);
        }
        std::unique_lock lock{mutex_};
        // Bounded, so that a disarm that does not wait ends the test with a failure.
        waited_for = changed_.wait_for(lock, 5s, [this] { return waits_; });
        running_ = nullptr;
        changed_.notify_all();
    }

    bool waited_for = false;
    // Written by whoever destroys the timer, which must come after the driver's last touch of running_.
    bool destroyed_while_running = false;

  private:
    std::mutex mutex_; // guards the two below
    std::condition_variable changed_;
    const timer* running_ = nullptr;
    bool waits_ = false;
    timer* armed_ = nullptr;
};

TEST(watched_timers, that_end_inside_a_callback_wait_for_the_driver_and_not_only_for_the_callback) {
    lingering_service service;
    std::atomic<bool> ran{false}; // set by the callback, read by the test
    std::optional<detail::watched_timer<lingering_service>> timer{std::in_place};
    ASSERT_TRUE(
        timer->arm(service, 0ns, {[](void* at) { *static_cast<std::atomic<bool>*>(at) = true; }, &ran}));
    std::thread driver{[&] { service.fire(); }};
    ASSERT_TRUE(eventually([&] { return ran.load(); }));
    {
        const int of_another_timer = 0;
        const detail::callback_scope inside{&service, &of_another_timer};
        timer.reset();
        EXPECT_TRUE(detail::callback_scope::inside(&service)) << "afterwards the callback goes on as such";
    }
    driver.join();
    EXPECT_TRUE(service.waited_for);
    EXPECT_FALSE(service.destroyed_while_running);
}

template <class Service>
struct held {
    // Set by the callback of `timer` and by the one that ends it, for each other.
    std::atomic<bool> entered{false};
    std::atomic<bool> released{false};
    detail::watched_timer<Service> timer;
};

template <class Service>
struct ender {
    std::unique_ptr<held<Service>> what;
    std::atomic<bool> done{false}; // set when `what` is gone, read by the test
};

template <class Service>
void end_it(void* at) {
    auto& e = *static_cast<ender<Service>*>(at);
    e.done = eventually([&] { return e.what->entered.load(); });
    e.what->released = true;
    e.what.reset();
}

// `held_for` is served by one driver, `ended_after` by another. `pass` lets that time go by.
template <class Service, class Pass>
void end_inside_another_callback(Service& service, duration held_for, duration ended_after, Pass pass) {
    ender<Service> e{std::make_unique<held<Service>>()};
    typename Service::timer ends{service};
    ASSERT_TRUE(e.what->timer.arm(service, held_for,
                                  {[](void* at) {
                                       auto& h = *static_cast<held<Service>*>(at);
                                       h.entered = true;
                                       (void)eventually([&] { return h.released.load(); });
                                   },
                                   e.what.get()}));
    ASSERT_TRUE(service.arm(ends, ended_after, {&end_it<Service>, &e}));
    pass();
    ASSERT_TRUE(eventually([&] { return e.done.load(); }));
    service.cancel(ends);
    EXPECT_EQ(e.what, nullptr);
}

TEST(watched_timers, that_end_inside_a_callback_wait_for_the_driver_that_runs_theirs) {
    thread_per_timeout<steady_time> service{steady()};
    // Somebody who takes the service's lock again and again keeps its drivers from it for a while.
    std::atomic<bool> over{false};
    std::thread other{[&] {
        while (!over) {
            (void)service.counters();
        }
    }};
    for (int round = 0; round < 100; ++round) {
        end_inside_another_callback(service, 0ns, 0ns, [] {});
    }
    over = true;
    other.join();
    EXPECT_TRUE(service.counters().balanced());
}

TEST(watched_timers, that_end_inside_a_callback_of_the_precise_driver_wait_for_the_clock_thread) {
    for (int round = 0; round < 10; ++round) {
        manual_time clock;
        coarse_slot<manual_time> service{clock, {.threshold_s = 0}};
        end_inside_another_callback(service, 10ms, 2s, [&] {
            clock.shift(20ms);
            clock.shift(3s);
        });
        EXPECT_TRUE(service.counters().balanced());
    }
}

// Nobody has begun it and nobody will: there is nothing to wait for.
TEST(watched_timers, that_a_stop_has_dropped_end_inside_a_callback_of_another_service) {
    locked_heap<steady_time> stopped{steady()};
    locked_heap<steady_time> service{steady()};
    ender<locked_heap<steady_time>> e{std::make_unique<held<locked_heap<steady_time>>>()};
    ASSERT_TRUE(e.what->timer.arm(stopped, 1h, {[](void*) {}, nullptr}));
    stopped.stop();
    e.what->entered = true;
    locked_heap<steady_time>::timer ends{service};
    ASSERT_TRUE(service.arm(ends, 0ns, {&end_it<locked_heap<steady_time>>, &e}));
    ASSERT_TRUE(eventually([&] { return e.done.load(); }));
    service.cancel(ends);
    EXPECT_EQ(e.what, nullptr);
}

} // namespace
} // namespace timerbench::testing
