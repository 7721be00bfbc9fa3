//! Sends one request and reads one answer, over HTTP/1.1 with or without TLS. Decides nothing and repeats nothing.
//! Never follows a redirect: token and key are for the address they were sent to. Called by `retry` and `Client`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// The largest answer body that is read; a larger one counts as no answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Below the server's idle timeout, so that the server rarely closes a connection just as it is used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A request that can be sent again as it is.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A whole answer.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer.
pub(crate) enum Fault {
    /// The request was not sent: connecting failed.
    NotSent(String),
    /// The outcome is unknown: the server may have carried out the request.
    Unanswered(String),
}

pub(crate) struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Transport {
    pub(crate) fn new(authorities_pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for certificate in CertificateDer::pem_slice_iter(authorities_pem) {
            let certificate = certificate.map_err(|bad| format!("authorities: {bad}"))?;
            roots.add(certificate).map_err(|bad| format!("authorities: {bad}"))?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector.wrap_connector(http));
        Ok(Self { client })
    }

    pub(crate) async fn once(&self, packet: &Packet, timeout: Duration) -> Result<Reply, Fault> {
        let exchange = async {
            let mut request = http::Request::new(Full::new(packet.body.clone()));
            *request.method_mut() = packet.method.clone();
            *request.uri_mut() = packet.uri.clone();
            *request.headers_mut() = packet.headers.clone();
            let answer = self.client.request(request).await.map_err(|error| match error.is_connect() {
                true => Fault::NotSent(whole(&error)),
                false => Fault::Unanswered(whole(&error)),
            })?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| Fault::Unanswered(error.to_string()))?.to_bytes();
            Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        let slow = |_| Fault::Unanswered(format!("no answer within {} ms", timeout.as_millis()));
        tokio::time::timeout(timeout, exchange).await.map_err(slow)?
    }
}

// Joins the messages of all causes: the outermost message alone says only that the request failed.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        text = format!("{text}: {error}");
        inner = error.source();
    }
    text
}
