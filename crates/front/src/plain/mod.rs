//! The short way for plain requests of an HTTP/1.1 connection: a whole head of the usual kind, a body of known length that is there, an
//! answer that is soon whole. Reads and writes them without hyper, whose care for everything else they need not pay for.
//! Never refuses anything: whatever is not plain goes to the guard and to hyper, as it came, and the rest of its connection with it.
//! Called by `connection`.

mod request;
mod response;

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream::FuturesUnordered};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;
use tower_service::Service;

use super::alarm::{Alarm, Pace};
use super::body::Body;
use super::connection::{Caller, Phase};
use super::limits::Limits;
use super::peer::Peer;
use super::sniff::{First, Protocol};
use request::Not;
use response::Then;

/// Room for what is read at a time. A read that leaves some of it tells that nothing more is there.
const READ_BYTES: usize = 4 * 1024;
/// A plain request has no more: what is longer has time for hyper.
const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// An answer up to this size leaves in one piece with its head.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Serves plain requests. The connection as it then is, where something else came.
pub(super) async fn run<IO, S, B>(io: IO, first: First, caller: &mut Caller<S>) -> Option<(IO, First)>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let closing = AtomicBool::new(false);
    let lane = Lane {
        io,
        limits: &caller.limits,
        peer: &caller.peer,
        service: caller.service.clone(),
        closing: &closing,
        input: BytesMut::from(&first.bytes[..]),
        output: Vec::new(),
        outflow: Pace::default(),
        alarm: Alarm::default(),
    };
    let mut serving = pin!(lane.serve(first.begun));
    // Looked at when it wakes, and not with each request: what is shared with every connection stands behind it.
    let mut told = FuturesUnordered::from_iter([caller.phases.wait_for(|phase| *phase != Phase::Open)]);
    tokio::select! {
        biased;
        left = serving.as_mut() => return left,
        _ = told.next() => closing.store(true, Ordering::Relaxed),
    }
    drop(told);
    tokio::select! {
        biased;
        left = serving => left,
        _ = caller.phases.wait_for(|phase| *phase == Phase::Cut) => None,
    }
}

struct Lane<'c, IO, S> {
    io: IO,
    limits: &'c Limits,
    peer: &'c Peer,
    service: S,
    /// Nothing is begun any more. Of this connection alone: what all share, each request would fetch from the others' processors.
    closing: &'c AtomicBool,
    input: BytesMut,
    output: Vec<u8>,
    outflow: Pace,
    alarm: Alarm,
}

