//! The fast path for plain HTTP/1.1 requests: a whole, ordinary head, a body of known length that has arrived, an
//! answer that is complete soon. Reads and writes them without hyper, whose care for all other requests costs time.
//! Never refuses a request: one that is not plain goes unchanged to the guard, with the rest of its connection.
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
use super::body::RequestBody;
use super::connection::{Caller, Phase};
use super::limits::Limits;
use super::peer::Peer;
use super::sniff::{First, Protocol};
use request::Not;
use response::Then;

/// Space for one read. A read that does not fill it has taken all that was there.
const READ_BYTES: usize = 4 * 1024;
/// The largest plain request; a larger one has time for hyper.
const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// An answer up to this size is written in one piece with its head.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Serves plain requests. Returns the connection with its unread bytes when another request arrives; `None` at its end.
pub(super) async fn run<IO, S, B>(io: IO, first: First, caller: &mut Caller<S>) -> Option<(IO, First)>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let closing = AtomicBool::new(false);
    let lane = FastConnection {
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
    // Polled only when it wakes, not with each request: all connections share the channel and would contend for it.
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

struct FastConnection<'c, IO, S> {
    io: IO,
    limits: &'c Limits,
    peer: &'c Peer,
    service: S,
    /// No further request begins. A flag of this connection alone: requests read it without touching shared memory.
    closing: &'c AtomicBool,
    input: BytesMut,
    output: Vec<u8>,
    outflow: Pace,
    alarm: Alarm,
}

impl<IO, S, B> FastConnection<'_, IO, S>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
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
                    // More of it may be in the socket already. hyper waits for what has yet to arrive.
                    Err(Not::Whole) if self.more().await => {}
                    Err(_) => {
                        // On a new connection the time before the first byte counts, too.
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

    /// Waits for a request; true when one begins. False if the client is gone or idle for too long, or at shutdown.
    async fn heard(&mut self, until: Instant) -> bool {
        self.input.reserve(READ_BYTES);
        poll_fn(|cx| match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input) {
            Poll::Ready(read) => Poll::Ready(read.is_ok_and(|bytes| bytes > 0)),
            Poll::Pending if self.closing.load(Ordering::Relaxed) => Poll::Ready(false),
            Poll::Pending => self.alarm.poll(cx, until).map(|()| false),
        })
        .await
    }

    /// Reads what has arrived already, without waiting; false where that is nothing.
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

    /// Takes the next request if it is plain and whole; otherwise its bytes stay in `input`.
    fn next(&mut self) -> Result<Request<RequestBody>, Not> {
        let bytes = self.input.split().freeze();
        let found = request::read(&bytes, self.limits);
        let len = found.as_ref().map_or(0, |(_, len)| *len);
        self.input.extend_from_slice(&bytes[len..]);
        let (mut request, _) = found?;
        // The peer's address would cost an allocation, so it is not set on this path.
        if let Some(thumbprint) = &self.peer.thumbprint {
            request.extensions_mut().insert(thumbprint.clone());
        }
        Ok(request)
    }

    /// The service's response; `None` where the client closed the connection before it.
    async fn answered(&mut self, request: Request<RequestBody>) -> Option<Response<B>> {
        let Ok(()) = poll_fn(|cx| self.service.poll_ready(cx)).await;
        let mut answer = pin!(self.service.call(request));
        poll_fn(|cx| {
            if let Poll::Ready(Ok(response)) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            // A client that sends its next request is not gone. This one still uses `input`: a small buffer must do.
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
        // Holds the charge until the last byte is written.
        let _charge = self.limits.budget.answer(&response);
        let (parts, mut body) = response.into_parts();
        let mut piece = std::mem::take(&mut self.output);
        piece.clear();
        let then = response::head(&mut piece, &parts, body.size_hint().exact(), self.is_last());
        // The head is sent, so an error of the body cannot be reported; the connection just ends.
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

    /// Ends the connection, with a TLS close where it has TLS. Errors are ignored: the client sees how it ended.
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

    /// The socket takes no bytes: waits, or gives the client up.
    fn stalled<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let deadline = self.outflow.deadline(self.limits.write_wait_ms_max);
        self.alarm.poll(cx, deadline).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}
