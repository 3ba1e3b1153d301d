// The hierarchical wheel against an ordered map, over random scripts with all distances and jumps.
#include "timers/detail/tick_wheel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace timerbench::detail {
namespace {

struct node : list_link {
    std::uint64_t tick = 0;
    std::uint64_t want = 0;
};
using wheel = tick_wheel<node>;

std::uint64_t random_distance(std::mt19937_64& random) {
    // Each magnitude up to beyond the last level equally often, and exact level spans in particular.
    const unsigned bits = static_cast<unsigned>(random() % 40);
    const std::uint64_t span = std::uint64_t{1} << bits;
    switch (random() % 4) {
    case 0:
        return span;
    case 1:
        return span - 1;
    default:
        return random() % span + 1;
    }
}

TEST(tick_wheel, insert_tells_when_the_wheel_must_advance_because_of_the_node) {
    std::mt19937_64 random{7};
    for (int i = 0; i < 2'000; ++i) {
        auto w = std::make_unique<wheel>();
        w->advance(random_distance(random));
        node n;
        const std::uint64_t event = w->insert(n, w->now() + random_distance(random));
        ASSERT_EQ(w->next_event(), std::optional{event});
        ASSERT_LE(event, n.tick);
        w->remove(n);
    }
}

TEST(tick_wheel, agrees_with_an_ordered_map) {
    for (unsigned seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random{seed};
        auto w = std::make_unique<wheel>();
        std::deque<node> nodes(300);
        std::multimap<std::uint64_t, node*> model;
        for (int step = 0; step < 3'000; ++step) {
            node& n = nodes[random() % nodes.size()];
            if (n.linked()) {
                const auto [first, last] = model.equal_range(n.want);
                for (auto at = first; at != last; ++at) {
                    if (at->second == &n) {
                        model.erase(at);
                        break;
                    }
                }
                w->remove(n);
            } else {
                n.want = w->now() + std::max<std::uint64_t>(random_distance(random), 1);
                w->insert(n, n.want);
                model.emplace(n.want, &n);
            }
            if (random() % 3 == 0) {
                const std::uint64_t to = w->now() + random_distance(random);
                if (const auto next = w->next_event(); next && !model.empty()) {
                    ASSERT_LE(*next, model.begin()->first);
                    ASSERT_GT(*next, w->now());
                } else {
                    ASSERT_TRUE(model.empty());
                }
                w->advance(to);
                ASSERT_EQ(w->now(), to);
                std::uint64_t before = 0;
                while (node* due = w->pop_due()) {
                    ASSERT_LE(due->want, to);
                    ASSERT_GE(due->want, before);
                    before = due->want;
                    ASSERT_FALSE(model.empty());
                    ASSERT_EQ(model.begin()->first, due->want);
                    const auto [first, last] = model.equal_range(due->want);
                    for (auto at = first; at != last; ++at) {
                        if (at->second == due) {
                            model.erase(at);
                            break;
                        }
                    }
                }
                ASSERT_TRUE(model.empty() || model.begin()->first > to);
            }
            if (step % 100 == 0) {
                ASSERT_EQ(w->count(), model.size());
            }
        }
        ASSERT_EQ(w->count(), model.size());
        w->expire_all();
        std::size_t rest = 0;
        while (w->pop_due() != nullptr) {
            ++rest;
        }
        ASSERT_EQ(rest, model.size());
    }
}

TEST(tick_wheel, a_node_is_served_at_its_very_tick) {
    for (const std::uint64_t start :
         {0ULL, 1ULL, 4'095ULL, 4'096ULL, 1'048'575ULL, 1ULL << 28, (1ULL << 36) - 1}) {
        for (const std::uint64_t distance :
             {1ULL, 4'095ULL, 4'096ULL, 4'097ULL, (1ULL << 20) - 1, 1ULL << 20, (1ULL << 20) + 1, 1ULL << 28,
              (1ULL << 36) - 1, 1ULL << 36, (1ULL << 37) + 5}) {
            auto w = std::make_unique<wheel>();
            w->advance(start);
            node n;
            w->insert(n, start + distance);
            w->advance(start + distance - 1);
            ASSERT_FALSE(w->has_due()) << start << " " << distance;
            w->advance(start + distance);
            ASSERT_EQ(w->pop_due(), &n) << start << " " << distance;
        }
    }
}

TEST(tick_wheel, a_tick_of_the_past_is_served_next) {
    auto w = std::make_unique<wheel>();
    w->advance(100);
    node n;
    w->insert(n, 7);
    w->advance(100);
    EXPECT_FALSE(w->has_due());
    w->advance(101);
    EXPECT_EQ(w->pop_due(), &n);
}

TEST(tick_wheel, the_driver_is_woken_once_for_each_level_on_the_way_down) {
    auto w = std::make_unique<wheel>();
    node n;
    w->insert(n, 5'000'000); // level 2, then 1, then 0
    int events = 0;
    while (const auto next = w->next_event()) {
        ++events;
        w->advance(*next);
        if (w->pop_due() == &n) {
            EXPECT_EQ(w->now(), 5'000'000U);
        }
    }
    EXPECT_LE(events, 3);
}

TEST(tick_wheel, removed_nodes_leave_no_event_behind) {
    auto w = std::make_unique<wheel>();
    node near;
    node far;
    w->insert(near, 10);
    w->insert(far, 100'000);
    w->remove(near);
    EXPECT_GT(w->next_event().value(), 4'096U);
    w->remove(far);
    EXPECT_FALSE(w->next_event().has_value());
}

} // namespace
} // namespace timerbench::detail
