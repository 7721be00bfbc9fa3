//! A request body with a bound on its size and, in HTTP/2, on its time.
//! Never buffers: a frame is passed on as it came.
//! Called by `connection` and `plain`; the service reads it.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::alarm::{Alarm, Pace};
use super::limits::{LINGER_BYTES_MAX, Limits};
use super::link::{Fault, Link};

/// The body of a request from the wire.
#[derive(Debug)]
pub struct RequestBody {
    source: Source,
    left: u64,
    // None where the body is whole or absent: then it cannot fail.
    link: Option<Arc<Link>>,
    // Set where many bodies share a connection; in HTTP/1 the guard bounds the time.
    clock: Option<Box<Clock>>,
}

#[derive(Debug)]
enum Source {
    Wire(Incoming),
    /// The whole body, in memory.
    Here(Bytes),
    /// Read to its end, or dropped.
    Over,
}

#[derive(Debug)]
struct Clock {
    pace: Pace,
    alarm: Alarm,
    wait_ms_max: u64,
    bytes_per_s_min: u64,
    linger_ms_max: u64,
}

/// Why a body could not be read to its end. A service may answer it with any 4xx or 5xx: the front replaces that
/// answer with the fitting problem, and closes an HTTP/1 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// More bytes than this request may have.
    TooLarge,
    /// It came too slowly.
    TooSlow,
    /// Its chunked framing is broken.
    Malformed,
    /// The connection ended before the body.
    Gone,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, bytes_max: u64, link: Option<Arc<Link>>, limits: &Limits) -> Self {
        let clock = link.as_ref().and_then(|link| link.stream()).map(|_| {
            Box::new(Clock {
                pace: Pace::default(),
                alarm: Alarm::default(),
                wait_ms_max: limits.body_wait_ms_max,
                bytes_per_s_min: limits.body_bytes_per_s_min,
                linger_ms_max: limits.linger_ms_max,
            })
        });
        RequestBody { source: Source::Wire(incoming), left: bytes_max, link, clock }
    }

    /// A body that is in memory already and within its bound.
    pub(super) fn whole(bytes: Bytes) -> Self {
        let source = if bytes.is_empty() { Source::Over } else { Source::Here(bytes) };
        RequestBody { source, left: 0, link: None, clock: None }
    }

    fn fail(&self, fault: Fault) -> BodyError {
        if let Some(link) = &self.link {
            link.set_fault(fault);
        }
        fault.into()
    }

    fn blame(&self, error: &hyper::Error) -> BodyError {
        if let Some(fault) = self.link.as_ref().and_then(|link| link.fault()) {
            return fault.into();
        }
        // The guard let it pass and hyper's decoder refused it, for example the name of a trailer.
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause.map(io::Error::kind) {
            Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => self.fail(Fault::Malformed),
            _ => self.fail(Fault::Gone),
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let incoming = match &mut self.source {
            Source::Wire(incoming) => incoming,
            Source::Here(bytes) => {
                let frame = Frame::data(std::mem::take(bytes));
                self.source = Source::Over;
                return Poll::Ready(Some(Ok(frame)));
            }
            Source::Over => return Poll::Ready(None),
        };
        let polled = Pin::new(incoming).poll_frame(cx);
        if polled.is_pending()
            && let Some(clock) = &mut self.clock
        {
            ready!(clock.alarm.poll(cx, clock.pace.deadline(clock.wait_ms_max)));
            return Poll::Ready(Some(Err(self.fail(Fault::TooSlow))));
        }
        polled.map(|next| {
            next.map(|frame| match frame {
                Ok(frame) => {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    if let Some(clock) = &mut self.clock {
                        clock.pace.moved(bytes, clock.bytes_per_s_min);
                    }
                    match self.left.checked_sub(bytes) {
                        Some(left) => {
                            self.left = left;
                            Ok(frame)
                        }
                        None => Err(self.fail(Fault::TooLarge)),
                    }
                }
                Err(error) => Err(self.blame(&error)),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Wire(incoming) => incoming.is_end_stream(),
            Source::Here(_) => false,
            Source::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Wire(incoming) => incoming.size_hint(),
            Source::Here(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Over => SizeHint::with_exact(0),
        }
    }
}

impl Drop for RequestBody {
    /// Resetting a stream while its client still sends makes many clients lose the answer, although HTTP/2 says
    /// otherwise. So the rest is read and dropped for a while, as the guard does for HTTP/1.
    fn drop(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::Over);
        let (Some(clock), Source::Wire(mut rest)) = (&self.clock, source) else { return };
        let patience = Duration::from_millis(clock.linger_ms_max);
        if http_body::Body::is_end_stream(&rest) {
            return;
        }
        // Without a runtime the connection is gone, too.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(timeout(patience, async move {
                let mut left = LINGER_BYTES_MAX;
                while let Some(Ok(frame)) = rest.frame().await {
                    match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                        Some(less) => left = less,
                        None => return,
                    }
                }
            }));
        }
    }
}

impl From<Fault> for BodyError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Malformed => BodyError::Malformed,
            Fault::TooSlow => BodyError::TooSlow,
            Fault::TooLarge => BodyError::TooLarge,
            Fault::Gone => BodyError::Gone,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BodyError::TooLarge => "the request body is too large",
            BodyError::TooSlow => "the request body came too slowly",
            BodyError::Malformed => "the request body is malformed",
            BodyError::Gone => "the connection ended within the request body",
        })
    }
}

impl std::error::Error for BodyError {}
