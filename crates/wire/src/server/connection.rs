//! Serves one connection: hyper over the guard below, the service above.
//! Never outlives the phase it is told: closing finishes what is in flight, cut ends at once.
//! Spawned by `accept`.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower_service::Service;

use super::body::Body;
use super::guard::Guard;
use super::head::HEADERS_MAX;
use super::limits::Limits;
use super::link::{Fault, Flight, Link};
use super::peer::{Peer, PeerAddr};
use super::refusal::Refusal;
use super::reply::Reply;

/// What a connection may still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Finish what is in flight, begin nothing.
    Closing,
    /// End now.
    Cut,
}

pub(super) async fn run<IO, S, B>(io: IO, peer: Peer, service: S, limits: Arc<Limits>, mut phase: watch::Receiver<Phase>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let link = Arc::new(Link::default());
    let guard = Guard::new(io, link.clone(), limits.clone());
    let (link, peer, bounds) = (&link, &peer, &*limits);
    let answering = service_fn(move |request| {
        // Before the future is first polled: until then hyper may read, and an idle clock would start.
        let (flight, refused) = Flight::begin(link);
        answer(request, flight, refused, service.clone(), peer, bounds)
    });
    let serving = http1::Builder::new()
        // The guard keeps the time; hyper's timer would cost one allocation a request.
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_header_size(limits.head_bytes_max.max(8 * 1024))
        .max_buf_size((4 * limits.head_bytes_max).max(64 * 1024))
        .serve_connection(TokioIo::new(guard), answering);
    let mut serving = pin!(serving);
    // How a connection ends, the client knows best; there is nobody here to tell.
    tokio::select! {
        biased;
        _ = serving.as_mut() => return,
        _ = phase.wait_for(|phase| *phase != Phase::Open) => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        _ = serving => {}
        _ = phase.wait_for(|phase| *phase == Phase::Cut) => {}
    }
}

async fn answer<S, B>(
    mut request: Request<Incoming>,
    flight: Flight,
    refused: Option<Refusal>,
    mut service: S,
    peer: &Peer,
    limits: &Limits,
) -> Result<Response<Reply<B>>, Infallible>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let front = |refusal: Refusal, traceparent: Option<&HeaderValue>, flight| {
        Ok(refusal.response(traceparent).map(|body| Reply::front(body, flight)))
    };
    if let Some(refusal) = refused {
        return front(refusal, None, flight);
    }
    let has_body = !request.body().is_end_stream();
    let (mut bytes_max, mut traceparent, mut link) = (0, None, None);
    if has_body {
        bytes_max = (limits.body_bytes_max_for)(request.method(), request.uri(), limits.body_bytes_max);
        traceparent = request.headers().get("traceparent").cloned();
        link = Some(flight.link().clone());
        if request.body().size_hint().lower() > bytes_max {
            return front(Fault::TooLarge.refusal(), traceparent.as_ref(), flight);
        }
    }
    let is_old = request.version() == Version::HTTP_10;
    request.extensions_mut().insert(PeerAddr(peer.addr));
    if let Some(thumbprint) = &peer.thumbprint {
        request.extensions_mut().insert(thumbprint.clone());
    }

    let request = request.map(|incoming| Body::new(incoming, bytes_max, link));
    let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
    let Ok(mut response) = service.call(request).await;

    // A service that could not read the body cannot know why as well as we do.
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if let Some(fault) = flight.link().fault().filter(|_| has_body && is_error) {
        return front(fault.refusal(), traceparent.as_ref(), flight);
    }
    if is_old {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| Reply::service(body, flight)))
}
