// One kernel timer for each timeout, read through epoll by one driver thread: what the kernel charges when it is left to do
// everything.
//
// How it works
//   A timer gets a timerfd of its own on CLOCK_MONOTONIC with its first arm, and keeps it until it is destroyed. arm sets it to
//   the absolute deadline, cancel disarms it. All descriptors are in one epoll set; the driver waits for it, reads each
//   descriptor that is ready and runs the callback. A table by descriptor number says which timer that is, so nothing the
//   kernel still has to tell about a timer that was destroyed leads to it. The driver starts with the first arm.
// What it costs
//   arm and cancel: a system call each, in which the kernel takes a lock and keeps a red-black tree for each processor, and a
//   short lock of the service before it. A first arm: two calls more and about 600 bytes in the kernel; destroying: two.
//   A fire: an interrupt, a switch to the driver, a read. Nothing is allocated in the process but the table.
//   With nothing due the driver sleeps; an arm never has to wake it, the kernel's interrupt does.
// What it is bad at
//   Every timer is a file: RLIMIT_NOFILE bounds how many there are, and the traits say how many. The service raises the
//   process's soft limit to its hard one, because the usual 1 024 would be no use. An arm returns false when no
//   descriptor is to be had. Programs that use select() should not have so many.
//   It takes no clock but the kernel's, so it has no place on a manual clock.
#pragma once

#include "timers/detail/abandon.hpp"
#include "timers/detail/callback_scope.hpp"
#include "timers/detail/driver_thread.hpp"
#include "timers/detail/fork_guard.hpp"
#include "timers/detail/running_set.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <dirent.h>
#include <fstream>
#include <mutex>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace timerbench {

namespace detail {

/// Owns a file descriptor.
class descriptor {
  public:
    descriptor() noexcept = default;
    explicit descriptor(int number) noexcept : number_{number} {}
    descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~descriptor() {
        if (number_ >= 0) {
            ::close(number_);
        }
    }

    [[nodiscard]] int get() const noexcept { return number_; }
    [[nodiscard]] bool open() const noexcept { return number_ >= 0; }

  private:
    int number_ = -1;
};

/// Raises the soft limit of descriptors to the hard one, and returns how many more may be opened now, or added to an epoll
/// set if those are fewer. A little is left for the rest of the process.
[[nodiscard]] inline std::size_t claim_descriptors() {
    constexpr std::size_t left_for_others = 64;
    std::size_t most = 1'024;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        const rlim_t soft = std::exchange(limit.rlim_cur, limit.rlim_max);
        // An unlimited hard limit is above what the kernel allows for a soft one.
        most = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : soft;
    }
    std::size_t in_use = 0;
    if (DIR* const open = opendir("/proc/self/fd")) {
        while (readdir(open) != nullptr) {
            ++in_use;
        }
        closedir(open);
    }
    most -= std::min(most, in_use + left_for_others);
    std::size_t watches = 0;
    if (std::ifstream{"/proc/sys/fs/epoll/max_user_watches"} >> watches) {
        most = std::min(most, watches);
    }
    return std::max<std::size_t>(most, 1);
}

} // namespace detail

/// Usable from any thread.
class timerfd_service {
  public:
    class timer {
      public:
        explicit timer(timerfd_service& service) noexcept : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() {
            if (kernel_.open()) {
                service_.release(*this);
            }
        }

      private:
        friend class timerfd_service;
        timerfd_service& service_;
        callback callback_; // guarded by the service's mutex, as is armed_
        bool armed_ = false;
        // Opened by the first arm and not changed until the timer is destroyed; the caller orders the two, and what a foreign
        // cancel may race with is never a first arm.
        detail::descriptor kernel_;
    };

