// When another attempt is made, and after which wait.
#include "timers/retry.hpp"

#include "timers/tests/after/support.hpp"

#include <cmath>
#include <limits>
#include <set>

namespace timerbench::testing {
namespace {

constexpr time_point start{std::chrono::hours{12}};
constexpr retry_policy patient{.idempotent = true,
                               .most_attempts = 5,
                               .first_backoff = 10ms,
                               .longest_backoff = 50ms,
                               .minimum_attempt = 0ms};

TEST(retries, of_what_is_not_idempotent_are_not_made) {
    retry_policy policy = patient;
    policy.idempotent = false;
    retry_budget budget{5, 1, 10};
    retry_run run{policy, deadline::none(), 1, &budget};
    ASSERT_TRUE(run.begin(start));
    EXPECT_EQ(run.failed(true, start), std::nullopt);
    EXPECT_EQ(run.end(), retry_end::not_idempotent);
    EXPECT_FALSE(run.begin(start));
    EXPECT_EQ(run.attempts(), 1);
    EXPECT_EQ(budget.tokens(), 5);
    EXPECT_FALSE(retry_policy{}.idempotent);
}

TEST(retries, of_other_errors_are_not_made) {
    retry_run run{patient, deadline::none(), 1};
    ASSERT_TRUE(run.begin(start));
    EXPECT_EQ(run.failed(false, start), std::nullopt);
    EXPECT_EQ(run.end(), retry_end::not_retryable);
}

TEST(retries, end_at_the_cap) {
    retry_run run{patient, deadline::none(), 1};
    for (int i = 1; i <= 5; ++i) {
        ASSERT_TRUE(run.begin(start));
        EXPECT_EQ(run.attempts(), i);
        EXPECT_EQ(run.failed(true, start).has_value(), i < 5);
    }
    EXPECT_EQ(run.end(), retry_end::attempts);
    EXPECT_FALSE(run.begin(start));
}

TEST(retries, that_do_not_start_give_their_token_back) {
    retry_budget budget{1, 0.1, 10};
    retry_run late{patient, deadline::at(start + 100ms), 1, &budget};
    ASSERT_TRUE(late.begin(start));
    ASSERT_TRUE(late.failed(true, start + 1ms).has_value());
    EXPECT_EQ(budget.tokens(), 0);
    EXPECT_FALSE(late.begin(start + 200ms)) << "the wait took too long";
    EXPECT_EQ(budget.tokens(), 1);
    late.stop();
    EXPECT_EQ(budget.tokens(), 1) << "once";

    retry_run stopped{patient, deadline::none(), 1, &budget};
    ASSERT_TRUE(stopped.begin(start));
    ASSERT_TRUE(stopped.failed(true, start).has_value());
    stopped.stop();
    EXPECT_EQ(budget.tokens(), 1);

    retry_run made{patient, deadline::none(), 1, &budget};
    ASSERT_TRUE(made.begin(start));
    ASSERT_TRUE(made.failed(true, start).has_value());
    ASSERT_TRUE(made.begin(start));
    made.stop();
    EXPECT_EQ(budget.tokens(), 0) << "the retry was made";
}

TEST(retries, that_are_given_up_without_a_word_give_their_token_back) {
    retry_budget budget{1, 0, 10};
    {
        retry_run run{patient, deadline::none(), 1, &budget};
        ASSERT_TRUE(run.begin(start));
        ASSERT_TRUE(run.failed(true, start).has_value());
        EXPECT_EQ(budget.tokens(), 0);
    }
    EXPECT_EQ(budget.tokens(), 1);
    const auto fails = [](int) { return 0; };
    const auto says = [](int) { return verdict::retry; };
    const auto throws = [](duration) { throw std::runtime_error{"interrupted"}; };
    EXPECT_THROW((void)retry(patient, deadline::none(), 1, &budget, fails, says, throws), std::runtime_error);
    EXPECT_EQ(budget.tokens(), 1) << "the pause threw, and no retry was made";
    {
        retry_run run{patient, deadline::none(), 1, &budget};
        ASSERT_TRUE(run.begin(start));
        ASSERT_TRUE(run.failed(true, start).has_value());
        ASSERT_TRUE(run.begin(start));
    }
    EXPECT_EQ(budget.tokens(), 0) << "the retry was made";
}

TEST(retries, that_are_over_or_not_begun_earn_and_cost_nothing) {
    retry_budget budget{0, 1, 10};
    retry_run run{patient, deadline::at(start + 1s), 1, &budget};
    EXPECT_EQ(run.failed(true, start), std::nullopt);
    run.succeeded();
    EXPECT_EQ(run.end(), retry_end::running);
    ASSERT_TRUE(run.begin(start));
    run.succeeded();
    run.succeeded();
    EXPECT_EQ(budget.tokens(), 1);
    retry_run late{patient, deadline::at(start), 1, &budget};
    ASSERT_FALSE(late.begin(start));
    late.succeeded();
    EXPECT_EQ(late.end(), retry_end::deadline);
    EXPECT_EQ(budget.tokens(), 1);
    EXPECT_THROW((retry_budget{0, 0.0001, 10}), std::invalid_argument);
}

TEST(retries, end_with_a_success) {
    retry_budget budget{0, 0.5, 10};
    retry_run run{patient, deadline::none(), 1, &budget};
    ASSERT_TRUE(run.begin(start));
    run.succeeded();
    EXPECT_EQ(run.end(), retry_end::success);
    EXPECT_FALSE(run.begin(start));
    EXPECT_EQ(budget.tokens(), 0.5);
}

TEST(retries, wait_longer_and_longer_with_full_jitter) {
    std::vector<duration> least(4, 1h);
    std::vector<duration> most(4, 0s);
    std::vector<double> sum(4, 0);
    constexpr int runs = 4'000;
    for (int seed = 0; seed < runs; ++seed) {
        retry_run run{patient, deadline::none(), static_cast<std::uint64_t>(seed)};
        for (std::size_t i = 0; i < 4; ++i) {
            ASSERT_TRUE(run.begin(start));
            const std::optional<duration> wait = run.failed(true, start);
            ASSERT_TRUE(wait.has_value());
            least[i] = std::min(least[i], *wait);
            most[i] = std::max(most[i], *wait);
            sum[i] += std::chrono::duration<double, std::milli>(*wait).count();
        }
    }
    const std::vector<duration> bound{10ms, 20ms, 40ms, 50ms};
    for (std::size_t i = 0; i < 4; ++i) {
        const auto ms = std::chrono::duration<double, std::milli>(bound[i]).count();
        EXPECT_GE(least[i], 0ms);
        EXPECT_LT(least[i], bound[i] / 50);
        EXPECT_LE(most[i], bound[i]);
        EXPECT_GT(most[i], bound[i] - bound[i] / 50);
        EXPECT_NEAR(sum[i] / runs, ms / 2, ms / 25);
    }
}

std::vector<duration> waits_of(std::uint64_t seed) {
    std::vector<duration> waits;
    retry_run run{patient, deadline::none(), seed};
    while (run.begin(start)) {
        if (const auto wait = run.failed(true, start)) {
            waits.push_back(*wait);
        }
    }
    return waits;
}

TEST(retries, without_a_first_wait_never_wait) {
    retry_policy policy = patient;
    policy.most_attempts = 100;
    policy.first_backoff = duration::zero();
    retry_run run{policy, deadline::none(), 1};
    for (int i = 1; i < policy.most_attempts; ++i) {
        ASSERT_TRUE(run.begin(start));
        ASSERT_EQ(run.failed(true, start), duration::zero()) << i;
    }
}

TEST(retries, repeat_for_a_seed) {
    EXPECT_EQ(waits_of(42), waits_of(42));
    EXPECT_NE(waits_of(42), waits_of(43));
    // The same everywhere: nothing of this comes from the standard library's distributions.
    EXPECT_EQ(waits_of(42).size(), 4U);
}

TEST(retries, do_not_overflow) {
    retry_policy policy = patient;
    policy.most_attempts = std::numeric_limits<int>::max();
    policy.first_backoff = 1h;
    policy.longest_backoff = duration::max();
    retry_run run{policy, deadline::none(), 7};
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(run.begin(start));
        const auto wait = run.failed(true, start);
        ASSERT_TRUE(wait.has_value());
        EXPECT_GE(*wait, duration::zero());
    }
    policy.first_backoff = 0ns;
    policy.longest_backoff = 0ns;
    retry_run at_once{policy, deadline::none(), 7};
    ASSERT_TRUE(at_once.begin(start));
    EXPECT_EQ(at_once.failed(true, start), duration{0});
}

TEST(retries, that_cannot_end_in_time_are_not_started) {
    retry_policy policy = patient;
    policy.minimum_attempt = 30ms;
    {
        retry_run run{policy, deadline::in(29ms, start), 1};
        EXPECT_FALSE(run.begin(start));
        EXPECT_EQ(run.attempts(), 0);
        EXPECT_EQ(run.end(), retry_end::deadline);
    }
    retry_budget budget{5, 1, 10};
    retry_run run{policy, deadline::in(100ms, start), 1, &budget};
    ASSERT_TRUE(run.begin(start));
    EXPECT_EQ(run.failed(true, start + 71ms), std::nullopt);
    EXPECT_EQ(run.end(), retry_end::deadline);
    EXPECT_EQ(budget.tokens(), 5); // none is taken for an attempt that is not made
}

TEST(retries, leave_room_for_the_attempt_after_the_wait) {
    retry_policy policy = patient;
    policy.first_backoff = 1s;
    policy.longest_backoff = 1s;
    policy.minimum_attempt = 30ms;
    duration most{};
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        retry_run run{policy, deadline::in(100ms, start), seed};
        ASSERT_TRUE(run.begin(start));
        const auto wait = run.failed(true, start + 50ms);
        ASSERT_TRUE(wait.has_value());
        EXPECT_LE(*wait, 20ms);
        most = std::max(most, *wait);
        EXPECT_TRUE(run.begin(start + 50ms + *wait));
    }
    EXPECT_GT(most, 19ms);
}

