// Retries that stay inside the deadline of the request and stop when most of the requests fail.
//
// How it works
//   `retry_run` is the rule without the waiting: it is told what happened and says whether to try again and after which wait. A loop that blocks (`retry`), a
//   coroutine and a simulation can all ask it. Another attempt is made only if
//     1. the operation was declared idempotent,
//     2. the error was declared retryable,
//     3. the cap on attempts is not reached,
//     4. the wait and the declared minimum time of an attempt fit into what is left of the deadline,
//     5. the retry budget has a token.
//   Waits are exponential with full jitter: uniform between zero and first_backoff * 2^(retries so far), at most longest_backoff, and at most what leaves room for
//   an attempt. Clients that failed together do not come back together.
//   `retry_budget` is shared by all requests to one downstream. A success earns a fraction of a token, a retry takes one. In good times
//   there are always some; when a downstream fails all of the time, retries are down to that fraction of the successes, which is next to nothing.
// What it costs
//   A few multiplications; a retry and a success take the budget's lock for a few nanoseconds. Nothing is allocated and no clock is read but by `retry`.
// What it is bad at
//   Attempts that run side by side (hedging). It does not know a circuit breaker: the first attempt of a request is always made while there is time.
//   Retry in one layer only: N layers with R attempts each make up to R^N attempts at the lowest.
#pragma once

#include "timers/clock.hpp"
#include "timers/deadline.hpp"
#include "timers/detail/spin_lock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace timerbench {

struct retry_policy {
    bool idempotent = false; ///< Whether the operation may be done twice. Without, there is one attempt.
    int most_attempts = 3;   ///< The first one included; at least 1.
    duration first_backoff = std::chrono::milliseconds{50}; ///< The first wait is at most this. Not negative.
    duration longest_backoff = std::chrono::seconds{1};     ///< No wait is longer. Not negative.
    /// The least time that an attempt takes to be of use, as the caller knows it. Not negative. One that does not fit is not started.
    duration minimum_attempt{};
};

/// Why there was no further attempt.
enum class retry_end : std::uint8_t {
    running,        ///< It is not over.
    success,        ///< An attempt succeeded.
    not_idempotent, ///< It failed and must not be done twice.
    not_retryable,  ///< It failed in a way that another attempt does not help.
    attempts,       ///< The cap on attempts.
    deadline,       ///< No attempt would have ended in time.
    budget,         ///< No token was left.
    stopped,        ///< The caller said so.
};

[[nodiscard]] constexpr std::string_view to_string(retry_end end) noexcept {
    switch (end) {
    case retry_end::running:
        return "running";
    case retry_end::success:
        return "success";
    case retry_end::not_idempotent:
        return "not_idempotent";
    case retry_end::not_retryable:
        return "not_retryable";
    case retry_end::attempts:
        return "attempts";
    case retry_end::deadline:
        return "deadline";
    case retry_end::budget:
        return "budget";
    case retry_end::stopped:
        return "stopped";
    }
    return "unknown";
}

/// Tokens for retries. Every member may be called from any thread. Counts in thousandths of a token.
class retry_budget {
  public:
    /// `initial` tokens to begin with, `per_success` for each success, never more than `most`. All finite, not negative, at most a million; `initial` at most `most`.
    /// Throws std::invalid_argument.
    retry_budget(double initial, double per_success, double most)
        : per_success_{thousandths("tokens per success", per_success)},
          most_{thousandths("most tokens", most)},
          held_{thousandths("initial tokens", initial)} {
        if (held_ > most_) {
            throw std::invalid_argument{"retry_budget: initial tokens are " + std::to_string(initial) +
                                        "; give at most the " + std::to_string(most) + " that it may hold"};
        }
    }
    retry_budget(const retry_budget&) = delete;
    retry_budget& operator=(const retry_budget&) = delete;

    /// Takes one token for a retry. False: there is none, and nothing was taken.
    [[nodiscard]] bool take() noexcept {
        const std::lock_guard lock{lock_};
        if (held_ < one) {
            return false;
        }
        held_ -= one;
        return true;
    }

    /// A request succeeded.
    void earn() noexcept {
        const std::lock_guard lock{lock_};
        held_ = std::min(most_, held_ + per_success_);
    }

