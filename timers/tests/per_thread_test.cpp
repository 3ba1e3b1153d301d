// One object per thread: whose it is when owners come and go, threads exit, and a thread turns from one owner to another.
#include "timers/detail/per_thread.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

namespace timerbench::detail {
namespace {

struct thing {
    int made = 0;
};

struct owner {
    thing& mine() {
        return things.local([this] {
            auto made = std::make_unique<thing>();
            made->made = ++count;
            return made;
        });
    }
    per_thread<thing> things;
    int count = 0;
};

TEST(per_thread, a_thread_finds_its_own_object_again) {
    owner one;
    thing& mine = one.mine();
    EXPECT_EQ(&one.mine(), &mine);
    EXPECT_TRUE(one.things.is_mine(&mine));
    std::thread{[&] {
        EXPECT_FALSE(one.things.is_mine(&mine));
        thing& other = one.mine();
        EXPECT_NE(&other, &mine);
        EXPECT_TRUE(one.things.is_mine(&other));
        EXPECT_FALSE(one.things.is_mine(&mine));
    }}.join();
    EXPECT_EQ(one.count, 2);
}

TEST(per_thread, owners_in_turn_keep_their_objects_apart) {
    owner one;
    owner two;
    thing& of_one = one.mine();
    thing& of_two = two.mine();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(&one.mine(), &of_one);
        EXPECT_FALSE(two.things.is_mine(&of_one));
        EXPECT_EQ(&two.mine(), &of_two);
        EXPECT_TRUE(one.things.is_mine(&of_one));
    }
    EXPECT_EQ(one.count + two.count, 2);
}

// A new owner at the same address is another owner.
TEST(per_thread, an_owner_that_is_gone_leaves_nothing_behind) {
    std::optional<owner> place;
    for (int i = 0; i < 4; ++i) {
        place.emplace();
        EXPECT_FALSE(place->things.is_mine(nullptr) && place->count != 0);
        EXPECT_EQ(place->mine().made, 1) << "the object of an owner before this one";
        EXPECT_EQ(place->count, 1);
    }
}

TEST(per_thread, the_next_thread_takes_over_what_an_exited_one_left) {
    owner one;
    one.mine();
    thing* left = nullptr;
    std::thread{[&] { left = &one.mine(); }}.join();
    std::thread{[&] {
        EXPECT_TRUE(one.things.is_mine(left));
        EXPECT_EQ(&one.mine(), left);
    }}.join();
    EXPECT_EQ(one.count, 2);
    EXPECT_FALSE(one.things.is_mine(left));
}

} // namespace
} // namespace timerbench::detail
