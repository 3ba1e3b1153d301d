//! A timeout around an operation that is done at its first poll, and the operation alone.
//!
//! Three batches a sample: bare, whole, bare. `above_bare` is the whole minus the mean of the bare ones beside it.
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll};

use super::{ONE_SECOND, Task, in_poll, on_worker, timed, wrong_counts};
use crate::cases::Experiment;
use crate::operation::Operation;
use crate::report::Samples;
use crate::systems::{System, runtime};

const OPERATIONS: u64 = 200_000;
const LEAST_NS: f64 = 2e6;

pub fn measure<S: System>(task: &Task) {
    let samples = task.effort.pick(5, 10);
    let (above, poll, wrong, operations) = on_worker(&runtime::<S>(1), async move {
        let (mut above, mut poll) = (Samples::default(), Samples::default());
        let mut operations = OPERATIONS;
        let mut wrong = 0;
        let (first_ns, _) = in_poll(|context| timed(|| guarded::<S>(context, operations))).await;
        if first_ns < LEAST_NS {
            operations *= (LEAST_NS / first_ns.max(1.0)).ceil() as u64 + 1;
        }
        for _ in 0..samples {
            let (bare_ns, whole_ns, not_done) = in_poll(|context| {
                let (before, not_done) = timed(|| bare(context, operations));
                let (whole, not_in_time) = timed(|| guarded::<S>(context, operations));
                let (after, still_not_done) = timed(|| bare(context, operations));
                let wrong = not_done + not_in_time + still_not_done;
                ((before + after) / 2.0, whole, wrong)
            })
            .await;
            wrong += not_done;
            above.add((whole_ns - bare_ns) / operations as f64);
            poll.add(whole_ns / operations as f64);
            tokio::task::yield_now().await;
        }
        (above, poll, wrong, operations)
    });
    let metrics = Experiment::ReadyPath.metrics();
    if let Some(reason) = wrong_counts(wrong, 3 * samples * operations) {
        return task.rows.error(metrics, &reason);
    }
    let note = format!("{}; {operations} operations a batch", S::NOTE);
    task.rows.samples(metrics[0], &above, &note);
    task.rows.samples(metrics[1], &poll, &note);
}

/// Gives how many were not ready.
fn bare(context: &mut Context<'_>, count: u64) -> u64 {
    let mut done = 0;
    for _ in 0..count {
        let mut operation = pin!(Operation::ready());
        if let Poll::Ready(value) = operation.as_mut().poll(context) {
            done += black_box(value);
        }
    }
    count - done
}

/// Gives how many were not ready with the operation's own value.
fn guarded<S: System>(context: &mut Context<'_>, count: u64) -> u64 {
    let mut done = 0;
    for _ in 0..count {
        let mut timeout = pin!(S::timeout(black_box(ONE_SECOND), Operation::ready()));
        if let Poll::Ready(Ok(value)) = timeout.as_mut().poll(context) {
            done += black_box(value);
        }
    }
    count - done
}
