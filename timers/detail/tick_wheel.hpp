// A hierarchical timing wheel over whole ticks: the data structure alone, without clock, lock or thread.
//
// How it works. Level 0 has 4 096 slots of one tick, three more levels have 256 slots each of 2^12, 2^20 and 2^28 ticks, and
// what lies beyond 2^36 ticks waits in a list of its own. A node goes to the lowest level whose span covers its distance from
// now, into the slot that its tick selects; at a level's slot boundary the slot is emptied into the levels below. With ticks of
// 1 ms, timeouts up to 4 s are never moved, and timeouts up to 17 minutes once.
//
// What it costs. insert: a few shifts, a link at the end of a list, one bit. remove: an unlink that touches the node and its two
// neighbours. Finding the next occupied slot: a handful of words of occupancy bits. 78 KB for each wheel.
//
// What it is bad at. A bit may outlive the nodes of its slot (remove does not know the slot); the search for the next occupied slot
// clears such bits as it meets them. Nodes that lie anywhere in memory are one cache miss each on the way down and one when they are
// due; long lists are therefore taken from both ends in turn, so that two misses are under way at a time. Nodes of the same tick come in
// no particular order.
//
// The design is Varghese and Lauck's (Hashed and Hierarchical Timing Wheels, 1997), with the wide lowest level and the distance
// rule of the older Linux timer wheel instead of the aligned spans of tokio's.
#pragma once

#include "timers/detail/list.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace timerbench::detail {

/// `Node` derives publicly from list_link and has a member `std::uint64_t tick` that the wheel sets and reads.
/// Not thread-safe.
template <class Node>
class tick_wheel {
  public:
    using tick_type = std::uint64_t;

    /// The last tick that was served.
    [[nodiscard]] tick_type now() const noexcept { return now_; }

    /// Links an unlinked node to be served at `tick`, or at the next tick if that has been served already. Returns the first tick
    /// at which the wheel must advance because of it: its own, or the one at which its slot is moved down.
    tick_type insert(Node& node, tick_type tick) noexcept {
        node.tick = std::max(tick, now_ + 1);
        return place(node);
    }

    /// Unlinks a node that is in the wheel, due or not.
    static void remove(Node& node) noexcept { node.unlink(); }

    /// Moves on to `tick`; all nodes up to then become due, earlier ticks first. A tick that was served already does nothing.
    void advance(tick_type tick) noexcept {
        while (now_ < tick) {
            const std::optional<tick_type> next = next_event();
            if (!next || *next > tick) {
                now_ = tick;
                return;
            }
            now_ = *next;
            if ((now_ & mask(bits_0)) == 0) {
                cascade();
            }
            const std::size_t slot = now_ & mask(bits_0);
            clear_0(slot);
            from_back_ |= due_.empty(); // the oldest comes first
            due_.splice_back(level_0_[slot]);
        }
    }

    /// Unlinks and returns a due node of the earliest tick; null when nothing is due.
    [[nodiscard]] Node* pop_due() noexcept {
        Node* node = due_.front();
        if (node == nullptr) {
            return nullptr;
        }
        from_back_ = !from_back_;
        if (from_back_ && due_.back()->tick == node->tick) {
            node = due_.back();
            remove(*node);
            if (const Node* before = due_.back()) {
                __builtin_prefetch(before->prev);
            }
            return node;
        }
        remove(*node);
        if (const Node* after = due_.front()) {
            __builtin_prefetch(after->next);
        }
        return node;
    }

    [[nodiscard]] bool has_due() const noexcept { return !due_.empty(); }

    /// Links a node that was just popped into a list of its own, its tick unchanged, until `take_back`.
    void set_aside(Node& node) noexcept { aside_.push_back(node); }

    [[nodiscard]] bool has_set_aside() const noexcept { return !aside_.empty(); }

    /// Makes what was set aside due again.
    void take_back() noexcept { due_.splice_back(aside_); }

    /// Makes everything due at once, in no particular order. For stopping.
    void expire_all() noexcept {
        for (auto& nodes : level_0_) {
            due_.splice_back(nodes);
        }
        for (auto& level : upper_) {
            for (auto& nodes : level) {
                due_.splice_back(nodes);
            }
        }
        due_.splice_back(beyond_);
        due_.splice_back(aside_);
    }

    /// Counts what is linked, due nodes included, by walking every list. Linear; for tests and for counters that must not
    /// derive one figure from another.
    [[nodiscard]] std::size_t count() const noexcept {
        std::size_t n = due_.size() + aside_.size() + beyond_.size();
        for (const auto& nodes : level_0_) {
            n += nodes.size();
        }
        for (const auto& level : upper_) {
            for (const auto& nodes : level) {
                n += nodes.size();
            }
        }
        return n;
    }

    /// The next tick at which a slot must be served or moved down; empty when nothing lies ahead. Earlier than the earliest
    /// node's tick only by the way that node still has to come down through the levels.
    [[nodiscard]] std::optional<tick_type> next_event() noexcept {
        tick_type next = never;
        if (const auto slot = next_occupied_0()) {
            next = *slot;
        }
        for (unsigned level = 1; level <= upper_levels; ++level) {
            if (const auto slot = next_occupied(level)) {
                next = std::min(next, *slot);
            }
        }
        if (!beyond_.empty()) {
            next = std::min(next, beyond_moves_at());
        }
        return next == never ? std::nullopt : std::optional{next};
    }

  private:
    static constexpr unsigned bits_0 = 12;
    static constexpr unsigned bits_n = 8;
    static constexpr unsigned upper_levels = 3;
    static constexpr unsigned bits_all = bits_0 + upper_levels * bits_n;
    static constexpr std::size_t slots_0 = std::size_t{1} << bits_0;
    static constexpr std::size_t slots_n = std::size_t{1} << bits_n;
    static constexpr tick_type never = ~tick_type{0};

