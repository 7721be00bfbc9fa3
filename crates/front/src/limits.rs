//! Every bound that a client can reach, with its default.
//! Never decides anything: the modules of this crate read and enforce the bounds.
//! Called by `cli`, which fills it from the policy.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::Full;

use super::budget::Budget;
use super::refusal::Refusal;
use super::seats::Proxies;

/// Bytes of input that are read and dropped after a refusal, at most.
pub(super) const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bounds on what one client, and all clients together, may use.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections served at once. One more is answered 503 and closed, unless it requests a probe.
    pub connections_max: usize,
    /// The number of these that one client address (one /64 of IPv6) may hold.
    pub connections_per_client_max: usize,
    /// Addresses of proxies: many clients share their connections, so only `connections_max` bounds them.
    pub proxies: Proxies,
    /// Connections past those bounds that are still answered, with 503 or a probe. One more ends the oldest.
    pub reserve_max: usize,
    /// How long a connection past those bounds may take to send its request, and to read the answer.
    pub reserve_ms_max: u64,
    /// Requests in flight on one HTTP/2 connection; the protocol delays or refuses one more.
    pub streams_max: u32,
    /// Request line and headers together; past this 431. hyper needs the whole head in one buffer.
    pub head_bytes_max: usize,
    /// The request line alone; past this 414.
    pub request_line_bytes_max: usize,
    /// A request body, unless `body_bytes_max_for` says otherwise; past this 413.
    pub body_bytes_max: u64,
    /// The bound on one request's body, given the default: for paths that stream bodies of any size.
    pub body_bytes_max_for: fn(&Method, &Uri, u64) -> u64,
    /// Whether this method and path may use the fast path. Only for answers of known length: any other ends its
    /// connection, and the client cannot tell when it breaks off.
    pub is_plain: fn(&Method, &str) -> bool,
    /// Whether a request is a health probe: it is answered even when other requests are refused for want of room.
    pub is_probe: fn(&Method, &str) -> bool,
    /// Writes the answer to a request that the front refuses.
    pub refuse: Refuse,
    /// The bound on bytes of bodies and answers in memory, over all connections; past it 503.
    pub budget: Arc<Budget>,
    /// From accepting a connection to a finished TLS handshake.
    pub handshake_ms_max: u64,
    /// From a head's first byte (on a new connection: from accepting it) to its last; past this 408.
    pub head_ms_max: u64,
    /// From an answer to the first byte of the next request.
    pub idle_ms_max: u64,
    /// How long one body may keep us waiting, in one pause or in sum; past this 408.
    pub body_wait_ms_max: u64,
    /// This many body bytes pay back one second of that waiting.
    pub body_bytes_per_s_min: u64,
    /// How long one answer may wait for the client to read it, in one pause or in sum; past this it is cut.
    pub write_wait_ms_max: u64,
    /// This many bytes taken by the client pay back one second of that waiting.
    pub write_bytes_per_s_min: u64,
    /// An HTTP/2 client that sends nothing for this long gets a ping.
    pub ping_every_ms: u64,
    /// How long the client may take to answer the ping; past this it is cut.
    pub ping_wait_ms_max: u64,
    /// How long input is read and dropped after a refusal, so that the client can read the answer.
    pub linger_ms_max: u64,
    /// From the shutdown signal until requests in flight are cut.
    pub grace_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 4_096,
            connections_per_client_max: 4_096,
            proxies: Proxies::none(),
            reserve_max: 64,
            reserve_ms_max: 1_000,
            streams_max: 128,
            head_bytes_max: 16 * 1024,
            request_line_bytes_max: 8 * 1024,
            body_bytes_max: 4 * 1024 * 1024,
            body_bytes_max_for: |_, _, max| max,
            is_plain: |_, _| false,
            is_probe: |_, _| false,
            refuse: refuse_plainly,
            budget: Budget::new(256 * 1024 * 1024),
            handshake_ms_max: 10_000,
            head_ms_max: 10_000,
            idle_ms_max: 75_000,
            body_wait_ms_max: 10_000,
            body_bytes_per_s_min: 4 * 1024,
            write_wait_ms_max: 10_000,
            write_bytes_per_s_min: 4 * 1024,
            ping_every_ms: 20_000,
            ping_wait_ms_max: 10_000,
            linger_ms_max: 2_000,
            grace_ms_max: 25_000,
        }
    }
}

/// Writes the answer to a refused request, from the refusal, the request's path where known, and its `traceparent`.
pub type Refuse = fn(&Refusal, &str, Option<&HeaderValue>) -> Response<Full<Bytes>>;

fn refuse_plainly(refusal: &Refusal, _: &str, _: Option<&HeaderValue>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(refusal.detail.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(refusal.cause.status()).unwrap_or(StatusCode::BAD_REQUEST);
    response
}
