#include "experiments/waiting_cells.hpp"
#include "experiments/waiting_series.hpp"
#include "harness/forked.hpp"
#include "timers/locked_heap.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace timerbench::experiments {
namespace {

TEST(Rounds, AreAsManyAsTheEventsTake) {
    EXPECT_EQ(rounds_for(100, 1), 100U);
    EXPECT_EQ(rounds_for(100, 100), 1U);
    EXPECT_EQ(rounds_for(101, 100), 2U);
    EXPECT_EQ(rounds_for(100, 10'000), 1U);
    EXPECT_EQ(rounds_for(0, 10), 1U);
}

TEST(Timeouts, LieInTheirSpreadAtFewDifferentValues) {
    waiting_plan plan;
    plan.waits = 10'000;
    plan.shortest = 20ms;
    plan.spread = 64ms;
    std::vector<duration> all;
    for (std::size_t i = 0; i < plan.waits; ++i) {
        all.push_back(timeout_of(i, plan));
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all.front(), duration{20ms});
    EXPECT_EQ(all.back(), duration{83ms});
    EXPECT_EQ(std::unique(all.begin(), all.end()) - all.begin(), 64);
    plan.waits = 1;
    EXPECT_EQ(timeout_of(0, plan), duration{20ms});
}

TEST(ThreadCrew, SaysWhichThreadCouldNotBeMade) {
    thread_crew crew{2};
    const auto idle = [](void*) -> void* { return nullptr; };
    EXPECT_EQ(crew.add(idle, nullptr), "");
    EXPECT_EQ(crew.add(idle, nullptr), "");
    EXPECT_EQ(crew.add(idle, nullptr), "number 3 could not be made: at most 2 were allowed");
    EXPECT_EQ(crew.alive(), 2U);
    crew.join();
    EXPECT_EQ(crew.alive(), 0U);
    EXPECT_EQ(crew.add(idle, nullptr), "");
}

// In a process of its own: what it would do to this one's address space.
harness::forked_result in_child(const std::function<waiting_figures()>& measure) {
    return harness::run_in_child(
        [&measure]() -> std::string {
            try {
                return measure().to_json().dump();
            } catch (const cannot_measure& problem) {
                return "cannot: " + problem.why;
            }
        },
        std::chrono::minutes{1});
}

waiting_plan small(std::size_t waits) {
    waiting_plan plan;
    plan.waits = waits;
    plan.notified = 8;
    plan.timed_out = 8;
    plan.spread = 10ms;
    plan.idle = 5ms;
    plan.patience = 5s;
    return plan;
}

void expect_good(const harness::forked_result& r, std::size_t waits) {
    ASSERT_EQ(r.error, "");
    ASSERT_NE(r.output.substr(0, 6), "cannot") << r.output;
    const waiting_figures f = waiting_figures::from_json(harness::json::parse(r.output));
    EXPECT_EQ(f.wrong, "");
    EXPECT_EQ(f.missing, 0U);
    EXPECT_EQ(f.early, 0U);
    EXPECT_EQ(f.wake_up_us.size(), 8U);
    EXPECT_EQ(f.overshoot_ms.size(), rounds_for(8, waits) * waits);
    for (const double us : f.wake_up_us) {
        EXPECT_GT(us, 0);
    }
    EXPECT_GT(f.cpu_us, 0);
}

TEST(MeasureThreads, CountsEveryWait) {
    for (const std::size_t waits : {1U, 4U, 20U}) {
        const waiting_plan plan = small(waits);
        expect_good(in_child([&] { return measure_threads<condition_wait>(plan, false); }), waits);
        expect_good(in_child([&] { return measure_threads<condition_wait>(plan, true); }), waits);
        expect_good(in_child([&] { return measure_threads<future_wait>(plan, false); }), waits);
        expect_good(in_child([&] { return measure_threads<futex_wait<10>>(plan, false); }), waits);
    }
}

TEST(MeasureThreads, IsNoDisasterWhereThereAreTooFewThreads) {
    waiting_plan plan = small(20);
    plan.most_threads = 10;
    for (const bool fresh : {false, true}) {
        const auto r = in_child([&] { return measure_threads<condition_wait>(plan, fresh); });
        EXPECT_EQ(r.error, "");
        EXPECT_EQ(r.output, "cannot: of 20 threads number 11 could not be made: at most 10 were allowed");
    }
    plan = small(2'000);
    const auto r = in_child([&] {
        // Room for some dozens of stacks of 8 MiB.
        const rlimit room{.rlim_cur = 1U << 30U, .rlim_max = 1U << 30U};
        setrlimit(RLIMIT_AS, &room);
        return measure_threads<condition_wait>(plan, false);
    });
    EXPECT_EQ(r.error, "");
    EXPECT_NE(r.output.find("could not be made: Resource temporarily unavailable"), std::string::npos)
        << r.output;
}

struct heap_entry {
    using service = locked_heap<steady_time>;
    [[nodiscard]] static std::unique_ptr<service> make() { return std::make_unique<service>(steady()); }
};

TEST(MeasureService, CountsEveryWait) {
    for (const std::size_t waits : {1U, 4U, 20U}) {
        const waiting_plan plan = small(waits);
        expect_good(in_child([&] { return measure_service<heap_entry>(plan); }), waits);
    }
}

// A service that answers a tenth of a timeout too soon.
class hasty_service : public locked_heap<steady_time> {
  public:
    using base = locked_heap<steady_time>;
    using base::base;
    bool arm(timer& t, duration d, callback c) { return base::arm(t, d - d / 10, c); }
};
struct hasty_entry {
    using service = hasty_service;
    [[nodiscard]] static std::unique_ptr<service> make() { return std::make_unique<service>(steady()); }
};

TEST(MeasureService, SeesOneThatIsEarly) {
    const waiting_plan plan = small(4);
    const auto r = in_child([&] { return measure_service<hasty_entry>(plan); });
    ASSERT_EQ(r.error, "");
    EXPECT_GT(waiting_figures::from_json(harness::json::parse(r.output)).early, 0U);
}

TEST(Series, OneByOneLastsUpToNTimeouts) {
    const auto run = [](std::size_t n, answers a, bool one) { return series_on_manual_clock(n, 3s, a, one); };
    for (const std::size_t n : {1U, 100U, 10'000U}) {
        EXPECT_EQ(run(n, answers::none, false).lasted, n * duration{3s});
        EXPECT_EQ(run(n, answers::none, true).lasted, duration{3s});
        EXPECT_EQ(run(n, answers::none, false).answered, 0U);
        EXPECT_EQ(run(n, answers::just, false).lasted, n * duration{2'400ms});
        EXPECT_EQ(run(n, answers::just, false).answered, n);
        EXPECT_EQ(run(n, answers::just, true).lasted, n == 1 ? duration{2'400ms} : duration{3s});
        EXPECT_EQ(run(n, answers::just, true).answered, 1U);
        EXPECT_EQ(run(n, answers::all, false).lasted, duration{0s});
        EXPECT_EQ(run(n, answers::all, true).answered, n);
    }
}

TEST(Series, LastsNoLessForReal) {
    const series_result one_by_one = series_on_steady_clock(5, 10ms, answers::none, false);
    EXPECT_GE(one_by_one.lasted, duration{50ms});
    EXPECT_EQ(one_by_one.answered, 0U);
    const series_result one = series_on_steady_clock(5, 10ms, answers::none, true);
    EXPECT_GE(one.lasted, duration{10ms});
    EXPECT_EQ(wrong_length(10ms, one.lasted, 1s), "");
    EXPECT_EQ(series_on_steady_clock(5, 30s, answers::all, true).answered, 5U);
}

} // namespace
} // namespace timerbench::experiments
