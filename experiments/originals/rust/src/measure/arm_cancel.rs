//! Arm and cancel, with others armed before.
//!
//! Saturating: a batch of pairs in one poll of a task. Paced: a burst each millisecond, timed in the burst alone; its CPU
//! is the process's minus that of the same pacing without pairs.
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use super::{ONE_SECOND, Task, in_poll, on_worker, pairs, settle, timed, wrong_counts};
use crate::cases::{Experiment, PAIRS_PER_MS};
use crate::clock::{process_cpu_ns, reading_ns};
use crate::heap;
use crate::operation::Operation;
use crate::random::Random;
use crate::report::Samples;
use crate::systems::{System, runtime};

const LEAST_PAIRS: u64 = 1_000;
/// A batch is calibrated to take this long, so that the 2 ms it must take hold when it runs faster.
const BATCH_NS: f64 = 3e6;
const BURSTS: u64 = 60;

struct Result {
    wall: Samples,
    cpu: Samples,
    wrong: u64,
    pairs: u64,
    grown_bytes: i64,
}

pub fn saturating<S: System>(task: &Task, population: usize) {
    let samples = task.effort.pick(5, 10);
    let seed = task.seed;
    let result = on_worker(&runtime::<S>(1), async move {
        let others = arm_others::<S>(population, seed).await;
        let mut wrong = others.not_pending;
        let count = calibrated::<S>(&mut wrong).await;
        let (mut wall, mut cpu) = (Samples::default(), Samples::default());
        for _ in 0..samples {
            let cpu_before = process_cpu_ns();
            let (wall_ns, not_pending) =
                in_poll(|context| timed(|| pairs::<S>(context, ONE_SECOND, count))).await;
            settle().await;
            let cpu_ns = process_cpu_ns() - cpu_before;
            wrong += not_pending;
            let clock_ns = reading_ns();
            wall.add_beside(wall_ns / count as f64, clock_ns);
            cpu.add_beside(cpu_ns / count as f64, clock_ns);
        }
        heap::count(true);
        let before = heap::counts().live;
        wrong += in_poll(|context| pairs::<S>(context, ONE_SECOND, count)).await;
        let grown_bytes = heap::counts().live - before;
        heap::count(false);
        drop(others);
        Result {
            wall,
            cpu,
            wrong,
            pairs: count,
            grown_bytes,
        }
    });
    let growth = format!(
        "{} pairs a batch after one of warm-up; the heap grew by {} B in a batch, before the worker next parked",
        result.pairs, result.grown_bytes
    );
    write::<S>(task, &result, samples * result.pairs, &growth);
}

pub fn paced<S: System>(task: &Task, population: usize) {
    let samples = task.effort.pick(3, 10);
    let seed = task.seed;
    let result = on_worker(&runtime::<S>(1), async move {
        let others = arm_others::<S>(population, seed).await;
        let mut wrong = others.not_pending;
        bursts::<S>(PAIRS_PER_MS, BURSTS / 5, &mut wrong).await;
        let (mut wall, mut cpu) = (Samples::default(), Samples::default());
        let count = (BURSTS * PAIRS_PER_MS) as f64;
        for _ in 0..samples {
            let (_, idle_cpu_ns) = bursts::<S>(0, BURSTS, &mut wrong).await;
            let (wall_ns, cpu_ns) = bursts::<S>(PAIRS_PER_MS, BURSTS, &mut wrong).await;
            let clock_ns = reading_ns();
            wall.add_beside(wall_ns / count, clock_ns);
            cpu.add_beside((cpu_ns - idle_cpu_ns) / count, clock_ns);
        }
        drop(others);
        Result {
            wall,
            cpu,
            wrong,
            pairs: BURSTS * PAIRS_PER_MS,
            grown_bytes: 0,
        }
    });
    let pacing = format!(
        "{BURSTS} bursts a sample, timed in the bursts; CPU minus that of the same pacing without pairs"
    );
    write::<S>(task, &result, samples * result.pairs, &pacing);
}

fn write<S: System>(task: &Task, result: &Result, all: u64, detail: &str) {
    let metrics = Experiment::ArmCancel.metrics();
    if let Some(reason) = wrong_counts(result.wrong, all) {
        return task.rows.error(metrics, &reason);
    }
    let note = format!("{}; {detail}", S::NOTE);
    task.rows.samples(metrics[0], &result.wall, &note);
    task.rows.samples(metrics[1], &result.cpu, &note);
}

/// Timeouts that stay armed as long as this lives.
struct Others {
    _armed: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
    not_pending: u64,
}

/// Arms timeouts of 120 to 840 s from the current task and lets its worker see them.
async fn arm_others<S: System>(population: usize, seed: u64) -> Others {
    let mut random = Random::new(seed, population as u64);
    let mut armed = Vec::with_capacity(population);
    let mut not_pending = 0;
    for _ in 0..population {
        let duration = Duration::from_nanos(120_000_000_000 + random.below(720_000_000_000));
        armed.push(other::<S>(duration));
    }
    // In one poll of the task, as the pairs are, but seen by the worker in between.
    for some in armed.chunks_mut(10_000) {
        not_pending += in_poll(|context| {
            some.iter_mut()
                .map(|timeout| u64::from(timeout.as_mut().poll(context).is_ready()))
                .sum::<u64>()
        })
        .await;
        tokio::task::yield_now().await;
    }
    settle().await;
    Others {
        _armed: armed,
        not_pending,
    }
}

fn other<S: System>(duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let timeout = S::timeout(duration, Operation::never());
    Box::pin(async move {
        let _ = timeout.await;
    })
}

/// How many pairs fill a batch. Ends with a batch of that size: the warm-up.
async fn calibrated<S: System>(wrong: &mut u64) -> u64 {
    let mut count = LEAST_PAIRS;
    loop {
        let (wall_ns, not_pending) =
            in_poll(|context| timed(|| pairs::<S>(context, ONE_SECOND, count))).await;
        settle().await;
        *wrong += not_pending;
        if wall_ns >= BATCH_NS {
            return count;
        }
        // At most eightfold at a time: the first batches are colder than the last.
        let factor = (1.1 * BATCH_NS / wall_ns.max(1.0)).min(8.0);
        count = (count as f64 * factor).ceil() as u64;
    }
}

/// Bursts of `size` pairs, one each millisecond: the bursts' wall time and the process's CPU time.
async fn bursts<S: System>(size: u64, bursts: u64, wrong: &mut u64) -> (f64, f64) {
    let mut every = tokio::time::interval(Duration::from_millis(1));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let cpu_before = process_cpu_ns();
    let mut wall_ns = 0.0;
    for _ in 0..bursts {
        every.tick().await;
        let start = Instant::now();
        *wrong += in_poll(|context| pairs::<S>(context, ONE_SECOND, size)).await;
        wall_ns += start.elapsed().as_nanos() as f64;
    }
    settle().await;
    (wall_ns, process_cpu_ns() - cpu_before)
}
