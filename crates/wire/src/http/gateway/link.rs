//! One connection to an upstream, below TLS. Reads bytes as soon as the kernel has them, and notes an answer that
//! begins before its request is wholly written. hyper pairs requests and answers by their order alone, so stray bytes
//! must be found before the next request is written. Opened by hyper's client for `upstream`.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tower_service::Service;

/// Opens the connections.
#[derive(Clone)]
pub(super) struct Connector(pub(super) HttpConnector);

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<TokioIo<Link>, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move { Ok(TokioIo::new(Link::new(connecting.await?.into_inner()))) })
    }
}

/// Whether an answer on a connection began before its request was wholly written. Every answer's extensions have it.
#[derive(Clone, Debug, Default)]
pub(super) struct AnsweredEarly(Arc<AtomicBool>);

impl AnsweredEarly {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A TCP connection whose reads miss no byte that the kernel has.
pub(super) struct Link {
    stream: TcpStream,
    /// Bytes were written since the last flush. hyper flushes once all that it has of a request is written.
    is_writing: bool,
    /// Nothing was written since the last read: either an answer is coming, or no request is under way.
    is_answered: bool,
    early: AnsweredEarly,
}

impl Link {
    fn new(stream: TcpStream) -> Self {
        Self { stream, is_writing: false, is_answered: true, early: AnsweredEarly::default() }
    }

    /// Reads all bytes that the kernel has, even before the runtime knows of them. A busy runtime polls the kernel
    /// late, and hyper would then write the next request although bytes that cannot be its answer are already there.
    fn read_now(&self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match recv(&self.stream, buf.initialize_unfilled(), RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                buf.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    fn wrote<T>(&mut self, polled: Poll<T>) -> Poll<T> {
        (self.is_writing, self.is_answered) = (true, false);
        polled
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let mut polled = Pin::new(&mut me.stream).poll_read(cx, buf);
        // Nothing is written while an answer is awaited, so the runtime's own notification is early enough.
        if polled.is_pending() && me.is_answered {
            polled = me.read_now(buf);
        }
        if polled.is_ready() {
            me.is_answered = true;
            if me.is_writing {
                me.early.0.store(true, Ordering::Release);
            }
        }
        polled
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let polled = Pin::new(&mut me.stream).poll_write(cx, data);
        me.wrote(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let polled = Pin::new(&mut me.stream).poll_write_vectored(cx, data);
        me.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.is_writing = false;
        Pin::new(&mut me.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.early.clone())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write as _;

    use std::task::Waker;

    use super::*;

    async fn pair() -> (Link, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::new(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
        (link, listener.accept().unwrap().0)
    }

    fn poll_read(link: &mut Link) -> Option<Vec<u8>> {
        let (mut space, mut cx) = ([0; 64], Context::from_waker(Waker::noop()));
        let mut buf = ReadBuf::new(&mut space);
        match Pin::new(link).poll_read(&mut cx, &mut buf) {
            Poll::Ready(read) => read.map(|()| Some(buf.filled().to_vec())).unwrap(),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn bytes_that_the_runtime_has_not_heard_of_are_read_before_the_next_request() {
        let (mut link, mut upstream) = pair().await;
        assert_eq!(poll_read(&mut link), None);
        upstream.write_all(b"HTTP/1.1 200 OK").unwrap();
        // Nothing was awaited since: the runtime's own stream still reports that nothing is there.
        let mut cx = Context::from_waker(Waker::noop());
        let mut space = [0; 64];
        let told = Pin::new(&mut link.stream).poll_read(&mut cx, &mut ReadBuf::new(&mut space));
        assert!(told.is_pending());
        assert_eq!(poll_read(&mut link).unwrap(), b"HTTP/1.1 200 OK");
        assert_eq!(poll_read(&mut link), None);
        drop(upstream);
        assert_eq!(poll_read(&mut link).unwrap(), b"");
    }

    #[tokio::test]
    async fn answer_before_the_request_was_flushed_is_early() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut link, mut upstream) = pair().await;
        link.write_all(b"POST").await.unwrap();
        link.flush().await.unwrap();
        upstream.write_all(b"ok").unwrap();
        link.read_exact(&mut [0; 2]).await.unwrap();
        assert!(!link.early.get());
        link.write_all(b"POST").await.unwrap();
        upstream.write_all(b"ok").unwrap();
        link.read_exact(&mut [0; 2]).await.unwrap();
        assert!(link.early.get());
    }
}
