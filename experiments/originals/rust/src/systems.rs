//! The systems: how each arms a timeout and which runtime it runs on.
use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::operation::Operation;

/// What the program knows of a system without being the build that has it.
pub struct Known {
    pub name: &'static str,
    /// In the build with `--cfg tokio_unstable`, and there alone.
    pub unstable: bool,
    /// Cancelled timers wait in a queue for their worker.
    pub lazy_cancel: bool,
    pub soaked: bool,
}

const fn known(name: &'static str) -> Known {
    Known {
        name,
        unstable: false,
        lazy_cancel: false,
        soaked: false,
    }
}

pub static SYSTEMS: [Known; 7] = [
    Known {
        soaked: true,
        ..known("original/pingora/fast_timeout")
    },
    known("original/pingora/tokio_timeout"),
    known("original/pingora/above_threshold"),
    known("original/tokio/time_only"),
    known("original/tokio/time_and_io"),
    known("original/tokio/time_and_io_known_wakeup"),
    Known {
        unstable: true,
        lazy_cancel: true,
        ..known("original/tokio/per_worker")
    },
];

/// A way to put a timeout around an operation.
pub trait System: 'static {
    const NAME: &'static str;
    /// The earliest lateness, in ms, that the library's own documents or its resolution allow.
    const EARLIEST_MS: f64 = 0.0;
    /// Only timeouts at least this long take the path that is meant.
    const SHORTEST: Duration = Duration::ZERO;
    /// Over how many ms timeouts are armed where their lateness is taken: in a quick visit, in a full one.
    const ARMED_OVER_MS: (u64, u64) = (100, 300);
    /// Said in the note of every row.
    const NOTE: &'static str;
    type Elapsed: Send;

    fn timeout(
        duration: Duration,
        operation: Operation,
    ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send;

    /// Puts the drivers into the runtime.
    fn drivers(builder: &mut Builder);

    /// Called once the runtime is there.
    fn prepare(_: &Runtime) {}
}

/// A runtime with this many workers, made ready for the system.
pub fn runtime<S: System>(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers);
    S::drivers(&mut builder);
    let runtime = builder.build().expect("a tokio runtime can be built");
    S::prepare(&runtime);
    runtime
}

#[cfg(not(tokio_unstable))]
pub use stable::*;

#[cfg(not(tokio_unstable))]
mod stable {
    use super::*;
    use pingora_timeout::fast_timeout::{fast_timeout, set_fast_timeout_to_tokio_threshold};

    const BOTH_DRIVERS: &str = "a runtime with time and I/O drivers";

    pub struct PingoraFast;

    impl System for PingoraFast {
        const NAME: &'static str = "original/pingora/fast_timeout";
        /// Deadline and time are both cut to whole milliseconds.
        const EARLIEST_MS: f64 = -1.0;
        /// The thread that looks for due slots each 10 ms oversleeps by some 0.1 ms, so it drifts through the slots once in
        /// a second. Lateness depends on where it is: a shorter time would show one place alone.
        const ARMED_OVER_MS: (u64, u64) = (1_000, 1_500);
        const NOTE: &'static str = BOTH_DRIVERS;
        type Elapsed = pingora_timeout::Elapsed;

        fn timeout(
            duration: Duration,
            operation: Operation,
        ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send {
            fast_timeout(duration, operation)
        }

        fn drivers(builder: &mut Builder) {
            builder.enable_all();
        }
    }

    pub struct PingoraTokio;

    impl System for PingoraTokio {
        const NAME: &'static str = "original/pingora/tokio_timeout";
        const NOTE: &'static str = BOTH_DRIVERS;
        type Elapsed = pingora_timeout::Elapsed;

        fn timeout(
            duration: Duration,
            operation: Operation,
        ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send {
            pingora_timeout::tokio_timeout(duration, operation)
        }

        fn drivers(builder: &mut Builder) {
            builder.enable_all();
        }
    }

    pub struct PingoraAboveThreshold;

    impl System for PingoraAboveThreshold {
        const NAME: &'static str = "original/pingora/above_threshold";
        const SHORTEST: Duration = Duration::from_secs(1);
        const NOTE: &'static str = "a runtime with time and I/O drivers; fast_timeout with its threshold lowered \
                                    from 15 min to 0 s, so that a timeout of 1 s takes the fallback";
        type Elapsed = pingora_timeout::Elapsed;

        fn timeout(
            duration: Duration,
            operation: Operation,
        ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send {
            fast_timeout(duration, operation)
        }

        fn drivers(builder: &mut Builder) {
            builder.enable_all();
        }

        fn prepare(_: &Runtime) {
            set_fast_timeout_to_tokio_threshold(Some(Duration::ZERO));
        }
    }

    pub struct TokioTimeOnly;

    impl System for TokioTimeOnly {
        const NAME: &'static str = "original/tokio/time_only";
        const NOTE: &'static str = "a runtime with the time driver alone";
        type Elapsed = tokio::time::error::Elapsed;

        fn timeout(
            duration: Duration,
            operation: Operation,
        ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send {
            tokio::time::timeout(duration, operation)
        }

        fn drivers(builder: &mut Builder) {
            builder.enable_time();
        }
    }

    pub struct TokioTimeAndIo;

    impl System for TokioTimeAndIo {
        const NAME: &'static str = "original/tokio/time_and_io";
        const NOTE: &'static str = "a runtime with time and I/O drivers; nothing is kept pending: a pair has the \
                                    earliest deadline and its arm writes to the driver's eventfd";
        type Elapsed = tokio::time::error::Elapsed;

        fn timeout(
            duration: Duration,
            operation: Operation,
        ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send {
            tokio::time::timeout(duration, operation)
        }

        fn drivers(builder: &mut Builder) {
            builder.enable_all();
        }
    }

    pub struct TokioKnownWakeup;

    impl System for TokioKnownWakeup {
        const NAME: &'static str = "original/tokio/time_and_io_known_wakeup";
        const NOTE: &'static str = "a runtime with time and I/O drivers; a sleep of at most 0.5 s is always pending, \
                                    so the driver knows an earlier wake-up";
        type Elapsed = tokio::time::error::Elapsed;

        fn timeout(
            duration: Duration,
            operation: Operation,
        ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send {
            tokio::time::timeout(duration, operation)
        }

        fn drivers(builder: &mut Builder) {
            builder.enable_all();
        }

        fn prepare(runtime: &Runtime) {
            runtime.spawn(async {
                loop {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            });
            // The driver announces its next wake-up when it parks: give it the time to.
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
        }
    }
}

#[cfg(tokio_unstable)]
pub use unstable::*;

#[cfg(tokio_unstable)]
mod unstable {
    use super::*;

    pub struct TokioPerWorker;

    impl System for TokioPerWorker {
        const NAME: &'static str = "original/tokio/per_worker";
        const NOTE: &'static str =
            "a runtime with time and I/O drivers and the unstable timer, one wheel per worker";
        type Elapsed = tokio::time::error::Elapsed;

        fn timeout(
            duration: Duration,
            operation: Operation,
        ) -> impl Future<Output = Result<u64, Self::Elapsed>> + Send {
            tokio::time::timeout(duration, operation)
        }

        fn drivers(builder: &mut Builder) {
            builder.enable_alt_timer().enable_all();
        }
    }
}
