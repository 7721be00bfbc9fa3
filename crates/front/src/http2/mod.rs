//! Serves one HTTP/2 connection: hyper runs over a socket with time bounds and under the same service as HTTP/1.
//! Never lets one stream slow the others: a stall ends its stream; only an abusive or silent client is cut.
//! Called by `connection`.

mod request;
mod response;
mod socket;
mod stream;
mod tally;

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tower_service::Service;

use super::answer::{After, Answer, Step};
use super::body::RequestBody;
use super::budget::{Charge, NoRoom, Standing};
use super::connection::{Caller, Phase, begin};
use super::link::RequestInFlight;
use super::refusal;
use super::sniff::First;
use request::{head_bytes, vet};
use response::Paced;
use socket::Socket;
pub(super) use stream::Stream;
use stream::Streams;

/// The largest unread part of one request's body, and of all bodies of a connection.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 512 * 1024;

/// The largest unsent part of one answer.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// Bounds past which the client is taken for an attacker: streams it reset before we saw them, and streams we reset.
const EARLY_RESETS_MAX: usize = 20;
const ERROR_RESETS_MAX: usize = 256;

pub(super) async fn run<IO, S, B>(io: IO, first: First, caller: Caller<S>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Caller { peer, service, limits, mut phases, .. } = caller;
    let begun = first.begun;
    let streams = Streams::new(limits.clone());
    let tally = streams.tally();
    let answering = service_fn({
        let (streams, limits) = (streams.clone(), limits.clone());
        move |mut request: Request<Incoming>| {
            let link = streams.open();
            let (in_flight, _) = RequestInFlight::begin(&link);
            let is_head = request.method() == http::Method::HEAD;
            let mut after = After::default();
            // Until a credential in it is checked, the head counts as an unknown client's.
            let mut head = limits.budget.charge(Standing::Unauthenticated);
            let fits = |head: &mut Charge, request: &Request<Incoming>| {
                head.try_add(head_bytes(request)).map_err(|NoRoom| refusal::NO_ROOM)
            };
            let vetted = vet(&mut request, &limits).and_then(|()| {
                match (limits.is_probe)(request.method(), request.uri().path()) {
                    true => Ok(()),
                    false => fits(&mut head, &request),
                }
            });
            let step = match vetted {
                Ok(()) => begin(request, &link, service.clone(), &peer, &limits, &mut after),
                Err(refusal) => {
                    drop(RequestBody::new(request.into_body(), 0, Some(link.clone()), &limits));
                    Step::Refuse { refusal }
                }
            };
            let answer = Answer {
                step,
                in_flight: Some(in_flight),
                after,
                budget: limits.budget.clone(),
                refuse: limits.refuse,
                head: Some(head),
            };
            async move {
                let Ok(response) = answer.await;
                Ok::<_, Infallible>(Paced::response(response, link, is_head))
            }
        }
    });
    let head_bytes_max = u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX);
    let serving = http2::Builder::new(streams)
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        // hyper accepts heads up to twice our own bound, so that we can answer why a larger one is refused.
        .max_header_list_size(head_bytes_max.saturating_mul(2))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .keep_alive_interval(Duration::from_millis(limits.ping_every_ms))
        .keep_alive_timeout(Duration::from_millis(limits.ping_wait_ms_max))
        .serve_connection(TokioIo::new(Socket::new(io, first.bytes, limits.clone())), answering);
    let mut serving = pin!(serving);
    tokio::select! {
        biased;
        () = poll_fn(|cx| match serving.as_mut().poll(cx) {
            Poll::Pending if !tally.is_abused() => Poll::Pending,
            _ => Poll::Ready(()),
        }) => return,
        _ = phases.wait_for(|phase| *phase != Phase::Open) => {}
        () = tally.quiet(begun, limits.head_ms_max, limits.idle_ms_max) => {}
    }
    serving.as_mut().graceful_shutdown();
    // A client with nothing in flight that ignores the GOAWAY frame is not waited for.
    tokio::select! {
        biased;
        _ = serving => {}
        _ = phases.wait_for(|phase| *phase == Phase::Cut) => {}
        () = tally.quiet(Instant::now(), limits.linger_ms_max, limits.linger_ms_max) => {}
    }
}
