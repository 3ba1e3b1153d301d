#include "harness/thread_team.hpp"

#include <ctime>

namespace timerbench::harness {

namespace {

std::int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

} // namespace

std::int64_t thread_cpu_ns() {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
std::int64_t process_cpu_ns() {
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}
std::int64_t steady_ns() {
    return read_clock(CLOCK_MONOTONIC);
}

thread_team::thread_team(unsigned threads) : times_(threads == 0 ? 1 : threads) {
    threads_.reserve(times_.size());
    for (unsigned i = 0; i < times_.size(); ++i)
        threads_.emplace_back([this, i] { serve(i); });
}

thread_team::~thread_team() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    start_.notify_all();
    for (auto& thread : threads_)
        thread.join();
}

std::vector<thread_time> thread_team::run(function_ref<void(unsigned)> body) {
    std::unique_lock lock(mutex_);
    body_ = &body;
    failure_ = nullptr;
    waiting_ = 0;
    running_ = size();
    go_ = false;
    ++generation_;
    start_.notify_all();
    // All threads are awake before any of them starts its clock.
    finished_.wait(lock, [&] { return waiting_ == size(); });
    go_ = true;
    start_.notify_all();
    finished_.wait(lock, [&] { return running_ == 0; });
    body_ = nullptr;
    if (failure_)
        std::rethrow_exception(failure_);
    return times_;
}

void thread_team::serve(unsigned index) {
    std::uint64_t served = 0;
    std::unique_lock lock(mutex_);
    while (true) {
        start_.wait(lock, [&] { return stop_ || generation_ != served; });
        if (stop_)
            return;
        served = generation_;
        ++waiting_;
        finished_.notify_one();
        start_.wait(lock, [&] { return go_; });
        const auto* body = body_;
        lock.unlock();

        thread_time time;
        std::exception_ptr failure;
        const std::int64_t cpu_begin = thread_cpu_ns();
        const std::int64_t begin = steady_ns();
        try {
            (*body)(index);
        } catch (...) {
            failure = std::current_exception();
        }
        const std::int64_t end = steady_ns();
        const std::int64_t cpu_end = thread_cpu_ns();
        time.begin_ns = static_cast<double>(begin);
        time.end_ns = static_cast<double>(end);
        time.cpu_ns = static_cast<double>(cpu_end - cpu_begin);

        lock.lock();
        times_[index] = time;
        if (failure && !failure_)
            failure_ = failure;
        if (--running_ == 0)
            finished_.notify_one();
    }
}

} // namespace timerbench::harness
