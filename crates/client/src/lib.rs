//! A client for Fencepost over HTTP. Mirrors the embedded library: `once.scope(..).key(..).run(..)`.
//! Never runs an effect without a claim, and never sends a retry under another key or token than the first try.
//! Called by workers and services; depends on no crate of the server.
//!
//! ```no_run
//! # async fn book(_: &str) -> Result<String, std::io::Error> { Ok("RSV-1".into()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use fencepost_client::{Client, EffectDone, EffectFailure};
//!
//! let client = Client::new("http://127.0.0.1:7411", "dev-partner")?;
//! let outcome = client
//!     .scope("BOOKING")
//!     .key([("caseUrn", "urn:case:7"), ("waveUrn", "urn:wave:1"), ("groupId", "G-42")])
//!     .body(r#"{"hotel":"Astoria"}"#)
//!     .run(|claim| async move {
//!         match book(claim.idempotency_key()).await {
//!             Ok(id) => Ok(EffectDone::new(id, r#"{"hotel":"Astoria"}"#)),
//!             Err(unclear) => Err(EffectFailure::Unknown(unclear)),
//!         }
//!     })
//!     .await?;
//! assert_eq!(outcome.effect_id, "RSV-1");
//!
//! // Any API behind the gateway: one key for all tries.
//! let answer = client.post("/cases").json(r#"{"externalEventId":"E-1"}"#).send().await?;
//! println!("{} replayed: {}", answer.status, answer.replayed);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod claim;
mod effect;
mod error;
mod json;
mod retry;
mod send;
mod transport;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};

pub use claim::RemoteClaim;
pub use effect::{ClaimOutcome, EffectDone, EffectFailure, RemoteEffect, RunOutcome};
pub use error::{Error, ProblemDetails, RunError};
pub use retry::Retry;
pub use send::{Request, Response};

use retry::{Tried, Tries};
use transport::{Packet, Reply, Transport};

/// A server and a credential. Clones share connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    base: String,
    headers: HeaderMap,
    transport: Transport,
    retry: Retry,
}

/// Settings of a client that differ from the defaults.
pub struct Builder {
    base: String,
    token: String,
    retry: Retry,
    authorities_pem: Vec<u8>,
}

impl Builder {
    /// How long and how often requests are retried.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// PEM certificates of authorities to trust for the server's certificate, beside the public ones.
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities_pem = pem.into();
        self
    }

    /// Makes the client, without opening a connection.
    pub fn build(self) -> Result<Client, Error> {
        let base = self.base.trim_end_matches('/').to_owned();
        let uri: http::Uri = base.parse().map_err(|_| Error::Invalid(format!("{base:?} is not an address")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
            return Err(Error::Invalid(format!("{base:?} is not an http or https address")));
        }
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", self.token))
            .map_err(|_| Error::Invalid("the token cannot be sent in a header".into()))?;
        bearer.set_sensitive(true);
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
        let transport = Transport::new(&self.authorities_pem).map_err(Error::Invalid)?;
        Ok(Client { shared: Arc::new(Shared { base, headers, transport, retry: self.retry }) })
    }
}

/// The answer to one command of a batch.
#[derive(Clone, Debug)]
pub struct Batched {
    /// The status that the command alone would have got.
    pub status: u16,
    /// The body that the command alone would have got.
    pub body: Bytes,
}

impl Batched {
    /// The body, unless the answer is a refusal.
    pub fn ok(self) -> Result<Bytes, Error> {
        match self.status {
            200..300 => Ok(self.body),
            status => Err(ProblemDetails::read(status, &HeaderMap::new(), &self.body).into_error()),
        }
    }

    /// The answer to the claim of `effect`.
    pub fn claimed(self, effect: &RemoteEffect) -> Result<ClaimOutcome, Error> {
        effect.read(self.ok()?)
    }
}

impl Client {
    /// A client with default settings.
    pub fn new(base_url: &str, token: &str) -> Result<Self, Error> {
        Self::builder(base_url, token).build()
    }

    /// Settings for a client, to be changed before `build`.
    pub fn builder(base_url: &str, token: &str) -> Builder {
        let authorities_pem = Vec::new();
        Builder { base: base_url.to_owned(), token: token.to_owned(), retry: Retry::default(), authorities_pem }
    }

    /// An effect of this scope, with its settings to be filled in.
    pub fn scope(&self, name: &str) -> RemoteEffect {
        RemoteEffect::new(self.clone(), name)
    }

    /// A request to an API behind the gateway, under one fresh `Idempotency-Key`.
    pub fn request(&self, method: Method, path: &str) -> Request {
        Request::new(self.clone(), method, path)
    }

    /// A POST to an API behind the gateway, under one fresh `Idempotency-Key`.
    pub fn post(&self, path: &str) -> Request {
        self.request(Method::POST, path)
    }

    /// Sends several commands in one commit, in order: [`RemoteEffect::command`], [`RemoteClaim::sealing`], [`RemoteClaim::releasing`].
    /// After a lost answer the whole batch is sent again. Its seals and releases are then answered as done before, but
    /// its claims meet themselves and are in flight until their lease expires.
    pub async fn batch(&self, commands: impl IntoIterator<Item = String>) -> Result<Vec<Batched>, Error> {
        let commands: Vec<String> = commands.into_iter().collect();
        let body = format!(r#"{{"commands":[{}]}}"#, commands.join(","));
        let mut tries = Tries::new(&self.shared.retry);
        let reply = self.ask("/v1/fences/batch", body, &mut tries).await?;
        json::results(&reply.body).ok_or_else(|| Error::Invalid("the answer is not one of Fencepost's".into()))
    }

    fn retry(&self) -> &Retry {
        &self.shared.retry
    }

    /// Posts a document until the server gives a final answer. A refusal is an error.
    async fn ask(&self, path: &str, body: String, tries: &mut Tries) -> Result<Reply, Error> {
        let packet = self.packet(Method::POST, path, Some(body.into()))?;
        self.settle(packet, tries).await
    }

    /// Fetches a document; repeats like `ask`.
    async fn get(&self, path: &str) -> Result<Reply, Error> {
        let packet = self.packet(Method::GET, path, None)?;
        self.settle(packet, &mut Tries::new(self.retry())).await
    }

    async fn settle(&self, packet: Packet, tries: &mut Tries) -> Result<Reply, Error> {
        match tries.send(&self.shared.transport, &packet).await {
            Tried::Answered(reply) if reply.status < 300 => Ok(reply),
            Tried::Answered(reply) => Err(ProblemDetails::read(reply.status, &reply.headers, &reply.body).into_error()),
            Tried::GaveUp { why, last } => Err(Error::Unavailable {
                attempts: tries.made,
                unanswered: tries.unanswered,
                why,
                problem: last.map(|reply| Box::new(ProblemDetails::read(reply.status, &reply.headers, &reply.body))),
            }),
        }
    }

    fn packet(&self, method: Method, path: &str, json: Option<Bytes>) -> Result<Packet, Error> {
        // Without the slash the path could name another host, which would then receive the token.
        if !path.starts_with('/') {
            return Err(Error::Invalid(format!("{path:?} does not begin with `/`")));
        }
        let uri = format!("{}{path}", self.shared.base);
        let uri = uri.parse().map_err(|_| Error::Invalid(format!("{path:?} is not a path")))?;
        let mut headers = self.shared.headers.clone();
        if json.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(Packet { method, uri, headers, body: json.unwrap_or_default() })
    }
}
