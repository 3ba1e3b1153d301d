#include "harness/last_words.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

using namespace timerbench::harness;

namespace {

template <class Exception>
void die_of(const Exception& e) {
    speak_last_words_as("bench_x");
    std::thread{[&e] { throw e; }}.join();
}

TEST(LastWords, ARefusedThreadIsOneLineAndExitCode2) {
    const std::system_error refused{std::make_error_code(std::errc::resource_unavailable_try_again),
                                    "thread"};
    EXPECT_EXIT(die_of(refused), testing::ExitedWithCode(2), "^bench_x: thread: [^\n]*ulimit -u[^\n]*\n$");
}

TEST(LastWords, MemoryThatIsNotThereIsExitCode2) {
    EXPECT_EXIT(die_of(std::bad_alloc{}), testing::ExitedWithCode(2), "^bench_x: [^\n]*memory[^\n]*\n$");
}

TEST(LastWords, AnythingElseIsNamedAndExitCode1) {
    EXPECT_EXIT(die_of(std::runtime_error{"no luck"}), testing::ExitedWithCode(1), "^bench_x: no luck\n$");
    EXPECT_EXIT(die_of(7), testing::ExitedWithCode(1), "^bench_x: [^\n]*defect[^\n]*\n$");
}

} // namespace
