// How a service starts its driver thread: named, so that it is found in a debugger and in /proc, and with a timer
// slack of 1 ns, because the kernel's default would add up to 50 us to every wait.
#pragma once

#include <string>
#include <sys/prctl.h>
#include <thread>
#include <utility>

namespace timerbench::detail {

/// `name` is cut to the 15 characters that the kernel keeps.
template <class Body>
[[nodiscard]] std::thread start_driver(const char* name, Body body) {
    return std::thread{[name, body = std::move(body)]() mutable {
        prctl(PR_SET_NAME, name);
        prctl(PR_SET_TIMERSLACK, 1UL);
        body();
    }};
}

} // namespace timerbench::detail
