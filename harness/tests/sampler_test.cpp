#include "harness/floor_costs.hpp"
#include "harness/interrupt.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"

#include <csignal>
#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace timerbench::harness;

namespace {

// Clocks that go only where the test puts them.
struct hands {
    std::int64_t wall = 1'000'000;
    std::int64_t thread_cpu = 500'000;
    std::int64_t process_cpu = 600'000;
    std::vector<double> clock_costs; // handed out in turn, then 25
    double empty_loop = 0.5;

    void work(std::int64_t wall_ns, std::int64_t thread_ns, std::int64_t others_ns = 0) {
        wall += wall_ns;
        thread_cpu += thread_ns;
        process_cpu += thread_ns + others_ns;
    }
};

class set_by_hand final : public time_source {
  public:
    explicit set_by_hand(hands& clock) : clock_(clock) {}
    std::int64_t wall_ns() override { return clock_.wall; }
    std::int64_t thread_cpu_ns() override { return clock_.thread_cpu; }
    std::int64_t process_cpu_ns() override { return clock_.process_cpu; }
    double clock_cost_ns() override {
        if (clock_.clock_costs.empty())
            return 25;
        const double cost = clock_.clock_costs.front();
        clock_.clock_costs.erase(clock_.clock_costs.begin());
        return cost;
    }
    double empty_loop_ns() override { return clock_.empty_loop; }

  private:
    hands& clock_;
};

sampler_options plain() {
    return {.seed = 1, .warm_up_rounds = 0, .warm_up_batches = 0, .batches_per_visit = 1, .progress = false};
}

struct fixture {
    hands clock;
    sampler samples;
    explicit fixture(sampler_options settings = plain())
        : samples(settings, std::make_unique<set_by_hand>(clock)) {}