    /// A token that was taken for a retry which then did not start.
    void give_back() noexcept {
        const std::lock_guard lock{lock_};
        held_ = std::min(most_, held_ + one);
    }

    [[nodiscard]] double tokens() const noexcept {
        const std::lock_guard lock{lock_};
        return static_cast<double>(held_) / static_cast<double>(one);
    }

  private:
    static constexpr std::int64_t one = 1000;

    static std::int64_t thousandths(const char* what, double tokens) {
        if (!(tokens >= 0 && tokens <= 1e6)) { // also false for what is not a number
            throw std::invalid_argument{std::string{"retry_budget: "} + what + " are " +
                                        std::to_string(tokens) + "; give 0 to 1000000"};
        }
        const auto rounded = static_cast<std::int64_t>(std::llround(tokens * static_cast<double>(one)));
        if (rounded == 0 && tokens > 0) {
            throw std::invalid_argument{std::string{"retry_budget: "} + what + " are " +
                                        std::to_string(tokens) + "; give 0 or at least 0.001"};
        }
        return rounded;
    }

    const std::int64_t per_success_;
    const std::int64_t most_;
    mutable detail::spin_lock lock_;
    std::int64_t held_; // guarded by lock_
};

/// The attempts of one request, without the waiting. Used by one thread at a time.
///
///   begin(now), then the attempt, then succeeded() or failed(retryable, now); wait as long as that says; begin(now) again.
class retry_run {
  public:
    /// The same seed gives the same waits, on every machine. `budget` may be null, else it outlives the run. Throws std::invalid_argument for a policy that is out of range.
    retry_run(const retry_policy& policy, deadline until, std::uint64_t seed, retry_budget* budget = nullptr)
        : policy_{checked(policy)},
          until_{until},
          budget_{budget},
          state_{seed} {}
    retry_run(const retry_run&) = delete;
    retry_run& operator=(const retry_run&) = delete;
    /// The token of an attempt that did not start is given back.
    ~retry_run() { refund(); }

    /// Whether an attempt may start at `now`; it is counted if so. False: it would not end in time, or the run is over.
    [[nodiscard]] bool begin(time_point now) noexcept {
        if (end_ != retry_end::running) {
            return false;
        }
        if (!fits(until_.remaining(now))) {
            end_ = retry_end::deadline;
            refund();
            return false;
        }
        ++attempts_;
        paid_ = false;
        return true;
    }

    /// The attempt succeeded: earns for the budget and ends the run. Nothing without an attempt, or when the run is over.
    void succeeded() noexcept {
        if (end_ != retry_end::running || attempts_ == 0) {
            return;
        }
        end_ = retry_end::success;
        if (budget_ != nullptr) {
            budget_->earn();
        }
    }

    /// The attempt failed at `now`. The wait before the next one, or empty: there is none, and `end` says why. The token is taken here, and given back
    /// if the next attempt does not start. Empty without an attempt, or when the run is over.
    [[nodiscard]] std::optional<duration> failed(bool retryable, time_point now) noexcept {
        if (end_ != retry_end::running || attempts_ == 0) {
            return std::nullopt;
        }
        const duration left = until_.remaining(now);
        if (!policy_.idempotent) {
            end_ = retry_end::not_idempotent;
        } else if (!retryable) {
            end_ = retry_end::not_retryable;
        } else if (attempts_ >= policy_.most_attempts) {
            end_ = retry_end::attempts;
        } else if (!fits(left)) {
            end_ = retry_end::deadline;
        } else if (budget_ != nullptr && !budget_->take()) {
            end_ = retry_end::budget;
        } else {
            paid_ = budget_ != nullptr;
            return jitter(std::min(backoff(), longest_wait(left)));
        }
        return std::nullopt;
    }

    /// The caller gives up, for example because its scope was stopped.
    void stop() noexcept {
        if (end_ == retry_end::running) {
            end_ = retry_end::stopped;
            refund();
        }
    }

    /// Begun so far.
    [[nodiscard]] int attempts() const noexcept { return attempts_; }
    [[nodiscard]] retry_end end() const noexcept { return end_; }

  private:
    static const retry_policy& checked(const retry_policy& policy) {
        if (policy.most_attempts < 1) {
            throw std::invalid_argument{"retry_policy: most_attempts is " +
                                        std::to_string(policy.most_attempts) + "; give at least 1"};
        }
        check_span("first_backoff", policy.first_backoff);
        check_span("longest_backoff", policy.longest_backoff);
        check_span("minimum_attempt", policy.minimum_attempt);
        return policy;
    }

