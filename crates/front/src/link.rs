//! State that the guard below hyper and the service above it share: of one connection, or of one HTTP/2 stream.
//! Never shared between connections. Both sides run in one task or take turns, so the atomics are not contended.
//! Called by `guard`, `connection`, `answer`, `body`, `reply` and `http2`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::http2::Stream;
use super::refusal::{self, Refusal};

/// Why a body could not be read to its end; the client still gets an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Malformed = 1,
    TooSlow = 2,
    TooLarge = 3,
    Gone = 4,
}

impl Fault {
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Fault::Malformed => refusal::malformed("the chunked body is not framed as RFC 9112 says"),
            Fault::TooSlow => refusal::BODY_TOO_SLOW,
            Fault::TooLarge => refusal::BODY_TOO_LARGE,
            // The client may have closed only its sending half, and can still read an answer.
            Fault::Gone => refusal::malformed("the request ended before its body was whole"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Link {
    calls: AtomicU64,
    in_flight: AtomicBool,
    fault: AtomicU8,
    refused: OnceLock<(u64, Refusal)>,
    stream: Option<Stream>,
}

impl Link {
    /// The link of one HTTP/2 stream.
    pub(super) fn of(stream: Stream) -> Link {
        Link { stream: Some(stream), ..Link::default() }
    }

    pub(super) fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// The guard calls this: the request after `heads` good ones stands in for a refused one.
    pub(super) fn refuse(&self, heads: u64, refusal: Refusal) {
        // The first refusal ends the connection, so a second one is ignored.
        let _ = self.refused.set((heads, refusal));
    }

    /// The guard or the body calls this: the current request's body failed.
    pub(super) fn set_fault(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::Release);
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        match self.fault.load(Ordering::Acquire) {
            1 => Some(Fault::Malformed),
            2 => Some(Fault::TooSlow),
            3 => Some(Fault::TooLarge),
            4 => Some(Fault::Gone),
            _ => None,
        }
    }

    /// Whether a request has arrived and the end of its answer's body is not yet handed over.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Ordering::Acquire)
    }
}

/// A request in flight; dropped when its answer has been handed over whole.
#[derive(Debug)]
pub(super) struct RequestInFlight(Arc<Link>);

impl RequestInFlight {
    /// Begins a call. Returns the refusal, too, where the request stands in for one that the guard refused.
    pub(super) fn begin(link: &Arc<Link>) -> (RequestInFlight, Option<Refusal>) {
        let call = link.calls.fetch_add(1, Ordering::AcqRel);
        link.in_flight.store(true, Ordering::Release);
        link.fault.store(0, Ordering::Release);
        let refused = link.refused.get().filter(|(heads, _)| *heads == call);
        (RequestInFlight(link.clone()), refused.map(|(_, refusal)| *refusal))
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.0
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.in_flight.store(false, Ordering::Release);
        if let Some(stream) = &self.0.stream {
            stream.end();
        }
    }
}
