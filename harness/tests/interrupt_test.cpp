#include "harness/interrupt.hpp"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace timerbench::harness;

namespace {

TEST(Interrupt, FirstSignalSetsTheFlag) {
    for (const int number : {SIGINT, SIGTERM}) {
        const interrupt_guard guard;
        EXPECT_FALSE(interrupted());
        std::raise(number);
        EXPECT_TRUE(interrupted());
        EXPECT_EQ(interrupting_signal(), number);
    }
    const interrupt_guard guard;
    EXPECT_FALSE(interrupted()) << "a new guard starts afresh";
}

TEST(Interrupt, TheSameWishSentTwiceCountsOnce) {
    const interrupt_guard guard;
    std::raise(SIGTERM);
    std::raise(SIGTERM); // would kill
    EXPECT_EQ(interrupting_signal(), SIGTERM);
}

TEST(Interrupt, ALaterSecondSignalKillsAtOnce) {
    const pid_t child = fork();
    if (child == 0) {
        const interrupt_guard guard;
        std::raise(SIGINT);
        if (!interrupted())
            _exit(3);
        // Ignored as the same wish for a while; how long is up to the guard.
        for (int i = 0; i < 200; ++i) {
            usleep(10'000);
            std::raise(SIGINT);
        }
        _exit(4);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(Interrupt, GuardPutsBackWhatWasThere) {
    struct sigaction before {};
    sigaction(SIGINT, nullptr, &before);
    {
        const interrupt_guard guard;
        std::raise(SIGINT);
    }
    struct sigaction after {};
    sigaction(SIGINT, nullptr, &after);
    EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(Interrupt, HeldSignalsComeLater) {
    const interrupt_guard guard;
    {
        const signals_held held;
        std::raise(SIGTERM);
        EXPECT_FALSE(interrupted());
    }
    EXPECT_TRUE(interrupted());
}

} // namespace
