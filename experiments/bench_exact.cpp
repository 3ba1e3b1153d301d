// What repeats to the last digit?
//
// Nothing is timed. A fixed number of operations is done on the manual clock, and what they did is counted; two runs of one
// build give the same rows, so that a gate may compare them exactly. A service that takes no manual clock is left out with
// that reason; its allocations on the steady clock are in bench_allocs. What is counted, and why the measurement exists:
//
// arm_cancel (allocations, bytes)         2 000 times arm then cancel of one timer, 1 s.
// window (allocations, bytes)             200 timers are outstanding; 2 000 times cancel of the oldest, or of a random one, and arm anew.
// arm_fire (allocations, bytes)           500 timers are armed and fire 100 to 119 ms later.
// late_cancel (allocations, bytes)        500 timers that have fired are cancelled: the usual race that was lost.
// cancel_in_callback (...)                200 callbacks cancel another timer each.
// random_durations (fires_lost,           1 000 timers of random durations, most below 100 ms and some up to 1 s, armed and fired while
//   early_fires)                          time moves on in uneven steps. A service that is early by design shows its number here.
// timer (timer_size)                      bytes of the caller's storage for a timer on the steady clock.
//
// "fresh" starts with the second pair of a service, "steady" after 1.1 s of the same work. Counts are sums over the operations, over
// all threads of the process. --quick does the same as a full run and its report is not marked as quick.
//
// With --instructions it runs the caller's path alone, between marks for callgrind; scripts/instructions starts it so.
#include "experiments/exact_report.hpp"
#include "timers/services.hpp"

int main(int argc, char** argv) {
    return timerbench::experiments::exact::run_exact<timerbench::all_services>(argc, argv);
}
