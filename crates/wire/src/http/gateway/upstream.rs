//! Sends a request to an upstream over a kept connection, and says whether a failed one may have arrived.
//! Never follows a redirect, never sends a request twice that may have arrived, and never uses a connection again that
//! may hold bytes which belong to no request or answer to come. Called by the gateway alone.

use std::{error::Error, fmt, time::Duration};

use axum::body::Body;
use fencepost::policy::gateway::GatewaySettings as Settings;
use http::{HeaderValue, Method, Request, Response, Uri, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};

use super::{
    Entry,
    link::{AnsweredEarly, Connector},
};
use crate::trust;

/// Shorter than the five seconds after which common servers close an idle connection: a request that is sent into such
/// a close has an unknown outcome.
const IDLE: Duration = Duration::from_secs(4);

/// Unread bytes of one answer that wait for a slow client.
const ANSWER_BUFFER_BYTES: usize = 64 * 1024;
/// As large as HTTP/2 allows: the windows of the streams are the bound.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Connections to every upstream. Reads and writes share none: a read needs no credential, and must not be able to
/// damage a write's connection.
#[derive(Clone)]
pub(super) struct Upstreams {
    reads: Connections,
    writes: Connections,
    /// For writes whose rule says that the upstream reads bodies: if it does not, only these suffer.
    vouched: Connections,
}

#[derive(Clone)]
struct Connections {
    /// HTTP/1.1, or the version that TLS agrees on.
    usual: Client<HttpsConnector<Connector>, Body>,
    /// HTTP/2 without TLS.
    h2c: Client<Connector, Body>,
}

/// Whether an HTTP/1 connection is used again after its request. HTTP/2 keeps requests apart by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Afterwards {
    /// It may serve the next request.
    Kept,
    /// It may, unless the answer began before the request was wholly written.
    KeptIfRead,
    /// The upstream is asked to close it, so that it reads nothing behind this request as another one.
    Closed,
}

impl Afterwards {
    fn of(entry: &Entry, request: &Request<Body>) -> Self {
        let reads = is_read(request.method());
        match request.body().is_end_stream() {
            // An upstream that answers HEAD with a body would send it in front of the next answer.
            true if request.method() == Method::HEAD => Self::Closed,
            true => Self::Kept,
            // Nothing here shows whether an upstream has read the bytes that the kernel took for it.
            false if reads || !entry.route.upstream_reads_bodies => Self::Closed,
            false => Self::KeptIfRead,
        }
    }
}

/// Whether a method only reads: it passes without a credential and without a fence.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// No connection: the request never left.
    Unreachable(String),
    /// It may have arrived, and the connection ended.
    Broken(String),
    /// It may have arrived, and nothing came back in time.
    Silent(Duration),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the upstream cannot be reached: {why}"),
            Self::Broken(why) => write!(f, "the upstream broke off: {why}"),
            Self::Silent(patience) => write!(f, "the upstream was silent for {} ms", patience.as_millis()),
        }
    }
}

impl Upstreams {
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let tls = trust::client(settings.ca.as_deref())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(settings.connect_timeout));
        let tcp = Connector(tcp);
        let secured = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        let secured = secured.wrap_connector(tcp.clone());
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(settings.idle_connections_max)
            .http1_max_buf_size(ANSWER_BUFFER_BYTES)
            .http2_initial_stream_window_size(ANSWER_BUFFER_BYTES as u32)
            // One client that does not read must not hold back the answers of others.
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            // The host of the upstream is set already.
            .set_host(false);
        let mut http2 = builder.clone();
        http2.http2_only(true);
        let connections = || Connections { usual: builder.build(secured.clone()), h2c: http2.build(tcp.clone()) };
        Ok(Self { reads: connections(), writes: connections(), vouched: connections() })
    }

    /// Waits at most `patience` for the answer's head; its body is not read here.
    pub(super) async fn send(
        &self,
        entry: &Entry,
        mut request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failed> {
        let reads = is_read(request.method());
        let connections = match reads {
            true => &self.reads,
            false if entry.route.upstream_reads_bodies => &self.vouched,
            false => &self.writes,
        };
        let afterwards = Afterwards::of(entry, &request);
        if afterwards == Afterwards::Closed && !entry.h2c {
            request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let used = (afterwards == Afterwards::KeptIfRead).then(|| capture_connection(&mut request));
        let sent = if entry.h2c { connections.h2c.request(request) } else { connections.usual.request(request) };
        let answered = tokio::time::timeout(patience, sent).await;
        if let (Ok(Ok(response)), Some(used)) = (&answered, used)
            && response.version() != Version::HTTP_2
            && response.extensions().get::<AnsweredEarly>().is_none_or(AnsweredEarly::get)
            && let Some(connection) = &*used.connection_metadata()
        {
            connection.poison();
        }
        match answered {
            // An unrequested protocol change cannot be passed on, and is no outcome.
            Ok(Ok(response)) if response.status().is_informational() => {
                Err(Failed::Broken("it changed the protocol unasked".to_owned()))
            }
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => Err(Failed::Unreachable(root(&error))),
            Ok(Err(error)) => Err(Failed::Broken(root(&error))),
            Err(_) => Err(Failed::Silent(patience)),
        }
    }
}

/// The upstream's URI for the one that a client asked for.
pub(super) fn address(entry: &Entry, asked: &Uri) -> Option<Uri> {
    let path = asked.path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme(entry.scheme.clone()).authority(entry.authority.clone());
    let uri = if entry.prefix.is_empty() {
        uri.path_and_query(path)
    } else {
        uri.path_and_query(entry.prefix.clone() + path)
    };
    uri.build().ok()
}

/// A request to send. On an HTTP/2 connection, hyper does not use its version.
pub(super) fn request(method: Method, uri: Uri, headers: http::HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    request
}

// The innermost cause of an error says most.
pub(super) fn root(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
