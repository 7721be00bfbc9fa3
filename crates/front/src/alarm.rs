//! Bounded waiting: one timer for each connection or stream, and the waiting time that one transfer has used up.
//! Never resets the timer to a later deadline: it fires early and is set again, so a busy connection pays nothing.
//! Called by `guard`, `plain`, `body` and `http2`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Wakes the connection's task at a deadline. A task that waits for nothing does not poll it.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready once `deadline` is past. Reads the clock only after the timer has fired.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            // The timer fired for an earlier deadline.
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// The time that one body or answer has spent waiting for the client. Bytes that move pay it back, but never below
/// zero: a quick start earns no longer stall. Time in which nothing waited for the client (a busy service, a full
/// buffer of ours) does not count.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Option<Instant>,
    spent: Duration,
}

impl Pace {
    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn moved(&mut self, bytes: u64, bytes_per_s_min: u64) {
        if let Some(since) = self.since.take() {
            self.spent += since.elapsed();
        }
        if !self.spent.is_zero() {
            let paid_ns = bytes.saturating_mul(1_000_000_000) / bytes_per_s_min.max(1);
            self.spent = self.spent.saturating_sub(Duration::from_nanos(paid_ns));
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Pace::default();
    }

    /// When the time for this transfer is used up, if no byte moves from now on.
    pub(super) fn deadline(&mut self, wait_ms_max: u64) -> Instant {
        let since = *self.since.get_or_insert_with(Instant::now);
        since + Duration::from_millis(wait_ms_max).saturating_sub(self.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pay_waiting_back_and_never_more_than_that() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let left = |moved: Option<(u64, u64)>, spent| {
            let mut pace = Pace { since: None, spent };
            if let Some((bytes, bytes_per_s_min)) = moved {
                pace.moved(bytes, bytes_per_s_min);
            }
            pace.since = Some(start);
            pace.deadline(100) - start
        };
        assert_eq!(left(None, ms(60)), ms(40));
        assert_eq!(left(None, ms(600)), ms(0));
        assert_eq!(left(Some((2, 100)), ms(60)), ms(60));
        assert_eq!(left(Some((u64::MAX, 0)), ms(60)), ms(100));
        assert_eq!(left(Some((u64::MAX, 0)), ms(0)), ms(100));
    }
}
