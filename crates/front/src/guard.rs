//! Sits between socket and hyper: passes on whole, well-formed heads and their bodies, and ends what takes too long.
//! Never copies what can pass at once: it holds back only an unfinished head, which hyper could misread.
//! Called by `connection`; hyper polls it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::alarm::{Alarm, Pace};
use super::limits::{LINGER_BYTES_MAX, Limits};
use super::link::{Fault, Link};
use super::refusal::{self, Refusal};
use super::scan::{Scanner, Stop};

/// Takes the place of a refused head. hyper then queues the answer behind those still owed on this connection, and
/// closes afterwards; `Link` tells the service which call is the stand-in.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// A guarded socket.
#[derive(Debug)]
pub(super) struct Guard<IO> {
    io: IO,
    link: Arc<Link>,
    limits: Arc<Limits>,
    scanner: Scanner,
    held: Held,
    fault: Option<Fault>,
    refused: bool,
    // When the current wait for a head began: at its first byte, or at the start of the idle time before it.
    since: Option<Instant>,
    intake: Pace,
    outflow: Pace,
    alarm: Alarm,
    linger: Option<Linger>,
}

/// Bytes that were read and not yet passed to hyper: some that may pass, then an unfinished head.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    passed: usize,
    good: usize,
}

#[derive(Debug)]
struct Linger {
    until: Instant,
    bytes: usize,
}

impl<IO> Guard<IO> {
    pub(super) fn new(io: IO, link: Arc<Link>, limits: Arc<Limits>) -> Self {
        Guard {
            io,
            link,
            scanner: Scanner::new(limits.request_line_bytes_max, limits.head_bytes_max),
            limits,
            held: Held::default(),
            fault: None,
            refused: false,
            since: None,
            intake: Pace::default(),
            outflow: Pace::default(),
            alarm: Alarm::default(),
            linger: None,
        }
    }

    /// Starts with the bytes that were read to detect the protocol; the time that took counts.
    pub(super) fn begin_with(&mut self, first: Vec<u8>, begun: Instant) {
        let scan = self.scanner.scan(&first);
        if scan.good < first.len() {
            self.since = Some(begun);
        }
        self.held = Held { bytes: first, passed: 0, good: scan.good };
        if let Some(stop) = scan.stop {
            self.stop(stop);
        }
    }

    /// Scans the bytes read after `before`, and leaves in `buf` those that may pass.
    fn admit(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let (heads, content) = (self.scanner.heads(), self.scanner.content());
        let fresh = &buf.filled()[before..];
        let had_part = !self.held.bytes.is_empty();
        let scan = if had_part {
            self.held.bytes.extend_from_slice(fresh);
            let scan = self.scanner.scan(&self.held.bytes);
            self.held.good = scan.good;
            buf.set_filled(before);
            scan
        } else {
            let scan = self.scanner.scan(fresh);
            self.held.bytes.extend_from_slice(&fresh[scan.good..]);
            buf.set_filled(before + scan.good);
            scan
        };
        if heads != self.scanner.heads() {
            self.intake.reset();
            self.since = None;
        }
        if self.scanner.content() > content {
            self.intake.moved(self.scanner.content() - content, self.limits.body_bytes_per_s_min);
        }
        match scan.stop {
            None => {
                let has_part = self.held.bytes.len() > self.held.good;
                if has_part && (!had_part || self.since.is_none()) {
                    self.since = Some(Instant::now());
                }
            }
            Some(stop) => self.stop(stop),
        }
    }

    fn stop(&mut self, stop: Stop) {
        match stop {
            Stop::Refused(refusal) => self.refuse(refusal),
            // The read after the good bytes reports it; the bytes behind them are not scanned.
            Stop::Broken => self.fault = Some(Fault::Malformed),
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.link.refuse(self.scanner.heads(), refusal);
        self.refused = true;
        self.held.bytes.truncate(self.held.good);
        self.held.bytes.extend_from_slice(STAND_IN);
        self.held.good = self.held.bytes.len();
    }

    /// Nothing to read: waits, or gives up. `Ready` means that the next read has a result.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Patience> {
        let (deadline, end) = if self.scanner.is_in_body() {
            (self.intake.deadline(self.limits.body_wait_ms_max), Patience::Body)
        } else if !self.held.bytes.is_empty() {
            (self.after(self.limits.head_ms_max), Patience::Head)
        } else if self.is_resting() {
            (self.after(self.quiet_ms_max()), Patience::Quiet)
        } else {
            self.since = None;
            return Poll::Pending;
        };
        self.alarm.poll(cx, deadline).map(|()| end)
    }

