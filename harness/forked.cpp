#include "harness/forked.hpp"

#include "harness/interrupt.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace timerbench::harness {

namespace {

constexpr char good = '+';
constexpr char bad = '-';

// False if the reader is gone.
bool write_all(int to, std::string_view bytes) {
    while (!bytes.empty()) {
        const auto written = write(to, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

[[noreturn]] void be_child(pid_t parent, int to, function_ref<std::string()> body) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); // it was gone before it could be watched
    std::string result;
    try {
        result = good + body();
    } catch (const std::exception& problem) {
        result = bad + std::string("exception: ") + problem.what();
    } catch (...) {
        result = bad + std::string("an exception that is no std::exception");
    }
    _exit(write_all(to, result) ? 0 : 1);
}

int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

} // namespace

forked_result run_in_child(function_ref<std::string()> body, std::chrono::milliseconds limit) {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0)
        return {"", std::string("no pipe to a child process: ") + std::strerror(errno)};
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) {
        const int problem = errno;
        close(ends[0]);
        close(ends[1]);
        return {"", std::string("no child process: ") + std::strerror(problem)};
    }
    if (child == 0) {
        close(ends[0]);
        be_child(parent, ends[1], body);
    }
    close(ends[1]);

    std::string text;
    std::string stopped;
    const auto until = std::chrono::steady_clock::now() + limit;
    while (true) {
        pollfd source{ends[0], POLLIN, 0};
        const int ready = poll(&source, 1, 50);
        if (interrupted())
            stopped = "interrupted";
        else if (std::chrono::steady_clock::now() > until)
            stopped = "the child process did not end within " + std::to_string(limit.count()) + " ms";
        if (!stopped.empty()) {
            kill(child, SIGKILL);
            break;
        }
        if (ready <= 0)
            continue;
        char buffer[4096];
        const auto got = read(ends[0], buffer, sizeof buffer);
        if (got > 0)
            text.append(buffer, static_cast<std::size_t>(got));
        else if (got == 0 || errno != EINTR)
            break;
    }
    close(ends[0]);
    const int status = wait_for(child);
    if (!stopped.empty())
        return {"", stopped};
    if (WIFSIGNALED(status))
        return {"", "the child process was ended by signal " + std::to_string(WTERMSIG(status))};
    if (text.empty() || WEXITSTATUS(status) != 0)
        return {"", "the child process ended with exit code " + std::to_string(WEXITSTATUS(status)) +
                        " and no result"};
    if (text.front() != good)
        return {"", text.substr(1)};
    return {text.substr(1), ""};
}

} // namespace timerbench::harness
