// What a build for planted work does to a service. This file alone is compiled as such a build would be.
#ifndef TIMERBENCH_PLANT
#define TIMERBENCH_PLANT
#endif
#include "experiments/planted.hpp"

#include <gtest/gtest.h>

namespace timerbench::experiments {
namespace {

/// Takes some 150 ns for a pair, and remembers what it was asked for.
template <int>
struct slow_service {
    struct timer {
        explicit timer(slow_service&) {}
    };
    bool arm(timer&, duration d, callback) {
        ++arms;
        sum += d;
        sum += duration{chain_of_additions(400)};
        return true;
    }
    bool cancel(timer&) { return true; }
    void stop() { stopped = true; }

    int arms = 0;
    bool stopped = false;
    duration sum{};
};

const std::vector<std::string> services{"coarse_slot", "hashed_wheel/10ms"};

TEST(Plant, UnderstandsEveryKindOfWork) {
    plant_request p;
    EXPECT_EQ(parse_plant("coarse_slot:alloc", services, p), "");
    EXPECT_EQ(p.work, planted_work::alloc);
    EXPECT_EQ(p.service, "coarse_slot");
    EXPECT_EQ(parse_plant("hashed_wheel/10ms:clock", services, p), "");
    EXPECT_EQ(p.work, planted_work::clock);
    EXPECT_EQ(p.service, "hashed_wheel/10ms");
    EXPECT_EQ(parse_plant("coarse_slot:spin:12", services, p), "");
    EXPECT_EQ(p.work, planted_work::spin);
    EXPECT_EQ(p.steps, 12U);
    EXPECT_EQ(parse_plant("coarse_slot:percent:2.5", services, p), "");
    EXPECT_EQ(p.work, planted_work::percent);
    EXPECT_EQ(p.percent, 2.5);
}

TEST(Plant, SaysWhatIsWrong) {
    for (const std::string text :
         {"coarse_slot", "nonsense:alloc", ":alloc", "coarse_slot:", "coarse_slot:sleep",
          "coarse_slot:spin:", "coarse_slot:spin:-1", "coarse_slot:spin:1000001", "coarse_slot:percent:nan",
          "coarse_slot:percent:-2", "coarse_slot:percent:1001", "coarse_slot:alloc:1",
          "hashed_wheel:alloc"}) {
        plant_request p;
        EXPECT_NE(parse_plant(text, services, p), "") << text;
        EXPECT_EQ(p.work, planted_work::none) << text;
    }
}

TEST(Plant, WorkLeavesDurationsAndResultsAlone) {
    using service = planted<slow_service<0>>;
    for (const planted_work kind :
         {planted_work::none, planted_work::spin, planted_work::alloc, planted_work::clock}) {
        service s;
        service::timer t{s};
        service::plant(kind, 5, 1);
        for (int i = 0; i < 40; ++i) {
            EXPECT_TRUE(s.arm(t, duration{7}, callback{}));
        }
        EXPECT_EQ(s.arms, 40);
        EXPECT_EQ(s.sum, duration{7 * 40});
    }
}

TEST(Plant, PercentIsWhatWasAskedFor) {
    using service = planted<slow_service<1>>;
    plant_request p;
    ASSERT_EQ(parse_plant("coarse_slot:percent:20", services, p), "");
    // On a busy machine a search may fail to reach it; not every time.
    bool reached = false;
    for (int attempt = 0; attempt < 20 && !reached; ++attempt) {
        service s;
        plant_percent(s, p);
        EXPECT_TRUE(s.stopped);
        EXPECT_EQ(s.sum.count() % std::chrono::nanoseconds{std::chrono::seconds{1}}.count(), 0);
        reached = p.reached > 15 && p.reached < 25 && p.chain > 0;
    }
    EXPECT_TRUE(reached) << p.reached << " %, " << p.chain << " steps";
}

TEST(Plant, NothingIsPlantedUnlessAsked) {
    EXPECT_EQ(the_plant().work, planted_work::none);
    EXPECT_EQ(plant_json(), "nothing, in a build that could");
}

} // namespace
} // namespace timerbench::experiments