    /// Whether no request is being received, served or answered.
    fn is_resting(&self) -> bool {
        !self.scanner.is_in_body()
            && self.held.bytes.is_empty()
            && !self.link.is_in_flight()
            && !self.outflow.is_waiting()
    }

    fn quiet_ms_max(&self) -> u64 {
        match self.scanner.heads() {
            0 => self.limits.head_ms_max,
            _ => self.limits.idle_ms_max,
        }
    }

    fn after(&mut self, ms: u64) -> Instant {
        *self.since.get_or_insert_with(Instant::now) + Duration::from_millis(ms)
    }

    /// The socket takes no bytes: waits, or gives the client up.
    fn stalled<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let deadline = self.outflow.deadline(self.limits.write_wait_ms_max);
        self.alarm.poll(cx, deadline).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn written(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(bytes)) => {
                self.outflow.moved(bytes as u64, self.limits.write_bytes_per_s_min);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.stalled(cx),
        }
    }
}

/// The wait whose time is over.
enum Patience {
    Body,
    Head,
    Quiet,
}

impl Held {
    /// Moves the bytes that may pass into `buf`.
    fn pass(&mut self, buf: &mut ReadBuf<'_>) {
        let end = self.good.min(self.passed + buf.remaining());
        buf.put_slice(&self.bytes[self.passed..end]);
        self.passed = end;
        if self.passed == self.good {
            self.bytes.drain(..self.good);
            (self.passed, self.good) = (0, 0);
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Guard<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        loop {
            if me.held.passed < me.held.good {
                me.held.pass(buf);
                return Poll::Ready(Ok(()));
            }
            if let Some(fault) = me.fault {
                me.link.set_fault(fault);
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if me.refused {
                // hyper has the stand-in, and ends the connection after its answer.
                return Poll::Pending;
            }
            let before = buf.filled().len();
            match Pin::new(&mut me.io).poll_read(cx, buf) {
                Poll::Ready(Ok(())) if buf.filled().len() == before => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => {
                    me.admit(buf, before);
                    if buf.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => match ready!(me.wait(cx)) {
                    Patience::Body => me.fault = Some(Fault::TooSlow),
                    Patience::Head => me.refuse(refusal::HEAD_TOO_SLOW),
                    // To hyper this looks as if the client had closed.
                    Patience::Quiet => return Poll::Ready(Ok(())),
                },
            }
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let wrote = Pin::new(&mut me.io).poll_write(cx, data);
        me.written(cx, wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let wrote = Pin::new(&mut me.io).poll_write_vectored(cx, data);
        me.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        match Pin::new(&mut me.io).poll_flush(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return me.stalled(cx),
        }
        me.outflow.reset();
        // After an answer hyper reads no more if a read was pending, so the idle time begins here.
        if me.since.is_none() && me.is_resting() {
            let deadline = me.after(me.quiet_ms_max());
            if me.alarm.poll(cx, deadline).is_ready() {
                // A bound of zero is already past: the next read reports it.
                cx.waker().wake_by_ref();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.linger.is_none() {
            match Pin::new(&mut me.io).poll_shutdown(cx) {
                Poll::Ready(result) => result?,
                Poll::Pending => return me.stalled(cx),
            }
            let until = Instant::now() + Duration::from_millis(me.limits.linger_ms_max);
            me.linger = Some(Linger { until, bytes: LINGER_BYTES_MAX });
        }
        if !me.refused && !me.scanner.is_in_body() {
            return Poll::Ready(Ok(()));
        }
        // Closing a socket with unread input resets it, and the reset may overtake the answer.
        let Some(linger) = &mut me.linger else { return Poll::Ready(Ok(())) };
        let mut space = [0; 4096];
        loop {
            let mut sink = ReadBuf::new(&mut space);
            match Pin::new(&mut me.io).poll_read(cx, &mut sink) {
                Poll::Ready(Ok(())) if !sink.filled().is_empty() && linger.bytes > 0 => {
                    linger.bytes = linger.bytes.saturating_sub(sink.filled().len());
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return me.alarm.poll(cx, linger.until).map(Ok),
            }
        }
    }
}
