// An intrusive circular doubly linked list with a sentinel: link and unlink are four stores, and an element unlinks
// itself without knowing which list it is in. Not thread-safe; the lock of whoever owns the list guards it.
#pragma once

#include <cstddef>

namespace timerbench::detail {

// may_alias: gcc 12 at -O2 otherwise keeps a sentinel's links in registers across the unlink of its neighbour.
struct [[gnu::may_alias]] list_link {
    list_link* prev = nullptr;
    list_link* next = nullptr;

    [[nodiscard]] bool linked() const noexcept { return next != nullptr; }

    void unlink() noexcept {
        prev->next = next;
        next->prev = prev;
        next = nullptr; // says that it is unlinked; prev is left as it is
    }
};

/// `T` derives from list_link.
template <class T>
class list {
  public:
    list() noexcept { clear(); }
    list(const list&) = delete;
    list& operator=(const list&) = delete;

    [[nodiscard]] bool empty() const noexcept { return head_.next == &head_; }
    [[nodiscard]] T* front() noexcept { return empty() ? nullptr : static_cast<T*>(head_.next); }
    [[nodiscard]] T* back() noexcept { return empty() ? nullptr : static_cast<T*>(head_.prev); }

    /// The element behind one of this list, or null.
    [[nodiscard]] T* after(T& element) noexcept {
        list_link* const next = static_cast<list_link&>(element).next;
        return next == &head_ ? nullptr : static_cast<T*>(next);
    }

    void push_back(T& element) noexcept {
        list_link& link = element;
        link.prev = head_.prev;
        link.next = &head_;
        head_.prev->next = &link;
        head_.prev = &link;
    }

    /// Moves all elements of `other` to the end of this list, in order, in constant time.
    void splice_back(list& other) noexcept {
        if (other.empty()) {
            return;
        }
        other.head_.next->prev = head_.prev;
        head_.prev->next = other.head_.next;
        other.head_.prev->next = &head_;
        head_.prev = other.head_.prev;
        other.clear();
    }

    /// Linear.
    [[nodiscard]] std::size_t size() const noexcept {
        std::size_t n = 0;
        for (const list_link* at = head_.next; at != &head_; at = at->next) {
            ++n;
        }
        return n;
    }

    /// Calls `f(T&)` for each element, in order; `f` does not change the list. Linear.
    template <class F>
    void for_each(F&& f) {
        for (list_link* at = head_.next; at != &head_; at = at->next) {
            f(static_cast<T&>(*at));
        }
    }

  private:
    void clear() noexcept { head_.prev = head_.next = &head_; }
    list_link head_;
};

} // namespace timerbench::detail
