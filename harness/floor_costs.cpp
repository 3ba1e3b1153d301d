#include "harness/floor_costs.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <thread>

namespace timerbench::harness {

void empty_loop(std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
        do_not_optimize(i);
}

void read_steady_clock(std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) {
        const auto now = std::chrono::steady_clock::now();
        do_not_optimize(now);
    }
}

void read_coarse_clock(std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        do_not_optimize(now);
    }
}

void lock_and_unlock(std::uint64_t iterations) {
    std::mutex mutex;
    do_not_optimize(mutex);
    for (std::uint64_t i = 0; i < iterations; ++i) {
        mutex.lock();
        clobber_memory();
        mutex.unlock();
    }
}

void allocate_and_free(std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) {
        void* block = std::malloc(64);
        do_not_optimize(block);
        std::free(block);
    }
}

namespace {

// Exists, asleep, for as long as the object lives.
class idle_thread {
  public:
    idle_thread()
        : thread_([this] {
              std::unique_lock lock(mutex_);
              stopped_.wait(lock, [this] { return stop_; });
          }) {}
    ~idle_thread() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        stopped_.notify_one();
        thread_.join();
    }
    idle_thread(const idle_thread&) = delete;
    idle_thread& operator=(const idle_thread&) = delete;

  private:
    std::mutex mutex_; // guards stop_
    std::condition_variable stopped_;
    bool stop_ = false;
    std::thread thread_;
};

using operation = void (*)(std::uint64_t);

// Iterations that take at least 200 us, so that a faster spell of the machine stays above 100 us.
std::uint64_t size_of_batch(operation run) {
    std::uint64_t iterations = 1000;
    while (true) {
        const std::int64_t begin = steady_ns();
        run(iterations);
        if (steady_ns() - begin >= 200'000 || iterations >= 1'000'000'000)
            return iterations;
        iterations *= 2;
    }
}

cell floor_cell(const std::string& name, const std::string& metric, operation run, bool second_thread) {
    const auto sized = [&] {
        if (!second_thread)
            return size_of_batch(run);
        const idle_thread sleeper;
        return size_of_batch(run);
    }();
    cell result;
    result.service = "floor/" + name;
    result.floor = true;
    result.metrics = {metric};
    result.run = [=](visit& v) {
        std::optional<idle_thread> sleeper;
        if (second_thread)
            sleeper.emplace();
        while (v.next())
            v.sample(wall_only(metric), sized, [&] { run(sized); });
    };
    return result;
}

} // namespace

std::vector<cell> floor_cells(const std::string& metric) {
    return {floor_cell("empty_loop", metric, empty_loop, false),
            floor_cell("steady_clock", metric, read_steady_clock, false),
            floor_cell("coarse_clock", metric, read_coarse_clock, false),
            floor_cell("mutex", metric, lock_and_unlock, true),
            floor_cell("malloc", metric, allocate_and_free, true)};
}

} // namespace timerbench::harness