impl<IO, S, B> Lane<'_, IO, S>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    async fn serve(mut self, begun: Instant) -> Option<(IO, First)> {
        let (mut since, mut quiet_ms_max, mut answered) = (begun, self.limits.head_ms_max, false);
        loop {
            let until = since + Duration::from_millis(quiet_ms_max);
            if self.input.is_empty() && !self.heard(until).await {
                return self.farewell().await;
            }
            let request = loop {
                match self.next() {
                    Ok(request) => break request,
                    // Some of it may only be waiting to be read. What is not there yet, hyper waits for.
                    Err(Not::Whole) if self.more().await => {}
                    Err(_) => {
                        // On a new connection the wait for the first byte counts.
                        let begun = if answered { Instant::now() } else { begun };
                        return Some((self.io, First { protocol: Protocol::Http1, bytes: self.input.into(), begun }));
                    }
                }
            };
            let response = self.answered(request).await?;
            if self.send(response).await.ok()? == Then::Close || self.is_last() {
                return self.farewell().await;
            }
            (since, quiet_ms_max, answered) = (Instant::now(), self.limits.idle_ms_max, true);
        }
    }

    fn is_last(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Waits for a request. Whether one has begun: not if the client has gone, says nothing for too long, or all is closing.
    async fn heard(&mut self, until: Instant) -> bool {
        self.input.reserve(READ_BYTES);
        poll_fn(|cx| match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input) {
            Poll::Ready(read) => Poll::Ready(read.is_ok_and(|bytes| bytes > 0)),
            Poll::Pending if self.closing.load(Ordering::Relaxed) => Poll::Ready(false),
            Poll::Pending => self.alarm.poll(cx, until).map(|()| false),
        })
        .await
    }

    /// Reads what has come already, without waiting. Whether there was anything.
    async fn more(&mut self) -> bool {
        if self.input.len() >= REQUEST_BYTES_MAX {
            return false;
        }
        self.input.reserve(PIECE_BYTES_MAX);
        poll_fn(|cx| {
            let read = poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input);
            Poll::Ready(matches!(read, Poll::Ready(Ok(bytes)) if bytes > 0))
        })
        .await
    }

    /// The request that is there, if it is plain; else what is there stays.
    fn next(&mut self) -> Result<Request<Body>, Not> {
        let bytes = self.input.split().freeze();
        let found = request::read(&bytes, self.limits);
        let len = found.as_ref().map_or(0, |(_, len)| *len);
        self.input.extend_from_slice(&bytes[len..]);
        let (mut request, _) = found?;
        // Its address is told where somebody asks for it, which costs an allocation: not here.
        if let Some(thumbprint) = &self.peer.thumbprint {
            request.extensions_mut().insert(thumbprint.clone());
        }
        Ok(request)
    }

    /// The service's response; none where the client hung up before.
    async fn answered(&mut self, request: Request<Body>) -> Option<Response<B>> {
        let Ok(()) = poll_fn(|cx| self.service.poll_ready(cx)).await;
        let mut answer = pin!(self.service.call(request));
        poll_fn(|cx| {
            if let Poll::Ready(Ok(response)) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            // Who sends the next request already has not gone. The request still holds the buffer: a little room will do.
            if self.input.is_empty() {
                let mut room = [0; 64];
                let mut ahead = ReadBuf::new(&mut room);
                let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut ahead));
                if read.is_err() || ahead.filled().is_empty() {
                    return Poll::Ready(None);
                }
                self.input.extend_from_slice(ahead.filled());
            }
            Poll::Pending
        })
        .await
    }

    async fn send(&mut self, response: Response<B>) -> io::Result<Then> {
        // Held until the last byte is written.
        let _charge = self.limits.budget.answer(&response);
        let (parts, mut body) = response.into_parts();
        let mut piece = std::mem::take(&mut self.output);
        piece.clear();
        let then = response::head(&mut piece, &parts, body.size_hint().exact(), self.is_last());
        // Its error says nothing that could still be told.
        while let Some(frame) = body.frame().await.map(Result::ok) {
            let frame = frame.ok_or(io::ErrorKind::BrokenPipe)?;
            let Some(data) = frame.into_data().ok().filter(|_| !response::is_bodiless(parts.status)) else { continue };
            if piece.len() + data.len() <= PIECE_BYTES_MAX {
                piece.extend_from_slice(&data);
                continue;
            }
            self.write(&piece).await?;
            piece.clear();
            self.write(&data).await?;
        }
        self.write(&piece).await?;
        poll_fn(|cx| match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Pending => self.stalled(cx),
            flushed => flushed,
        })
        .await?;
        self.outflow.reset();
        self.output = piece;
        Ok(then)
    }

    /// Ends the connection, TLS in its own words. How it ends, the client knows best.
    async fn farewell<T>(mut self) -> Option<T> {
        let _ = poll_fn(|cx| match Pin::new(&mut self.io).poll_shutdown(cx) {
            Poll::Pending => self.stalled(cx),
            ended => ended,
        })
        .await;
        None
    }

    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = poll_fn(|cx| match Pin::new(&mut self.io).poll_write(cx, bytes) {
                Poll::Pending => self.stalled(cx),
                written => written,
            })
            .await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.outflow.moved(written as u64, self.limits.write_bytes_per_s_min);
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// The socket takes nothing: wait, or give the client up.
    fn stalled<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let deadline = self.outflow.deadline(self.limits.write_wait_ms_max);
        self.alarm.poll(cx, deadline).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}
