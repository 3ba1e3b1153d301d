// Which callbacks the current thread is inside of.
//
// A driver puts a frame on its stack around every callback. `cancel` asks whether it runs inside a callback of its
// service, because it must not wait there, and `arm` asks whether a timer re-arms itself. Frames are linked through a
// thread-local pointer: a callback of one service may poll another.
#pragma once

#include "timers/service.hpp"

namespace timerbench::detail {

class callback_scope {
  public:
    /// `owner` identifies the service, `timer` the handle whose callback runs.
    callback_scope(const void* owner, const void* timer) noexcept
        : owner_{owner},
          timer_{timer},
          outer_{innermost()} {
        innermost() = this;
    }
    callback_scope(const callback_scope&) = delete;
    callback_scope& operator=(const callback_scope&) = delete;
    ~callback_scope() { innermost() = outer_; }

    /// For its life the calling thread counts as outside of every callback: a `cancel` then waits for a callback that runs on another thread. Only for
    /// a timer whose callback does not run on this thread.
    class outside {
      public:
        outside() noexcept : hidden_{innermost()} { innermost() = nullptr; }
        outside(const outside&) = delete;
        outside& operator=(const outside&) = delete;
        ~outside() { innermost() = hidden_; }

      private:
        callback_scope* hidden_;
    };

    /// The timer whose callback this is; null once it was destroyed in there.
    [[nodiscard]] const void* timer() const noexcept { return timer_; }

    /// Whether the calling thread is inside a callback of any service.
    [[nodiscard]] static bool inside_any() noexcept { return innermost() != nullptr; }

    /// Whether the calling thread is inside any callback of `owner`.
    [[nodiscard]] static bool inside(const void* owner) noexcept {
        for (const callback_scope* s = innermost(); s != nullptr; s = s->outer_) {
            if (s->owner_ == owner) {
                return true;
            }
        }
        return false;
    }

    /// Whether the calling thread is inside the callback of `timer`.
    [[nodiscard]] static bool inside_own(const void* timer) noexcept {
        for (const callback_scope* s = innermost(); s != nullptr; s = s->outer_) {
            if (s->timer_ == timer) {
                return true;
            }
        }
        return false;
    }

    /// Called when a timer is destroyed inside its own callback: a new timer may get its address.
    static void forget(const void* timer) noexcept {
        for (callback_scope* s = innermost(); s != nullptr; s = s->outer_) {
            if (s->timer_ == timer) {
                s->timer_ = nullptr;
            }
        }
    }

  private:
    static callback_scope*& innermost() noexcept {
        thread_local callback_scope* top = nullptr;
        return top;
    }

    const void* owner_;
    const void* timer_;
    callback_scope* outer_;
};

/// Runs the callback; true if it threw.
inline bool run_guarded(callback c) noexcept {
    try {
        c.run(c.context);
        return false;
    } catch (...) {
        return true;
    }
}

} // namespace timerbench::detail
