//! A clock that stands still until a test moves it. Called by tests of the library and of what is above it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fencepost::clock::Clock;

/// Both clocks of a machine, moved by hand.
pub struct ManualClock {
    wall_ms: AtomicU64,
    monotonic_ms: AtomicU64,
}

impl ManualClock {
    /// Both clocks at some time of no meaning.
    pub fn new() -> Arc<Self> {
        Self::at(1_000_000)
    }

    /// Both clocks at this time.
    pub fn at(ms: u64) -> Arc<Self> {
        Arc::new(Self { wall_ms: AtomicU64::new(ms), monotonic_ms: AtomicU64::new(ms) })
    }

    /// Time passes.
    pub fn pass(&self, ms: u64) {
        self.suspend(ms);
        self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Time passes while the machine is suspended: the monotonic clock does not count it.
    pub fn suspend(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::SeqCst)
    }
}
