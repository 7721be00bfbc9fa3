//! An answer's body in pieces that fit a frame, so that bytes a client does not take stay in this module.
//! Never changes a byte; an answer that has no body in HTTP has none here.
//! Called by `http2`; hyper polls it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};

use super::super::link::Link;
use super::super::reply::Reply;

/// The frame size that every peer accepts. A larger piece would wait in hyper's buffers, where no time bound applies.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// An answer up to this size ends with its last bytes. A larger one ends only when hyper has sent its last piece:
/// until then the stream is timed, since that piece keeps the whole answer in memory.
const UNWATCHED_BYTES_MAX: u64 = 1024;

pub(super) struct Paced<B> {
    // None for a head without a body.
    reply: Option<Reply<B>>,
    rest: Bytes,
    is_small: bool,
    // hyper has the last piece, which reports when it is sent.
    is_last_given: bool,
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
            let is_small = reply.size_hint().exact().is_some_and(|bytes| bytes <= UNWATCHED_BYTES_MAX);
            let reply = (!is_head && !is_bare).then_some(reply);
            let paced = Paced { reply, rest: Bytes::new(), is_small, is_last_given: false, link };
            if paced.is_over() {
                paced.set_whole();
            }
            paced
        })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Paced<B> {
    fn last(&self, last: Option<Result<Frame<Bytes>, B::Error>>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.set_whole();
        Poll::Ready(last)
    }

    /// Whether the whole answer was handed to hyper.
    fn is_over(&self) -> bool {
        self.rest.is_empty() && self.reply.as_ref().is_none_or(Body::is_end_stream)
    }

    fn set_whole(&self) {
        if let Some(stream) = self.link.stream() {
            stream.set_whole();
        }
    }
}

/// Reports to its stream when hyper has sent it, or dropped it with the stream.
struct LastPiece {
    data: Bytes,
    link: Arc<Link>,
}

impl AsRef<[u8]> for LastPiece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for LastPiece {
    fn drop(&mut self) {
        if let Some(stream) = self.link.stream() {
            stream.set_last_left();
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let me = &mut *self;
        if me.is_last_given {
            let left = me.link.stream().map_or(Poll::Ready(()), |stream| stream.poll_last_left(cx));
            return left.map(|()| None);
        }
        if let Some(stream) = me.link.stream() {
            stream.take_all();
        }
        if me.rest.is_empty() {
            let Some(reply) = &mut me.reply else { return Poll::Ready(None) };
            let next = ready!(Pin::new(reply).poll_frame(cx));
            match next.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => me.rest = data,
                // Trailers, the end, or an answer that the service broke off: the client is not at fault.
                Some(Ok(Err(trailers))) => return me.last(Some(Ok(trailers))),
                Some(Err(error)) => return me.last(Some(Err(error))),
                None => return me.last(None),
            }
        }
        let mut piece = me.rest.split_to(me.rest.len().min(PIECE_BYTES_MAX));
        if let Some(stream) = me.link.stream() {
            stream.give(piece.len());
        }
        if me.is_over() {
            me.set_whole();
            if !me.is_small {
                me.is_last_given = true;
                piece = Bytes::from_owner(LastPiece { data: piece, link: me.link.clone() });
            }
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over() && (self.is_small || self.reply.is_none())
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
