// Which timer of a block is armed when, and for when: the arithmetic of the experiment about firing, without any service.
//
// A plan has n arms. The k-th arm takes the timer at place `timer_at(k)` of the block and gives it the deadline of rank
// `rank_at(k)`: rank 0 is due first. In memory order both are k, so that timers fire in the order in which they lie in memory and
// in which they were armed. Shuffled, both are random, independently of each other: what fires next lies anywhere, and
// was armed anywhere among the others. Costs 8 bytes a timer.
#pragma once

#include "harness/statistics.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace timerbench::experiments {

enum class fire_order { memory, shuffled };

[[nodiscard]] constexpr const char* name_of(fire_order o) noexcept {
    return o == fire_order::memory ? "memory" : "shuffled";
}

class arm_sequence {
  public:
    /// The same seed gives the same sequence everywhere.
    arm_sequence(std::size_t timers, fire_order order, std::uint64_t seed) : timer_(timers), rank_(timers) {
        std::iota(timer_.begin(), timer_.end(), 0U);
        std::iota(rank_.begin(), rank_.end(), 0U);
        if (order == fire_order::shuffled) {
            harness::random_source random{seed};
            random.shuffle(timer_);
            random.shuffle(rank_);
        }
    }
    [[nodiscard]] std::size_t size() const noexcept { return timer_.size(); }
    [[nodiscard]] std::size_t timer_at(std::size_t k) const noexcept { return timer_[k]; }
    [[nodiscard]] std::size_t rank_at(std::size_t k) const noexcept { return rank_[k]; }

  private:
    std::vector<std::uint32_t> timer_;
    std::vector<std::uint32_t> rank_;
};

/// When the timer of this rank (below `timers`) is due after the common start: evenly over (0, span], the last one at its end. `steps`
/// above 0: at so many different times only, rounded up. A span of zero: all at once.
[[nodiscard]] constexpr duration offset_of(std::size_t rank, std::size_t timers, duration span,
                                           std::size_t steps = 0) noexcept {
    // Parts of the span: exact products of 64 bits for any span below 2.5 hours and a million timers.
    auto parts = static_cast<duration::rep>(timers);
    auto part = static_cast<duration::rep>(rank) + 1;
    if (steps > 0 && steps < timers) {
        const auto wanted = static_cast<duration::rep>(steps);
        part = (part * wanted + parts - 1) / parts;
        parts = wanted;
    }
    return duration{span.count() * part / parts};
}

/// How many parts a span is passed in on a manual clock, so that each moves some 10 000 timers and the cost of moving
/// the clock itself (some 20 us, with the wake-up of a driver) stays below a few ns a timer; at least 1.
[[nodiscard]] constexpr std::size_t clock_steps(std::size_t timers) noexcept {
    return std::max<std::size_t>(timers / 10'000, 1);
}

/// How long before the first deadline arming must begin, if `sample` arms took `took`: twice as long as all are expected to
/// take, and 200 ms.
[[nodiscard]] constexpr duration lead_for(std::size_t timers, std::size_t sample, duration took) noexcept {
    const duration each = took / static_cast<duration::rep>(std::max<std::size_t>(sample, 1));
    return std::chrono::milliseconds{200} + 2 * each * static_cast<duration::rep>(timers);
}

/// As many timers as are wanted, or as many as the service can have armed, and then why.
struct bounded_timers {
    std::size_t count = 0;
    std::string note;
};

[[nodiscard]] inline bounded_timers within_limit(const service_traits& traits, std::size_t wanted) {
    if (traits.most_timers == 0 || wanted <= traits.most_timers) {
        return {wanted, {}};
    }
    return {traits.most_timers, std::to_string(traits.most_timers) +
                                    " timers: the service can have no more armed at the same time"};
}

} // namespace timerbench::experiments
