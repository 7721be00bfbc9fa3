//! Reads an upstream's body: too long a silence ends it with an error, and trailers are dropped. Called by the gateway.

use std::{
    error::Error,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use super::{
    shares::RequestSlot,
    upstream::{Failed, root},
};

/// An upstream's body with a bound on its silence.
pub(super) struct Patient {
    incoming: Incoming,
    /// Runs only while nothing comes: most bodies are there at once and need no timer.
    silence: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    /// Held as long as the body: a slow answer takes up its place until its end.
    _place: Option<RequestSlot>,
}

impl Patient {
    pub(super) fn new(incoming: Incoming, patience: Duration, place: Option<RequestSlot>) -> Self {
        Self { incoming, silence: None, patience, _place: place }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        while let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) {
            self.silence = None;
            // Trailers do not cross: a replay could not repeat them, and they could carry headers that only the gateway
            // may send.
            if matches!(&next, Some(Ok(frame)) if frame.is_trailers()) {
                continue;
            }
            return Poll::Ready(next.map(|frame| frame.map_err(|error| Failed::Broken(root(&error)))));
        }
        let patience = self.patience;
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(Failed::Silent(patience))))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Error for Failed {}
