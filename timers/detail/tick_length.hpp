// A fixed length of time in which other lengths are counted.
//
// A division by a number that only the running program knows costs 10 to 40 cycles, as much as all the rest of a cheap arm. This one
// multiplies with the reciprocal, whose error is less than one step below 2^63, and sets the quotient right by the remainder (Granlund and
// Montgomery, Division by Invariant Integers using Multiplication, 1994).
#pragma once

#include "timers/service.hpp"

#include <cstdint>

namespace timerbench::detail {

class tick_length {
  public:
    /// `length` is positive.
    explicit constexpr tick_length(duration length) noexcept
        : length_{static_cast<std::uint64_t>(length.count())},
          reciprocal_{~std::uint64_t{0} / length_} {}

    [[nodiscard]] constexpr duration length() const noexcept {
        return duration{static_cast<std::int64_t>(length_)};
    }

    /// Whole ticks within `t`, which is not negative.
    [[nodiscard]] constexpr std::uint64_t whole(duration t) const noexcept {
        const split s = divide(t);
        return s.ticks + (s.rest >= length_ ? 1 : 0);
    }

    /// Ticks that reach at least `t`, which is not negative.
    [[nodiscard]] constexpr std::uint64_t covering(duration t) const noexcept {
        const split s = divide(t);
        return s.ticks + (s.rest > 0 ? 1 : 0) + (s.rest > length_ ? 1 : 0);
    }

  private:
    __extension__ using wide = unsigned __int128;

    // The quotient or one less; the rest is below twice the length.
    struct split {
        std::uint64_t ticks;
        std::uint64_t rest;
    };

    [[nodiscard]] constexpr split divide(duration t) const noexcept {
        const auto n = static_cast<std::uint64_t>(t.count());
        const auto ticks = static_cast<std::uint64_t>((wide{n} * reciprocal_) >> 64);
        return {ticks, n - ticks * length_};
    }

    std::uint64_t length_;
    std::uint64_t reciprocal_; // 2^64 / length_, rounded down
};

} // namespace timerbench::detail
