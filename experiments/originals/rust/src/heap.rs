//! A global allocator that can count.
//!
//! Off, it costs one load of a flag that nobody writes; on, two atomic additions an allocation. The counters are relaxed:
//! each is a sum of its own, read when the threads that add to it have been joined or are idle.
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

pub struct Counting;

// Written by the measuring thread alone, before the work that it is to count.
static ON: AtomicBool = AtomicBool::new(false);
// Added to by every thread that allocates while ON; only sums are read.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Sums since counting was first switched on. Only differences of two of them mean something.
#[derive(Clone, Copy)]
pub struct Counts {
    pub allocations: u64,
    pub bytes: u64,
    /// Bytes allocated minus bytes freed.
    pub live: i64,
}

pub fn count(on: bool) {
    ON.store(on, Relaxed);
}

pub fn counts() -> Counts {
    Counts {
        allocations: ALLOCATIONS.load(Relaxed),
        bytes: BYTES.load(Relaxed),
        live: LIVE.load(Relaxed),
    }
}

fn allocated(size: usize) {
    if ON.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(size as u64, Relaxed);
        LIVE.fetch_add(size as i64, Relaxed);
    }
}

fn freed(size: usize) {
    if ON.load(Relaxed) {
        LIVE.fetch_sub(size as i64, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches none of the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's promises are the ones that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocated(size);
        freed(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