TEST(retries, after_a_deadline_are_not_made_even_if_an_attempt_takes_no_time) {
    retry_run run{patient, deadline::in(10ms, start), 1};
    ASSERT_TRUE(run.begin(start));
    EXPECT_EQ(run.failed(true, start + 10ms), std::nullopt);
    EXPECT_EQ(run.end(), retry_end::deadline);
    retry_run late{patient, deadline::in(-1s, start), 1};
    EXPECT_FALSE(late.begin(start));
    // One nanosecond is left: the wait is none, and the attempt may start.
    retry_run close{patient, deadline::in(10ms, start), 1};
    ASSERT_TRUE(close.begin(start));
    EXPECT_EQ(close.failed(true, start + 10ms - 1ns), duration{0});
    EXPECT_TRUE(close.begin(start + 10ms - 1ns));
}

TEST(retries, a_wait_that_took_too_long_ends_it) {
    retry_run run{patient, deadline::in(100ms, start), 1};
    ASSERT_TRUE(run.begin(start));
    ASSERT_TRUE(run.failed(true, start).has_value());
    EXPECT_FALSE(run.begin(start + 100ms));
    EXPECT_EQ(run.end(), retry_end::deadline);
    EXPECT_EQ(run.attempts(), 1);
}

TEST(retries, stop_when_the_budget_is_spent) {
    retry_budget budget{2, 0.1, 10};
    int attempts = 0;
    for (int request = 0; request < 10; ++request) {
        retry_run run{patient, deadline::none(), 1, &budget};
        while (run.begin(start)) {
            (void)run.failed(true, start);
        }
        attempts += run.attempts();
    }
    EXPECT_EQ(attempts, 12);
    EXPECT_EQ(budget.tokens(), 0);
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(budget.take());
        budget.earn();
    }
    EXPECT_TRUE(budget.take());
    EXPECT_FALSE(budget.take());
}