    static void check_span(const char* name, duration d) {
        if (d < duration::zero()) {
            throw std::invalid_argument{std::string{"retry_policy: "} + name + " is " +
                                        std::to_string(d.count()) + " ns; give zero or more"};
        }
    }

    void refund() noexcept {
        if (std::exchange(paid_, false)) {
            budget_->give_back();
        }
    }

    // Whether an attempt that starts now can end in time.
    [[nodiscard]] bool fits(duration left) const noexcept {
        return left > duration::zero() && left >= policy_.minimum_attempt;
    }

    // Such that an attempt still fits: at the very deadline none does.
    [[nodiscard]] duration longest_wait(duration left) const noexcept {
        return left - std::max(policy_.minimum_attempt, duration{1});
    }

    [[nodiscard]] duration backoff() const noexcept {
        const int doublings = attempts_ - 1;
        const duration::rep most = std::numeric_limits<duration::rep>::max();
        const duration::rep first = policy_.first_backoff.count();
        if (first == 0) {
            return duration::zero();
        }
        const bool overflows = doublings >= 63 || first > (most >> doublings);
        return overflows ? policy_.longest_backoff
                         : std::min(policy_.longest_backoff, duration{first << doublings});
    }

    // Uniform from zero to `most`, both included. splitmix64, and the upper half of a product instead of a remainder.
    [[nodiscard]] duration jitter(duration most) noexcept {
        state_ += 0x9E3779B97F4A7C15ULL;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
        z ^= z >> 31U;
        __extension__ using wide = unsigned __int128;
        const auto span = static_cast<std::uint64_t>(most.count()) + 1;
        return duration{static_cast<duration::rep>(static_cast<wide>(z) * span >> 64U)};
    }

    const retry_policy policy_;
    const deadline until_;
    retry_budget* const budget_;
    std::uint64_t state_;
    int attempts_ = 0;
    // A token of the budget, which is there then, was taken for an attempt that has not begun.
    bool paid_ = false;
    retry_end end_ = retry_end::running;
};

/// What the caller's predicate says of a result.
enum class verdict : std::uint8_t {
    good,    ///< A success.
    retry,   ///< A failure that another attempt may mend: busy, timed out, connection lost.
    give_up, ///< A failure that it will not.
};

template <class T>
struct retry_result {
    std::optional<T> value; ///< Of the last attempt, good or not; empty: no attempt was started.
    retry_end end = retry_end::running;
    int attempts = 0;
};

/// Runs `attempt(n)`, n from 1, until its result is good or there is no further attempt. Blocks in `pause(wait)` between two; a pause that returns false ends it (stopped).
/// `judge(result)` gives a verdict. An exception of `attempt` or `pause` passes through and is not retried. Reads the clock once before and once after each attempt. `clock` is
/// the one that `until` counts on.
template <class Attempt, class Judge, class Pause, clock_source Clock = steady_time>
requires std::invocable<Attempt&, int> && std::invocable<Pause&, duration>
[[nodiscard]] auto retry(const retry_policy& policy, deadline until, std::uint64_t seed, retry_budget* budget,
                         Attempt attempt, Judge judge, Pause pause, Clock& clock = steady()) {
    using value = std::remove_cvref_t<std::invoke_result_t<Attempt&, int>>;
    static_assert(std::same_as<std::invoke_result_t<Judge&, const value&>, verdict>);
    retry_run run{policy, until, seed, budget};
    retry_result<value> result;
    while (run.begin(clock.now())) {
        result.value.emplace(attempt(run.attempts()));
        const verdict said = judge(std::as_const(*result.value));
        if (said == verdict::good) {
            run.succeeded();
            break;
        }
        const std::optional<duration> wait = run.failed(said == verdict::retry, clock.now());
        if (!wait) {
            break;
        }
        if constexpr (std::is_void_v<std::invoke_result_t<Pause&, duration>>) {
            pause(*wait);
        } else if (!pause(*wait)) {
            run.stop();
        }
    }
    result.end = run.end();
    result.attempts = run.attempts();
    return result;
}

} // namespace timerbench
