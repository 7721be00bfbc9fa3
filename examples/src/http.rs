//! JSON over HTTP: one request, one answer. A service of an example must see every call that was made.
//! Never retries: a caller that retries needs a claim first. Called by services, workers and stories.

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

/// The longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two questions of [`until`].
const PAUSE: Duration = Duration::from_millis(20);

/// A whole answer.
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
    /// The body as JSON; null where it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Why there is no answer, as far as it matters: whether the call may have had its effect.
#[derive(Debug)]
pub enum Lost {
    /// The request was not sent.
    NotSent(String),
    /// The outcome is unknown: the service may have carried it out.
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
    /// A client without a credential, for services that need none.
    pub fn new() -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), token: None }
    }

    /// A client with a credential, for Fencepost.
    pub fn with_token(token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::new() }
    }

    /// Sends a GET.
    pub async fn get(&self, url: &str) -> Result<Answer, Lost> {
        self.send(Method::GET, url, Bytes::new()).await
    }

    /// Sends a POST with a JSON body.
    pub async fn post(&self, url: &str, body: &Value) -> Result<Answer, Lost> {
        self.send(Method::POST, url, body.to_string().into()).await
    }

    /// Sends a PUT with a JSON body.
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

/// Serves a router, after printing its address.
pub async fn serve(listen: &str, router: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    eprintln!("serving on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

/// Repeats a question for half a minute, until it has an answer.
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
