//! The time of a server that several engines share, known without asking the server each time.
//! Never goes back, and runs ahead of the server by no more than a server's clock was set back.
//! Called with every server time that an answer brings, and by the engine at every decision.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use fencepost_kernel::Millis;

/// The server's time: the local monotonic clock plus the server's lead over it.
/// The lead only grows: a machine that slept is corrected by the next answer, and no millisecond happens twice when a
/// server's clock is set back or a server with another clock takes over.
pub(crate) struct SharedClock {
    origin: Instant,
    lead_ms: AtomicI64,
    /// Notified when an answer shows the server's clock behind this process's time.
    #[cfg(feature = "postgres")]
    behind: std::sync::Arc<tokio::sync::Notify>,
    /// How far the wall clock was ahead of the local one when the server last answered.
    wall_ms: AtomicI64,
}

/// How far the wall clock may move against the local one before the server must be asked again.
const SLEPT_MS: i64 = 1_000;
/// How far the server may be behind before that counts, in milliseconds: its answer took a while to arrive.
#[cfg(feature = "postgres")]
pub(crate) const BEHIND_MS: u64 = 250;

impl SharedClock {
    /// Starts past the floor, so that no millisecond of an earlier run happens twice.
    pub(crate) fn new(floor: Millis) -> Self {
        let lead_ms = AtomicI64::new(floor.plus(1).0 as i64);
        Self {
            origin: Instant::now(),
            lead_ms,
            #[cfg(feature = "postgres")]
            behind: std::sync::Arc::default(),
            wall_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// Takes in a time that the server has reported. The answer is older than its arrival, so this errs to the past.
    pub(crate) fn heard(&self, server: Millis) {
        let local_ms = self.local_ms();
        let told_ms = server.0 as i64 - local_ms;
        let _lead_ms = self.lead_ms.fetch_max(told_ms, Ordering::AcqRel);
        #[cfg(feature = "postgres")]
        if _lead_ms > told_ms.saturating_add_unsigned(BEHIND_MS) {
            self.behind.notify_one();
        }
        self.wall_ms.store(wall_ms() - local_ms, Ordering::Release);
    }

    /// Notified when an answer shows the server behind: then only the processes that share it know the time.
    #[cfg(feature = "postgres")]
    pub(crate) fn behind(&self) -> std::sync::Arc<tokio::sync::Notify> {
        self.behind.clone()
    }

    /// Whether the time can be relied on without asking. The local clock stops while a machine sleeps, and the wall
    /// clock does not: where they have moved apart since the last answer, only the next answer can tell.
    #[cfg(feature = "postgres")]
    pub(crate) fn awake(&self) -> bool {
        let apart = (wall_ms() - self.local_ms()).saturating_sub(self.wall_ms.load(Ordering::Acquire));
        (-SLEPT_MS..=SLEPT_MS).contains(&apart)
    }

    pub(crate) fn now(&self) -> Millis {
        Millis((self.local_ms() + self.lead_ms.load(Ordering::Acquire)) as u64)
    }

    fn local_ms(&self) -> i64 {
        self.origin.elapsed().as_millis() as i64
    }
}

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "postgres")]
    #[test]
    fn time_is_relied_on_only_while_the_wall_and_the_local_clock_agree() {
        let clock = SharedClock::new(Millis(0));
        assert!(!clock.awake(), "no answer yet");
        clock.heard(Millis(5_000));
        assert!(clock.awake());
        clock.wall_ms.fetch_sub(2 * SLEPT_MS, Ordering::AcqRel);
        assert!(!clock.awake(), "the wall went on while the local clock stood still");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn answer_that_shows_the_server_behind_is_told_of() {
        use futures::FutureExt;
        let clock = SharedClock::new(Millis(0));
        let behind = clock.behind();
        clock.heard(Millis(5_000));
        clock.heard(Millis(5_000 - BEHIND_MS / 2));
        assert!(behind.notified().now_or_never().is_none());
        clock.heard(Millis(4_000));
        assert!(behind.notified().now_or_never().is_some());
    }

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
