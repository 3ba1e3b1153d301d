// Watches who reads the wall clock and who waits against it, in this process, while it is set again and again.
//
// The functions at the end take the place of the C library's in the binary whose source file includes this header; one file of a binary
// may. Outside of a watch they only pass on. Inside of one, a reading of the wall clock is counted and gets a time that is off by
// 0, +1, -1, +5, -5, +3600, -3600 s in turns, 5 ms each; a wait against the wall clock is counted and cut to 1 ms, so that a
// loop around it goes by the clock that is set. A time namespace cannot move this clock, and setting the machine's would
// disturb everybody on it.
//
// A reading is put down to the library that it was called from: code of this project is in the binary itself and reads clocks through
// the C and C++ libraries, anything else is a third-party library's own. A wait counts whoever it was.
//
// Not seen: system calls that are made without the C library, and the timers of the kernel that take no clock (they use the
// monotonic one). A condition variable can be made for the monotonic clock and then waited for with pthread_cond_timedwait;
// that is counted as a wait against the wall clock, because C++ has its own call for it and nobody here makes one.
#pragma once

#include "experiments/clocks_rules.hpp"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <string>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

namespace timerbench::experiments {

namespace watch_detail {

// All of it is written by whichever thread calls, and read by the thread that ends the watch after it has joined or stopped what
// it watched. Relaxed: these are counts, and names that live for ever.
struct state {
    std::atomic<bool> on{false};
    std::atomic<std::int64_t> begin_ns{0};
    std::atomic<std::uint64_t> readings{0};
    std::atomic<std::uint64_t> elsewhere{0};
    std::atomic<std::uint64_t> waits{0};
    std::atomic<const char*> reader{nullptr};
    std::atomic<const char*> waited_in{nullptr};
};
inline state now; // NOLINT: one process, one watch

inline bool on() noexcept {
    return now.on.load(std::memory_order_relaxed);
}

template <class F>
F* next(const char* name) noexcept {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

inline void waited(const char* function) noexcept {
    now.waits.fetch_add(1, std::memory_order_relaxed);
    now.waited_in.store(function, std::memory_order_relaxed);
}

inline void read_from(void* caller) noexcept {
    Dl_info from{};
    Dl_info own{};
    const bool known = dladdr(caller, &from) != 0 && from.dli_fname != nullptr;
    if (!known || (dladdr(&now, &own) != 0 && own.dli_fbase == from.dli_fbase) ||
        is_runtime_library(from.dli_fname)) {
        now.readings.fetch_add(1, std::memory_order_relaxed);
    } else {
        now.elsewhere.fetch_add(1, std::memory_order_relaxed);
        now.reader.store(from.dli_fname, std::memory_order_relaxed);
    }
}

inline std::int64_t monotonic_ns() noexcept {
    static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
    timespec t{};
    real(CLOCK_MONOTONIC, &t);
    return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
}

inline std::int64_t offset_s() noexcept {
    return wall_offset_s(monotonic_ns() - now.begin_ns.load(std::memory_order_relaxed));
}

inline timespec in_a_millisecond() noexcept {
    const std::int64_t t = monotonic_ns() + 1'000'000;
    timespec at{};
    at.tv_sec = t / 1'000'000'000;
    at.tv_nsec = t % 1'000'000'000;
    return at;
}

} // namespace watch_detail

/// Watches from its beginning to `end`. One at a time; its threads have come to rest when it is ended.
class clock_watch {
  public:
    clock_watch() noexcept {
        auto& s = watch_detail::now;
        s.readings = 0;
        s.elsewhere = 0;
        s.waits = 0;
        s.reader = nullptr;
        s.waited_in = nullptr;
        s.begin_ns = watch_detail::monotonic_ns();
        s.on = true;
    }
    clock_watch(const clock_watch&) = delete;
    clock_watch& operator=(const clock_watch&) = delete;
    ~clock_watch() { watch_detail::now.on = false; }