    /// Throws std::system_error when there are no descriptors even for the service itself.
    timerfd_service()
        : most_timers_{detail::claim_descriptors()},
          ready_{::epoll_create1(EPOLL_CLOEXEC)},
          quit_signal_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
        if (!ready_.open() || !quit_signal_.open() || !watch(quit_signal_.get())) {
            throw std::system_error{errno, std::generic_category(), "timerfd: the driver's descriptors"};
        }
    }
    timerfd_service(const timerfd_service&) = delete;
    timerfd_service& operator=(const timerfd_service&) = delete;
    ~timerfd_service() { stop(); }

    /// Besides what every service promises: false when the kernel has no descriptor or no memory left for another timer.
    /// Throws std::bad_alloc when the table cannot grow and std::system_error when the driver cannot be started;
    /// nothing is armed then.
    bool arm(timer& t, duration d, callback c) {
        if (fork_.in_child()) {
            return false;
        }
        const time_point deadline = saturating_add(steady_now(), std::max(d, duration::zero()));
        if (!t.kernel_.open() && !open(t)) {
            return false;
        }
        int descriptor = -1;
        {
            const std::lock_guard lock{mutex_};
            if (stopped_ || running_.bars(&t)) {
                return false;
            }
            if (!driver_.joinable()) [[unlikely]] {
                driver_ = detail::start_driver("tb_timerfd", [this] { drive(); });
            }
            t.callback_ = c;
            t.armed_ = true;
            ++armed_;
            descriptor = t.kernel_.get();
        }
        // Without the lock: until this call the kernel's timer is disarmed, and who cancels meanwhile (it can only be a foreign
        // cancel while the callback arms its own timer) waits for the callback to return before it disarms. Once it is
        // made the callback may run and destroy the timer.
        set(descriptor, deadline);
        return true;
    }

    bool cancel(timer& t) { return withdraw(t, false); }

    void stop() {
        if (fork_.in_child()) {
            detail::abandon(driver_);
            detail::abandon(running_);
            return;
        }
        const std::lock_guard once{stopping_};
        {
            const std::lock_guard lock{mutex_};
            stopped_ = true;
            for (timer* const t : owners_) {
                if (t != nullptr) {
                    dropped_ += std::exchange(t->armed_, false) ? 1 : 0;
                }
            }
        }
        if (driver_.joinable()) {
            const std::uint64_t one = 1;
            (void)!::write(quit_signal_.get(), &one, sizeof one);
            driver_.join();
        }
    }

    /// Linear in the number of descriptors, under the mutex that arm and cancel take. In a forked child: the figures at
    /// the fork, with what was pending given as the difference.
    [[nodiscard]] timerbench::counters counters() const {
        std::unique_lock lock{mutex_, std::defer_lock};
        timerbench::counters c;
        if (!fork_.in_child()) {
            lock.lock();
            c.pending = static_cast<std::uint64_t>(std::count_if(
                owners_.begin(), owners_.end(), [](const timer* t) { return t != nullptr && t->armed_; }));
        } else {
            c.pending = armed_ - fired_ - cancelled_ - dropped_;
        }
        c.armed = armed_;
        c.fired = fired_;
        c.cancelled = cancelled_;
        c.dropped = dropped_;
        c.threw = threw_;
        return c;
    }

    [[nodiscard]] service_traits traits() const {
        return {.resolution = duration{1},
                .allocates = "a kernel timer and a descriptor with a timer's first arm",
                .most_timers = most_timers_};
    }

  private:
    static time_point steady_now() noexcept { return std::chrono::steady_clock::now(); }

    // A zero time would disarm; no deadline is at the clock's zero.
    static void set(int descriptor, time_point deadline) noexcept {
        const auto since_boot = deadline.time_since_epoch();
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
        itimerspec spec{};
        spec.it_value.tv_sec = static_cast<time_t>(seconds.count());
        spec.it_value.tv_nsec = static_cast<long>((since_boot - seconds).count());
        ::timerfd_settime(descriptor, TFD_TIMER_ABSTIME, &spec, nullptr);
    }

    // Also takes back an expiry that was not read.
    static void disarm(int descriptor) noexcept {
        const itimerspec never{};
        ::timerfd_settime(descriptor, 0, &never, nullptr);
    }

    bool watch(int descriptor) noexcept {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = descriptor;
        return ::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
    }

    bool open(timer& t) {
        detail::descriptor kernel{::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
        if (!kernel.open() || !watch(kernel.get())) {
            return false;
        }
        const std::lock_guard lock{mutex_};
        const auto number = static_cast<std::size_t>(kernel.get());
        if (owners_.size() <= number) {
            owners_.resize(number + 1);
        }
        owners_[number] = &t;
        t.kernel_ = std::move(kernel);
        return true;
    }

    void release(timer& t) {
        withdraw(t, true);
        if (!fork_.in_child()) {
            // Closing takes it out of the epoll set only if no forked child has a copy; what stays would be ready for ever.
            ::epoll_ctl(ready_.get(), EPOLL_CTL_DEL, t.kernel_.get(), nullptr);
            // The table forgets the descriptor before it is closed and its number given to somebody else.
            const std::lock_guard lock{mutex_};
            owners_[static_cast<std::size_t>(t.kernel_.get())] = nullptr;
        }
    }

    bool withdraw(timer& t, bool destroying) {
        if (fork_.in_child()) {
            // The kernel's timer is the parent's too: it is left alone.
            return std::exchange(t.armed_, false);
        }
        bool withdrawn = false;
        {
            std::unique_lock lock{mutex_};
            withdrawn = std::exchange(t.armed_, false);
            cancelled_ += withdrawn ? 1 : 0;
            if (!running_.empty() && running_.running(&t)) {
                if (!detail::callback_scope::inside(this)) {
                    running_.await(lock, &t);
                } else if (destroying) { // inside its own callback: there is one driver
                    running_.forget(&t);
                    detail::callback_scope::forget(&t);
                }
            }
        }
        if (withdrawn && !destroying) { // closing disarms as well
            disarm(t.kernel_.get());
        }
        return withdrawn;
    }

    void drive() {
        std::array<epoll_event, 256> events;
        for (;;) {
            const int n = ::epoll_wait(ready_.get(), events.data(), static_cast<int>(events.size()), -1);
            for (int i = 0; i < n; ++i) {
                if (events[static_cast<std::size_t>(i)].data.fd == quit_signal_.get()) {
                    return;
                }
            }
            for (int i = 0; i < n; ++i) {
                fire(events[static_cast<std::size_t>(i)].data.fd);
            }
        }
    }

    // What epoll said may be out of date: the timer may be gone, its number given to another, or the expiry taken back. The
    // read tells: it fails unless this descriptor has expired since it was last set.
    void fire(int descriptor) {
        std::unique_lock lock{mutex_};
        timer* const t = owners_[static_cast<std::size_t>(descriptor)];
        std::uint64_t expiries = 0;
        if (t == nullptr || ::read(descriptor, &expiries, sizeof expiries) != sizeof expiries) {
            return;
        }
        if (!std::exchange(t->armed_, false)) {
            return; // cancelled, and not yet disarmed
        }
        const callback c = t->callback_;
        ++fired_;
        detail::running_set<std::mutex>::record running;
        running_.begin(running, t);
        lock.unlock();
        bool threw = false;
        {
            const detail::callback_scope scope{this, t};
            threw = detail::run_guarded(c);
        }
        lock.lock();
        threw_ += threw ? 1 : 0;
        running_.end(running);
    }

    const std::size_t most_timers_;
    detail::descriptor ready_; // the epoll set
    detail::descriptor quit_signal_;
    detail::fork_guard fork_;
    std::mutex stopping_; // held while the driver is joined

    mutable std::mutex mutex_;   // guards all below
    std::vector<timer*> owners_; // by descriptor number
    detail::running_set<std::mutex> running_;
    std::uint64_t armed_ = 0;
    std::uint64_t fired_ = 0;
    std::uint64_t cancelled_ = 0;
    std::uint64_t dropped_ = 0;
    std::uint64_t threw_ = 0;
    bool stopped_ = false;
    std::thread driver_;
};

static_assert(timer_service<timerfd_service>);

} // namespace timerbench
