//! What must hold before a system is timed.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::heap;
use crate::measure::lateness_ms;
use crate::operation::Operation;
use crate::report;
use crate::systems::{System, runtime};

/// No system of these is later than this on a machine that runs at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// Checks the system; false if a check failed.
pub fn system<S: System>() -> bool {
    let results = [
        ("a timeout fires", fires::<S>()),
        ("a cancelled timeout does not fire", cancelled::<S>()),
        (
            "no early fire beyond the documented bound",
            not_early::<S>(),
        ),
        (
            "all timeouts armed in one poll fire",
            armed_in_one_poll::<S>(),
        ),
        ("the allocation counter counts", counter_counts()),
    ];
    for (name, result) in &results {
        let (ok, detail) = match result {
            Ok(detail) => (true, detail),
            Err(detail) => (false, detail),
        };
        report::check(S::NAME, name, ok, detail);
    }
    results.iter().all(|(_, result)| result.is_ok())
}

type Outcome = Result<String, String>;

fn judge(ok: bool, detail: String) -> Outcome {
    if ok { Ok(detail) } else { Err(detail) }
}

/// Counts how often it is woken. Any thread may wake it; the sum is read while waiting for it to change.
#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Count {
    fn woken(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

/// Waits until every one was woken; false if that took longer than anyone's patience.
fn all_woken(counts: &[Arc<Count>]) -> bool {
    let end = Instant::now() + PATIENCE;
    while counts.iter().any(|count| count.woken() == 0) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

fn fires<S: System>() -> Outcome {
    let duration = Duration::from_millis(20).max(S::SHORTEST);
    let late = lateness_ms::<S>(1, Duration::from_nanos(1), 1, |_| duration)?[0];
    judge(
        late >= S::EARLIEST_MS && late < PATIENCE.as_secs_f64() * 1e3,
        format!("one of {} ms came {late:.3} ms late", duration.as_millis()),
    )
}

fn cancelled<S: System>() -> Outcome {
    let runtime = runtime::<S>(1);
    let dropped = Arc::new(Count::default());
    let sentinel = Arc::new(Count::default());
    let (first, last) = (dropped.clone(), sentinel.clone());
    let duration = Duration::from_millis(20).max(S::SHORTEST);
    let held = runtime.block_on(runtime.spawn(async move {
        let timeout = armed::<S>(duration, &first);
        drop(timeout);
        armed::<S>(duration + Duration::from_millis(20), &last)
    }));
    let _held = held.map_err(|reason| reason.to_string())??;
    if !all_woken(&[sentinel]) {
        return Err("the sentinel armed after it was never woken".into());
    }
    judge(
        dropped.woken() == 0,
        format!(
            "{} wake-ups when the sentinel armed 20 ms later had its own",
            dropped.woken()
        ),
    )
}

type Armed<E> = Pin<Box<dyn Future<Output = Result<u64, E>> + Send>>;

/// A timeout that was polled once and is pending.
fn armed<S: System>(duration: Duration, count: &Arc<Count>) -> Result<Armed<S::Elapsed>, String> {
    let mut timeout: Armed<_> = Box::pin(S::timeout(duration, Operation::never()));
    let waker = Waker::from(count.clone());
    match timeout.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Pending => Ok(timeout),
        Poll::Ready(_) => Err(format!(
            "a timeout of {} ms was ready at once",
            duration.as_millis()
        )),
    }
}

fn not_early<S: System>() -> Outcome {
    const EVENTS: u64 = 100;
    let window = Duration::from_millis(S::ARMED_OVER_MS.0.max(200));
    let late = lateness_ms::<S>(EVENTS, window, 2, |number| {
        S::SHORTEST + Duration::from_millis(1 + number % 30)
    })?;
    let earliest = late.iter().copied().fold(f64::INFINITY, f64::min);
    let early = late.iter().filter(|&&late| late < 0.0).count();
    judge(
        earliest >= S::EARLIEST_MS,
        format!(
            "earliest of {EVENTS} of {} to {} ms: {earliest:+.3} ms, {early} early; bound {} ms",
            S::SHORTEST.as_millis() + 1,
            S::SHORTEST.as_millis() + 30,
            S::EARLIEST_MS
        ),
    )
}

/// A task's budget of polls must not keep timeouts from being armed: batches poll thousands without a pause.
fn armed_in_one_poll<S: System>() -> Outcome {
    const TIMEOUTS: usize = 1_000;
    let runtime = runtime::<S>(1);
    let counts: Vec<_> = (0..TIMEOUTS).map(|_| Arc::new(Count::default())).collect();
    let duration = Duration::from_millis(50).max(S::SHORTEST);
    let theirs = counts.clone();
    let held = runtime.block_on(runtime.spawn(async move {
        theirs
            .iter()
            .map(|count| armed::<S>(duration, count))
            .collect::<Result<Vec<_>, _>>()
    }));
    let _held = held.map_err(|reason| reason.to_string())??;
    let all = all_woken(&counts);
    let woken = counts.iter().filter(|count| count.woken() > 0).count();
    judge(all, format!("{woken} of {TIMEOUTS} were woken"))
}

fn counter_counts() -> Outcome {
    heap::count(true);
    let before = heap::counts();
    let block = std::hint::black_box(Box::new([0_u8; 96]));
    let after = heap::counts();
    drop(block);
    heap::count(false);
    let (allocations, bytes) = (
        after.allocations - before.allocations,
        after.bytes - before.bytes,
    );
    judge(
        allocations == 1 && bytes == 96,
        format!("a block of 96 B counted as {allocations} of {bytes} B"),
    )
}
