//! How late a timeout is seen by the task that waits for it.
//!
//! A thread outside the runtime spawns a task for each event, at times spread at random over a window, so that deadlines
//! fall anywhere within a tick and many are in flight at once. The task reads the clock, awaits its timeout, reads again.
use std::time::{Duration, Instant};

use super::Task;
use crate::cases::Experiment;
use crate::operation::Operation;
use crate::random::Random;
use crate::report::Samples;
use crate::systems::{System, runtime};

const WORKERS: usize = 2;

pub fn measure<S: System>(task: &Task, duration_ms: u64, name: &str) {
    let metrics = Experiment::Accuracy.metrics();
    let duration = Duration::from_millis(duration_ms);
    if duration < S::SHORTEST {
        return task.rows.skipped(
            metrics,
            "the fallback is taken above a threshold of whole seconds: no timeout below 1 s reaches it",
        );
    }
    if name.ends_with("_known_wakeup") {
        return task.rows.skipped(
            metrics,
            "the same timer as original/tokio/time_and_io: what the driver knows changes the cost of arming alone",
        );
    }
    let events = task.effort.pick(200, 1_000);
    let (quick_ms, full_ms) = S::ARMED_OVER_MS;
    let window = Duration::from_millis(task.effort.pick(quick_ms, full_ms));
    match lateness_ms::<S>(events, window, task.seed, |_| duration) {
        Ok(late) => {
            let note = format!(
                "{}; {WORKERS} workers, armed over {} ms",
                S::NOTE,
                window.as_millis()
            );
            task.rows
                .events(metrics[0], &Samples::of_events(late), &note);
        }
        Err(reason) => task.rows.error(metrics, &reason),
    }
}

/// Lateness in ms of `events` timeouts, armed over `window`; the durations are those that `duration` gives by number.
pub fn lateness_ms<S: System>(
    events: u64,
    window: Duration,
    seed: u64,
    duration: impl Fn(u64) -> Duration,
) -> Result<Vec<f64>, String> {
    let mut random = Random::new(seed, 0xacc);
    let mut offsets: Vec<u64> = (0..events)
        .map(|_| random.below(window.as_nanos() as u64))
        .collect();
    offsets.sort_unstable();
    let runtime = runtime::<S>(WORKERS);
    let begin = Instant::now();
    let mut tasks = Vec::with_capacity(offsets.len());
    for (number, offset) in (0..).zip(offsets) {
        let due = begin + Duration::from_nanos(offset);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let duration = duration(number);
        tasks.push(runtime.spawn(async move {
            let start = Instant::now();
            let timed_out = S::timeout(duration, Operation::never()).await.is_err();
            let late = start.elapsed().as_secs_f64() - duration.as_secs_f64();
            timed_out.then_some(late * 1e3)
        }));
    }
    runtime.block_on(async {
        let mut late = Vec::with_capacity(tasks.len());
        for task in tasks {
            match task.await {
                Ok(Some(lateness)) => late.push(lateness),
                Ok(None) => return Err("an operation that never finishes was reported done".into()),
                Err(reason) => return Err(format!("a waiting task ended early: {reason}")),
            }
        }
        Ok(late)
    })
}