    [[nodiscard]] seen_clocks end() {
        auto& s = watch_detail::now;
        s.on = false;
        const auto words = [](const char* text) { return std::string{text != nullptr ? text : ""}; };
        const std::string reader = words(s.reader);
        return {s.readings, s.elsewhere, s.waits, reader.substr(reader.rfind('/') + 1), words(s.waited_in)};
    }
};

} // namespace timerbench::experiments

// ---- in the place of the C library's ----

extern "C" {

int clock_gettime(clockid_t clock, timespec* t) noexcept {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<int(clockid_t, timespec*)>("clock_gettime");
    const int result = real(clock, t);
    if (result == 0 && timerbench::experiments::is_wall(clock) && w::on()) {
        w::read_from(__builtin_return_address(0));
        t->tv_sec += w::offset_s();
    }
    return result;
}

int gettimeofday(timeval* t, void* zone) noexcept {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<int(timeval*, void*)>("gettimeofday");
    const int result = real(t, zone);
    if (result == 0 && w::on()) {
        w::read_from(__builtin_return_address(0));
        t->tv_sec += w::offset_s();
    }
    return result;
}

time_t time(time_t* t) noexcept {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<time_t(time_t*)>("time");
    time_t result = real(nullptr);
    if (w::on()) {
        w::read_from(__builtin_return_address(0));
        result += w::offset_s();
    }
    if (t != nullptr) {
        *t = result;
    }
    return result;
}

int pthread_cond_clockwait(pthread_cond_t* c, pthread_mutex_t* m, clockid_t clock, const timespec* t) {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real =
        w::next<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
    if (!timerbench::experiments::is_wall(clock) || !w::on()) {
        return real(c, m, clock, t);
    }
    w::waited("pthread_cond_clockwait");
    const timespec soon = w::in_a_millisecond();
    return real(c, m, CLOCK_MONOTONIC, &soon);
}

int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* t) {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real =
        w::next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
    static auto* const on_clock =
        w::next<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
    if (!w::on()) {
        return real(c, m, t);
    }
    w::waited("pthread_cond_timedwait");
    const timespec soon = w::in_a_millisecond();
    return on_clock(c, m, CLOCK_MONOTONIC, &soon);
}

// A wait for a lock or a semaphore is only counted: what it waits for is held by somebody, or not.
int pthread_mutex_timedlock(pthread_mutex_t* m, const timespec* t) noexcept {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<int(pthread_mutex_t*, const timespec*)>("pthread_mutex_timedlock");
    if (w::on()) {
        w::waited("pthread_mutex_timedlock");
    }
    return real(m, t);
}

int sem_timedwait(sem_t* s, const timespec* t) {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<int(sem_t*, const timespec*)>("sem_timedwait");
    if (w::on()) {
        w::waited("sem_timedwait");
    }
    return real(s, t);
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* t, timespec* left) {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<int(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
    if (!timerbench::experiments::is_wall(clock) || (flags & TIMER_ABSTIME) == 0 || !w::on()) {
        return real(clock, flags, t, left);
    }
    w::waited("clock_nanosleep");
    const timespec soon = w::in_a_millisecond();
    return real(CLOCK_MONOTONIC, TIMER_ABSTIME, &soon, nullptr);
}

int timerfd_create(int clock, int flags) noexcept {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<int(int, int)>("timerfd_create");
    if (timerbench::experiments::is_wall(clock) && w::on()) {
        w::waited("timerfd_create");
    }
    return real(clock, flags);
}

int timer_create(clockid_t clock, sigevent* event, timer_t* timer) noexcept {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<int(clockid_t, sigevent*, timer_t*)>("timer_create");
    if (timerbench::experiments::is_wall(clock) && w::on()) {
        w::waited("timer_create");
    }
    return real(clock, event, timer);
}

long syscall(long number, ...) noexcept {
    namespace w = timerbench::experiments::watch_detail;
    static auto* const real = w::next<long(long, ...)>("syscall");
    va_list list;
    va_start(list, number);
    long a[6];
    for (long& argument : a) {
        argument = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_futex && timerbench::experiments::is_wall_futex(static_cast<int>(a[1]), a[3] != 0) &&
        w::on()) {
        w::waited("futex");
        // What waits for a time here looks again after a wait that ended for no reason.
        const timespec soon = w::in_a_millisecond();
        return real(number, a[0],
                    (a[1] & ~static_cast<long>(FUTEX_CLOCK_REALTIME | FUTEX_CMD_MASK)) | FUTEX_WAIT_BITSET,
                    a[2], &soon, 0L, 0xffffffffL);
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}
