#include "harness/forked.hpp"
#include "harness/interrupt.hpp"

#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace timerbench::harness {
namespace {

using namespace std::chrono_literals;
constexpr auto plenty = 60s;

TEST(RunInChild, HandsBackTheTextAndNothingElse) {
    int touched = 0;
    const pid_t me = getpid();
    const auto result = run_in_child(
        [&] {
            touched = 1; // in the child's copy
            return getpid() == me ? std::string("the same process") : std::string("another\n\0process", 16);
        },
        plenty);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.output, std::string("another\n\0process", 16));
    EXPECT_EQ(touched, 0);
}

TEST(RunInChild, TakesLongAndEmptyTexts) {
    const std::string text(1'000'000, 'x'); // many times a pipe's buffer
    const auto result = run_in_child([&] { return text; }, plenty);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.output, text);
    const auto nothing = run_in_child([] { return std::string(); }, plenty);
    EXPECT_EQ(nothing.error, "");
    EXPECT_EQ(nothing.output, "");
}

TEST(RunInChild, TellsOfAnException) {
    const auto result =
        run_in_child([]() -> std::string { throw std::runtime_error("no such luck"); }, plenty);
    EXPECT_EQ(result.error, "exception: no such luck");
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(run_in_child([]() -> std::string { throw 1; }, plenty).error,
              "an exception that is no std::exception");
}

TEST(RunInChild, TellsOfASignalAndOfAnEarlyEnd) {
    const auto killed = run_in_child(
        []() -> std::string {
            raise(SIGKILL);
            return "survived";
        },
        plenty);
    EXPECT_EQ(killed.error, "the child process was ended by signal 9");
    const auto ended = run_in_child([]() -> std::string { _exit(3); }, plenty);
    EXPECT_EQ(ended.error, "the child process ended with exit code 3 and no result");
}

TEST(RunInChild, EndsAChildThatTakesTooLongAndLeavesNoZombie) {
    const auto result = run_in_child(
        []() -> std::string {
            while (true)
                pause();
        },
        100ms);
    EXPECT_EQ(result.error, "the child process did not end within 100 ms");
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1); // no child is left
}

TEST(RunInChild, EndsTheChildWhenInterrupted) {
    const interrupt_guard guard;
    raise(SIGINT);
    const auto result = run_in_child(
        []() -> std::string {
            while (true)
                pause();
        },
        plenty);
    EXPECT_EQ(result.error, "interrupted");
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

} // namespace
} // namespace timerbench::harness
