// One line of progress with the time left, rewritten in place on standard error, and only if that is a terminal. It is
// printed between visits, never inside a timed region, at most ten times a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace timerbench::harness {

class progress {
  public:
    // total: steps expected; 0 if unknown (no time left is then shown).
    progress(std::uint64_t total, bool enabled);
    ~progress(); // removes the line

    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

    // One step is about to begin; label says what.
    void step(std::string_view label);

    // "[12/60] label, 1 min 20 s left"
    [[nodiscard]] static std::string line(std::uint64_t done, std::uint64_t total, double elapsed_seconds,
                                          std::string_view label);

  private:
    std::uint64_t total_;
    bool enabled_;
    bool drawn_ = false;
    std::uint64_t done_ = 0;
    std::chrono::steady_clock::time_point begin_;
    std::chrono::steady_clock::time_point drawn_at_;
};

} // namespace timerbench::harness
