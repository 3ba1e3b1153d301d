//! Pingora's and tokio's timeouts in timerbench's cases.
//!
//! How it measures. A pair is what a user of these libraries does: make a timeout of 1 s around an operation that
//! never finishes, poll it once (which arms it), drop it (which cancels it). The loop runs inside one poll of a spawned
//! task of a multi-thread runtime, with that task's own waker. Wall time is the loop's; CPU time is the process's
//! from before the batch until the runtime has parked once more, so that work put off to the worker is in it. Every
//! system x case runs in a process of its own: pingora keeps the entries of dropped timeouts until their deadline, for
//! whichever thread comes next, and would hand them to the next case.
//!
//! What does not compare, and what was done about it:
//!
//! - A future against a callback: a timeout here wakes a task that a worker then polls. Accuracy is taken in that
//!   task, so it has the wake-up in it; the C++ services' callbacks start one step earlier.
//! - The I/O driver: with it, tokio writes to an eventfd at each arm that is earlier than the wake-up its driver has
//!   announced. `time_only` is a runtime without it. `time_and_io` has it, with no earlier wake-up known.
//!   `time_and_io_known_wakeup` keeps one sleep of at most 0.5 s pending, so no pair is the earliest. Pingora's systems
//!   run with both drivers, as pingora's own server does.
//! - Pingora's fallback takes timeouts of more than 15 min. To use it in a case of 1 s, `above_threshold` lowers the
//!   threshold to 0 s with the call that the library has for that. Whole seconds count, so shorter timeouts cannot
//!   take that path: no accuracy.
//! - `per_worker` is tokio's unstable timer: a second build of this program, with `--cfg tokio_unstable`. A worker
//!   takes new and cancelled timers from queues when it next parks, which a saturating loop never lets it do; hence
//!   the paced regime, a burst each millisecond.
//! - No warm-up of a virtual machine and no collector: one batch is thrown away, no more.
//! - Counting allocations costs two atomic additions each: the counter is off except where it is the figure.
mod cases;
mod clock;
mod heap;
mod measure;
mod operation;
mod options;
mod random;
mod report;
mod systems;
mod verify;
mod visit;

use std::process::ExitCode;

use options::Command;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

fn main() -> ExitCode {
    let command = match options::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(mistake) => {
            eprintln!("timerbench-originals: {mistake}");
            return ExitCode::from(2);
        }
    };
    match command {
        Command::List => visit::list(),
        Command::Verify { systems } => visit::verify(&systems),
        Command::VerifyHere { system } => visit::verify_here(system),
        Command::Visit(visit) => visit::run(&visit),
        Command::Cell(cell) => visit::cell(&cell),
    }
}
