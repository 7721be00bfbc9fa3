//! `POST /webhooks/dispatch`, an executor's server: verifies and fences the events that planners post, hands each to
//! the executor's own handler once, acknowledges after the seal. Never decides: the library's receiver does.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use fencepost::{
    Claim, Done, Failure,
    dispatch::ENVELOPE_BYTES_MAX,
    executor::{Event, EventRefusal, Received, Receiver},
};
use fencepost_kernel::json;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio_util::task::TaskTracker;

use crate::{
    log::{Level, Line, Log},
    problem::{Code, Problem},
    trace::TraceId,
};
use fencepost_front::{Budget, Charge, NO_ROOM, Standing};

/// The largest envelope, and the largest answer of a handler.
const BODY_BYTES_MAX: usize = ENVELOPE_BYTES_MAX;

/// The `Retry-After` of a 503, in seconds: no sooner than a planner would retry by itself.
const AGAIN_S: u64 = 5;

/// The executor's own HTTP handler, which gets the events.
pub struct EventHandler {
    url: http::Uri,
    timeout: Duration,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl EventHandler {
    /// A handler on plain HTTP, usually on this machine.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, String> {
        let url: http::Uri = url.parse().map_err(|_| format!("{url:?} is not a url"))?;
        if url.scheme_str() != Some("http") || url.authority().is_none() {
            return Err(format!("{url} is not an http url: a handler is on this machine, or behind one's own network"));
        }
        Ok(Self { url, timeout, client: Client::builder(TokioExecutor::new()).build_http() })
    }

    // 2xx is done. A refusal (4xx, 503) or a failed connection is not applied; of anything else the outcome is unknown.
    async fn hand_over(&self, event: Event, claim: Claim) -> Result<Done, Failure<String>> {
        let request = http::Request::post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", claim.idempotency_key())
            .header("fencepost-token", claim.token().0)
            .header("fencepost-attempt", claim.attempt());
        // An earlier attempt may have had its effect: the handler should look before it acts.
        let request = match claim.earlier() {
            Some(_) => request.header("fencepost-recovering", "true"),
            None => request,
        };
        let request = request.body(Full::new(event.body));
        let request = request.map_err(|error| Failure::NotApplied(error.to_string()))?;
        let until = tokio::time::Instant::now() + self.timeout;
        let answer = match tokio::time::timeout_at(until, self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.is_connect() => {
                return Err(Failure::NotApplied("the handler is not there".to_owned()));
            }
            Ok(Err(_)) => return Err(Failure::Unknown("the handler's connection broke".to_owned())),
            Err(_) => return Err(Failure::Unknown("the handler does not answer".to_owned())),
        };
        let status = answer.status();
        if !status.is_success() {
            let why = format!("the handler answered {status}");
            let refused = status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE;
            return Err(if refused { Failure::NotApplied(why) } else { Failure::Unknown(why) });
        }
        // The effect has happened: an answer that cannot be kept does not change that.
        let told = Limited::new(answer.into_body(), BODY_BYTES_MAX).collect();
        let told = tokio::time::timeout_at(until, told).await.ok().and_then(Result::ok);
        let told = told.map(|body| body.to_bytes()).unwrap_or_default();
        let receipt = if json::parse(&told).is_ok() { told } else { Bytes::from_static(b"null") };
        Ok(Done::new(event.correlation_id, receipt))
    }
}

/// The state that the routes share.
pub struct Front {
    receiver: Receiver,
    handler: EventHandler,
    log: Log,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Deliveries, each in a task of its own: a planner that disconnects must not leave one half done and unsealed.
    deliveries: TaskTracker,
    budget: Arc<Budget>,
}

impl Front {
    /// Verifies and fences with `receiver`. `now_ms` is the time for the log; `budget` bounds the bodies in memory.
    pub fn new(
        receiver: Receiver,
        handler: EventHandler,
        log: Log,
        now_ms: impl Fn() -> u64 + Send + Sync + 'static,
        budget: Arc<Budget>,
    ) -> Arc<Self> {
        Arc::new(Self { receiver, handler, log, now_ms: Box::new(now_ms), deliveries: TaskTracker::new(), budget })
    }

    fn line(&self, level: Level, decision: &str, trace: &TraceId) -> Line<'_> {
        self.log.line(level, (self.now_ms)(), "received").text("decision", decision).text("trace_id", trace)
    }

    /// Waits for the outcome of every delivery, at most for the handler's timeout. The leases of the rest run out.
    pub async fn rest(&self) {
        self.deliveries.close();
        let _ = tokio::time::timeout(self.handler.timeout, self.deliveries.wait()).await;
    }
}

