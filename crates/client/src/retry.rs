//! When a request is sent again: which answers, after how long, until when.
//! Never changes what is sent: every try is the same request, under the same key and token.
//! Called for every request.

use std::{
    ops::ControlFlow,
    time::{Duration, SystemTime},
};

use http::{HeaderValue, header};
use tokio::time::Instant;

use crate::transport::{Fault, Packet, Reply, Transport};

/// How long and how often a request is sent again.
#[derive(Clone, Debug)]
pub struct Retry {
    /// The longest first pause; it doubles with every try. The pause itself is random below that (full jitter).
    pub pause: Duration,
    /// What it doubles up to.
    pub pause_max: Duration,
    /// Patience with one try.
    pub attempt_timeout: Duration,
    /// Patience with all tries of one request together. Longer than a lease, so that a claim whose answer was lost can be
    /// had again within one call.
    pub deadline: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(5),
            attempt_timeout: Duration::from_secs(15),
            deadline: Duration::from_secs(60),
        }
    }
}

impl Retry {
    // Full jitter: callers that failed together do not come back together.
    fn pause_before(&self, try_number: u32) -> Duration {
        let ceiling = self.pause.saturating_mul(2u32.saturating_pow(try_number.saturating_sub(1)));
        ceiling.min(self.pause_max).mul_f64(fastrand::f64())
    }
}

/// The tries of one request.
pub(crate) struct Tries {
    retry: Retry,
    until: Instant,
    /// How many there were.
    pub(crate) made: u32,
    /// Whether one may have been carried out without its answer coming through.
    pub(crate) unanswered: bool,
}

/// What came of them.
pub(crate) enum Tried {
    /// An answer that another try would not change.
    Answered(Reply),
    /// The deadline.
    GaveUp {
        /// What the last one met.
        why: String,
        /// Its answer, where there was one.
        last: Option<Reply>,
    },
}

impl Tries {
    pub(crate) fn new(retry: &Retry) -> Self {
        Self { retry: retry.clone(), until: Instant::now() + retry.deadline, made: 0, unanswered: false }
    }

    /// Lets the deadline count from the end of a wait that the server goes along with.
    pub(crate) fn not_before(&mut self, wait_until: Instant) {
        self.until = self.until.max(wait_until + self.retry.deadline);
    }

    /// The longest that one try should wait at the server: well within the patience with it.
    pub(crate) fn wait_max(&self) -> Duration {
        self.retry.attempt_timeout.min(self.left()).mul_f64(0.6)
    }

    /// The time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits before another try, at least as long as the server asked; `Break` where the deadline is before that.
    pub(crate) async fn pause(&self, at_least: Duration) -> ControlFlow<()> {
        let pause = at_least.saturating_add(self.retry.pause_before(self.made));
        if pause >= self.left() {
            return ControlFlow::Break(());
        }
        tokio::time::sleep(pause).await;
        ControlFlow::Continue(())
    }

    /// Sends until there is an answer that stands.
    pub(crate) async fn send(&mut self, transport: &Transport, packet: &Packet) -> Tried {
        loop {
            self.made = self.made.saturating_add(1);
            let timeout = self.retry.attempt_timeout.min(self.left());
            let (why, last) = match transport.once(packet, timeout).await {
                Ok(reply) if !is_passing(reply.status) => return Tried::Answered(reply),
                Ok(reply) => {
                    // A store that did not confirm in time may have committed all the same.
                    self.unanswered |= reply.status >= 500;
                    (format!("status {}", reply.status), Some(reply))
                }
                Err(Fault::NotSent(why)) => (why, None),
                Err(Fault::Unanswered(why)) => {
                    self.unanswered = true;
                    (why, None)
                }
            };
            let asked = last.as_ref().and_then(|reply| after(reply.headers.get(header::RETRY_AFTER)?));
            if self.pause(asked.unwrap_or_default()).await.is_break() {
                return Tried::GaveUp { why, last };
            }
        }
    }
}

/// Whether another try of the same request may fare better. Nothing else of 4xx is: asking again would not change it.
fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 502 | 503 | 504)
}

/// `Retry-After`, as seconds or as a date.
pub(crate) fn after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            Some(at.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_random_below_a_ceiling_that_doubles_to_its_maximum() {
        let retry = Retry::default();
        let longest = |number| (0..2_000).map(|_| retry.pause_before(number)).max().unwrap();
        for (number, ceiling_ms) in [(1, 100), (2, 200), (5, 1_600), (7, 5_000), (4_000_000_000, 5_000)] {
            let ceiling = Duration::from_millis(ceiling_ms);
            let longest = longest(number);
            assert!(longest <= ceiling && longest > ceiling.mul_f64(0.9), "{number}: {longest:?}");
        }
        assert!((0..2_000).any(|_| retry.pause_before(7) < Duration::from_millis(500)), "no jitter");
    }

    #[test]
    fn only_passing_troubles_are_tried_again() {
        for status in [408, 429, 502, 503, 504] {
            assert!(is_passing(status), "{status}");
        }
        for status in [200, 201, 301, 400, 401, 403, 404, 409, 413, 422, 500, 501] {
            assert!(!is_passing(status), "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |text: &str| after(&HeaderValue::try_from(text).unwrap());
        assert_eq!(read("3"), Some(Duration::from_secs(3)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(read(&soon).unwrap() > Duration::from_secs(90));
        assert_eq!(read("soon"), None);
        assert_eq!(read("-1"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_never_shorter_than_the_server_asked_and_never_past_the_deadline() {
        let tries = Tries::new(&Retry { deadline: Duration::from_secs(10), ..Retry::default() });
        let begun = Instant::now();
        assert!(tries.pause(Duration::from_secs(4)).await.is_continue());
        assert!(begun.elapsed() >= Duration::from_secs(4));
        let before = Instant::now();
        assert!(tries.pause(Duration::from_secs(7)).await.is_break());
        assert_eq!(before, Instant::now(), "it waited for nothing");
    }
}
