// The reciprocal against the division that it stands for.
#include "timers/detail/tick_length.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace timerbench::detail {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

void agrees(std::int64_t length, std::int64_t t) {
    const tick_length ticks{duration{length}};
    ASSERT_EQ(ticks.whole(duration{t}), static_cast<std::uint64_t>(t / length)) << t << " / " << length;
    ASSERT_EQ(ticks.covering(duration{t}), static_cast<std::uint64_t>(t / length + (t % length > 0 ? 1 : 0)))
        << t << " / " << length;
}

TEST(tick_length, agrees_with_division_around_every_multiple) {
    for (const std::int64_t length :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{7}, std::int64_t{1'000},
          std::int64_t{1'000'000}, std::int64_t{10'000'000}, (std::int64_t{1} << 32) - 1,
          std::int64_t{1} << 32, most / 2, most - 1, most}) {
        std::vector<std::int64_t> multiples{
            0, 1, 2, 3, 1'000, most / length / 2, most / length - 1, most / length};
        for (const std::int64_t k : multiples) {
            if (k < 0 || k > most / length) {
                continue;
            }
            const std::int64_t exact = k * length;
            agrees(length, exact);
            agrees(length, exact == 0 ? 0 : exact - 1);
            agrees(length, exact == most ? most : exact + 1);
        }
        agrees(length, most);
    }
}

TEST(tick_length, agrees_with_division_at_random) {
    std::mt19937_64 random{1};
    for (int i = 0; i < 200'000; ++i) {
        const auto length = static_cast<std::int64_t>((random() >> 1 >> random() % 63) | 1);
        agrees(length, static_cast<std::int64_t>(random() >> 1 >> random() % 63));
    }
}

} // namespace
} // namespace timerbench::detail