    static constexpr tick_type mask(unsigned bits) noexcept { return (tick_type{1} << bits) - 1; }
    static constexpr unsigned shift(unsigned level) noexcept { return bits_0 + (level - 1) * bits_n; }

    // Sets the bit of a slot and tells whether it was clear. A set bit is not written again: in a busy wheel that is nearly every time,
    // and stores that wait behind a cache miss are what limits it.
    static bool mark(std::uint64_t& word, std::size_t slot) noexcept {
        const std::uint64_t bit = std::uint64_t{1} << (slot % 64);
        if ((word & bit) != 0) [[likely]] {
            return false;
        }
        word |= bit;
        return true;
    }

    // Returns the tick at which the slot is served or moved down.
    tick_type place(Node& node) noexcept {
        const tick_type distance = node.tick - now_;
        if (distance < slots_0) [[likely]] {
            const std::size_t slot = node.tick & mask(bits_0);
            level_0_[slot].push_back(node);
            if (mark(words_0_[slot / 64], slot)) {
                mark(summary_0_, slot / 64);
            }
            return node.tick;
        }
        for (unsigned level = 1; level <= upper_levels; ++level) {
            if (distance < tick_type{1} << (shift(level) + bits_n)) {
                const std::size_t slot = (node.tick >> shift(level)) & mask(bits_n);
                upper_[level - 1][slot].push_back(node);
                mark(words_n_[level - 1][slot / 64], slot);
                return node.tick >> shift(level) << shift(level);
            }
        }
        beyond_.push_back(node);
        return beyond_moves_at();
    }

    [[nodiscard]] tick_type beyond_moves_at() const noexcept { return ((now_ >> bits_all) + 1) << bits_all; }

    // now_ stands at the start of a slot of level 1, and maybe of the levels above: their nodes move down, the widest first.
    void cascade() noexcept {
        if ((now_ & mask(bits_all)) == 0) {
            move_down(beyond_);
        }
        for (unsigned level = upper_levels; level >= 1; --level) {
            if ((now_ & mask(shift(level))) == 0) {
                const std::size_t slot = (now_ >> shift(level)) & mask(bits_n);
                words_n_[level - 1][slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
                move_down(upper_[level - 1][slot]);
            }
        }
    }

    void move_down(list<Node>& from) noexcept {
        moving_.splice_back(from);
        while (Node* const first = moving_.front()) {
            Node* const last = moving_.back();
            first->unlink();
            place(*first);
            if (last != first) {
                last->unlink();
                place(*last);
            }
        }
    }

    void clear_0(std::size_t slot) noexcept {
        words_0_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
        if (words_0_[slot / 64] == 0) {
            summary_0_ &= ~(std::uint64_t{1} << (slot / 64));
        }
    }

    // The tick of the first occupied slot of level 0 after now_.
    [[nodiscard]] std::optional<tick_type> next_occupied_0() noexcept {
        while (summary_0_ != 0) {
            const std::size_t from = (now_ + 1) & mask(bits_0);
            const std::size_t slot = find_0(from);
            if (!level_0_[slot].empty()) {
                return now_ + 1 + ((slot - from) & mask(bits_0));
            }
            clear_0(slot);
        }
        return std::nullopt;
    }

    // The first marked slot of level 0 from `from` on, around the end; there is one.
    [[nodiscard]] std::size_t find_0(std::size_t from) const noexcept {
        const std::size_t word = from / 64;
        if (const std::uint64_t here = words_0_[word] >> (from % 64) << (from % 64); here != 0) {
            return word * 64 + static_cast<std::size_t>(std::countr_zero(here));
        }
        // Words after this one first, then those before it, and this one's lower bits last.
        const std::uint64_t after = word == 63 ? 0 : summary_0_ >> (word + 1) << (word + 1);
        const auto found = static_cast<std::size_t>(std::countr_zero(after != 0 ? after : summary_0_));
        return found * 64 + static_cast<std::size_t>(std::countr_zero(words_0_[found]));
    }

    // The tick at which the first occupied slot of an upper level after the present one begins.
    [[nodiscard]] std::optional<tick_type> next_occupied(unsigned level) noexcept {
        auto& words = words_n_[level - 1];
        const tick_type present = now_ >> shift(level);
        for (tick_type ahead = 1; ahead <= slots_n;) {
            const std::size_t slot = (present + ahead) & mask(bits_n);
            const std::uint64_t here = words[slot / 64] >> (slot % 64);
            if (here == 0) {
                ahead += 64 - slot % 64;
                continue;
            }
            const auto skip = static_cast<tick_type>(std::countr_zero(here));
            ahead += skip;
            if (ahead > slots_n) {
                break;
            }
            const std::size_t found = slot + skip;
            if (!upper_[level - 1][found].empty()) {
                return (present + ahead) << shift(level);
            }
            words[found / 64] &= ~(std::uint64_t{1} << (found % 64));
        }
        return std::nullopt;
    }

    tick_type now_ = 0;
    bool from_back_ = false; // where pop_due took the last one
    std::uint64_t summary_0_ = 0;
    std::array<std::uint64_t, slots_0 / 64> words_0_{};
    std::array<std::array<std::uint64_t, slots_n / 64>, upper_levels> words_n_{};
    std::array<list<Node>, slots_0> level_0_;
    std::array<std::array<list<Node>, slots_n>, upper_levels> upper_;
    list<Node> beyond_;
    list<Node> due_;
    list<Node> aside_;
    list<Node> moving_; // empty but inside move_down
};

} // namespace timerbench::detail
