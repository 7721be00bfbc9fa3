//! The clock port, and the store's time made from it.
//! Store time never goes back: it starts at the larger of the stored floor and the wall, then follows the
//! monotonic clock, so a wall that jumps while we run ends no lease and no retention early.

use std::{
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use fencepost_kernel::Millis;
use fencepost_store::Store;

/// Where time comes from. The simulator has its own.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, as far as the machine knows. May jump either way.
    fn wall_ms(&self) -> u64;
    /// Milliseconds since some fixed moment. Never goes back.
    fn monotonic_ms(&self) -> u64;
}

/// The machine's clocks.
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// Refuses a machine whose clock was never set. All that is dated counts from 1970, and so do the parts that others made: a
/// time before it is a panic in some of them.
pub fn check_wall() -> Result<(), String> {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(_) => Ok(()),
        Err(before) => {
            let years = before.duration().as_secs() / (365 * 24 * 3_600);
            Err(format!("the machine's clock is before 1970, by {years} years and more; set it, then start again"))
        }
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

/// The time that decisions are made at: that of a shared store where it has a clock, else made from ours.
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    start: Millis,
    start_monotonic_ms: u64,
}

impl StoreTime {
    /// Starts past the floor: no millisecond of an earlier run is lived twice.
    pub(crate) fn new(clock: Arc<dyn Clock>, store: Arc<dyn Store>, floor: Millis) -> Self {
        let start = Millis(clock.wall_ms()).max(floor.plus(1));
        let start_monotonic_ms = clock.monotonic_ms();
        Self { clock, store, start, start_monotonic_ms }
    }

    pub(crate) fn now(&self) -> Millis {
        let own = || self.start.plus(self.clock.monotonic_ms().saturating_sub(self.start_monotonic_ms));
        self.store.now().unwrap_or_else(own)
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn wall(&self) -> Millis {
        Millis(self.clock.wall_ms())
    }
}
