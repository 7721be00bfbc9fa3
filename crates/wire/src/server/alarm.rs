//! Waiting with a bound: one timer per connection, and the sum of waiting that one transfer has cost.
//! Never resets the timer for a later deadline: it fires early and is set anew, so a busy connection pays nothing.
//! Called only from `guard`.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Wakes the connection's task at or before a deadline; the caller compares the clock.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    pub(super) fn wake_by(&mut self, cx: &mut Context<'_>, deadline: Instant) {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        if sleep.as_mut().poll(cx).is_pending() {
            return;
        }
        // It rang for an earlier deadline.
        sleep.as_mut().reset(deadline);
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}

/// The time that one body or one answer has made us wait. Time in which nobody waited for the
/// client (a busy service, a full buffer of ours) is not counted.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Option<Instant>,
    waited: Duration,
    bytes: u64,
}

impl Pace {
    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Pace::default();
    }

    /// When the patience for this transfer ends, if nothing moves from now on.
    pub(super) fn deadline(&mut self, now: Instant, wait_ms_max: u64, bytes_per_s_min: u64) -> Instant {
        let since = *self.since.get_or_insert(now);
        let earned_ms = self.bytes.saturating_mul(1_000) / bytes_per_s_min.max(1);
        // A year stands for ever, and keeps the sum within what an instant can hold.
        let allowed_ms = wait_ms_max.saturating_add(earned_ms).min(365 * 86_400_000);
        since + Duration::from_millis(allowed_ms).saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_moved_earn_waiting_time_and_waiting_spends_it() {
        let start = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.deadline(start, 100, 10), start + Duration::from_millis(100));
        pace.since = None;
        pace.waited = Duration::from_millis(60);
        pace.bytes = 2;
        assert_eq!(pace.deadline(start, 100, 10), start + Duration::from_millis(240));
        pace.bytes = u64::MAX;
        assert!(pace.deadline(start, u64::MAX, 0) > start);
    }
}
