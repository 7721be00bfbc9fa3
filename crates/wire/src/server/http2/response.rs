//! An answer's body in pieces that fit a frame, so that what a client does not take stays with us.
//! Never changes a byte; an answer that has no body in HTTP has none here.
//! Made by `http2`, written by hyper.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};

use super::super::link::Link;
use super::super::reply::Reply;

/// What HTTP/2 allows every frame to be. A larger piece would lie in hyper's buffers, where no time runs.
const PIECE_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Paced<B> {
    // None: a head without a body.
    reply: Option<Reply<B>>,
    rest: Bytes,
    link: Arc<Link>,
}

impl<B: Body<Data = Bytes> + Unpin> Paced<B> {
    pub(super) fn response(mut response: Response<Reply<B>>, link: Arc<Link>, is_head: bool) -> Response<Self> {
        // hyper leaves such bodies out in HTTP/1 only.
        let is_bare = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let has_length = response.headers().contains_key(header::CONTENT_LENGTH);
        if is_head
            && !is_bare
            && !has_length
            && let Some(bytes) = response.body().size_hint().exact()
        {
            response.headers_mut().insert(header::CONTENT_LENGTH, bytes.into());
        }
        response.map(|reply| {
            let paced = Paced { reply: (!is_head && !is_bare).then_some(reply), rest: Bytes::new(), link };
            if paced.is_end_stream() {
                paced.set_whole();
            }
            paced
        })
    }
}

impl<B: Body<Data = Bytes>> Paced<B> {
    fn last(&self, last: Option<Result<Frame<Bytes>, B::Error>>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.set_whole();
        Poll::Ready(last)
    }

    fn set_whole(&self) {
        if let Some(stream) = self.link.stream() {
            stream.set_whole();
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let me = &mut *self;
        if let Some(stream) = me.link.stream() {
            stream.take_all();
        }
        if me.rest.is_empty() {
            let Some(reply) = &mut me.reply else { return Poll::Ready(None) };
            let next = ready!(Pin::new(reply).poll_frame(cx));
            match next.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => me.rest = data,
                // Trailers, the end, or an answer that its service broke off: that is not the client's doing either.
                Some(Ok(Err(trailers))) => return me.last(Some(Ok(trailers))),
                Some(Err(error)) => return me.last(Some(Err(error))),
                None => return me.last(None),
            }
        }
        let piece = me.rest.split_to(me.rest.len().min(PIECE_BYTES_MAX));
        if let Some(stream) = me.link.stream() {
            stream.give(piece.len());
        }
        if me.is_end_stream() {
            me.set_whole();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.reply.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
