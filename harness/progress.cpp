#include "harness/progress.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace timerbench::harness {

progress::progress(std::uint64_t total, bool enabled)
    : total_(total),
      enabled_(enabled && isatty(STDERR_FILENO) == 1),
      begin_(std::chrono::steady_clock::now()) {}

progress::~progress() {
    if (drawn_)
        fmt::print(stderr, "\r\x1b[K");
}

void progress::step(std::string_view label) {
    const std::uint64_t done = done_++;
    if (!enabled_)
        return;
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && now - drawn_at_ < std::chrono::milliseconds(100))
        return;
    drawn_ = true;
    drawn_at_ = now;
    fmt::print(stderr, "\r{}\x1b[K",
               line(done, total_, std::chrono::duration<double>(now - begin_).count(), label));
    std::fflush(stderr);
}

std::string progress::line(std::uint64_t done, std::uint64_t total, double elapsed_seconds,
                           std::string_view label) {
    std::string text = total > 0 ? fmt::format("[{}/{}] ", done, total) : fmt::format("[{}] ", done);
    text += label.substr(0, 50);
    if (done == 0 || total <= done)
        return text;
    const auto left = static_cast<std::uint64_t>(
        elapsed_seconds / static_cast<double>(done) * static_cast<double>(total - done) + 0.5);
    if (left >= 60)
        return text + fmt::format(", {} min {} s left", left / 60, left % 60);
    return text + fmt::format(", {} s left", left);
}

} // namespace timerbench::harness
