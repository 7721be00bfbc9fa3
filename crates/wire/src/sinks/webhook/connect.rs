//! Opens connections for the client: to a judged address only, with or without TLS.
//! Never asks the environment for a proxy, and never looks a name up twice for one connection.
//! Called by hyper's client where it has no connection to reuse.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tower_service::Service;

use super::{
    WebhookSettings,
    judge::{self, Egress, Target},
};
use crate::trust;

/// Opens connections. Clones share the count of those that are open.
#[derive(Clone)]
pub(super) struct Connector {
    egress: Egress,
    tls: TlsConnector,
    connect_ms_max: u64,
    kept_max: usize,
    open: Arc<AtomicUsize>,
}

impl Connector {
    pub(super) fn new(egress: Egress, settings: &WebhookSettings) -> Result<Self, String> {
        let mut config = trust::client(settings.authorities.as_deref())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let WebhookSettings { connect_ms_max, kept_max, .. } = *settings;
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { egress, tls, connect_ms_max, kept_max, open: Arc::default() })
    }

    async fn connect(self, uri: Uri) -> Result<Link, String> {
        let target = judge::target(&uri)?;
        let until = Instant::now() + Duration::from_millis(self.connect_ms_max);
        let connecting = async {
            let addresses = self.egress.addresses(&target).await?;
            let tcp = first_that_answers(&addresses, until).await?;
            // Small bodies must not wait for the acknowledgement of their own head.
            tcp.set_nodelay(true).map_err(|error| error.to_string())?;
            self.secured(&target, tcp).await
        };
        let pipe = timeout_at(until, connecting)
            .await
            .map_err(|_| format!("no connection to {} within {} ms", target.name(), self.connect_ms_max))??;
        let crowded = self.open.fetch_add(1, Relaxed) >= self.kept_max;
        Ok(Link { pipe, crowded, _counted: Counted(self.open) })
    }

    async fn secured(&self, target: &Target, tcp: TcpStream) -> Result<Pin<Box<dyn Pipe>>, String> {
        if !target.tls {
            return Ok(Box::pin(tcp));
        }
        let name =
            ServerName::try_from(target.host.clone()).map_err(|_| "the url's host has no name that TLS knows")?;
        let stream = self.tls.connect(name, tcp).await;
        Ok(Box::pin(stream.map_err(|error| format!("no TLS with {}: {error}", target.name()))?))
    }
}

/// Tries one address after the other. Each gets its share of the time that is left: a silent one does not take it all.
async fn first_that_answers(addresses: &[SocketAddr], until: Instant) -> Result<TcpStream, String> {
    let mut why = String::new();
    for (tried, address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = format!("no connection to {address}: {error}"),
            Err(_) => why = format!("no connection to {address} within {} ms", share.as_millis()),
        }
    }
    Err(why)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Link>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(uri).await.map(TokioIo::new).map_err(io::Error::other) })
    }
}

/// A TCP or TLS stream.
trait Pipe: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Pipe for T {}

pub(super) struct Link {
    pipe: Pin<Box<dyn Pipe>>,
    /// Whether too many are open to keep this one for later: idle ones to many hosts use up file descriptors.
    crowded: bool,
    _counted: Counted,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.crowded {
            connected.poison();
        }
        connected
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.pipe.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.pipe.as_mut().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pipe.as_mut().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.pipe.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.as_mut().poll_shutdown(cx)
    }
}
