//! JSON over HTTP: one request, one answer, nothing repeated. An example's service must see every call that was made.
//! Never retries; whoever wants that claims first. Used by services, workers and stories.

use std::{future::Future, time::Duration};

use anyhow::Context as _;
use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::net::TcpListener;

/// Patience with one call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between two questions of [`until`].
const PAUSE: Duration = Duration::from_millis(20);

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Why there is no answer: all that matters is whether the call may have had its effect.
#[derive(Debug)]
pub enum Lost {
    /// It never left.
    NotSent(String),
    /// It may have been carried out.
    Unknown(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::NotSent(why) | Self::Unknown(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Lost {}

/// A client, with or without a credential. Clones share connections.
#[derive(Clone)]
pub struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    token: Option<String>,
}

impl Http {
    /// For services that ask for no credential.
    pub fn new() -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), token: None }
    }

    /// For Fencepost.
    pub fn with_token(token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::new() }
    }

    /// Asks for a document.
    pub async fn get(&self, url: &str) -> Result<Answer, Lost> {
        self.send(Method::GET, url, Bytes::new()).await
    }

    /// Sends a document.
    pub async fn post(&self, url: &str, body: &Value) -> Result<Answer, Lost> {
        self.send(Method::POST, url, body.to_string().into()).await
    }

    /// Puts a document.
    pub async fn put(&self, url: &str, body: &Value) -> Result<Answer, Lost> {
        self.send(Method::PUT, url, body.to_string().into()).await
    }

    async fn send(&self, method: Method, url: &str, body: Bytes) -> Result<Answer, Lost> {
        let mut request = Request::builder().method(method).uri(url).header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).map_err(|bad| Lost::NotSent(bad.to_string()))?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| match error.is_connect() {
                true => Lost::NotSent(format!("{url}: {error}")),
                false => Lost::Unknown(format!("{url}: {error}")),
            })?;
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.map_err(|error| Lost::Unknown(format!("{url}: {error}")))?;
            Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes() })
        };
        let slow = |_| Lost::Unknown(format!("{url}: no answer within {} s", TIMEOUT.as_secs()));
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(slow)?
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

/// Serves, and says where.
pub async fn serve(listen: &str, router: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    eprintln!("serving on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

/// Asks again until the answer is there, for half a minute.
pub async fn until<T, F: Future<Output = anyhow::Result<Option<T>>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> anyhow::Result<T> {
    let asking = async {
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.with_context(|| format!("never: {what}"))?
}