    [[nodiscard]] std::map<std::string, row> rows() const {
        std::map<std::string, row> found;
        for (const auto& one : samples.rows())
            found[one.service + ":" + one.metric] = one;
        return found;
    }
};

cell make(const std::string& service, std::function<void(visit&)> run, std::vector<std::string> names = {}) {
    cell result;
    result.service = service;
    result.case_point = {{"population", 0}};
    result.run = std::move(run);
    result.metrics = std::move(names);
    return result;
}

TEST(Sampler, ThreeColumnsPerOperation) {
    fixture f;
    f.clock.clock_costs = {20, 30};
    f.samples.run({make("a",
                        [&](visit& v) {
                            // 1 000 operations: 200 us in the caller; the driver spends 40 us; draining costs another 10 us of
                            // this thread and 500 us of waiting.
                            const auto result = v.sample(
                                metrics("op"), 1000, [&] { f.clock.work(200'000, 190'000, 40'000); },
                                [&] { f.clock.work(500'000, 10'000); });
                            EXPECT_TRUE(result.ok);
                            EXPECT_DOUBLE_EQ(result.wall_ns, 200);
                        })},
                  1);
    auto rows = f.rows();
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows["a:op"].samples, std::vector<double>{200});
    EXPECT_EQ(rows["a:op"].unit, "ns/op");
    EXPECT_EQ(rows["a:op_cpu"].samples, std::vector<double>{190});
    EXPECT_EQ(rows["a:op_rest_cpu"].samples, std::vector<double>{50}) << "other threads and the drain";
    EXPECT_EQ(rows["a:op"].clock_ns, std::vector<double>{25}) << "mean of the neighbours on both sides";
    EXPECT_EQ(rows["a:op"].note, "");
}

TEST(Sampler, RatioToTheClockBesideEachSample) {
    fixture f;
    f.clock.clock_costs = {20, 20, 40, 40}; // the machine halves its speed between the two visits
    f.samples.run({make("a",
                        [&](visit& v) {
                            v.sample(wall_only("op"), 1000,
                                     [&] { f.clock.work(v.index() == 0 ? 200'000 : 400'000, 1); });
                        })},
                  2);
    const auto summary = summarise(f.rows()["a:op"], 1).value();
    EXPECT_DOUBLE_EQ(summary.max / summary.min, 2.0);
    EXPECT_DOUBLE_EQ(summary.clock_ratio->p50, 10.0);
    EXPECT_EQ(summary.clock_ratio->ci95, (interval{10.0, 10.0}));
}

TEST(Sampler, RefusesDurationsThatAreNotPositive) {
    for (const std::int64_t bad : {0, -5000}) {
        fixture f;
        int visits = 0;
        f.samples.run({make("a",
                            [&](visit& v) {
                                ++visits;
                                EXPECT_FALSE(v.sample(metrics("op"), 10, [&] { f.clock.wall += bad; }).ok);
                            },
                            {"op"})},
                      3);
        auto rows = f.rows();
        ASSERT_EQ(rows.size(), 1U);
        EXPECT_TRUE(rows["a:op"].samples.empty());
        EXPECT_NE(rows["a:op"].error.find(std::to_string(bad) + " ns of wall time"), std::string::npos)
            << rows["a:op"].error;
        EXPECT_EQ(visits, 1) << "not visited again";
    }
    fixture cpu;
    cpu.samples.run(
        {make("a", [&](visit& v) { v.sample(metrics("op"), 10, [&] { cpu.clock.work(200'000, -1); }); })}, 1);
    EXPECT_NE(cpu.samples.rows().at(0).error.find("of CPU time"), std::string::npos);
    fixture rest;
    rest.samples.run({make("a",
                           [&](visit& v) {
                               v.sample(metrics("op"), 10, [&] { rest.clock.work(200'000, 5000, -4000); });
                           })},
                     1);
    EXPECT_NE(rest.samples.rows().at(0).error.find("rest of the process"), std::string::npos);
    fixture none;
    none.samples.run(
        {make("a", [&](visit& v) { v.sample(metrics("op"), 0, [&] { none.clock.work(200'000, 5000); }); })},
        1);
    EXPECT_EQ(none.samples.rows().at(0).error, "a batch of 0 operations");
}

TEST(Sampler, WrongCountMakesAnErrorWithoutATime) {
    fixture f;
    f.samples.run({make("a",
                        [&](visit& v) {
                            v.sample(metrics("op"), 10, [&] { f.clock.work(200'000, 200'000); });
                            v.value("backlog", "entries", 3);
                            if (v.index() == 2)
                                v.fail("cancelled 9 of 10");
                        })},
                  5);
    const auto rows = f.samples.rows();
    ASSERT_EQ(rows.size(), 4U);
    for (const auto& one : rows) {
        EXPECT_EQ(one.error, "cancelled 9 of 10");
        EXPECT_TRUE(one.samples.empty());
        EXPECT_TRUE(one.clock_ns.empty());
    }
}

TEST(Sampler, ExceptionsAndSilenceAreErrors) {
    fixture f;
    f.samples.run({make("throws", [](visit&) { throw std::runtime_error("no memory"); }),
                   make("silent", [](visit&) {}), make("empty", nullptr)},
                  2);
    auto rows = f.rows();
    EXPECT_EQ(rows["throws:all"].error, "exception: no memory");
    EXPECT_EQ(rows["silent:all"].error, "took no sample");
    EXPECT_EQ(rows["empty:all"].error, "the cell has nothing to run");
}

TEST(Sampler, SkipsSayWhyForEveryMetric) {
    fixture f;
    f.samples.run({make("a", [](visit& v) { v.skip("takes no injected clock"); }, {"arm", "cancel"}),
                   make("b",
                        [&](visit& v) {
                            v.sample(wall_only("arm"), 10, [&] { f.clock.work(200'000, 1); });
                            v.skip_metric("cancel", "nothing to cancel");
                        })},
                  2);
    auto rows = f.rows();
    EXPECT_EQ(rows["a:arm"].skipped, "takes no injected clock");
    EXPECT_EQ(rows["a:cancel"].skipped, "takes no injected clock");
    EXPECT_EQ(rows["b:arm"].samples.size(), 2U);
    EXPECT_EQ(rows["b:cancel"].skipped, "nothing to cancel");
}

TEST(Sampler, WarmUpIsThrownAwayAndTheFirstPassKept) {
    auto settings = plain();
    settings.warm_up_rounds = 1;
    settings.warm_up_batches = 2;
    settings.batches_per_visit = 3;
    fixture f(settings);
    int batch = 0;
    f.samples.run({make("a",
                        [&](visit& v) {
                            while (v.next()) {
                                ++batch;
                                v.sample(wall_only("op"), 1000,
                                         [&] { f.clock.work(100'000 + 1000 * batch, 1); });
                            }
                        })},
                  2);
    // 2 batches in the warm-up round, then twice 2 + 3.
    EXPECT_EQ(batch, 12);
    const auto rows = f.samples.rows();
    EXPECT_EQ(rows.at(0).samples, (std::vector<double>{105, 106, 107, 110, 111, 112}));
    EXPECT_EQ(rows.at(0).first_pass, 101.0);
    EXPECT_EQ(rows.at(0).visit_index, (std::vector<std::uint32_t>{0, 0, 0, 1, 1, 1}));
}

TEST(Sampler, VisitsEveryCellOnceARoundInFreshOrder) {
    const auto visits_with = [](std::uint64_t seed) {
        auto settings = plain();
        settings.seed = seed;
        fixture f(settings);
        std::string order;
        std::vector<cell> cells;
        for (const char name : {'a', 'b', 'c', 'd', 'e'})
            cells.push_back(make(std::string(1, name), [&order, &f, name](visit& v) {
                order += name;
                v.sample(wall_only("op"), 10, [&] { f.clock.work(200'000, 1); });
            }));
        f.samples.run(cells, 8);
        return order;
    };
    const std::string order = visits_with(7);
    ASSERT_EQ(order.size(), 40U);
    std::set<std::string> different;
    for (std::size_t i = 0; i < order.size(); i += 5) {
        std::string round = order.substr(i, 5);
        different.insert(round);
        std::sort(round.begin(), round.end());
        EXPECT_EQ(round, "abcde");
    }
    EXPECT_GE(different.size(), 5U);
    EXPECT_EQ(order, visits_with(7)) << "the same seed gives the same order";
    EXPECT_NE(order, visits_with(8));
}

TEST(Sampler, ScriptSeedsAreEqualForAllServices) {
    fixture f;
    std::map<std::uint32_t, std::set<std::uint64_t>> seeds;
    const auto note_seed = [&](visit& v) {
        seeds[v.index()].insert(v.seed());
        v.value("x", "", 1);
    };
    f.samples.run({make("a", note_seed), make("b", note_seed)}, 4);
    std::set<std::uint64_t> all;
    for (const auto& [index, set] : seeds) {
        EXPECT_EQ(set.size(), 1U) << index;
        all.insert(set.begin(), set.end());
    }
    EXPECT_EQ(all.size(), 4U) << "and differ from visit to visit";
}

TEST(Sampler, ShortBatchesAreMarked) {
    fixture f;
    f.samples.run(
        {make("a", [&](visit& v) { v.sample(wall_only("op"), 10, [&] { f.clock.work(52'100, 1); }); })}, 1);
    EXPECT_EQ(f.samples.rows().at(0).note,
              "batches shorter than 100 us (shortest 52.1 us): the clock's own cost shows");
}

TEST(Sampler, OptimisedAwayIsAnErrorExceptOnTheFloor) {
    fixture f;
    const auto costing = [&](double ns) {
        return [&f, ns](visit& v) {
            v.sample(wall_only("op"), 1'000'000,
                     [&] { f.clock.work(static_cast<std::int64_t>(ns * 1e6), 1); });
        };
    };
    auto floor = make("floor/empty_loop", costing(0.5));
    floor.floor = true;
    f.samples.run(
        {make("gone", costing(0.14)), make("loop", costing(0.53)), make("fine", costing(0.6)), floor}, 1);
    auto rows = f.rows();
    EXPECT_EQ(rows["gone:op"].error, "optimised away: 0.140 ns is less than a processor cycle (0.20 ns)");
    EXPECT_EQ(rows["loop:op"].error, "optimised away: 0.530 ns is the cost of an empty loop (0.500 ns)");
    EXPECT_EQ(rows["fine:op"].error, "");
    EXPECT_EQ(rows["floor/empty_loop:op"].error, "");
}

TEST(Sampler, BurstsAreTimedWithoutTheirPauses) {
    fixture f;
    f.samples.run({make("a",
                        [&](visit& v) {
                            v.sample_bursts(
                                metrics("op"), 10, 100, [&] { f.clock.work(20'000, 18'000, 3'000); },
                                [&] { f.clock.work(1'000, 500); },
                                [&] { f.clock.work(900'000, 7'000, 2'000); });
                        })},
                  1);
    auto rows = f.rows();
    EXPECT_DOUBLE_EQ(rows["a:op"].samples.at(0), 200);
    EXPECT_DOUBLE_EQ(rows["a:op_cpu"].samples.at(0), 180);
    // 3 000 beside the burst + 500 of drain on this thread + 2 000 of the driver during the pause; not the pause itself.
    EXPECT_DOUBLE_EQ(rows["a:op_rest_cpu"].samples.at(0), 55);
}

TEST(Sampler, ValuesEventsNotesAndChecks) {
    fixture f;
    const auto run = [&](const std::string& service) {
        return make(service, [&, service](visit& v) {
            v.value("backlog", "entries", v.index());
            v.events("lateness", "ms", std::vector<double>{-0.5, 1, 2});
            v.note("backlog", "saturated");
            v.note("backlog", "saturated");
            v.check("sums agree", !(service == "b" && v.index() == 1), "3 = " + std::to_string(v.index()));
        });
    };
    f.samples.run({run("a"), run("b")}, 3);
    auto rows = f.rows();
    EXPECT_EQ(rows["a:backlog"].samples, (std::vector<double>{0, 1, 2}));
    EXPECT_EQ(rows["a:backlog"].note, "saturated");
    EXPECT_TRUE(rows["a:lateness"].single_events);
    EXPECT_EQ(rows["a:lateness"].samples.size(), 9U);
    const auto checks = f.samples.checks();
    ASSERT_EQ(checks.size(), 2U);
    for (const auto& one : checks)
        EXPECT_EQ(one.ok, one.service == "a") << one.service;
    EXPECT_EQ(checks.at(checks[0].service == "b" ? 0 : 1).detail, "population=0: 3 = 1")
        << "the failing visit's detail";

    fixture bad;
    bad.samples.run({make("a", [](visit& v) { v.value("x", "", std::nan("")); })}, 1);
    EXPECT_EQ(bad.samples.rows().at(0).error, "a value that is not finite");
}

TEST(Sampler, TwoCellsOfOnePlaceFailACheck) {
    fixture f;
    const auto one = make("a", [](visit& v) { v.value("x", "", 1); });
    f.samples.run({one, one}, 2);
    EXPECT_EQ(f.samples.rows().at(0).samples.size(), 2U) << "not sampled twice";
    ASSERT_EQ(f.samples.checks().size(), 1U);
    EXPECT_FALSE(f.samples.checks()[0].ok);
}

TEST(Sampler, InterruptEndsTheRunBetweenBatches) {
    const interrupt_guard guard;
    auto settings = plain();
    settings.batches_per_visit = 10;
    fixture f(settings);
    int batches = 0;
    const auto cell = make("a", [&](visit& v) {
        while (v.next()) {
            v.sample(wall_only("op"), 10, [&] { f.clock.work(200'000, 1); });
            if (++batches == 3)
                std::raise(SIGINT);
        }
    });
    EXPECT_FALSE(f.samples.run({cell}, 5));
    EXPECT_EQ(batches, 3);
    EXPECT_FALSE(f.samples.visit_once(cell, false));
    EXPECT_EQ(batches, 3) << "no visit after the signal";
}

TEST(Sampler, OrderEffectAndComparisonUseNeighbours) {
    fixture f;
    // b costs twice a's time; the machine's speed drifts; whoever comes second in a round pays 10 % more.
    std::uint32_t order = 0;
    const auto costing = [&](const std::string& service, double ns) {
        return make(service, [&, ns](visit& v) {
            const double drift = 1 + 0.5 * (v.index() % 7);
            const double second = order++ % 2 == 1 ? 1.1 : 1.0;
            f.clock.clock_costs = {25 * drift, 25 * drift};
            v.sample(wall_only("op"), 1000,
                     [&] { f.clock.work(static_cast<std::int64_t>(1000 * ns * drift * second), 1); });
        });
    };
    f.samples.run({costing("a", 200), costing("b", 400)}, 40);
    const auto rows = f.rows();
    const auto ratio = compare_rows(rows.at("b:op"), rows.at("a:op"), 1).value();
    EXPECT_EQ(ratio.n, 40U);
    EXPECT_NEAR(ratio.p50, 2.0, 0.25);
    EXPECT_EQ(judge(ratio, 0.15), verdict::more);
    const auto orders = compare_orders(rows.at("b:op"), rows.at("a:op")).value();
    EXPECT_EQ(orders.n_a_first + orders.n_b_first, 40U);
    EXPECT_NEAR(orders.a_first, 2 / 1.1, 0.01);
    EXPECT_NEAR(orders.b_first, 2 * 1.1, 0.01);
    EXPECT_NEAR(compare_rows(rows.at("a:op"), rows.at("a:op"), 1)->p50, 1.0, 1e-12);
}

class counted_driver final : public batch_driver {
  public:
    bool more() override { return left-- > 0; }
    void done(double seconds) override { durations.push_back(seconds); }
    void stopped(const std::string& why) override { reason = why; }
    int left = 4;
    std::vector<double> durations;
    std::string reason;
};

TEST(Sampler, CanBeDrivenFromOutside) {
    auto settings = plain();
    settings.warm_up_batches = 1;
    fixture f(settings);
    counted_driver driver;
    const auto cell = make("a", [&](visit& v) {
        while (v.next())
            v.sample(wall_only("op"), 1000, [&] { f.clock.work(150'000, 1); });
    });
    EXPECT_TRUE(f.samples.visit_once(cell, true));
    EXPECT_TRUE(f.samples.visit_once(cell, false, &driver));
    ASSERT_EQ(driver.durations.size(), 4U) << "the warm-up batch is not told";
    for (const double seconds : driver.durations)
        EXPECT_NEAR(seconds, 150e-6, 1e-12);
    EXPECT_EQ(driver.reason, "");
    EXPECT_EQ(f.samples.rows().at(0).samples.size(), 4U);

    counted_driver broken;
    EXPECT_TRUE(f.samples.visit_once(make("b", [](visit& v) { v.fail("wrong count"); }), false, &broken));
    EXPECT_EQ(broken.reason, "wrong count");
    counted_driver again;
    EXPECT_TRUE(f.samples.visit_once(make("b", [](visit&) {}), false, &again));
    EXPECT_EQ(again.reason, "wrong count") << "a failed cell is not run again";
    counted_driver untimed;
    f.samples.visit_once(make("c",
                              [&](visit& v) {
                                  while (v.next()) {
                                      f.clock.work(30'000, 1);
                                      v.value("x", "", 1);
                                  }
                              }),
                         false, &untimed);
    ASSERT_EQ(untimed.durations.size(), 4U);
    EXPECT_NEAR(untimed.durations[0], 30e-6, 1e-12)
        << "batches without a timed part last as long as they last";
}

// On the real clocks: what is busy costs CPU in the right column.
TEST(Sampler, RealClocksBookTheRightColumn) {
    const auto burn = [](std::int64_t ns) {
        const std::int64_t end = thread_cpu_ns() + ns;
        while (thread_cpu_ns() < end) {}
    };
    sampler samples(plain());
    samples.run({make("a",
                      [&](visit& v) {
                          v.sample(
                              metrics("op"), 1, [&] { burn(20'000'000); },
                              [&] {
                                  std::thread helper([&] { burn(30'000'000); });
                                  helper.join();
                                  burn(10'000'000);
                              });
                      })},
                1);
    std::map<std::string, row> rows;
    for (auto& one : samples.rows())
        rows[one.metric] = one;
    ASSERT_EQ(rows["op"].error, "");
    EXPECT_NEAR(rows["op_cpu"].samples.at(0), 20e6, 2e6);
    EXPECT_NEAR(rows["op_rest_cpu"].samples.at(0), 40e6, 8e6);
    EXPECT_GE(rows["op"].samples.at(0), 20e6 * 0.99);
}

// Busy 2 ms of CPU per operation on 1, 2 and 4 threads: CPU per operation stays, and wall per thread never shrinks.
TEST(Sampler, TeamTimesAreNotDividedByThreads) {
    for (const unsigned threads : {1U, 2U, 4U}) {
        thread_team team(threads);
        sampler samples(plain());
        samples.run({make("a",
                          [&](visit& v) {
                              v.sample_threads(metrics("op"), team, 3, [](unsigned) {
                                  for (int i = 0; i < 3; ++i) {
                                      const std::int64_t end = thread_cpu_ns() + 2'000'000;
                                      while (thread_cpu_ns() < end) {}
                                  }
                              });
                          })},
                    1);
        std::map<std::string, row> rows;
        for (auto& one : samples.rows())
            rows[one.metric] = one;
        ASSERT_EQ(rows["op"].error, "");
        EXPECT_NEAR(rows["op_cpu"].samples.at(0), 2e6, 0.4e6) << threads;
        EXPECT_GE(rows["op"].samples.at(0), 2e6 * 0.99) << threads;
        EXPECT_GT(rows["op_rate"].samples.at(0), 0) << threads;
        EXPECT_EQ(rows["op_rate"].unit, "op/s");
    }
}

TEST(ThreadTeam, RunsEachIndexOnceAndPassesExceptionsOn) {
    thread_team team(3);
    EXPECT_EQ(team.size(), 3U);
    for (int round = 0; round < 50; ++round) {
        std::vector<int> calls(3);
        const auto times = team.run([&](unsigned index) { ++calls[index]; });
        EXPECT_EQ(calls, (std::vector<int>{1, 1, 1}));
        EXPECT_EQ(times.size(), 3U);
    }
    EXPECT_THROW(team.run([](unsigned index) {
        if (index == 1)
            throw std::runtime_error("one of them");
    }),
                 std::runtime_error);
    EXPECT_EQ(team.run([](unsigned) {}).size(), 3U) << "usable afterwards";
}

TEST(FloorCosts, AreMeasuredAndPlausible) {
    auto settings = plain();
    settings.batches_per_visit = 2;
    sampler samples(settings);
    EXPECT_TRUE(samples.run(floor_cells("cost"), 3));
    std::map<std::string, double> best;
    for (const auto& one : samples.rows()) {
        EXPECT_EQ(one.error, "") << one.service;
        EXPECT_EQ(one.samples.size(), 6U) << one.service;
        best[one.service] = minimum(one.samples).value_or(0);
    }
    ASSERT_EQ(best.size(), 5U);
    for (const auto& [service, ns] : best) {
        EXPECT_GT(ns, 0.05) << service;
        EXPECT_LT(ns, 20'000) << service;
    }
    EXPECT_GT(best["floor/steady_clock"], 2 * best["floor/empty_loop"])
        << "the work must not be optimised away";
    EXPECT_GT(best["floor/mutex"], 1.5 * best["floor/empty_loop"]);
    EXPECT_GT(best["floor/malloc"], 1.5 * best["floor/empty_loop"]);
}

} // namespace
