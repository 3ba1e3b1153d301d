// uv_timer_t of libuv with the calls that the common loops make: start, stop, run the loop once.
//
// As its users have it. A handle is initialised once and started and stopped for each timeout, on one thread, and counts from the
// loop's cached time in whole milliseconds, which uv_run brings up to date in each pass. A pass without an active handle
// does that alone; one with a handle makes a system call (epoll). A closed handle belongs to the loop until its next pass, so handles
// are blocks of their own.
//
// Departs from it: nothing. `cancel` asks whether the handle is active first, because uv_timer_stop does not say whether it was.
#pragma once

#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <memory>
#include <poll.h>
#include <stdexcept>
#include <time.h>
#include <uv.h>

namespace timerbench::originals {

/// One loop; used by one thread at a time.
class libuv_timers {
  public:
    class timer {
      public:
        explicit timer(libuv_timers& service) : handle_{new uv_timer_t} {
            uv_timer_init(&service.loop_, handle_);
            handle_->data = this;
        }
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            uv_timer_stop(handle_);
            uv_close(reinterpret_cast<uv_handle_t*>(handle_),
                     [](uv_handle_t* closed) { delete reinterpret_cast<uv_timer_t*>(closed); });
        }

      private:
        friend class libuv_timers;
        uv_timer_t* handle_;
        callback callback_{};
    };

    libuv_timers() {
        if (uv_loop_init(&loop_) != 0) {
            throw std::runtime_error{"uv_loop_init failed"};
        }
        loop_.data = this;
    }
    libuv_timers(const libuv_timers&) = delete;
    libuv_timers& operator=(const libuv_timers&) = delete;
    ~libuv_timers() {
        uv_run(&loop_, UV_RUN_DEFAULT); // timers are gone: what is left are handles to be closed
        uv_loop_close(&loop_);
    }

    bool arm(timer& t, duration d, callback c) {
        t.callback_ = c;
        const std::int64_t ms = std::max<std::int64_t>(ceil_ticks(d, std::chrono::milliseconds{1}), 0);
        return uv_timer_start(t.handle_, &on_fire, static_cast<std::uint64_t>(ms), 0) == 0;
    }
    bool cancel(timer& t) {
        const bool armed = uv_is_active(reinterpret_cast<const uv_handle_t*>(t.handle_)) != 0;
        uv_timer_stop(t.handle_);
        return armed;
    }
    std::size_t poll() {
        const std::size_t before = fired_;
        uv_run(&loop_, UV_RUN_NOWAIT);
        return fired_ - before;
    }
    /// Waits on the loop's descriptor, as a loop does that libuv is embedded in: libuv's own wait ends at whole milliseconds only.
    std::size_t poll_until(time_point t) {
        refresh();
        duration left = std::max(t - steady_time::now(), duration::zero());
        if (const int next_ms = uv_backend_timeout(&loop_); next_ms >= 0) {
            left = std::min<duration>(left, std::chrono::milliseconds{next_ms});
        }
        pollfd descriptor{.fd = uv_backend_fd(&loop_), .events = POLLIN, .revents = 0};
        const timespec span{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
        ppoll(&descriptor, 1, &span, nullptr);
        return poll();
    }
    /// Brings the cached time up to date.
    void refresh() { uv_update_time(&loop_); }
    void stop() {}

    [[nodiscard]] service_traits traits() const {
        // libuv reads the coarse clock where its grain is 1 ms or less, and cuts off to whole milliseconds.
        timespec grain{};
        clock_getres(CLOCK_MONOTONIC_COARSE, &grain);
        const bool coarse = grain.tv_sec == 0 && grain.tv_nsec <= 1'000'000;
        service_traits t;
        t.resolution = std::chrono::milliseconds{1};
        t.earliest = std::chrono::milliseconds{coarse ? -2 : -1};
        t.latest = std::chrono::milliseconds{2};
        t.driver = driven_by::caller_loop;
        t.arm_from = t.cancel_from = callable_from::loop_thread;
        return t;
    }

  private:
    static void on_fire(uv_timer_t* handle) {
        auto& t = *static_cast<timer*>(handle->data);
        ++static_cast<libuv_timers*>(handle->loop->data)->fired_;
        t.callback_.run(t.callback_.context);
    }

    uv_loop_t loop_{};
    std::size_t fired_ = 0;
};

struct libuv_timer {
    static constexpr std::string_view name = "original/libuv/timer";
    using service = libuv_timers;
    [[nodiscard]] static std::unique_ptr<service> make() { return std::make_unique<service>(); }
};

} // namespace timerbench::originals
