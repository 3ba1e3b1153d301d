// Children of the test process: this binary run again with other tests, and forked helpers that report through a pipe.
#pragma once

#include "timers/service.hpp"

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace timerbench::testing {

struct outcome {
    bool exited = false; ///< False: a signal ended it, or it was killed after the limit.
    int code = 0;        ///< Exit code, or number of the signal.
    bool timed_out = false;
    std::string output; ///< What a run of this binary printed.

    [[nodiscard]] bool passed() const noexcept { return exited && code == 0; }
    [[nodiscard]] std::string text() const;
};

/// Runs the tests of this binary that match the filter, with additions to the environment ("NAME=value").
[[nodiscard]] outcome run_tests(const std::string& filter, const std::vector<std::string>& environment,
                                duration limit);

/// A child that runs `body` and ends with its result as exit code, without atexit handlers.
[[nodiscard]] pid_t fork_helper(const std::function<int()>& body);

/// Waits for the child; kills it after the limit.
[[nodiscard]] outcome wait_for(pid_t child, duration limit);

/// Number of threads of this process.
[[nodiscard]] int count_threads();

} // namespace timerbench::testing
