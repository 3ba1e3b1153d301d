//! The experiments. Each measures one system x case in a process that does nothing else.
mod accuracy;
mod allocs;
mod arm_cancel;
mod memory;
mod ready_path;
mod scaling;
mod soak;

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::cases::Case;
use crate::operation::Operation;
use crate::options::{Cell, Effort};
use crate::report::Rows;
use crate::systems::System;

pub use accuracy::lateness_ms;

/// The timeout of a pair.
const ONE_SECOND: Duration = Duration::from_secs(1);

/// What an experiment needs to know beside its system.
struct Task<'a> {
    rows: &'a Rows,
    effort: Effort,
    seed: u64,
}

/// Measures the cell and writes its rows.
pub fn cell<S: System>(cell: &Cell, case: Case) {
    let rows = &Rows {
        service: S::NAME,
        case,
    };
    let task = &Task {
        rows,
        effort: cell.effort,
        seed: cell.seed,
    };
    match case {
        Case::Ready => ready_path::measure::<S>(task),
        Case::Pairs {
            population,
            paced: false,
        } => arm_cancel::saturating::<S>(task, population),
        Case::Pairs {
            population,
            paced: true,
        } => arm_cancel::paced::<S>(task, population),
        Case::Allocations => allocs::measure::<S>(task),
        Case::Workers(workers) => scaling::measure::<S>(task, workers),
        Case::Lateness(duration_ms) => accuracy::measure::<S>(task, duration_ms, cell.system.name),
        Case::Cancelled(timers) => memory::measure::<S>(task, timers),
        Case::Soak => soak::measure::<S>(task),
    }
}

/// Arms and cancels `count` timeouts one after the other; gives how many were not pending at their only poll.
fn pairs<S: System>(context: &mut Context<'_>, duration: Duration, count: u64) -> u64 {
    let mut not_pending = 0;
    for _ in 0..count {
        let mut timeout = pin!(S::timeout(black_box(duration), Operation::never()));
        not_pending += u64::from(timeout.as_mut().poll(context).is_ready());
    }
    not_pending
}

/// Calls `work` once within a poll of the current task.
async fn in_poll<T>(work: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let mut work = Some(work);
    poll_fn(move |context| {
        let work = work
            .take()
            .expect("polled once: it is ready at its first poll");
        Poll::Ready(work(context))
    })
    .await
}

/// Lets the worker park once, which is when it does what it put off.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Runs `work` as a task of the runtime's workers, to its end.
fn on_worker<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    runtime
        .block_on(runtime.spawn(work))
        .expect("the measuring task does not panic")
}

/// Nanoseconds that `work` takes.
fn timed(work: impl FnOnce() -> u64) -> (f64, u64) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_nanos() as f64, result)
}

/// Why rows must not be used when `wrong` is not 0.
fn wrong_counts(wrong: u64, of: u64) -> Option<String> {
    (wrong > 0).then(|| format!("{wrong} of {of} timeouts ended otherwise than they must"))
}
