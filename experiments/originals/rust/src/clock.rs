//! Clocks: what one reading costs, what the process has used.
use std::hint::black_box;
use std::time::Instant;

const READINGS: u32 = 1_000;

/// The mean cost in ns of one `Instant::now`, over a thousand.
pub fn reading_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..READINGS {
        black_box(Instant::now());
    }
    start.elapsed().as_nanos() as f64 / f64::from(READINGS)
}

/// CPU time in ns that all threads of this process have used so far.
pub fn process_cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec into the one it is given.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the process's CPU clock cannot be read");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
