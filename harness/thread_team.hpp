// A team of threads that run one body together, over and over: started once, parked between runs on a condition
// variable. run() releases all at once; each thread reads its own clocks around its own body, so nobody's time is
// divided by the number of threads. Threads are not pinned. Costs two context switches per thread and run, outside the
// timed part. Bad at: bodies so short (under 100 us) that the first thread is done before the last one starts.
#pragma once

#include "harness/function_ref.hpp"
#include "harness/statistics.hpp"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace timerbench::harness {

class thread_team {
  public:
    explicit thread_team(unsigned threads); // at least 1
    ~thread_team();
    thread_team(const thread_team&) = delete;
    thread_team& operator=(const thread_team&) = delete;

    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(threads_.size()); }

    // Calls body(0..size-1), one call per thread, and returns each thread's times. The calling thread waits. An
    // exception of a body is thrown again here after all threads have finished.
    std::vector<thread_time> run(function_ref<void(unsigned)> body);

  private:
    void serve(unsigned index);

    std::mutex mutex_; // guards everything below
    std::condition_variable start_;
    std::condition_variable finished_;
    std::uint64_t generation_ = 0;
    unsigned waiting_ = 0; // threads of this generation that stand ready
    unsigned running_ = 0;
    bool go_ = false;
    bool stop_ = false;
    const function_ref<void(unsigned)>* body_ = nullptr;
    std::vector<thread_time> times_;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_;
};

// CPU time of the calling thread, of the whole process; the steady clock. Nanoseconds.
[[nodiscard]] std::int64_t thread_cpu_ns();
[[nodiscard]] std::int64_t process_cpu_ns();
[[nodiscard]] std::int64_t steady_ns();

} // namespace timerbench::harness
