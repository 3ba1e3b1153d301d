//! Allocations and bytes of a pair.
use super::{ONE_SECOND, Task, in_poll, on_worker, pairs, settle, wrong_counts};
use crate::cases::Experiment;
use crate::heap;
use crate::report::Samples;
use crate::systems::{System, runtime};

const PAIRS: u64 = 20_000;

pub fn measure<S: System>(task: &Task) {
    let samples = task.effort.pick(5, 10);
    let (allocations, bytes, wrong) = on_worker(&runtime::<S>(1), async move {
        let (mut allocations, mut bytes) = (Samples::default(), Samples::default());
        let mut wrong = in_poll(|context| pairs::<S>(context, ONE_SECOND, PAIRS)).await;
        for _ in 0..samples {
            settle().await;
            heap::count(true);
            let before = heap::counts();
            wrong += in_poll(|context| pairs::<S>(context, ONE_SECOND, PAIRS)).await;
            let after = heap::counts();
            heap::count(false);
            allocations.add((after.allocations - before.allocations) as f64 / PAIRS as f64);
            bytes.add((after.bytes - before.bytes) as f64 / PAIRS as f64);
        }
        (allocations, bytes, wrong)
    });
    let metrics = Experiment::Allocs.metrics();
    if let Some(reason) = wrong_counts(wrong, (samples + 1) * PAIRS) {
        return task.rows.error(metrics, &reason);
    }
    let note = format!(
        "{}; counted by the global allocator over {PAIRS} pairs",
        S::NOTE
    );
    task.rows.samples(metrics[0], &allocations, &note);
    task.rows.samples(metrics[1], &bytes, &note);
}
