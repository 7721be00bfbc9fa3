//! The socket of an HTTP/2 connection: first the bytes that were read to detect the protocol, then the stream.
//! Never waits without a bound: a client that takes no bytes for too long is cut.
//! Called by `http2`; hyper polls it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::alarm::{Alarm, Pace};
use super::super::limits::Limits;

pub(super) struct Socket<IO> {
    io: IO,
    first: Bytes,
    limits: Arc<Limits>,
    outflow: Pace,
    alarm: Alarm,
}

impl<IO> Socket<IO> {
    pub(super) fn new(io: IO, first: Vec<u8>, limits: Arc<Limits>) -> Self {
        Socket { io, first: first.into(), limits, outflow: Pace::default(), alarm: Alarm::default() }
    }

    fn stalled<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let deadline = self.outflow.deadline(self.limits.write_wait_ms_max);
        self.alarm.poll(cx, deadline).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn written(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(bytes)) => self.outflow.moved(bytes as u64, self.limits.write_bytes_per_s_min),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => return self.stalled(cx),
        }
        wrote
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Socket<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.first.is_empty() {
            return Pin::new(&mut me.io).poll_read(cx, buf);
        }
        let bytes = me.first.len().min(buf.remaining());
        buf.put_slice(&me.first[..bytes]);
        me.first.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Socket<IO> {
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
            Poll::Pending => me.stalled(cx),
            flushed => {
                me.outflow.reset();
                flushed
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        match Pin::new(&mut me.io).poll_shutdown(cx) {
            Poll::Pending => me.stalled(cx),
            closed => closed,
        }
    }
}
