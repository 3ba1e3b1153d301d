// SIGINT and SIGTERM end a run in order: the first sets a flag, which the sampler polls between batches and
// report::finish() sees (one line, exit code 130, reports of earlier runs untouched). A second one kills at once, unless it comes
// so soon that the same wish was sent twice, to the process and to its group, as timeout(1) does.
//
// One guard at a time, made in main before threads start. The flag is one lock-free atomic written by the signal
// handler and read by any thread; nothing else is shared. An experiment that waits for long without visiting the sampler
// polls interrupted() itself, at least every 100 ms.
#pragma once

#include <csignal>

namespace timerbench::harness {

class interrupt_guard {
  public:
    interrupt_guard();  // installs the handlers and clears the flag
    ~interrupt_guard(); // puts back what was there and clears the flag
    interrupt_guard(const interrupt_guard&) = delete;
    interrupt_guard& operator=(const interrupt_guard&) = delete;

  private:
    struct sigaction old_interrupt_ {};
    struct sigaction old_terminate_ {};
};

// Whether a signal has come while the guard lives. Any thread.
[[nodiscard]] bool interrupted() noexcept;
// The signal that came, 0 if none.
[[nodiscard]] int interrupting_signal() noexcept;

// Holds SIGINT and SIGTERM back from the calling thread while it lives (short critical sections: renaming files).
class signals_held {
  public:
    signals_held();
    ~signals_held();
    signals_held(const signals_held&) = delete;
    signals_held& operator=(const signals_held&) = delete;

  private:
    sigset_t old_{};
};

} // namespace timerbench::harness
