//! What cancelled timeouts leave behind.
use std::time::Duration;

use super::{Task, in_poll, on_worker, pairs, settle, wrong_counts};
use crate::cases::Experiment;
use crate::heap;
use crate::report::Samples;
use crate::systems::{System, runtime};

const ONE_MINUTE: Duration = Duration::from_secs(60);

pub fn measure<S: System>(task: &Task, timers: usize) {
    let count = timers as u64;
    let (at_once, held, rss, wrong) = on_worker(&runtime::<S>(1), async move {
        // What the first timeout of a process builds is no timer's.
        let mut wrong = in_poll(|context| pairs::<S>(context, ONE_MINUTE, 1)).await;
        settle().await;
        heap::count(true);
        let (live_before, rss_before) = (heap::counts().live, resident_bytes());
        wrong += in_poll(|context| pairs::<S>(context, ONE_MINUTE, count)).await;
        let live_at_once = heap::counts().live;
        settle().await;
        let (live_after, rss_after) = (heap::counts().live, resident_bytes());
        heap::count(false);
        let each = |bytes: i64| bytes as f64 / count as f64;
        (
            each(live_at_once - live_before),
            each(live_after - live_before),
            each(rss_after - rss_before),
            wrong,
        )
    });
    let metrics = Experiment::Memory.metrics();
    if let Some(reason) = wrong_counts(wrong, count) {
        return task.rows.error(metrics, &reason);
    }
    let note = format!(
        "{}; {at_once:.1} B each before the worker parked, what is reported after it did; resident memory is what \
         the allocator has not given back",
        S::NOTE
    );
    for (metric, value) in metrics.iter().zip([held, rss]) {
        let mut samples = Samples::default();
        samples.add(value);
        task.rows.samples(*metric, &samples, &note);
    }
}

/// Bytes of this process in physical memory.
fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux's /proc is mounted");
    let kib: Option<i64> = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok());
    kib.expect("VmRSS is a number of KiB") * 1024
}
