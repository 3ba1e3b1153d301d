#include "harness/alloc_counter.hpp"
#include "harness/environment.hpp"
#include "harness/optimiser.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <malloc.h>
#include <memory>
#include <thread>
#include <vector>

using namespace timerbench::harness;

namespace {

class AllocCounter : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto counting = alloc_counting();
        if (!sanitizer_name().empty()) {
            EXPECT_FALSE(counting.available);
            EXPECT_NE(counting.reason.find("sanitizer owns malloc"), std::string::npos) << counting.reason;
            GTEST_SKIP() << counting.reason;
        }
        ASSERT_TRUE(counting.available) << counting.reason;
    }
};

void expect_pair(const alloc_window& window, std::uint64_t bytes) {
    const auto counts = window.counts();
    EXPECT_EQ(counts.allocations, 1U);
    EXPECT_EQ(counts.frees, 1U);
    EXPECT_EQ(counts.requested_bytes, bytes);
    EXPECT_EQ(counts.live_bytes, 0);
}

TEST_F(AllocCounter, SeesEveryWayToAllocate) {
    {
        const alloc_window window;
        void* block = std::malloc(100);
        do_not_optimize(block);
        const auto during = window.counts();
        EXPECT_GE(during.live_bytes, 100);
        EXPECT_LT(during.live_bytes, 200);
        std::free(block);
        expect_pair(window, 100);
    }
    {
        const alloc_window window;
        void* block = std::calloc(10, 7);
        do_not_optimize(block);
        std::free(block);
        expect_pair(window, 70);
    }
    {
        const alloc_window window;
        void* block = std::aligned_alloc(64, 192); // what Boost.Asio calls
        do_not_optimize(block);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
        std::free(block);
        expect_pair(window, 192);
    }
    {
        const alloc_window window;
        void* block = nullptr;
        ASSERT_EQ(posix_memalign(&block, 256, 10), 0);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0U);
        std::free(block);
        expect_pair(window, 10);
        EXPECT_EQ(posix_memalign(&block, 3, 10), EINVAL);
        EXPECT_EQ(window.counts().allocations, 1U) << "a refused call allocates nothing";
    }
    {
        const alloc_window window;
        void* block = memalign(128, 50);
        do_not_optimize(block);
        std::free(block);
        expect_pair(window, 50);
    }
    {
        const alloc_window window;
        auto* number = new int(7);
        do_not_optimize(number);
        delete number;
        expect_pair(window, sizeof(int));
    }
    {
        struct alignas(64) wide {
            char bytes[64];
        };
        const alloc_window window;
        auto* block = new wide();
        do_not_optimize(block);
        delete block;
        expect_pair(window, 64);
    }
}

TEST_F(AllocCounter, ReallocIsAllocationAndFree) {
    const alloc_window window;
    void* block = std::realloc(nullptr, 40);
    do_not_optimize(block);
    EXPECT_EQ(window.counts().allocations, 1U);
    EXPECT_EQ(window.counts().frees, 0U);
    std::memset(block, 0x5a, 40);
    block = std::realloc(block, 4000);
    do_not_optimize(block);
    EXPECT_EQ(static_cast<unsigned char*>(block)[39], 0x5aU);
    EXPECT_EQ(window.counts().allocations, 2U);
    EXPECT_EQ(window.counts().frees, 1U);
    EXPECT_EQ(window.counts().requested_bytes, 4040U);
    EXPECT_GE(window.counts().live_bytes, 4000);
    std::free(block);
    EXPECT_EQ(window.counts().live_bytes, 0);
    volatile std::size_t half = SIZE_MAX / 2;
    EXPECT_EQ(reallocarray(nullptr, half, 3), nullptr);
    EXPECT_EQ(window.counts().allocations, 2U);
}

TEST_F(AllocCounter, SeesLibrariesAndOtherThreads) {
    const alloc_window window;
    std::thread other([] {
        std::vector<std::unique_ptr<char[]>> blocks;
        blocks.reserve(100);
        for (int i = 0; i < 100; ++i)
            blocks.push_back(std::make_unique<char[]>(1000));
    });
    other.join();
    char* copy = strdup("from within the C library");
    std::free(copy);
    EXPECT_GE(window.counts().allocations, 102U);
    EXPECT_GE(window.counts().requested_bytes, 100'000U);
}

TEST_F(AllocCounter, CountsOnlyInsideAWindow) {
    void* block = std::malloc(1000);
    do_not_optimize(block);
    alloc_counts counts;
    {
        const alloc_window outer;
        {
            const alloc_window inner;
            void* another = std::malloc(10);
            do_not_optimize(another);
            std::free(another);
            EXPECT_EQ(inner.counts().allocations, 1U);
        }
        std::free(block); // from before the window
        counts = outer.counts();
    }
    EXPECT_EQ(counts.allocations, 1U);
    EXPECT_EQ(counts.frees, 2U);
    EXPECT_LE(counts.live_bytes, -1000);
    const alloc_window later;
    EXPECT_EQ(later.counts().allocations, 0U);
}

TEST_F(AllocCounter, NothingAllocatedIsExactlyZero) {
    const alloc_window window;
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < 100'000; ++i) {
        sum += i;
        do_not_optimize(sum);
    }
    EXPECT_EQ(window.counts().allocations, 0U);
    EXPECT_EQ(window.counts().frees, 0U);
}

} // namespace
