// Loaded before the C library: sets the wall clock that the process sees back by an hour every 20 ms, and ends the process when
// it waits against that clock.
//
// A time namespace cannot move this clock, and moving the machine's would disturb everybody on it.
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr long period_ns = 20'000'000;

long long monotonic_ns() {
    timespec t{};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

time_t steps_back_s() {
    static const long long start = monotonic_ns();
    return static_cast<time_t>((monotonic_ns() - start) / period_ns * 3'600);
}

bool is_wall(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

[[noreturn]] void fail(const char* function, std::size_t length) {
    constexpr char text[] = ": waits against the wall clock\n";
    (void)!write(STDERR_FILENO, function, length);
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    abort();
}

template <std::size_t N>
[[noreturn]] void fail(const char (&function)[N]) {
    fail(function, N - 1);
}

template <class F>
F* next(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* t) noexcept {
    if (syscall(SYS_clock_gettime, clock, t) != 0) {
        return -1;
    }
    if (is_wall(clock)) {
        t->tv_sec -= steps_back_s();
    }
    return 0;
}

int gettimeofday(timeval* t, void*) noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1'000;
    return 0;
}

time_t time(time_t* t) noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if (t != nullptr) {
        *t = now.tv_sec;
    }
    return now.tv_sec;
}

// A condition variable may be made for the monotonic clock, but nobody here makes one: C++ has its own call for that.
int pthread_cond_timedwait(pthread_cond_t*, pthread_mutex_t*, const timespec*) {
    fail("pthread_cond_timedwait");
}

int pthread_cond_clockwait(pthread_cond_t* c, pthread_mutex_t* m, clockid_t clock, const timespec* t) {
    if (is_wall(clock)) {
        fail("pthread_cond_clockwait");
    }
    static auto* const real = next<decltype(pthread_cond_clockwait)>("pthread_cond_clockwait");
    return real(c, m, clock, t);
}

int pthread_mutex_timedlock(pthread_mutex_t*, const timespec*) noexcept {
    fail("pthread_mutex_timedlock");
}
int pthread_rwlock_timedrdlock(pthread_rwlock_t*, const timespec*) noexcept {
    fail("pthread_rwlock_timedrdlock");
}
int pthread_rwlock_timedwrlock(pthread_rwlock_t*, const timespec*) noexcept {
    fail("pthread_rwlock_timedwrlock");
}
int sem_timedwait(sem_t*, const timespec*) {
    fail("sem_timedwait");
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* t, timespec* left) {
    if (is_wall(clock) && (flags & TIMER_ABSTIME) != 0) {
        fail("clock_nanosleep");
    }
    return syscall(SYS_clock_nanosleep, clock, flags, t, left) == 0 ? 0 : errno;
}

int timerfd_create(int clock, int flags) noexcept {
    if (is_wall(clock)) {
        fail("timerfd_create");
    }
    return static_cast<int>(syscall(SYS_timerfd_create, clock, flags));
}

int timer_create(clockid_t clock, sigevent* event, timer_t* timer) noexcept {
    if (is_wall(clock)) {
        fail("timer_create");
    }
    static auto* const real = next<decltype(timer_create)>("timer_create");
    return real(clock, event, timer);
}
}
