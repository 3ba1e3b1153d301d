//! Pairs by every worker of a runtime at once, nobody else armed.
//!
//! Each worker's task waits at a barrier that blocks its thread, so no two tasks can share a worker. Wall time is from the
//! first start to the last end.
use std::sync::{Arc, Barrier};
use std::time::Instant;

use tokio::runtime::Runtime;

use super::{ONE_SECOND, Task, in_poll, pairs, settle, wrong_counts};
use crate::cases::Experiment;
use crate::clock::{process_cpu_ns, reading_ns};
use crate::report::Samples;
use crate::systems::{System, runtime};

struct Part {
    start: Instant,
    end: Instant,
    /// The process's CPU time when this worker came to the barrier.
    cpu_ns: f64,
    not_pending: u64,
}

pub fn measure<S: System>(task: &Task, workers: usize) {
    let samples = task.effort.pick(5, 10);
    let count = task.effort.pick(10_000, 20_000);
    let runtime = runtime::<S>(workers);
    let (mut wall, mut cpu) = (Samples::default(), Samples::default());
    let (_, _, mut wrong) = together::<S>(&runtime, workers, count / 4);
    for _ in 0..samples {
        let (wall_ns, cpu_ns, not_pending) = together::<S>(&runtime, workers, count);
        wrong += not_pending;
        let clock_ns = reading_ns();
        wall.add_beside(wall_ns / count as f64, clock_ns);
        cpu.add_beside(cpu_ns / (count as f64 * workers as f64), clock_ns);
    }
    let metrics = Experiment::Scaling.metrics();
    if let Some(reason) = wrong_counts(wrong, samples * count * workers as u64) {
        return task.rows.error(metrics, &reason);
    }
    let note = format!("{}; one runtime, {count} pairs a worker", S::NOTE);
    task.rows.samples(metrics[0], &wall, &note);
    task.rows.samples(metrics[1], &cpu, &note);
}

fn together<S: System>(runtime: &Runtime, workers: usize, count: u64) -> (f64, f64, u64) {
    let barrier = Arc::new(Barrier::new(workers));
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let barrier = barrier.clone();
            runtime.spawn(async move {
                let cpu_ns = process_cpu_ns();
                barrier.wait();
                let start = Instant::now();
                let not_pending = in_poll(|context| pairs::<S>(context, ONE_SECOND, count)).await;
                let end = Instant::now();
                // A worker that parked now would take over the driver and tell it of the others' deadlines.
                barrier.wait();
                Part {
                    start,
                    end,
                    cpu_ns,
                    not_pending,
                }
            })
        })
        .collect();
    let parts: Vec<Part> = runtime.block_on(async {
        let mut parts = Vec::with_capacity(workers);
        for task in tasks {
            parts.push(task.await.expect("a worker's task does not panic"));
        }
        settle().await;
        parts
    });
    let cpu_after = process_cpu_ns();
    let start = parts.iter().map(|part| part.start).min();
    let end = parts.iter().map(|part| part.end).max();
    let wall_ns = match (start, end) {
        (Some(start), Some(end)) => end.duration_since(start).as_nanos() as f64,
        _ => 0.0,
    };
    // The last reading is that of the worker that opened the barrier, before any pair of any worker.
    let cpu_before = parts.iter().map(|part| part.cpu_ns).fold(0.0, f64::max);
    let not_pending = parts.iter().map(|part| part.not_pending).sum();
    (wall_ns, cpu_after - cpu_before, not_pending)
}
