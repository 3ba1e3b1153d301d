// Keeps "never early" true for timers that were armed by a clock reading which lagged more than it is allowed to.
//
// A service that arms from a coarse or cached reading adds a fixed allowance for its lag. When it learns later that one reading stood
// still for longer (a loop or a whole virtual processor was descheduled), the timers armed meanwhile may have been armed up to
// that much later than their reading says. Each reading has a number, its epoch; the log keeps for the few bad epochs by how
// much their timers must be put off. A service asks when a timer comes due, so timers that are cancelled cost nothing.
//
// 64 bad epochs are told apart; beyond that the oldest are merged and put off by the larger of their amounts.
#pragma once

#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace timerbench::detail {

/// Not thread-safe. Epochs are noted in rising order.
class stall_log {
  public:
    using epoch_type = std::uint32_t;

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

    /// Timers of `epoch` must be put off by `excess` (positive).
    void note(epoch_type epoch, duration excess) noexcept {
        if (size_ == entries_.size()) {
            entries_[1].first = entries_[0].first;
            entries_[1].excess = std::max(entries_[0].excess, entries_[1].excess);
            std::move(entries_.begin() + 1, entries_.end(), entries_.begin());
            --size_;
        }
        entries_[size_++] = {epoch, epoch, excess};
    }

    /// By how much a timer of `epoch` must be put off; zero for nearly all.
    [[nodiscard]] duration excess(epoch_type epoch) const noexcept {
        for (std::size_t i = 0; i < size_; ++i) {
            // Distances from the first of the range, so that a wrapped counter is told apart too.
            if (epoch - entries_[i].first <= entries_[i].last - entries_[i].first) {
                return entries_[i].excess;
            }
        }
        return {};
    }

    /// Called when no timer is pending.
    void clear() noexcept { size_ = 0; }

  private:
    struct entry {
        epoch_type first = 0;
        epoch_type last = 0;
        duration excess{};
    };
    std::array<entry, 64> entries_{};
    std::size_t size_ = 0;
};

} // namespace timerbench::detail
