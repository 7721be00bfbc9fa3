//! Counts the streams of one connection: how many are open, how many the client reset, how long it has been idle.
//! Never wakes a task: a task that needs a count reads it when its own timer fires.
//! Called by `http2` and, through `Stream`, by every request in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The client may always reset this many.
const GIVEN_UP_MIN: u64 = 100;

/// The counts of one connection.
#[derive(Debug)]
pub(super) struct Tally {
    begun: Instant,
    calls: AtomicU64,
    ended: AtomicU64,
    given_up: AtomicU64,
    // When the last stream ended, in microseconds after `begun`.
    ended_us: AtomicU64,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            begun: Instant::now(),
            calls: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            ended_us: AtomicU64::new(0),
        }
    }

    pub(super) fn begin(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a stream that ended: its answer was handed over whole, or the client gave it up.
    pub(super) fn end(&self, is_whole: bool) {
        if !is_whole {
            self.given_up.fetch_add(1, Ordering::AcqRel);
        }
        let us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.ended_us.fetch_max(us, Ordering::AcqRel);
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the client reset most of its streams: each costs it one frame, and us a call to the service.
    pub(super) fn is_abused(&self) -> bool {
        let given_up = self.given_up.load(Ordering::Acquire);
        given_up > GIVEN_UP_MIN && given_up > self.calls.load(Ordering::Acquire) / 2
    }

    /// Ends after `idle_ms` without an open stream, or `fresh_ms` after `since` where none was ever opened.
    pub(super) async fn quiet(&self, since: Instant, fresh_ms: u64, idle_ms: u64) {
        let (fresh, idle) = (Duration::from_millis(fresh_ms), Duration::from_millis(idle_ms));
        loop {
            let now = Instant::now();
            let ended = self.ended.load(Ordering::Acquire);
            let calls = self.calls.load(Ordering::Acquire);
            let deadline = if calls == 0 {
                since + fresh
            } else if calls > ended {
                now + idle
            } else {
                since.max(self.begun + Duration::from_micros(self.ended_us.load(Ordering::Acquire))) + idle
            };
            if deadline <= now && calls == ended {
                return;
            }
            // The end of the last stream wakes no task, so this looks again before the idle time can be over.
            let look = deadline.min(now + idle.min(fresh).max(LOOK_MIN));
            sleep_until(look).await;
        }
    }
}

/// A bound of zero must not make the loop spin.
const LOOK_MIN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn quiet_is_counted_from_the_last_end_and_never_while_a_stream_is_open() {
        let tally = Tally::new();
        let begun = Instant::now();
        let ms = |ms| begun + Duration::from_millis(ms);
        tokio::join!(
            async {
                tally.quiet(begun, 1_000, 300).await;
                assert!(Instant::now() >= ms(2_300) && Instant::now() < ms(2_310), "{:?}", begun.elapsed());
            },
            async {
                sleep_until(ms(900)).await;
                tally.begin();
                tally.begin();
                sleep_until(ms(1_000)).await;
                tally.end(true);
                sleep_until(ms(2_000)).await;
                tally.end(true);
            }
        );
        let silent = Instant::now();
        Tally::new().quiet(silent, 500, 100).await;
        assert!(silent.elapsed() >= Duration::from_millis(500));
    }

    #[test]
    fn giving_up_now_and_then_is_no_abuse_and_giving_up_most_is() {
        let tally = Tally::new();
        for n in 0..10_000 {
            tally.begin();
            tally.end(n % 3 > 0);
        }
        assert!(!tally.is_abused());
        let tally = Tally::new();
        for n in 0..=GIVEN_UP_MIN {
            assert!(!tally.is_abused(), "{n}");
            tally.begin();
            tally.end(false);
        }
        assert!(tally.is_abused());
    }
}
