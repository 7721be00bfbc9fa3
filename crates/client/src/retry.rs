//! Decides when a request is sent again: after which answers, after how long, and until when.
//! Never changes the request: every try has the same key and token.
//! Called by `effect`, `claim`, `send` and `Client` for each request.

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
    /// The longest first pause; the bound doubles with every try. The pause itself is random below it (full jitter).
    pub pause: Duration,
    /// The largest bound on a pause.
    pub pause_max: Duration,
    /// The longest time for one try.
    pub attempt_timeout: Duration,
    /// The longest time for all tries of one request. Longer than a lease, so that a claim whose answer was lost can be
    /// granted again within one call.
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
    // Full jitter: callers that failed together do not retry together.
    fn pause_before(&self, try_number: u32) -> Duration {
        let ceiling = self.pause.saturating_mul(2u32.saturating_pow(try_number.saturating_sub(1)));
        ceiling.min(self.pause_max).mul_f64(fastrand::f64())
    }
}

/// The tries of one request.
pub(crate) struct Tries {
    retry: Retry,
    until: Instant,
    /// The number of tries so far.
    pub(crate) made: u32,
    /// Whether the server may have carried out a try whose answer was lost.
    pub(crate) unanswered: bool,
}

/// How the tries of one request ended.
pub(crate) enum Tried {
    /// A final answer: another try would not change it.
    Answered(Reply),
    /// The deadline is over.
    GaveUp {
        /// How the last try failed.
        why: String,
        /// The last try's answer, where there was one.
        last: Option<Reply>,
    },
}

impl Tries {
    pub(crate) fn new(retry: &Retry) -> Self {
        Self { retry: retry.clone(), until: Instant::now() + retry.deadline, made: 0, unanswered: false }
    }

    /// Moves the deadline behind the end of a wait that the server goes along with.
    pub(crate) fn not_before(&mut self, wait_until: Instant) {
        self.until = self.until.max(wait_until + self.retry.deadline);
    }

    /// The longest wait to ask of the server in one try: shorter than the try's own timeout.
    pub(crate) fn wait_max(&self) -> Duration {
        self.retry.attempt_timeout.min(self.left()).mul_f64(0.6)
    }

    /// The time until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Pauses before the next try, for `at_least` or longer; `Break` where the deadline comes first.
    pub(crate) async fn pause(&self, at_least: Duration) -> ControlFlow<()> {
        let pause = at_least.saturating_add(self.retry.pause_before(self.made));
        if pause >= self.left() {
            return ControlFlow::Break(());
        }
        tokio::time::sleep(pause).await;
        ControlFlow::Continue(())
    }

    /// Sends until there is a final answer or the deadline is over.
    pub(crate) async fn send(&mut self, transport: &Transport, packet: &Packet) -> Tried {
        loop {
            self.made = self.made.saturating_add(1);
            let timeout = self.retry.attempt_timeout.min(self.left());
            let (why, last) = match transport.once(packet, timeout).await {
                Ok(reply) if !is_passing(reply.status) => return Tried::Answered(reply),
                Ok(reply) => {
                    // A store that did not confirm in time may still have committed.
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

/// Whether another try may get another answer. No other 4xx is here: asking again would not change it.
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
