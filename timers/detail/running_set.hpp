// The callbacks that a service (or one shard of it) is running now, so that a cancel from elsewhere can wait for one.
//
// Every member is called with the lock of the service or shard held; `Lock` is that lock's type. A driver keeps a `record`
// on its stack while a callback runs, so nothing here allocates, and the timer itself is not touched once its
// callback has begun: the callback may destroy it.
//
//   driver:  lock; begin(record, timer); unlock; run the callback; lock; end(record); unlock
//   cancel:  lock; unlink the timer if it is linked; if not inside a callback of the service: await(lock, timer); unlock
//   arm:     lock; if bars(timer) return false; link; unlock
//   destroy: cancel, and inside the timer's own callback: forget(timer)
#pragma once

#include "timers/detail/callback_scope.hpp"

#include <condition_variable>

namespace timerbench::detail {

template <class Lock>
class running_set {
  public:
    struct record {
        const void* timer = nullptr;
        bool cancel_begun = false; // a foreign cancel waits: the callback may not arm this timer again
        record* next = nullptr;
    };

    void begin(record& r, const void* timer) noexcept {
        r.timer = timer;
        r.next = first_;
        first_ = &r;
    }

    void end(record& r) noexcept {
        for (record** at = &first_; *at != nullptr; at = &(*at)->next) {
            if (*at == &r) {
                *at = r.next;
                break;
            }
        }
        if (r.cancel_begun) {
            ended_.notify_all();
        }
    }

    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] bool running(const void* timer) const noexcept { return find(timer) != nullptr; }

    /// Whether an arm of this timer must be refused because a foreign cancel has begun.
    [[nodiscard]] bool bars(const void* timer) const noexcept {
        const record* r = find(timer);
        return r != nullptr && r->cancel_begun;
    }

    /// Returns, with the lock held again, when the callback of `timer` is not running. Not inside a callback of the service.
    void await(std::unique_lock<Lock>& lock, const void* timer) {
        for (record* r = find(timer); r != nullptr; r = find(timer)) {
            r->cancel_begun = true;
            ended_.wait(lock);
        }
    }

    /// Returns when no callback runs but those that the calling thread is itself inside of are not awaited by contract:
    /// `stop` is never called from inside a callback.
    void await_all(std::unique_lock<Lock>& lock) {
        while (first_ != nullptr) {
            for (record* r = first_; r != nullptr; r = r->next) {
                r->cancel_begun = true;
            }
            ended_.wait(lock);
        }
    }

    void forget(const void* timer) noexcept {
        if (record* r = find(timer)) {
            r->timer = nullptr;
        }
    }

  private:
    [[nodiscard]] record* find(const void* timer) const noexcept {
        for (record* r = first_; r != nullptr; r = r->next) {
            if (r->timer == timer) {
                return r;
            }
        }
        return nullptr;
    }

    record* first_ = nullptr;
    std::condition_variable_any ended_;
};

} // namespace timerbench::detail
