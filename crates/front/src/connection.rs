//! Serves one connection: detects its protocol. HTTP/1 runs on the fast path while it can; then hyper runs over the
//! guard and under the service.
//! Never outlives its phase: `Closing` finishes requests in flight, `Cut` ends at once.
//! Called by `accept`, which spawns it.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tower_service::Service;

use super::answer::{After, Answer, Step};
use super::body::RequestBody;
use super::guard::Guard;
use super::head::HEADERS_MAX;
use super::http2;
use super::limits::Limits;
use super::link::{Fault, Link, RequestInFlight};
use super::peer::{Peer, PeerAddr, Serves};
use super::plain;
use super::refusal::{self, Refusal};
use super::sniff::{First, Protocol};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The phase of a connection, which the accept loop sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Finish requests in flight, begin no more.
    Closing,
    /// End at once.
    Cut,
}

/// The client of a connection, its service and its limits.
pub(super) struct Caller<S> {
    pub(super) peer: Peer,
    pub(super) service: S,
    pub(super) limits: Arc<Limits>,
    pub(super) phases: watch::Receiver<Phase>,
    /// The runtime for HTTP/2, where this connection's own runtime has only one thread.
    pub(super) http2_runtime: Option<Handle>,
}

/// Serves a connection whose protocol is still unknown.
pub(super) async fn open<IO, S, B>(mut io: IO, mut caller: Caller<S>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut first = First::unread();
    let patience = Duration::from_millis(caller.limits.head_ms_max);
    let read = tokio::select! {
        biased;
        read = timeout(patience, first.read(&mut io)) => read,
        _ = caller.phases.wait_for(|phase| *phase != Phase::Open) => return,
    };
    // A client that sent some bytes and ran out of time gets its answer from the guard.
    if matches!(read, Ok(Err(_))) || first.bytes.is_empty() {
        return;
    }
    run(io, first, caller).await;
}

/// Serves a connection whose protocol is known.
pub(super) async fn run<IO, S, B>(io: IO, first: First, mut caller: Caller<S>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match first.protocol {
        Protocol::Http1 if caller.peer.serves == Serves::Probes => run_http1(io, first, caller).await,
        Protocol::Http1 => {
            if let Some((io, first)) = plain::run(io, first, &mut caller).await {
                run_http1(io, first, caller).await;
            }
        }
        Protocol::Http2 => match caller.http2_runtime.take() {
            Some(runtime) => drop(AbortOnDropHandle::new(runtime.spawn(http2::run(io, first, caller))).await),
            None => http2::run(io, first, caller).await,
        },
    }
}

async fn run_http1<IO, S, B>(io: IO, first: First, caller: Caller<S>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Caller { peer, service, limits, mut phases, .. } = caller;
    let link = Arc::new(Link::default());
    let mut guard = Guard::new(io, link.clone(), limits.clone());
    guard.begin_with(first.bytes, first.begun);
    let (link, peer, bounds) = (&link, &peer, &*limits);
    let answering = service_fn(move |request| answer(request, link, service.clone(), peer, bounds));
    let serving = http1::Builder::new()
        // The guard bounds the time; hyper's timer would cost one allocation a request.
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_header_size(limits.head_bytes_max.max(8 * 1024))
        .max_buf_size((4 * limits.head_bytes_max).max(64 * 1024))
        .serve_connection(TokioIo::new(guard), answering);
    let mut serving = pin!(serving);
    // Its result is ignored: the client knows how the connection ended, and there is no other receiver.
    tokio::select! {
        biased;
        _ = serving.as_mut() => return,
        _ = phases.wait_for(|phase| *phase != Phase::Open) => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        _ = serving => {}
        _ = phases.wait_for(|phase| *phase == Phase::Cut) => {}
    }
}

/// Begins one call. Work is done here where it needs no future: the request is large, and each future it passes
/// through copies it.
fn answer<S, B>(
    request: Request<Incoming>,
    link: &Arc<Link>,
    service: S,
    peer: &Peer,
    limits: &Limits,
) -> Answer<S::Future, S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
{
    let (in_flight, refused) = RequestInFlight::begin(link);
    let mut after = After::default();
    let step = match refused {
        Some(refusal) => Step::Refuse { refusal },
        None => begin(request, link, service, peer, limits, &mut after),
    };
    Answer { step, in_flight: Some(in_flight), after, budget: limits.budget.clone(), refuse: limits.refuse, head: None }
}

/// Hands one request to the service, unless there is no room for it or its body is known to be too large.
pub(super) fn begin<S, B>(
    mut request: Request<Incoming>,
    link: &Arc<Link>,
    mut service: S,
    peer: &Peer,
    limits: &Limits,
    after: &mut After,
) -> Step<S::Future, S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
{
    let refused = refuse(&request, peer, limits);
    let (mut bytes_max, mut body_link) = (0, None);
    if !request.body().is_end_stream() {
        bytes_max = (limits.body_bytes_max_for)(request.method(), request.uri(), limits.body_bytes_max);
        body_link = Some(link.clone());
        after.has_body = true;
        after.uri = Some(request.uri().clone());
        after.traceparent = request.headers().get(&TRACEPARENT).cloned();
    }
    let too_large = (request.body().size_hint().lower() > bytes_max).then(|| Fault::TooLarge.refusal());
    if let Some(refusal) = refused.or(too_large) {
        drop(RequestBody::new(request.into_body(), 0, body_link, limits));
        return Step::Refuse { refusal };
    }
    after.is_last = request.version() == Version::HTTP_10 || peer.serves == Serves::Probes;
    request.extensions_mut().insert(PeerAddr(peer.addr));
    if let Some(secured) = peer.secured {
        request.extensions_mut().insert(secured);
    }
    if let Some(thumbprint) = &peer.thumbprint {
        request.extensions_mut().insert(thumbprint.clone());
    }
    let request = request.map(|incoming| RequestBody::new(incoming, bytes_max, body_link, limits));
    // Almost every service is ready at once. Another one is polled again with the task's own waker.
    match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(_) => Step::Call { future: service.call(request) },
        Poll::Pending => Step::Wait { waiting: Some(Box::new((service, request))) },
    }
}

/// Why a request is refused for the server's load: its connection is past the bounds, or memory is full. Probes are
/// answered all the same.
fn refuse<B>(request: &Request<B>, peer: &Peer, limits: &Limits) -> Option<Refusal> {
    let is_probe = || (limits.is_probe)(request.method(), request.uri().path());
    match peer.serves {
        Serves::Probes => (!is_probe()).then_some(refusal::FULL),
        Serves::All if limits.budget.has_room() || is_probe() => None,
        Serves::All => {
            limits.budget.refuse();
            Some(refusal::NO_ROOM)
        }
    }
}