TEST(retries, budgets_hold_no_more_than_their_most) {
    retry_budget budget{1, 3, 5};
    budget.earn();
    EXPECT_EQ(budget.tokens(), 4);
    budget.earn();
    EXPECT_EQ(budget.tokens(), 5);
}

TEST(retries, budgets_are_exact_among_eight_threads) {
    retry_budget budget{100, 0.25, 1'000'000};
    std::atomic<int> taken{0}; // raised by all
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&] {
                for (int k = 0; k < 4'000; ++k) {
                    budget.earn();
                    taken += budget.take() ? 1 : 0;
                }
            });
        }
    }
    EXPECT_EQ(budget.tokens() + taken, 100 + 8 * 4'000 / 4);
    EXPECT_GE(taken, 100);
}

TEST(retries, refuse_what_makes_no_sense) {
    const auto refused = [](auto change) {
        retry_policy policy = patient;
        change(policy);
        EXPECT_THROW((retry_run{policy, deadline::none(), 1}), std::invalid_argument);
    };
    refused([](retry_policy& p) { p.most_attempts = 0; });
    refused([](retry_policy& p) { p.first_backoff = -1ns; });
    refused([](retry_policy& p) { p.longest_backoff = -1ns; });
    refused([](retry_policy& p) { p.minimum_attempt = -1ns; });
    EXPECT_THROW((retry_budget{-1, 0.1, 10}), std::invalid_argument);
    EXPECT_THROW((retry_budget{1, -0.1, 10}), std::invalid_argument);
    EXPECT_THROW((retry_budget{1, 0.1, -1}), std::invalid_argument);
    EXPECT_THROW((retry_budget{11, 0.1, 10}), std::invalid_argument);
    EXPECT_THROW((retry_budget{1, std::nan(""), 10}), std::invalid_argument);
    EXPECT_THROW((retry_budget{1, 0.1, std::numeric_limits<double>::infinity()}), std::invalid_argument);
    try {
        const retry_budget wrong{11, 0.1, 10};
    } catch (const std::invalid_argument& e) {
        EXPECT_NE(std::string{e.what()}.find("11"), std::string::npos) << e.what();
    }
}

