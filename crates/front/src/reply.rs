//! The body of an answer: the service's, or a refusal's.
//! Never changes a byte of it; wraps it to know when the answer is over.
//! Called by `answer`; hyper polls it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::budget::Charge;
use super::link::RequestInFlight;

/// An answer's body, with the `Flight` that ends when it is dropped.
#[derive(Debug)]
pub(super) struct Reply<B> {
    source: Source<B>,
    // Moves to the last bytes when they are handed over.
    charge: Option<Charge>,
    // Dropped with the reply: then the connection may be idle again.
    _flight: RequestInFlight,
}

#[derive(Debug)]
enum Source<B> {
    Service(B),
    Front(Full<Bytes>),
}

impl<B> Reply<B> {
    pub(super) fn service(body: B, charge: Option<Charge>, flight: RequestInFlight) -> Self {
        Reply { source: Source::Service(body), charge, _flight: flight }
    }

    pub(super) fn front(body: Full<Bytes>, flight: RequestInFlight) -> Self {
        Reply { source: Source::Front(body), charge: None, _flight: flight }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Reply<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let me = &mut *self;
        match &mut me.source {
            Source::Service(body) => Pin::new(&mut *body).poll_frame(cx).map_ok(|frame| match frame.into_data() {
                // The last piece keeps the charge: usually it keeps all of the bytes in memory.
                Ok(data) if body.is_end_stream() => match me.charge.take() {
                    Some(charge) => Frame::data(charge.attach(data)),
                    None => Frame::data(data),
                },
                Ok(data) => Frame::data(data),
                Err(frame) => frame,
            }),
            Source::Front(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Service(body) => body.is_end_stream(),
            Source::Front(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Service(body) => body.size_hint(),
            Source::Front(body) => body.size_hint(),
        }
    }
}
