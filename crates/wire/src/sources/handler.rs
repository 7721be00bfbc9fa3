//! Hands a message to an HTTP handler, and turns its answer into an outcome.
//! Never decides whether to try again. Called under a claim, by the workers of a source.

use std::time::Duration;

use bytes::Bytes;
use fencepost::{
    Claim, Done,
    answer::{Meaning, meaning},
    queue::{HandlerFailure, Message},
};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::{net::TcpStream, time::Instant};

/// How much of an answer is read; where there is more, its connection is not used again.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How many characters of a refusal go into the dead letter.
const WORDS_MAX: usize = 300;
const EFFECT_ID_BYTES_MAX: usize = 255;
/// The first pause between looks for a handler that is away; each further one is twice as long, up to the second value.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Half of this is the longest time for connecting; with a shorter timeout, half of that is.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Shorter than the five seconds after which common servers close an idle connection.
const IDLE: Duration = Duration::from_secs(4);

/// The HTTP handler to which messages are posted.
pub struct MessageHandler {
    url: Uri,
    timeout: Duration,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl MessageHandler {
    /// A handler on plain HTTP, usually on this machine.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, String> {
        let url: Uri = url.parse().map_err(|_| format!("{url:?} is not a url"))?;
        if url.scheme_str() != Some("http") || url.authority().is_none() {
            return Err(format!("{url} is not an http url: a handler is on this machine, or behind one's own network"));
        }
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        // A handler that accepts no connection is away, which makes no message a dead letter.
        tcp.set_connect_timeout(Some(timeout.min(CONNECT_MAX) / 2));
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        Ok(Self { url, timeout, client: builder.build(tcp) })
    }

    /// Makes one attempt. `headers` say where the message comes from.
    pub async fn hand_over(
        &self,
        message: &Message,
        mut headers: HeaderMap,
        claim: Claim,
    ) -> Result<Done, HandlerFailure<String>> {
        for (name, value) in [
            ("idempotency-key", claim.idempotency_key()),
            ("fencepost-token", claim.token().0.to_string()),
            ("fencepost-attempt", claim.attempt().to_string()),
            ("fencepost-recovering", claim.earlier().is_some().to_string()),
        ] {
            headers
                .insert(name, HeaderValue::from_str(&value).map_err(|bad| HandlerFailure::Permanent(bad.to_string()))?);
        }
        // Sent for an empty body, too: a server may refuse a POST without a length.
        headers.insert(header::CONTENT_LENGTH, message.body.len().into());
        let mut request = http::Request::new(Full::new(message.body.clone()));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = headers;
        let until = Instant::now() + self.timeout;
        match tokio::time::timeout_at(until, self.client.request(request)).await {
            Ok(Ok(answer)) => judge(answer, until, &claim).await,
            Ok(Err(error)) if error.is_connect() => Err(HandlerFailure::Away("the handler is not there".to_owned())),
            Ok(Err(_)) => Err(HandlerFailure::Unknown("the handler's connection broke".to_owned())),
            Err(_) => Err(HandlerFailure::Unknown("the handler did not answer in time".to_owned())),
        }
    }

    /// Waits until the handler's address accepts a connection.
    pub async fn until_there(&self) {
        let host = self.url.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.url.port_u16().unwrap_or(80);
        let mut pause = LOOK_FIRST;
        while TcpStream::connect((host, port)).await.is_err() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}

// Statuses mean what they mean for the gateway, with one difference: a message's producer cannot read a refusal, so the
// message becomes a dead letter. A handler that knows better says so in `Fencepost-Outcome`.
async fn judge(answer: Response<Incoming>, until: Instant, claim: &Claim) -> Result<Done, HandlerFailure<String>> {
    let (parts, body) = answer.into_parts();
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let status = parts.status;
    let applied = text("fencepost-outcome").filter(|said| matches!(*said, "applied" | "not-applied"));
    // The body is read for the words of a refusal, and so that its connection can be used again.
    let words = tokio::time::timeout_at(until, Limited::new(body, ANSWER_BYTES_MAX).collect()).await;
    let words = words.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    let why = || explain(status, &words);
    match (applied, meaning(status)) {
        (Some("applied"), _) => Ok(done(status, text("fencepost-effect-id"), claim)),
        // A refusal, or a redirect, which is not followed: the message must neither be lost nor tried again.
        (_, Meaning::Seal) if !status.is_success() => Err(HandlerFailure::Permanent(why())),
        (Some(_), _) => Err(HandlerFailure::Temporary { error: why(), after: retry_after(&parts.headers) }),
        (None, Meaning::Seal) => Ok(done(status, text("fencepost-effect-id"), claim)),
        (None, Meaning::Release) => Err(HandlerFailure::Temporary { error: why(), after: retry_after(&parts.headers) }),
        (None, Meaning::Unknown) => Err(HandlerFailure::Unknown(why())),
    }
}

// Without an id of the handler's own, the effect is known by its key.
fn done(status: StatusCode, effect_id: Option<&str>, claim: &Claim) -> Done {
    let named = effect_id.filter(|id| (1..=EFFECT_ID_BYTES_MAX).contains(&id.len())).map(str::to_owned);
    Done::new(named.unwrap_or_else(|| claim.idempotency_key()), format!(r#"{{"status":{}}}"#, status.as_u16()))
}

fn explain(status: StatusCode, words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    let words: String = words.trim().chars().take(WORDS_MAX).collect();
    let colon = if words.is_empty() { "" } else { ": " };
    format!("the handler answered {}{colon}{words}", status.as_u16())
}

// In seconds, at most an hour. A date is ignored: then the usual pause counts.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse::<u64>().ok()?;
    Some(Duration::from_secs(seconds.min(3_600)))
}