// The loop that blocks.
struct loop {
    counting_clock clock;
    std::vector<duration> pauses;

    auto run(const retry_policy& policy, deadline until, std::function<int(int)> attempt) {
        return retry(
            policy, until, 3, nullptr, [&](int n) { return attempt(n); },
            [](int r) { return r == 0  ? verdict::good
                               : r < 0 ? verdict::give_up
                                       : verdict::retry; },
            [this](duration d) {
                pauses.push_back(d);
                clock.at += d;
            },
            clock);
    }
};

TEST(retries, run_as_a_loop) {
    loop l;
    const auto r = l.run(patient, deadline::in(10s, l.clock.at), [](int n) { return n < 3 ? 1 : 0; });
    EXPECT_EQ(r.value, 0);
    EXPECT_EQ(r.end, retry_end::success);
    EXPECT_EQ(r.attempts, 3);
    EXPECT_EQ(l.pauses.size(), 2U);
    EXPECT_EQ(l.clock.readings, 5);

    const auto hopeless = l.run(patient, deadline::in(10s, l.clock.at), [](int) { return -1; });
    EXPECT_EQ(hopeless.end, retry_end::not_retryable);
    EXPECT_EQ(hopeless.value, -1);
    EXPECT_EQ(hopeless.attempts, 1);

    const auto too_late = l.run(patient, deadline::in(0s, l.clock.at), [](int) { return 0; });
    EXPECT_EQ(too_late.end, retry_end::deadline);
    EXPECT_EQ(too_late.value, std::nullopt);
    EXPECT_EQ(too_late.attempts, 0);
}

TEST(retries, loops_never_run_past_the_deadline) {
    loop l;
    retry_policy policy = patient;
    policy.most_attempts = 1'000;
    policy.minimum_attempt = 7ms;
    const deadline until = deadline::in(200ms, l.clock.at);
    const auto r = l.run(policy, until, [&](int) {
        EXPECT_GE(until.remaining(l.clock.at), 7ms);
        l.clock.at += 7ms;
        return 1;
    });
    EXPECT_EQ(r.end, retry_end::deadline);
    EXPECT_GT(r.attempts, 3);
    EXPECT_LE(l.clock.at, until.when());
}

TEST(retries, loops_end_when_the_pause_says_so) {
    counting_clock clock;
    const auto r = retry(
        patient, deadline::none(), 3, nullptr, [](int) { return 1; }, [](int) { return verdict::retry; },
        [](duration) { return false; }, clock);
    EXPECT_EQ(r.end, retry_end::stopped);
    EXPECT_EQ(r.attempts, 1);
}

} // namespace
} // namespace timerbench::testing
