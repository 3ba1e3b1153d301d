#include "timers/tests/support/process.hpp"

#include "timers/tests/support/rig.hpp"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace timerbench::testing {

std::string outcome::text() const {
    std::string how = timed_out ? "killed after the limit"
                      : exited  ? "exit code " + std::to_string(code)
                                : "signal " + std::to_string(code);
    return how + "\n" + output;
}

outcome run_tests(const std::string& filter, const std::vector<std::string>& environment, duration limit) {
    std::vector<std::string> variables;
    for (char** at = environ; *at != nullptr; ++at) {
        // The outer run's own choices are not the inner one's.
        if (std::strncmp(*at, "GTEST_", 6) != 0) {
            variables.emplace_back(*at);
        }
    }
    variables.insert(variables.end(), environment.begin(), environment.end());
    std::vector<char*> env;
    for (std::string& v : variables) {
        env.push_back(v.data());
    }
    env.push_back(nullptr);
    std::string name = "timers_tests";
    std::string argument = "--gtest_filter=" + filter;
    char* const argv[]{name.data(), argument.data(), nullptr};

    const int output = memfd_create("output", 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        execve("/proc/self/exe", argv, env.data());
        _exit(127);
    }
    outcome result = wait_for(child, limit);
    const off_t size = lseek(output, 0, SEEK_END);
    result.output.resize(static_cast<std::size_t>(size));
    (void)!pread(output, result.output.data(), result.output.size(), 0);
    close(output);
    return result;
}

pid_t fork_helper(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(body());
    }
    return child;
}

outcome wait_for(pid_t child, duration limit) {
    outcome result;
    int status = 0;
    if (!eventually([&] { return waitpid(child, &status, WNOHANG) == child; }, limit)) {
        result.timed_out = true;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    result.exited = WIFEXITED(status);
    result.code = result.exited ? WEXITSTATUS(status) : WTERMSIG(status);
    return result;
}

int count_threads() {
    int n = 0;
    if (DIR* tasks = opendir("/proc/self/task")) {
        while (const dirent* entry = readdir(tasks)) {
            n += entry->d_name[0] != '.' ? 1 : 0;
        }
        closedir(tasks);
    }
    return n;
}

} // namespace timerbench::testing
