// The work that bench_arm_cancel times: loops over arm and cancel, and the window of outstanding timers they run on.
//
// The loops are templates over the service or over a hand-written direct use of its library, are never inlined into what
// times them, and read everything random (which timer, which duration) from arrays filled beforehand; the arrays are read
// in order, 12 bytes an operation, by every loop but the article's. The loops add up what arm and cancel return, so
// that each batch knows how many operations did what they should.
//
// A loop-driven service is polled after every `operations_per_poll` operations and at the end of the loop, as a program
// built on such a loop would between two events; what the library does then (delivering aborted handlers, say) is part
// of the cost. Any other service is not polled.
#pragma once

#include "experiments/service_cells.hpp"
#include "harness/optimiser.hpp"
#include "harness/statistics.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace timerbench::experiments {

inline constexpr std::size_t operations_per_poll = 64;

/// Runs `each(k)` for k in 0..n-1 and polls the service, if a loop drives it, as said above.
template <class Service, class Each>
inline void in_polled_groups(Service& service, std::size_t n, Each&& each) {
    for (std::size_t k = 0; k < n;) {
        const std::size_t end = std::min(n, k + operations_per_poll);
        for (; k < end; ++k) {
            each(k);
        }
        poll_once(service);
    }
}

/// Arms and cancels one timer, `pairs` times. Returns how many calls did what they should: 2 x pairs.
template <class Service>
[[gnu::noinline]] std::uint64_t run_article(Service& service, typename Service::timer& timer, duration d,
                                            std::size_t pairs) {
    std::uint64_t good = 0;
    in_polled_groups(service, pairs, [&](std::size_t) {
        good += done([&] { return service.arm(timer, d, no_callback); });
        good += done([&] { return service.cancel(timer); });
    });
    return good;
}

/// Which timers of a window the operations of one batch touch, and for how long they are armed.
struct script {
    std::vector<std::uint32_t> victims;
    std::vector<duration> durations;

    explicit script(std::size_t size) : victims(size), durations(size) {}
    [[nodiscard]] std::size_t size() const noexcept { return victims.size(); }
};

/// Cancels each victim and arms it anew.
template <class Service>
[[gnu::noinline]] std::uint64_t run_pairs(Service& service, timer_block<Service>& timers, const script& s) {
    std::uint64_t good = 0;
    in_polled_groups(service, s.size(), [&](std::size_t k) {
        auto& timer = timers[s.victims[k]];
        good += done([&] { return service.cancel(timer); });
        good += done([&] { return service.arm(timer, s.durations[k], no_callback); });
    });
    return good;
}

/// Cancels each victim; they must differ.
template <class Service>
[[gnu::noinline]] std::uint64_t run_cancels(Service& service, timer_block<Service>& timers, const script& s) {
    std::uint64_t good = 0;
    in_polled_groups(service, s.size(), [&](std::size_t k) {
        good += done([&] { return service.cancel(timers[s.victims[k]]); });
    });
    return good;
}

/// Arms each victim; they must be idle.
template <class Service>
[[gnu::noinline]] std::uint64_t run_arms(Service& service, timer_block<Service>& timers, const script& s) {
    std::uint64_t good = 0;
    in_polled_groups(service, s.size(), [&](std::size_t k) {
        good += done([&] { return service.arm(timers[s.victims[k]], s.durations[k], no_callback); });
    });
    return good;
}

/// The loop of run_pairs around nothing.
[[gnu::noinline]] inline std::uint64_t run_nothing(const script& s) {
    std::uint64_t good = 0;
    for (std::size_t k = 0; k < s.size(); ++k) {
        harness::do_not_optimize(s.victims[k]);
        harness::do_not_optimize(s.durations[k]);
        good += 2;
    }
    return good;
}

/// How a window cell chooses what to cancel and what to arm.
struct window_plan {
    bool random_victim = false; ///< Else the oldest.
    /// low == high: one duration. Else uniform over low..high.
    duration low{};
    duration high{};
    /// Each new deadline is earlier than all others of the window: durations shrink by `earliest_step`.
    bool earliest = false;
};

/// The step is longer than any service takes for an operation, so that the deadlines shrink in spite of time's passing.
inline constexpr duration earliest_step = std::chrono::microseconds{20};

/// Timers that are all outstanding between two batches. Nothing of it may run in a timed region but the loops above.
template <class Service>
class window {
  public:
    window(Service& service, std::size_t size, window_plan plan, std::uint64_t seed)
        : service_{service},
          plan_{plan},
          random_{seed},
          next_duration_{plan.high},
          timers_{service, size},
          order_(size) {
        for (std::size_t i = 0; i < size; ++i) {
            order_[i] = static_cast<std::uint32_t>(i);
        }
    }

    /// Arms all timers that are idle, oldest first. Returns how many calls did what they should.
    std::uint64_t fill() {
        next_duration_ = plan_.high;
        oldest_ = 0;
        std::uint64_t good = 0;
        for (std::size_t i = 0; i < timers_.size(); ++i) {
            good += done([&] { return service_.arm(timers_[i], draw(), no_callback); });
        }
        catch_up(service_);
        return good;
    }

    /// Withdraws all. Returns how many were armed.
    std::uint64_t empty() {
        std::uint64_t good = 0;
        for (std::size_t i = 0; i < timers_.size(); ++i) {
            good += done([&] { return service_.cancel(timers_[i]); });
        }
        catch_up(service_);
        return good;
    }

    /// Fills a script for one batch. `distinct`: no timer twice (needs size <= window).
    void prepare(script& s, bool distinct) {
        for (std::size_t k = 0; k < s.size(); ++k) {
            if (!plan_.random_victim) {
                s.victims[k] = static_cast<std::uint32_t>(oldest_);
                oldest_ = oldest_ + 1 == timers_.size() ? 0 : oldest_ + 1;
            } else if (distinct) {
                std::swap(order_[k], order_[k + static_cast<std::size_t>(random_.below(order_.size() - k))]);
                s.victims[k] = order_[k];
            } else {
                s.victims[k] = static_cast<std::uint32_t>(random_.below(timers_.size()));
            }
            s.durations[k] = draw();
        }
    }

    [[nodiscard]] timer_block<Service>& timers() noexcept { return timers_; }
    [[nodiscard]] std::size_t size() const noexcept { return timers_.size(); }

  private:
    duration draw() {
        if (plan_.earliest) {
            next_duration_ = std::max(next_duration_ - earliest_step, plan_.low);
            return next_duration_;
        }
        return plan_.low == plan_.high ? plan_.low : random_duration(random_, plan_.low, plan_.high);
    }

    Service& service_;
    window_plan plan_;
    harness::random_source random_;
    duration next_duration_;
    std::size_t oldest_ = 0;
    timer_block<Service> timers_;
    std::vector<std::uint32_t> order_;
};

} // namespace timerbench::experiments
