// The point in time by which a request must be answered, handed down a call chain by value.
//
// How it works. A `deadline` is one absolute reading of the steady clock. Every layer waits for what is left of it instead of for a span
// of its own, so that a chain of N layers ends after one span, not after up to N. A callee may shorten what it hands on and can never lengthen
// it: there is no operation that gives a later deadline than the one it was given.
//
// To another process it travels as what is left of it (`to_remaining`, `from_remaining`), as gRPC's grpc-timeout header does: two machines share
// neither a steady clock nor, to the millisecond, a wall clock. The time that the message spends under way is then not counted, so the callee's
// deadline is later than the caller's by that much.
//
// What it costs. Eight bytes; `remaining` is one clock reading and a subtraction. "None" is the end of the time line and compares as later than
// all others, so that no operation needs a case for it, and reads no clock.
//
// What it is bad at. It is a number: nothing happens when it passes. See scope.hpp and with_timeout.hpp for what enforces it.
#pragma once

#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <compare>
#include <optional>

namespace timerbench {

/// A value; every member may be called from any thread. Times are points of the steady clock, or of the manual clock that everybody
/// concerned uses. Spans saturate at the ends of the time line. Nothing throws.
class deadline {
  public:
    /// No deadline: later than every other.
    [[nodiscard]] static constexpr deadline none() noexcept { return deadline{time_point::max()}; }

    /// `t` may lie in the past: the deadline has then expired. `time_point::max()` is none.
    [[nodiscard]] static constexpr deadline at(time_point t) noexcept { return deadline{t}; }

    /// `d` after `now`; negative: in the past; `duration::max()`: none.
    [[nodiscard]] static constexpr deadline in(duration d, time_point now) noexcept {
        return d == duration::max() ? none() : deadline{saturating_add(now, d)};
    }

    /// `d` from now on the machine's steady clock: one reading.
    [[nodiscard]] static deadline in(duration d) noexcept { return in(d, steady_time::now()); }

    /// What `to_remaining` gave in another process. Empty is none. A negative span is worth nothing and expires at `now`.
    [[nodiscard]] static constexpr deadline from_remaining(std::optional<duration> left,
                                                           time_point now) noexcept {
        return left ? in(std::max(*left, duration::zero()), now) : none();
    }

    [[nodiscard]] constexpr bool is_none() const noexcept { return when_ == time_point::max(); }

    /// `time_point::max()` for none.
    [[nodiscard]] constexpr time_point when() const noexcept { return when_; }

    /// What is left at `now`: never negative, zero once expired, `duration::max()` for none.
    [[nodiscard]] constexpr duration remaining(time_point now) const noexcept {
        if (is_none()) {
            return duration::max();
        }
        duration::rep left{};
        if (when_ <= now) {
            return duration::zero();
        }
        if (__builtin_sub_overflow(when_.time_since_epoch().count(), now.time_since_epoch().count(), &left)) {
            return duration::max();
        }
        return duration{left};
    }

    /// The same on `clock`: one reading, none for none.
    template <clock_source Clock>
    [[nodiscard]] duration remaining(const Clock& clock) const {
        return is_none() ? duration::max() : remaining(clock.now());
    }

    /// The same on the machine's steady clock: one reading, none for none.
    [[nodiscard]] duration remaining() const noexcept {
        return is_none() ? duration::max() : remaining(steady_time::now());
    }

    /// Whether nothing is left at `now`: a deadline expires at its very point.
    [[nodiscard]] constexpr bool expired(time_point now) const noexcept { return !is_none() && when_ <= now; }
    [[nodiscard]] bool expired() const noexcept { return !is_none() && expired(steady_time::now()); }

    /// Earlier by `reserve`, for what the caller has to do with the answer. A negative reserve counts as zero; none stays none.
    [[nodiscard]] constexpr deadline shortened(duration reserve) const noexcept {
        // The negation cannot overflow: the reserve is not negative.
        return is_none() ? *this : deadline{saturating_add(when_, -std::max(reserve, duration::zero()))};
    }

    /// For one step of the work: `d` from `now`, or this deadline where that is earlier.
    [[nodiscard]] constexpr deadline within(duration d, time_point now) const noexcept {
        return deadline{std::min(when_, in(d, now).when_)};
    }

    /// For the wire: what is left at `now`; zero once expired; empty for none.
    [[nodiscard]] constexpr std::optional<duration> to_remaining(time_point now) const noexcept {
        return is_none() ? std::nullopt : std::optional{remaining(now)};
    }

    [[nodiscard]] friend constexpr deadline earlier(deadline a, deadline b) noexcept {
        return a.when_ < b.when_ ? a : b;
    }

    /// The later deadline is the greater one; none is the greatest.
    friend constexpr auto operator<=>(const deadline&, const deadline&) = default;

  private:
    constexpr explicit deadline(time_point when) noexcept : when_{when} {}

    time_point when_;
};

} // namespace timerbench
