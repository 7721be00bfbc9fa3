//! A request to any API behind the gateway, sent until there is an answer, under one `Idempotency-Key`.
//! Never makes a second key: who wants the effect a second time asks a second time.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use uuid::Uuid;

use crate::{
    Client, Error, Problem,
    retry::{Tried, Tries},
    transport::Reply,
};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const REPLAYED: &str = "idempotency-replayed";

/// One request, to be carried out once.
pub struct Request {
    client: Client,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    key: String,
    body: Bytes,
}

/// An answer: the API's own, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Whether it is the stored answer to an earlier request with this key.
    pub replayed: bool,
    /// The key it was sent under.
    pub idempotency_key: String,
}

impl Request {
    pub(crate) fn new(client: Client, method: Method, path: &str) -> Self {
        let key = Uuid::now_v7().to_string();
        Self { client, method, path: path.to_owned(), headers: Vec::new(), key, body: Bytes::new() }
    }

    /// The key in place of a fresh UUID v7. Who wants retries to be safe over a restart keeps it with the work.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.key = key.to_owned();
        self
    }

    /// A header more.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body, which is JSON.
    pub fn json(self, json: impl Into<Bytes>) -> Self {
        self.header("content-type", "application/json").body(json)
    }

    /// The body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it, and again with the same key while that may help: no connection, no answer, 408, 429, 502, 503, 504, and while
    /// the first request is in flight. What Fencepost itself refuses is an error; every other answer is the API's.
    pub async fn send(self) -> Result<Answer, Error> {
        let mut packet = self.client.packet(self.method, &self.path, None)?;
        let invalid = |what: &str| Error::Invalid(format!("{what:?} cannot be sent as a header"));
        for (name, value) in &self.headers {
            let known = HeaderName::try_from(name).map_err(|_| invalid(name))?;
            packet.headers.insert(known, HeaderValue::try_from(value).map_err(|_| invalid(name))?);
        }
        packet.headers.insert(KEY, HeaderValue::try_from(&self.key).map_err(|_| invalid(&self.key))?);
        packet.headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        packet.body = self.body;
        let mut tries = Tries::new(self.client.retry());
        // Who comes while the first request is under way is answered as soon as that one is.
        packet.headers.entry(PREFER).or_insert_with(|| {
            let seconds = tries.wait_max().as_secs();
            HeaderValue::try_from(format!("wait={seconds}")).unwrap_or(HeaderValue::from_static("wait=0"))
        });
        loop {
            let reply = match tries.send(&self.client.shared.transport, &packet).await {
                Tried::Answered(reply) => reply,
                Tried::GaveUp { why, last } => match last {
                    Some(reply) => return read(reply, self.key, tries.unanswered),
                    None => {
                        let (attempts, unanswered) = (tries.made, tries.unanswered);
                        return Err(Error::Unavailable { attempts, unanswered, why, problem: None });
                    }
                },
            };
            let problem = Problem::read(reply.status, &reply.headers, &reply.body);
            let waits = problem.code == "in-flight";
            if !waits || tries.pause(problem.retry_after.unwrap_or_default()).await.is_break() {
                return read(reply, self.key, tries.unanswered);
            }
        }
    }
}

fn read(reply: Reply, idempotency_key: String, unanswered: bool) -> Result<Answer, Error> {
    let problem = Problem::read(reply.status, &reply.headers, &reply.body);
    if !problem.code.is_empty() {
        return Err(match problem.into_error() {
            Error::InFlight { problem, .. } => Error::InFlight { problem, perhaps_own: unanswered },
            error => error,
        });
    }
    let replayed = reply.headers.get(REPLAYED).is_some_and(|value| value == "true");
    Ok(Answer { status: reply.status, headers: reply.headers, body: reply.body, replayed, idempotency_key })
}
