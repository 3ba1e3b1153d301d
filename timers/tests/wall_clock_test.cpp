// Only the steady clock stands in a path that waits (clause 9): read in the sources, and tried with a wall clock that
// goes back by an hour again and again.
#include "timers/tests/support/process.hpp"
#include "timers/tests/support/rig.hpp"

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace timerbench::testing {
namespace {

// The code without its comments.
std::string code_of(std::istream& source) {
    std::string code;
    for (std::string line; std::getline(source, line);) {
        code += line.substr(0, line.find("//")) + '\n';
    }
    return code;
}

const std::regex& wall_clock_names() {
    static const std::regex names{
        R"(\b(system_clock|high_resolution_clock|utc_clock|file_clock|CLOCK_REALTIME\w*|CLOCK_TAI|gettimeofday|)"
        R"(ftime|timespec_get|pthread_cond_timedwait|pthread_mutex_timedlock|sem_timedwait|mq_timed\w+|)"
        R"(TIMER_ABSTIME_REALTIME|deadline_timer|microsec_clock|second_clock)\b|\btime\s*\(\s*(NULL|nullptr|0|&))"};
    return names;
}

TEST(wall_clock, sources_do_not_name_it) {
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator{TIMERBENCH_TIMERS_DIR}) {
        const std::filesystem::path& path = entry.path();
        const bool source = path.extension() == ".hpp" || path.extension() == ".cpp";
        if (!source || path.string().find("/tests/") != std::string::npos) {
            continue;
        }
        ++files;
        std::ifstream in{path};
        ASSERT_TRUE(in) << path;
        const std::string code = code_of(in);
        std::smatch found;
        EXPECT_FALSE(std::regex_search(code, found, wall_clock_names())) << path << " names " << found.str();
    }
    EXPECT_GT(files, 5) << "no sources in " TIMERBENCH_TIMERS_DIR;
}

TEST(wall_clock, the_search_finds_it) {
    for (const char* line : {"wake.wait_until(lock, std::chrono::system_clock::now());", "x = time(nullptr);",
                             "clock_gettime(CLOCK_REALTIME, &t);", "pthread_cond_timedwait(&c, &m, &t);"}) {
        std::istringstream in{line};
        EXPECT_TRUE(std::regex_search(code_of(in), wall_clock_names())) << line;
    }
    for (const char* line :
         {"int x; // not the system_clock", "steady_clock::now()", "now_time(at)", "runtime(0)"}) {
        std::istringstream in{line};
        EXPECT_FALSE(std::regex_search(code_of(in), wall_clock_names())) << line;
    }
}

// The library that is loaded before all others; empty where it is not built.
constexpr const char* stepping_library = TIMERBENCH_STEPPING_LIBRARY;
constexpr const char* real_clock_suites =
    "every/races.short_timers_beside_a_long_one/*:every/races.arm_while_the_driver_goes_to_sleep/*:"
    "every/firing.never_early_on_the_machines_clock/*";

outcome run_with_steps(const std::string& filter, std::vector<std::string> environment = {}) {
    environment.push_back(std::string{"LD_PRELOAD="} + stepping_library);
    return run_tests(filter, environment, 100s);
}

TEST(wall_clock, steps_do_not_disturb_timers) {
    TIMERBENCH_SKIP_IF(*stepping_library == '\0', "a sanitizer wants to be loaded first");
    const outcome run = run_with_steps(real_clock_suites);
    EXPECT_TRUE(run.passed()) << run.text();
}

TEST(wall_clock, a_wait_against_it_is_seen) {
    TIMERBENCH_SKIP_IF(*stepping_library == '\0', "a sanitizer wants to be loaded first");
    const std::string filter = "every/firing.never_early_on_the_machines_clock/specimen_waits_on_wall_clock";
    const std::vector<std::string> shown{std::string{show_defects_variable} + "=1"};
    const outcome without = run_tests(filter, shown, 30s);
    EXPECT_TRUE(without.passed()) << "a steady wall clock does no harm\n" << without.text();
    const outcome with = run_with_steps(filter, shown);
    EXPECT_FALSE(with.passed()) << with.text();
    EXPECT_NE(with.output.find("waits against the wall clock"), std::string::npos) << with.text();
}

} // namespace
} // namespace timerbench::testing
