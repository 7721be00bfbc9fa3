//! The time of a server that several engines share, told without asking it each time.
//! Never goes back, and never runs ahead of the server by more than a server's clock that was set back.
//! Fed with every answer of the server that says its time; read by the engine at every decision.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Instant,
};

use fencepost_kernel::Millis;

/// The server's time as the local monotonic clock plus what the server is ahead of it.
/// The lead only grows: a machine that slept is corrected by the next answer, and a server whose clock is set back, or
/// that is replaced by one with another clock, makes no millisecond happen twice.
pub(crate) struct SharedClock {
    origin: Instant,
    lead_ms: AtomicI64,
}

impl SharedClock {
    /// Starts past the floor: no millisecond of an earlier run is lived twice.
    pub(crate) fn new(floor: Millis) -> Self {
        Self { origin: Instant::now(), lead_ms: AtomicI64::new(floor.plus(1).0 as i64) }
    }

    /// Takes in what the server said its time was. The answer is older than its arrival, so this errs to the past.
    pub(crate) fn heard(&self, server: Millis) {
        self.lead_ms.fetch_max(server.0 as i64 - self.local_ms(), Ordering::AcqRel);
    }

    pub(crate) fn now(&self) -> Millis {
        Millis((self.local_ms() + self.lead_ms.load(Ordering::Acquire)) as u64)
    }

    fn local_ms(&self) -> i64 {
        self.origin.elapsed().as_millis() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_set_back_does_not_take_time_with_it() {
        let clock = SharedClock::new(Millis(0));
        clock.heard(Millis(5_000));
        let before = clock.now();
        clock.heard(Millis(1_000));
        assert!(clock.now() >= before);
        clock.heard(Millis(9_000));
        assert!(clock.now() >= Millis(9_000) && clock.now() < Millis(10_000));
    }

    #[test]
    fn time_starts_past_the_floor() {
        assert!(SharedClock::new(Millis(7_000)).now() > Millis(7_000));
    }
}
