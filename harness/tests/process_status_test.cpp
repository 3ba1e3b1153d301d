#include "harness/environment.hpp"
#include "harness/process_status.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <semaphore>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <time.h>

namespace timerbench::harness {
namespace {

constexpr const char* status = "Name:\tThreads: 9\n"
                               "VmRSS:\t    4096 kB\n"
                               "Threads:\t12\n"
                               "voluntary_ctxt_switches:\t150\n"
                               "nonvoluntary_ctxt_switches:\t545\n"
                               "Odd:\t-3\n"
                               "Empty:\n"
                               "Huge:\t99999999999999999999999\n"
                               "Last: 7";

TEST(StatusField, TakesTheNumberBehindTheName) {
    EXPECT_EQ(status_field(status, "VmRSS"), 4096U);
    EXPECT_EQ(status_field(status, "Threads"), 12U);
    EXPECT_EQ(status_field(status, "voluntary_ctxt_switches"), 150U);
    EXPECT_EQ(status_field(status, "nonvoluntary_ctxt_switches"), 545U);
    EXPECT_EQ(status_field(status, "Last"), 7U);
}

TEST(StatusField, RefusesWhatIsNoWholeNumberOrNotThere) {
    for (const char* name : {"Name", "Odd", "Empty", "Huge", "Thread", "VmRSS:", "missing", ""})
        EXPECT_FALSE(status_field(status, name)) << name;
    EXPECT_FALSE(status_field("", "Rss"));
}

TEST(StatusField, ReadsARollupWithItsFirstLineOfAddresses) {
    EXPECT_EQ(status_field("5655506f4000-7fff9674e000 ---p 00000000 00:00 0    [rollup]\n"
                           "Rss:                1800 kB\nPss:                 233 kB\n",
                           "Rss"),
              1800U);
}

TEST(ResidentPages, IsTheSecondNumber) {
    EXPECT_EQ(resident_pages("765 447 418 5 0 123 0\n"), 447U);
    EXPECT_EQ(resident_pages("765 447"), 447U);
    for (const char* wrong : {"", "765", "765 \n", "x 447", "765 y"})
        EXPECT_FALSE(resident_pages(wrong)) << wrong;
}

TEST(ProcessStatus, ResidentMemoryGrowsByWhatIsTouched) {
    if (!sanitizer_name().empty()) {
        GTEST_SKIP() << "a sanitizer has memory and a thread of its own";
    }
    constexpr std::size_t size = 64U << 20U;
    void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(block, MAP_FAILED);
    const auto untouched = read_resident_memory();
    ASSERT_TRUE(untouched);
    std::memset(block, 1, size);
    const auto touched = read_resident_memory();
    munmap(block, size);
    const auto returned = read_resident_memory();
    ASSERT_TRUE(touched && returned);
    EXPECT_EQ(touched->source, untouched->source);
    constexpr std::size_t slack = 8U << 20U;
    EXPECT_GT(touched->bytes, untouched->bytes + size - slack);
    EXPECT_LT(touched->bytes, untouched->bytes + size + slack);
    EXPECT_LT(returned->bytes, touched->bytes - size + slack);
}

void sleep_briefly() {
    const timespec t{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&t, nullptr);
}

TEST(ProcessStatus, CountsSleepsOfTheCallerAndOfOthersApart) {
    if (!sanitizer_name().empty()) {
        GTEST_SKIP() << "a sanitizer has memory and a thread of its own";
    }
    constexpr std::uint64_t own = 5;
    constexpr std::uint64_t foreign = 7;
    const auto threads = read_thread_count();
    ASSERT_TRUE(threads);
    const sleep_counts before = read_sleep_counts();
    for (std::uint64_t i = 0; i < own; ++i)
        sleep_briefly();
    const sleep_counts between = read_sleep_counts();
    EXPECT_GE(between.caller - before.caller, own);

    std::binary_semaphore counted{0};
    std::binary_semaphore go{0};
    std::thread other([&] {
        for (std::uint64_t i = 0; i < foreign; ++i)
            sleep_briefly();
        counted.release();
        go.acquire();
    });
    counted.acquire();
    EXPECT_EQ(read_thread_count(), *threads + 1);
    EXPECT_GE(read_sleep_counts().others - before.others, foreign);
    go.release();
    other.join();
    // A thread that has ended is still in the sum.
    EXPECT_GE(read_sleep_counts().others - before.others, foreign);
    EXPECT_LT(read_sleep_counts().caller - between.caller, own + foreign);
}

} // namespace
} // namespace timerbench::harness