/// All routes of an executor.
pub fn router(front: Arc<Front>) -> Router {
    Router::new()
        .route("/webhooks/dispatch", post(dispatch))
        .route("/healthz", get(async || "ok\n"))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_allowed)
        .with_state(front)
}

async fn nothing_here(uri: Uri, headers: HeaderMap) -> Response {
    let problem = Problem::new(Code::NotFound, "planners post to /webhooks/dispatch");
    told(&problem, uri.path(), &TraceId::of(headers.get("traceparent")))
}

async fn not_allowed(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let other = if uri.path() == "/healthz" { "GET" } else { "POST" };
    let problem = Problem::new(Code::MethodNotAllowed, format!("{method} is not allowed; use {other}"));
    told(&problem, uri.path(), &TraceId::of(headers.get("traceparent")))
}

async fn dispatch(State(front): State<Arc<Front>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (path, trace) = (parts.uri.path().to_owned(), TraceId::of(parts.headers.get("traceparent")));
    let answer = match read(&front, body).await {
        Ok((body, charge)) => {
            let receiving = front.deliveries.spawn(receive(front.clone(), parts, trace, body, charge));
            receiving.await.map_err(|_| Problem::new(Code::NotNow, "the delivery broke off; its outcome is unknown"))
        }
        Err(problem) => {
            let (_, code, _) = problem.code().parts();
            front.line(Level::Warn, "refused", &trace).text("code", code).text("why", problem.detail());
            Err(problem)
        }
    };
    match answer.and_then(acknowledged) {
        Ok(response) => response,
        Err(problem) if problem.status() == 503 => told(&problem.retry_after(AGAIN_S), &path, &trace),
        Err(problem) => told(&problem, &path, &trace),
    }
}

// Reads the whole body, since its signature covers all of it. The announced length is charged before the body is read.
async fn read(front: &Front, body: Body) -> Result<(Bytes, Charge), Problem> {
    let announced = body.size_hint().upper().map_or(BODY_BYTES_MAX, |bytes| bytes.min(BODY_BYTES_MAX as u64) as usize);
    let mut charge = front.budget.charge(Standing::Unauthenticated);
    if charge.try_add(announced).is_err() {
        return Err(Problem::new(Code::BuffersFull, NO_ROOM));
    }
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok((body.to_bytes(), charge)),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Problem::new(Code::TooLarge, format!("an envelope has up to {BODY_BYTES_MAX} bytes")))
        }
        Err(_) => Err(Problem::new(Code::Malformed, "the request body could not be read")),
    }
}

// Holds the charge as long as the body: the delivery keeps both if the planner disconnects.
async fn receive(front: Arc<Front>, parts: Parts, trace: TraceId, body: Bytes, _charge: Charge) -> Received {
    let hand_over = |event, claim| front.handler.hand_over(event, claim);
    let received = front.receiver.receive(&parts.headers, body, hand_over).await;
    let level = if received.other_body || !received.status.is_success() { Level::Warn } else { Level::Info };
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut line = front.line(level, received.decision, &trace).number("status", received.status.as_u16().into());
    if !received.correlation_id.is_empty() {
        line = line.text("correlation_id", &received.correlation_id).text("idempotency_key", &received.idempotency_key);
    }
    line = line
        .text("lane", text("fencepost-lane"))
        .text("seq", text("fencepost-seq"))
        .text("other_body", if received.other_body { "true" } else { "false" });
    match &received.refused {
        Some((refusal, why)) => drop(line.text("code", refusal.code()).text("why", why)),
        None => drop(line.text("answer", &received.body)),
    }
    received
}

fn acknowledged(received: Received) -> Result<Response, Problem> {
    let Some((refusal, why)) = received.refused else {
        let mut response = Response::new(Body::from(received.body));
        *response.status_mut() = received.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return Ok(response);
    };
    let code = match refusal {
        EventRefusal::BadSignature => Code::BadSignature,
        EventRefusal::Malformed => Code::Malformed,
        EventRefusal::InFlight => Code::InFlight,
        EventRefusal::NotDone => Code::NotNow,
        EventRefusal::Unavailable => Code::StoreUnavailable,
    };
    Err(Problem::new(code, why).answered_with(received.status.as_u16()))
}

fn told(problem: &Problem, path: &str, trace: &TraceId) -> Response {
    problem.response(path, trace).map(Body::new)
}
