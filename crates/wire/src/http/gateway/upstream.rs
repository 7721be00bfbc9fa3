//! Sends a request to an upstream over a kept connection, and says what a failure means: did it leave?
//! Never follows a redirect and never sends twice what may have arrived. Called by the gateway alone.

use std::{error::Error, fmt, time::Duration};

use axum::body::Body;
use fencepost::policy::gateway::Gateway as Settings;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use super::Entry;
use crate::trust;

/// Shorter than the five seconds after which common servers close an idle connection: a request that meets such an end
/// has an unknown outcome.
const IDLE: Duration = Duration::from_secs(4);

/// Connections to every upstream.
#[derive(Clone)]
pub(super) struct Upstreams {
    /// HTTP/1.1, or what TLS agrees on.
    usual: Client<HttpsConnector<HttpConnector>, Body>,
    /// HTTP/2 without TLS.
    h2c: Client<HttpConnector, Body>,
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
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(settings.connect_timeout));
        let tls = trust::client(settings.ca.as_deref())?;
        let secured = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(settings.idle_connections_max)
            // The host of the upstream is set already.
            .set_host(false);
        let usual = builder.build(secured.wrap_connector(tcp.clone()));
        let h2c = builder.http2_only(true).build(tcp);
        Ok(Self { usual, h2c })
    }

    /// The answer's head within `patience`; its body comes as it comes.
    pub(super) async fn send(
        &self,
        entry: &Entry,
        request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failed> {
        let sent = if entry.h2c { self.h2c.request(request) } else { self.usual.request(request) };
        match tokio::time::timeout(patience, sent).await {
            // What was not asked for cannot be passed on, and is no outcome.
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

/// The upstream's address of what a client asked for.
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

/// A request on its way, in the version that the connection turns out to speak.
pub(super) fn request(method: http::Method, uri: Uri, headers: http::HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    request
}

// What is at the bottom of an error says most.
pub(super) fn root(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
