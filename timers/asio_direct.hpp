// Hand-written use of Boost.Asio, to be measured beside the adapter in timers/asio.hpp: what somebody who knows the library
// writes for the same duties without the interface of this project.
//
// The duties: a timer in the caller's storage, a callback and a context, arm and cancel from any thread where the context
// has locks, the truth about whether cancel came in time although the completion may be queued already, the aborted
// handler delivered after the timer may be gone, one allocation per arm. Left out: counters, stop, refusing to arm,
// waiting for a running callback, exceptions (a callback must not throw), fork, and that poll ends although a callback
// arms for now each time.
//
// A block is shared by the timer and the handler; whoever leaves it second frees it. Calls on one timer are serialised by the
// caller. Timers are destroyed before the context.
#pragma once

#include "timers/detail/asio_support.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/service.hpp"

#include <atomic>
#include <future>
#include <thread>
#include <type_traits>
#include <utility>

namespace timerbench {

template <asio_options Options>
class asio_direct {
    enum class left_by : unsigned char { nobody, timer, handler };

    struct block {
        block(asio_direct& o, callback c) noexcept : owner{o}, what{c} {}
        asio_direct& owner;
        callback what;
        // Swapped once by the timer's side and once by the handler's; acquire and release, because the second frees the
        // block.
        std::conditional_t<Options.locked, std::atomic<left_by>, left_by> left{left_by::nobody};
        detail::operation_room room;

        left_by leave(left_by by) noexcept {
            if constexpr (Options.locked) {
                return left.exchange(by, std::memory_order_acq_rel);
            } else {
                return std::exchange(left, by);
            }
        }
    };

  public:
    class timer {
      public:
        explicit timer(asio_direct& owner) : owner_{owner}, wait_{owner.context_.get_executor()} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { owner_.cancel(*this); }

      private:
        friend class asio_direct;
        asio_direct& owner_;
        block* block_ = nullptr; // of the last arm, also when that has fired
        detail::asio_timer wait_;
    };

    asio_direct() {
        if constexpr (Options.own_thread()) {
            thread_ = detail::start_driver("direct_asio", [this] { context_.run(); });
        }
    }
    asio_direct(const asio_direct&) = delete;
    asio_direct& operator=(const asio_direct&) = delete;
    ~asio_direct() {
        if constexpr (Options.own_thread()) {
            context_.stop();
            thread_.join();
        }
    }

    bool arm(timer& t, duration d, callback c) {
        forget(t);
        t.block_ = new block{*this, c};
        // Nothing of the timer is read once the wait is under way: the callback may destroy it.
        t.wait_.expires_at(saturating_add(std::chrono::steady_clock::now(), d));
        t.wait_.async_wait(handler{*t.block_});
        return true;
    }

    bool cancel(timer& t) {
        if (!forget(t)) {
            return false;
        }
        t.wait_.cancel();
        return true;
    }

    /// Returns when the handlers of all timers cancelled before have been delivered.
    void drain() {
        if constexpr (Options.own_thread()) {
            std::promise<void> reached;
            boost::asio::post(context_, [&reached] { reached.set_value(); });
            reached.get_future().wait();
        } else {
            poll();
        }
    }

    std::size_t poll() requires(!Options.own_thread()) {
        ran_ = 0;
        context_.poll();
        return ran_;
    }

    std::size_t poll_until(time_point t) requires(!Options.own_thread()) {
        ran_ = 0;
        do {
            context_.run_one_until(t);
            context_.poll();
        } while (ran_ == 0 && std::chrono::steady_clock::now() < t);
        return ran_;
    }

  private:
    struct leave_block {
        void operator()(block* b) const noexcept {
            if (b->leave(left_by::handler) == left_by::timer) {
                delete b;
            }
        }
    };

    class handler {
      public:
        using allocator_type = detail::room_allocator<void>;

        explicit handler(block& b) noexcept : block_{&b} {}
        [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_type{block_->room}; }

        void operator()(const boost::system::error_code&) {
            block* const b = block_.release();
            const callback what = b->what;
            asio_direct& owner = b->owner;
            if (b->leave(left_by::handler) == left_by::timer) {
                delete b;
                return;
            }
            if constexpr (!Options.own_thread()) {
                ++owner.ran_;
            }
            what.run(what.context);
        }

      private:
        std::unique_ptr<block, leave_block> block_;
    };

    // Whether the callback of the last arm will now never run although it was going to.
    static bool forget(timer& t) noexcept {
        block* const b = std::exchange(t.block_, nullptr);
        if (b == nullptr) {
            return false;
        }
        if (b->leave(left_by::timer) == left_by::handler) {
            delete b;
            return false;
        }
        return true;
    }

    boost::asio::io_context context_{detail::asio_hint<Options>};
    detail::asio_guard guard_{context_.get_executor()};
    std::size_t ran_ = 0;
    std::thread thread_;
};

} // namespace timerbench
