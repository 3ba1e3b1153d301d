// One service behind virtual calls, so that each conformance test is compiled once and runs over every service.
//
// The cost of the indirect call does not matter here: nothing in the tests is measured.
#pragma once

#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <cstddef>
#include <memory>
#include <new>
#include <optional>

namespace timerbench::testing {

class erased_service {
  public:
    /// Where the real timer lives. Storage comes from `operator new` below, see `poison_scope`.
    struct timer_body {
        timer_body() = default;
        timer_body(const timer_body&) = delete;
        timer_body& operator=(const timer_body&) = delete;
        virtual ~timer_body() = default;

        static void* operator new(std::size_t size);
        static void* operator new(std::size_t size, std::align_val_t align);
        static void operator delete(void* storage, std::size_t size);
        static void operator delete(void* storage, std::size_t size, std::align_val_t align);
    };

    class timer {
      public:
        explicit timer(erased_service& service) : body_{service.make_timer()} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;

        [[nodiscard]] timer_body& body() noexcept { return *body_; }

      private:
        std::unique_ptr<timer_body> body_;
    };

    erased_service() = default;
    erased_service(const erased_service&) = delete;
    erased_service& operator=(const erased_service&) = delete;
    virtual ~erased_service() = default;

    [[nodiscard]] bool arm(timer& t, duration d, callback c) { return arm_body(t.body(), d, c); }
    bool cancel(timer& t) { return cancel_body(t.body()); }
    virtual void stop() = 0;
    [[nodiscard]] virtual timerbench::counters counters() const = 0;
    [[nodiscard]] virtual service_traits traits() const = 0;

    // What not every service has. The calls may only be made where the question before them is answered by true.
    [[nodiscard]] virtual bool has_loop() const = 0;
    virtual std::size_t poll() = 0;
    virtual std::size_t poll_until(time_point t) = 0;
    /// When the loop should poll next; empty where the service does not say, or nothing is armed.
    [[nodiscard]] virtual std::optional<time_point> next_expiry() = 0;
    [[nodiscard]] virtual bool has_backlog() const = 0;
    [[nodiscard]] virtual std::size_t backlog() const = 0;
    virtual void drain() = 0;
    [[nodiscard]] virtual bool has_window() const = 0;
    virtual void hold_window(duration d) = 0;
    [[nodiscard]] virtual bool is_forkable() const = 0;
    virtual void pause_for_fork() = 0;
    virtual void resume() = 0;

  private:
    [[nodiscard]] virtual std::unique_ptr<timer_body> make_timer() = 0;
    virtual bool arm_body(timer_body& t, duration d, callback c) = 0;
    virtual bool cancel_body(timer_body& t) = 0;
};

/// While one is alive, the storage of destroyed timers is filled with a pattern and kept. One at a time.
class poison_scope {
  public:
    poison_scope();
    poison_scope(const poison_scope&) = delete;
    poison_scope& operator=(const poison_scope&) = delete;
    ~poison_scope();

    /// Number of destroyed timers whose storage still holds the pattern, and of those where something was written.
    struct findings {
        std::size_t intact = 0;
        std::size_t touched = 0;
    };
    [[nodiscard]] findings inspect() const;
};

} // namespace timerbench::testing
