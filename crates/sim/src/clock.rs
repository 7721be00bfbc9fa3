//! Virtual time: a wall that jumps both ways, a monotonic clock that does not, and the store time that follows from
//! them by the rule in the design. Never reads the machine's clocks.
//! The engine reads the first two; the recorder stamps with the third, so that the auditor need not trust the engine.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use fencepost::clock::Clock;
use tokio::time::Instant;

use crate::plant::Plant;

const EPOCH_MS: i64 = 1_700_000_000_000;

/// The clocks of one simulated machine.
pub(crate) struct Clocks {
    begin: Instant,
    wall_offset_ms: AtomicI64,
    store: Mutex<Origin>,
    /// How far the clock of a shared store's server is behind the time that its nodes keep, since it was set back.
    server_behind_ms: AtomicU64,
    plant: Option<Plant>,
}

/// Where store time started from, and the time since the world began then.
#[derive(Clone, Copy, Default)]
struct Origin {
    store_ms: u64,
    elapsed_ms: u64,
    /// The same as an engine reads it.
    monotonic_ms: u64,
}

impl Clocks {
    pub(crate) fn new(plant: Option<Plant>) -> Self {
        Self {
            begin: Instant::now(),
            wall_offset_ms: AtomicI64::new(0),
            store: Mutex::default(),
            server_behind_ms: AtomicU64::new(0),
            plant,
        }
    }

    /// Sets how far the wall is off, and says how far it jumped. Nothing else may notice while an engine runs.
    pub(crate) fn jump_to(&self, offset_ms: i64) -> i64 {
        offset_ms - self.wall_offset_ms.swap(offset_ms, Ordering::Relaxed)
    }

    /// Sets the clock of a shared store's server by so much. Store time follows it forward and not back.
    pub(crate) fn step_server(&self, by_ms: i64) {
        let by_ms = by_ms - self.server_behind_ms.load(Ordering::Relaxed) as i64;
        self.server_behind_ms.store(by_ms.min(0).unsigned_abs(), Ordering::Relaxed);
        self.store.lock().unwrap_or_else(PoisonError::into_inner).store_ms += by_ms.max(0) as u64;
    }

    /// How far the server's clock is behind the time that the nodes keep.
    pub(crate) fn server_behind_ms(&self) -> u64 {
        self.server_behind_ms.load(Ordering::Relaxed)
    }

    /// The server's own clock.
    pub(crate) fn server_ms(&self) -> u64 {
        self.store_ms().saturating_sub(self.server_behind_ms())
    }

    /// Store time falls back to the latest time that a living node knows.
    pub(crate) fn fall_back_to(&self, known_ms: u64) {
        let lost_ms = self.store_ms().saturating_sub(known_ms).min(self.server_behind_ms());
        self.store.lock().unwrap_or_else(PoisonError::into_inner).store_ms -= lost_ms;
        self.server_behind_ms.fetch_sub(lost_ms, Ordering::Relaxed);
    }

    /// Something is dated at this time, so it was.
    pub(crate) fn raise_to(&self, dated_ms: u64) {
        let ahead_ms = dated_ms.saturating_sub(self.store_ms());
        self.store.lock().unwrap_or_else(PoisonError::into_inner).store_ms += ahead_ms;
        self.server_behind_ms.fetch_add(ahead_ms, Ordering::Relaxed);
    }

    /// Milliseconds since the world began.
    pub(crate) fn elapsed_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// The rule of store time, told a second time: the larger of the wall and what was stored, then monotonic.
    pub(crate) fn start_store_time(&self, floor_ms: u64) {
        let origin = Origin {
            store_ms: self.wall().max(floor_ms + 1),
            elapsed_ms: self.elapsed_ms(),
            monotonic_ms: self.monotonic_ms(),
        };
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = origin;
        self.server_behind_ms.store(0, Ordering::Relaxed);
    }

    /// True store time.
    pub(crate) fn store_ms(&self) -> u64 {
        let origin = *self.store.lock().unwrap_or_else(PoisonError::into_inner);
        origin.store_ms + self.elapsed_ms() - origin.elapsed_ms
    }

    /// Store time as a node with a wrong clock is told it.
    pub(crate) fn told_ms(&self) -> u64 {
        let origin = *self.store.lock().unwrap_or_else(PoisonError::into_inner);
        origin.store_ms + self.monotonic_ms().saturating_sub(origin.monotonic_ms)
    }

    fn wall(&self) -> u64 {
        let wall = EPOCH_MS + self.elapsed_ms() as i64 + self.wall_offset_ms.load(Ordering::Relaxed);
        wall.max(0) as u64
    }
}

impl Clock for Clocks {
    fn wall_ms(&self) -> u64 {
        self.wall()
    }

    fn monotonic_ms(&self) -> u64 {
        match self.plant {
            Some(Plant::CallersClock) => self.wall(),
            Some(Plant::FastClock) => 2 * self.elapsed_ms(),
            _ => self.elapsed_ms(),
        }
    }
}
