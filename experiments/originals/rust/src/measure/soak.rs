//! Does a timeout get lost? Tasks loop a zero timeout around an operation that never finishes.
//!
//! A task that made no progress in the last second of the run nor in a grace of 2 s after it has stopped.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Task;
use crate::cases::{Experiment, SOAK_TASKS, SOAK_WORKERS};
use crate::operation::Operation;
use crate::report::Samples;
use crate::systems::{System, runtime};

const LAST: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(2);

struct Tally {
    /// One count a task. Added to by that task alone, read by the main thread, which needs no order between them.
    done: Vec<AtomicU64>,
    /// Set once by the main thread; a task that sees it late makes one more turn.
    over: AtomicBool,
    /// Tasks that took an operation that never finishes for done. Counts are only summed.
    wrong: AtomicU64,
}

pub fn measure<S: System>(task: &Task) {
    let run = Duration::from_secs(task.effort.pick(3, 20));
    let runtime = runtime::<S>(SOAK_WORKERS);
    let tally = Arc::new(Tally {
        done: (0..SOAK_TASKS).map(|_| AtomicU64::new(0)).collect(),
        over: AtomicBool::new(false),
        wrong: AtomicU64::new(0),
    });
    for number in 0..SOAK_TASKS {
        runtime.spawn(turn::<S>(tally.clone(), number));
    }
    std::thread::sleep(run - LAST);
    let earlier = progress(&tally);
    std::thread::sleep(LAST);
    let completions: u64 = progress(&tally).iter().sum();
    std::thread::sleep(GRACE);
    let later = progress(&tally);
    tally.over.store(true, Relaxed);
    let stopped = earlier
        .iter()
        .zip(&later)
        .filter(|(before, after)| before == after)
        .count();
    runtime.shutdown_timeout(Duration::from_millis(500));

    let metrics = Experiment::Soak.metrics();
    let wrong = tally.wrong.load(Relaxed);
    if wrong > 0 || completions == 0 {
        let reason = format!(
            "{completions} completions, {wrong} operations that never finish reported done"
        );
        return task.rows.error(metrics, &reason);
    }
    let note = format!(
        "{}; completions of {} s, then 2 s of grace in which the tasks go on",
        S::NOTE,
        run.as_secs()
    );
    for (metric, value) in metrics.iter().zip([completions as f64, stopped as f64]) {
        let mut samples = Samples::default();
        samples.add(value);
        task.rows.samples(*metric, &samples, &note);
    }
}

async fn turn<S: System>(tally: Arc<Tally>, number: usize) {
    while !tally.over.load(Relaxed) {
        if S::timeout(Duration::ZERO, Operation::never()).await.is_ok() {
            tally.wrong.fetch_add(1, Relaxed);
            return;
        }
        tally.done[number].fetch_add(1, Relaxed);
    }
}

fn progress(tally: &Tally) -> Vec<u64> {
    tally.done.iter().map(|count| count.load(Relaxed)).collect()
}
