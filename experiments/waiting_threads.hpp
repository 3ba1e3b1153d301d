// Threads in bulk, of which one that cannot be made is no disaster: whoever asks for ten thousand is told which one failed and why.
//
// Made with the C library's call and its default stack, as std::thread makes them, but without an exception. Costs what threads
// cost. One thread makes and joins them.
#pragma once

#include <cstddef>
#include <cstring>
#include <limits.h>
#include <pthread.h>
#include <string>
#include <vector>

namespace timerbench::experiments {

/// Address space that the C library sets aside for the stack of a thread.
[[nodiscard]] inline std::size_t stack_size() {
    pthread_attr_t attributes;
    std::size_t size = 0;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &size);
        pthread_attr_destroy(&attributes);
    }
    return size;
}

class thread_crew {
  public:
    /// `most`: how many may be alive at the same time, whatever the system would allow.
    explicit thread_crew(std::size_t most) : most_{most} {}
    thread_crew(const thread_crew&) = delete;
    thread_crew& operator=(const thread_crew&) = delete;
    /// Joins.
    ~thread_crew() { join(); }

    /// Empty when the thread runs; else why there is none.
    [[nodiscard]] std::string add(void* (*body)(void*), void* context) {
        const std::string which = "number " + std::to_string(threads_.size() + 1) + " could not be made: ";
        if (threads_.size() >= most_) {
            return which + "at most " + std::to_string(most_) + " were allowed";
        }
        pthread_t thread{};
        const int problem = pthread_create(&thread, nullptr, body, context);
        if (problem != 0) {
            return which + std::strerror(problem);
        }
        threads_.push_back(thread);
        return {};
    }
    [[nodiscard]] std::size_t alive() const noexcept { return threads_.size(); }
    /// Forgets them: they go on, and nobody waits for them or counts them.
    void leave() noexcept { threads_.clear(); }
    /// Waits for all of them.
    void join() noexcept {
        for (const pthread_t thread : threads_) {
            pthread_join(thread, nullptr);
        }
        threads_.clear();
    }

  private:
    std::size_t most_;
    std::vector<pthread_t> threads_;
};

} // namespace timerbench::experiments
