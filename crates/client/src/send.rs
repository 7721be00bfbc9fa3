//! A request to any API behind the gateway, repeated under one `Idempotency-Key` until it is answered.
//! Never makes a second key for a request: a second effect needs a second request. Called by users through `Client`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use uuid::Uuid;

use crate::{
    Client, Error, ProblemDetails,
    retry::{Tried, Tries},
    transport::{Packet, Reply},
};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const REPLAYED: &str = "idempotency-replayed";

/// One request that must be carried out once.
pub struct Request {
    client: Client,
    method: Method,
    path: String,
    /// Headers of the client; a header of the caller with the same name replaces them.
    usual: HeaderMap,
    headers: Vec<(String, String)>,
    key: Option<String>,
    body: Bytes,
}

/// An answer of the API behind the gateway, whatever its status.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Whether it is the stored answer to an earlier request with this key.
    pub replayed: bool,
    /// The key that every try was sent under.
    pub idempotency_key: String,
}

impl Request {
    pub(crate) fn new(client: Client, method: Method, path: &str) -> Self {
        let usual = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("*/*"))]);
        Self { client, method, path: path.to_owned(), usual, headers: Vec::new(), key: None, body: Bytes::new() }
    }

    /// Sets the key, instead of a fresh UUID v7. To retry safely after a restart, store the key with the work.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Adds a header, also beside one of the same name. It replaces a header that the client itself would send; an
    /// `Idempotency-Key` sets the key.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body, sent as JSON.
    pub fn json(mut self, json: impl Into<Bytes>) -> Self {
        self.usual.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body(json)
    }

    /// The body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request. Retries under the same key while that may help: no connection, no answer, 408, 429, 502, 503,
    /// 504, or an earlier try in flight. A refusal of Fencepost is an error; every other answer is the API's.
    pub async fn send(self) -> Result<Response, Error> {
        let mut tries = Tries::new(self.client.retry());
        let (packet, key) = self.packet(tries.wait_max())?;
        loop {
            let reply = match tries.send(&self.client.shared.transport, &packet).await {
                Tried::Answered(reply) => reply,
                Tried::GaveUp { why, last } => match last {
                    Some(reply) => return read(reply, key, tries.unanswered),
                    None => {
                        let (attempts, unanswered) = (tries.made, tries.unanswered);
                        return Err(Error::Unavailable { attempts, unanswered, why, problem: None });
                    }
                },
            };
            let problem = ProblemDetails::read(reply.status, &reply.headers, &reply.body);
            let waits = problem.code == "in-flight";
            if !waits || tries.pause(problem.retry_after.unwrap_or_default()).await.is_break() {
                return read(reply, key, tries.unanswered);
            }
        }
    }

    /// The packet that every try sends, and its key.
    fn packet(&self, wait: Duration) -> Result<(Packet, String), Error> {
        let invalid = |what: &str| Error::Invalid(format!("{what:?} cannot be sent as a header"));
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let known = HeaderName::try_from(name).map_err(|_| invalid(name))?;
            headers.append(known, HeaderValue::try_from(value).map_err(|_| invalid(name))?);
        }
        // The caller may also set the key as a header.
        let own = headers.get(KEY).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let key = self.key.clone().or(own).unwrap_or_else(|| Uuid::now_v7().to_string());
        if key.is_empty() || headers.get_all(KEY).iter().any(|value| value != key.as_str()) {
            return Err(Error::Invalid("an idempotency key is one value that is not empty".into()));
        }
        headers.insert(KEY, HeaderValue::try_from(&key).map_err(|_| invalid(&key))?);
        let mut packet = self.client.packet(self.method.clone(), &self.path, None)?;
        packet.headers.extend(self.usual.clone());
        // While an earlier try is in flight, the server holds this one until that is answered.
        let prefer = HeaderValue::try_from(format!("wait={}", wait.as_secs()));
        packet.headers.insert(PREFER, prefer.unwrap_or(HeaderValue::from_static("wait=0")));
        // The caller's headers replace ours of the same name; repeated ones are all kept.
        packet.headers.extend(headers);
        packet.body = self.body.clone();
        Ok((packet, key))
    }
}

fn read(reply: Reply, idempotency_key: String, unanswered: bool) -> Result<Response, Error> {
    let problem = ProblemDetails::read(reply.status, &reply.headers, &reply.body);
    if !problem.code.is_empty() {
        return Err(match problem.into_error() {
            Error::InFlight { problem, .. } => Error::InFlight { problem, perhaps_own: unanswered },
            error => error,
        });
    }
    let replayed = reply.headers.get(REPLAYED).is_some_and(|value| value == "true");
    Ok(Response { status: reply.status, headers: reply.headers, body: reply.body, replayed, idempotency_key })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn post() -> Request {
        Client::new("http://127.0.0.1:7411", "dev-partner").unwrap().post("/charges")
    }

    fn sent(request: &Request) -> Result<(Packet, String), Error> {
        request.packet(Duration::from_secs(9))
    }

    #[test]
    fn a_key_among_the_headers_is_the_callers_own_and_another_or_an_empty_one_is_refused() {
        for own in [
            post().header("Idempotency-Key", "order-7"),
            post().header("Idempotency-Key", "order-7").header("idempotency-key", "order-7"),
            post().header("Idempotency-Key", "order-7").idempotency_key("order-7"),
        ] {
            let (packet, key) = sent(&own).unwrap();
            assert_eq!(key, "order-7");
            assert_eq!(packet.headers.get_all(KEY).iter().collect::<Vec<_>>(), ["order-7"]);
        }
        for wrong in [
            post().idempotency_key(""),
            post().header("idempotency-key", ""),
            post().header("idempotency-key", "a").header("Idempotency-Key", "b"),
            post().header("idempotency-key", "a").idempotency_key("b"),
        ] {
            assert!(matches!(sent(&wrong).map(drop), Err(Error::Invalid(_))), "{:?}", wrong.headers);
        }
    }

    #[test]
    fn a_header_takes_the_place_of_ours_and_stands_beside_the_callers_own() {
        let usual = sent(&post().json("1")).unwrap().0.headers;
        let ours =
            [("authorization", "Bearer dev-partner"), ("content-type", "application/json"), ("prefer", "wait=9")];
        for (name, value) in ours {
            assert_eq!(usual[name], value);
        }
        let twice = ours.iter().flat_map(|(name, _)| [(*name, "first"), (*name, "second")]);
        let request = twice.fold(post(), |request, (name, value)| request.header(name, value)).json("1");
        let headers = sent(&request).unwrap().0.headers;
        for (name, _) in ours {
            assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), ["first", "second"], "{name}");
        }
    }
}
