//! A request body with a bound on its size.
//! Never buffers: a frame is passed on as it came.
//! Made by `connection`, read by the service.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::link::{Fault, Link};

/// The body of a request from the wire.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    left: u64,
    // None where there is no body, which cannot fail.
    link: Option<Arc<Link>>,
}

/// Why a body could not be read to its end. A service may answer any 4xx or 5xx to it: but for
/// `Gone`, the front replaces that answer by the fitting problem and closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Larger than this request may be.
    TooLarge,
    /// It came too slowly.
    TooSlow,
    /// Its chunked framing is broken.
    Malformed,
    /// The connection ended first.
    Gone,
}

impl Body {
    pub(super) fn new(incoming: Incoming, bytes_max: u64, link: Option<Arc<Link>>) -> Self {
        Body { incoming, left: bytes_max, link }
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
        // What the guard let through and hyper's decoder did not, such as a trailer's name.
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause.map(io::Error::kind) {
            Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => self.fail(Fault::Malformed),
            _ => BodyError::Gone,
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(cx);
        polled.map(|next| {
            next.map(|frame| match frame {
                Ok(frame) => {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
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
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl From<Fault> for BodyError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Malformed => BodyError::Malformed,
            Fault::TooSlow => BodyError::TooSlow,
            Fault::TooLarge => BodyError::TooLarge,
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
