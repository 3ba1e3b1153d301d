// What is particular to the Asio services: queued completions, aborted handlers, the block, passes. The contract itself is
// tested for all services elsewhere.
#include "timers/asio.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

namespace timerbench {
namespace {

using namespace std::chrono_literals;

using own_thread = basic_asio<asio_options{}>;
using per_thread = basic_asio<asio_options{.driver = driven_by::caller_loop, .locked = false}>;
using per_thread_locked = basic_asio<asio_options{.driver = driven_by::caller_loop, .locked = true}>;

time_point now() {
    return std::chrono::steady_clock::now();
}

// Far more than anything here takes; a bound for tests that would otherwise hang.
time_point patience() {
    return now() + 60s;
}

void count(void* counter) {
    ++*static_cast<std::atomic<int>*>(counter);
}

template <class Service>
class asio_loop : public ::testing::Test {};
using loops = ::testing::Types<per_thread, per_thread_locked>;
TYPED_TEST_SUITE(asio_loop, loops);

TYPED_TEST(asio_loop, a_completion_that_is_queued_already_can_be_cancelled) {
    TypeParam service;
    struct pair {
        TypeParam& service;
        std::array<std::optional<typename TypeParam::timer>, 2> timers;
        int ran = 0;
        int withdrawn = 0;
    } p{service, {}, 0, 0};
    p.timers[0].emplace(service);
    p.timers[1].emplace(service);
    for (int round = 0; round < 2'000; ++round) {
        // Both expire in one turn of the loop, and whichever runs first cancels the other.
        for (auto& t : p.timers) {
            ASSERT_TRUE(service.arm(*t, 0ns,
                                    callback{[](void* context) {
                                                 auto& self = *static_cast<pair*>(context);
                                                 ++self.ran;
                                                 for (auto& other : self.timers) {
                                                     self.withdrawn += self.service.cancel(*other) ? 1 : 0;
                                                 }
                                             },
                                             &p}));
        }
        std::size_t ran = 0;
        while (ran == 0) {
            ran = service.poll();
        }
        ASSERT_EQ(ran, 1U);
    }
    EXPECT_EQ(p.ran, 2'000);
    EXPECT_EQ(p.withdrawn, 2'000);
    service.drain();
    EXPECT_EQ(service.backlog(), 0U);
    EXPECT_EQ(service.counters().pending, 0U);
    EXPECT_TRUE(service.counters().balanced());
}

TYPED_TEST(asio_loop, the_aborted_handler_does_not_touch_its_timer) {
    using timer = typename TypeParam::timer;
    TypeParam service;
    std::atomic<int> fired{0};
    alignas(timer) std::byte storage[sizeof(timer)];
    auto* t = ::new (static_cast<void*>(storage)) timer{service};
    ASSERT_TRUE(service.arm(*t, 1h, callback{count, &fired}));
    t->~timer();
    std::memset(storage, 0xA5, sizeof storage);
    EXPECT_EQ(service.backlog(), 1U);
    EXPECT_EQ(service.poll(), 0U);
    EXPECT_EQ(service.backlog(), 0U);
    for (const std::byte b : storage) {
        ASSERT_EQ(b, std::byte{0xA5});
    }
    EXPECT_EQ(fired, 0);
    EXPECT_EQ(service.counters().cancelled, 1U);
}

template <class Service>
struct rearming {
    explicit rearming(Service& s) : service{s} {}
    Service& service;
    typename Service::timer timer{service};
    int fired = 0;
    bool arm() { return service.arm(timer, 0ns, callback{&rearming::on_fire, this}); }
    static void on_fire(void* context) {
        auto& self = *static_cast<rearming*>(context);
        ++self.fired;
        self.arm();
    }
};

TYPED_TEST(asio_loop, a_zero_rearm_waits_for_the_next_pass) {
    TypeParam service;
    rearming<TypeParam> again{service};
    ASSERT_TRUE(again.arm());
    for (int pass = 1; pass <= 100; ++pass) {
        const std::size_t ran = pass % 2 == 0 ? service.poll() : service.poll_until(patience());
        ASSERT_EQ(ran, 1U);
        ASSERT_EQ(again.fired, pass);
        ASSERT_EQ(service.counters().pending, 1U);
    }
    // Put by for the next pass it still counts as armed.
    EXPECT_TRUE(service.cancel(again.timer));
    EXPECT_FALSE(service.cancel(again.timer));
    EXPECT_EQ(service.poll(), 0U);
    EXPECT_EQ(again.fired, 100);
    EXPECT_TRUE(service.counters().balanced());
}

TYPED_TEST(asio_loop, stop_drops_what_was_put_by) {
    TypeParam service;
    rearming<TypeParam> again{service};
    ASSERT_TRUE(again.arm());
    ASSERT_EQ(service.poll_until(patience()), 1U);
    service.stop();
    EXPECT_EQ(service.counters().dropped, 1U);
    EXPECT_EQ(service.counters().pending, 0U);
    EXPECT_EQ(service.poll(), 0U);
    EXPECT_FALSE(again.arm());
}

TYPED_TEST(asio_loop, poll_until_ends_at_its_bound) {
    TypeParam service;
    std::atomic<int> fired{0};
    typename TypeParam::timer t{service};
    ASSERT_TRUE(service.arm(t, 1h, callback{count, &fired}));
    const time_point bound = now() + 5ms;
    EXPECT_EQ(service.poll_until(bound), 0U);
    EXPECT_GE(now(), bound);
    EXPECT_EQ(service.poll_until(time_point::min()), 0U);
}

TEST(asio, any_thread_may_cancel_on_a_locked_loop) {
    per_thread_locked service;
    std::atomic<int> fired{0};
    int withdrawn = 0;
    constexpr int rounds = 300;
    for (int round = 0; round < rounds; ++round) {
        std::optional<per_thread_locked::timer> t{service};
        ASSERT_TRUE(service.arm(*t, std::chrono::microseconds{round % 50}, callback{count, &fired}));
        std::atomic<bool> done{false};
        std::thread foreign{[&] {
            withdrawn += service.cancel(*t) ? 1 : 0;
            t.reset();
            done = true;
        }};
        while (!done) {
            service.poll_until(now() + 100us);
        }
        foreign.join();
    }
    EXPECT_EQ(fired + withdrawn, rounds);
    EXPECT_TRUE(service.counters().balanced());
}

TEST(asio, a_foreign_cancel_beats_the_callback_that_arms_again) {
    own_thread service;
    for (int round = 0; round < 500; ++round) {
        auto again = std::make_unique<rearming<own_thread>>(service);
        ASSERT_TRUE(again->arm());
        std::this_thread::yield();
        service.cancel(again->timer);
        const int fired = again->fired; // the callback is not running, and not going to
        service.drain();
        ASSERT_EQ(again->fired, fired);
        ASSERT_EQ(service.counters().pending, 0U);
    }
    EXPECT_TRUE(service.counters().balanced());
}

TEST(asio, drain_returns_when_cancelled_waits_are_gone) {
    own_thread service;
    std::atomic<int> fired{0};
    own_thread::timer t{service};
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_TRUE(service.arm(t, 1h, callback{count, &fired}));
        ASSERT_TRUE(service.cancel(t));
    }
    service.drain();
    EXPECT_EQ(service.backlog(), 0U);
    EXPECT_EQ(fired, 0);
    service.stop();
    service.drain(); // does not wait for a thread that has gone
}

TEST(asio, stop_leaves_no_backlog_and_idle_timers) {
    own_thread service;
    std::atomic<int> fired{0};
    std::vector<std::unique_ptr<own_thread::timer>> timers;
    for (int i = 0; i < 100; ++i) {
        timers.push_back(std::make_unique<own_thread::timer>(service));
        ASSERT_TRUE(service.arm(*timers.back(), 1h, callback{count, &fired}));
    }
    ASSERT_TRUE(service.cancel(*timers.front()));
    service.stop();
    service.stop();
    EXPECT_EQ(service.counters().dropped, 99U);
    EXPECT_EQ(service.backlog(), 0U);
    EXPECT_FALSE(service.cancel(*timers.back()));
    EXPECT_TRUE(service.counters().balanced());
}

// Asio's operation with a handler like the service's: one pointer that cannot be copied.
struct measuring_handler {
    template <class T>
    struct measuring_allocator {
        using value_type = T;
        explicit measuring_allocator(std::size_t& most) noexcept : bytes{&most} {}
        template <class U>
        measuring_allocator(const measuring_allocator<U>& other) noexcept : bytes{other.bytes} {} // NOLINT
        T* allocate(std::size_t n) {
            *bytes = std::max(*bytes, n * sizeof(T));
            return static_cast<T*>(::operator new(n * sizeof(T)));
        }
        void deallocate(T* p, std::size_t) noexcept { ::operator delete(p); }
        template <class U>
        bool operator==(const measuring_allocator<U>& other) const noexcept {
            return bytes == other.bytes;
        }
        std::size_t* bytes;
    };
    using allocator_type = measuring_allocator<void>;

    explicit measuring_handler(std::size_t& most) noexcept : bytes{&most} {}
    [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_type{*bytes}; }
    void operator()(const boost::system::error_code&) {}
    struct keep {
        void operator()(const std::size_t*) const noexcept {}
    };
    std::unique_ptr<std::size_t, keep> bytes;
};

TEST(asio, the_operation_fits_into_the_block) {
    std::size_t bytes = 0;
    {
        boost::asio::io_context context;
        detail::asio_timer t{context.get_executor()};
        t.expires_at(now());
        t.async_wait(measuring_handler{bytes});
        context.run();
    }
    EXPECT_GT(bytes, 0U);
    EXPECT_LE(bytes, sizeof(detail::operation_room));
}

TEST(asio, an_operation_too_large_for_the_block_goes_to_the_heap) {
    struct small {
        std::byte bytes[detail::operation_room::size];
    };
    struct large {
        std::byte bytes[detail::operation_room::size + 1];
    };
    detail::operation_room room;
    const detail::room_allocator<void> any{room};
    detail::room_allocator<small> inside{any};
    small* const s = inside.allocate(1);
    EXPECT_EQ(static_cast<void*>(s), static_cast<void*>(&room));
    inside.deallocate(s, 1);
    detail::room_allocator<large> outside{any};
    large* const l = outside.allocate(1);
    EXPECT_NE(static_cast<void*>(l), static_cast<void*>(&room));
    outside.deallocate(l, 1);
}

template <class Direct>
void direct_agrees_with_itself(Direct& direct, int rounds) {
    std::atomic<int> fired{0};
    int withdrawn = 0;
    typename Direct::timer t{direct};
    for (int round = 0; round < rounds; ++round) {
        ASSERT_TRUE(direct.arm(t, std::chrono::microseconds{round % 40}, callback{count, &fired}));
        if constexpr (requires { direct.poll(); }) {
            if (round % 3 == 0) {
                direct.poll();
            }
        } else if (round % 3 == 0) {
            std::this_thread::yield();
        }
        withdrawn += direct.cancel(t) ? 1 : 0;
    }
    direct.drain();
    EXPECT_EQ(fired + withdrawn, rounds);
    EXPECT_GT(withdrawn, 0);
}

TEST(asio, direct_use_tells_the_truth_about_cancel) {
    own_thread::direct own;
    direct_agrees_with_itself(own, 20'000);
    per_thread::direct loop;
    direct_agrees_with_itself(loop, 20'000);
    per_thread_locked::direct locked;
    direct_agrees_with_itself(locked, 20'000);
}

TEST(asio, direct_use_is_never_early_and_frees_what_is_left) {
    per_thread::direct loop;
    struct shot {
        time_point deadline;
        bool fired = false;
        bool early = false;
    } s;
    per_thread::direct::timer t{loop};
    s.deadline = now() + 2ms;
    ASSERT_TRUE(loop.arm(t, 2ms,
                         callback{[](void* context) {
                                      auto& self = *static_cast<shot*>(context);
                                      self.fired = true;
                                      self.early = now() < self.deadline;
                                  },
                                  &s}));
    EXPECT_EQ(loop.poll_until(patience()), 1U);
    EXPECT_TRUE(s.fired);
    EXPECT_FALSE(s.early);
    ASSERT_TRUE(loop.arm(t, 1h, callback{count, nullptr}));
    own_thread::direct own;
    own_thread::direct::timer left{own};
    ASSERT_TRUE(own.arm(left, 1h, callback{count, nullptr}));
}

} // namespace
} // namespace timerbench
