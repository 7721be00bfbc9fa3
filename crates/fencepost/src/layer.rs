//! A tower layer that makes the writes of any HTTP service safe to retry.
//! Requests with an `Idempotency-Key` have their effect once; a retry gets the first answer, byte for byte.
//! Never lets a request run because something is unclear: a store that is down is a 503.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use fencepost_kernel::{fence, fence::body::Body, json};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    Claimed, Done, Error, Failure, Fencepost,
    answer::{Meaning, StoredAnswer, endless, meaning},
    idempotency_key,
};

/// Bodies, asked and answered, are held in memory up to this size.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Fences every request that carries an `Idempotency-Key`, under the scope `API_WRITE`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let once = fencepost::Fencepost::open(dir.path()).await?;
/// use axum::{Router, routing::post};
/// use fencepost::layer::FenceLayer;
///
/// let app: Router = Router::new()
///     .route("/charges", post(|| async { "charged" }))
///     // Whose key it is comes from your own authentication, never from the body.
///     .layer(FenceLayer::new(once, |request| {
///         request.headers().get("x-account")?.to_str().ok().map(str::to_owned)
///     }));
/// # drop(app);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FenceLayer<T> {
    fencepost: Fencepost,
    tenant: T,
}

impl<T> FenceLayer<T>
where
    T: Fn(&Request<()>) -> Option<String>,
{
    /// A layer; `tenant` names the tenant of a request, and a request without one is a 401.
    pub fn new(fencepost: Fencepost, tenant: T) -> Self {
        Self { fencepost, tenant }
    }
}

impl<S, T: Clone> Layer<S> for FenceLayer<T> {
    type Service = Fenced<S, T>;

    fn layer(&self, inner: S) -> Self::Service {
        Fenced { inner, fencepost: self.fencepost.clone(), tenant: self.tenant.clone() }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Clone)]
pub struct Fenced<S, T> {
    inner: S,
    fencepost: Fencepost,
    tenant: T,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that could not be read to its end.
#[derive(Debug)]
pub struct Broken(BoxError);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Broken {}

/// The bodies that the layer passes on, both ways.
pub type Passed = http_body_util::combinators::UnsyncBoxBody<Bytes, Broken>;

fn pass<B>(body: B) -> Passed
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(|error| Broken(error.into())).boxed_unsync()
}

impl<S, T, B, R> Service<Request<B>> for Fenced<S, T>
where
    S: Service<Request<Passed>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + 'static,
    T: Fn(&Request<()>) -> Option<String> + Clone + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Passed>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        let (fencepost, tenant) = (self.fencepost.clone(), self.tenant.clone());
        Box::pin(async move { serve(inner, fencepost, tenant, request).await })
    }
}

async fn serve<S, T, B, R>(
    mut inner: S,
    fencepost: Fencepost,
    tenant: T,
    request: Request<B>,
) -> Result<Response<Passed>, S::Error>
where
    S: Service<Request<Passed>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + 'static,
    T: Fn(&Request<()>) -> Option<String>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let safe = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE);
    let key = match idempotency_key::parse(&parts.headers) {
        Ok(Some(key)) if !safe => key,
        Err(malformed) if !safe => return Ok(problem(400, "malformed-request", &malformed.to_string())),
        _ => {
            let request = Request::from_parts(parts, pass(body));
            return inner.call(request).await.map(|response| response.map(|body| pass(body)));
        }
    };
    let Some(tenant) = tenant(&Request::from_parts(parts.clone(), ())) else {
        return Ok(problem(401, "unauthorized", "the request has no tenant; send it with a credential of one"));
    };
    let asked = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Ok(problem(413, "too-large", "the request body is too large"));
        }
        Err(_) => return Ok(problem(400, "malformed-request", "the request body could not be read")),
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let fields = [("method", parts.method.as_str()), ("path", parts.uri.path()), ("idempotency_key", &key)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let command = match command(&fencepost.tenant(&tenant), fields.into(), &asked, parts.method.as_str(), path) {
        Ok(command) => command,
        Err(refusal) => return Ok(refused(refusal)),
    };
    // A task of its own: a client that goes away must leave neither a claim without an effect nor an effect half done.
    let work = tokio::spawn(async move {
        let claim = match fencepost.enter(command, Duration::ZERO).await {
            Ok(Claimed::New(claim)) => claim,
            Ok(Claimed::Duplicate(outcome)) => return Ok(replay(&outcome.receipt)),
            Err(refusal) => return Ok(refused(refusal)),
        };
        let mut request = Request::from_parts(parts, full(asked));
        if let Ok(value) = HeaderValue::from_str(&claim.token().0.to_string()) {
            request.headers_mut().insert("fencepost-token", value);
        }
        // The answer is part of the work: a slow one must not outlive the lease.
        let id = claim.idempotency_key();
        match claim.act(async { outcome(inner.call(request).await, id).await }).await {
            Ok(Ok((_, answer))) => Ok(answer),
            Ok(Err(passed)) => passed,
            Err(refusal) => Ok(refused(refusal)),
        }
    });
    match work.await {
        Ok(answer) => answer,
        Err(_) => Ok(problem(500, "effect-failed", "the service did not answer; the outcome is unknown")),
    }
}

fn command(
    fencepost: &Fencepost,
    fields: Vec<(String, String)>,
    asked: &Bytes,
    method: &str,
    path: &str,
) -> Result<fence::ClaimFence, Error> {
    let target = fencepost.target("API_WRITE", fields, None)?;
    let body = match json::parse(asked) {
        Ok(node) => Body::json(&node, &target.scope.mask),
        Err(_) => Body::opaque(asked),
    };
    let (body, lease_ms) = (Some(body.asked_of(method, path)), target.scope.lease_ms);
    Ok(fence::ClaimFence { target, body, version: None, source: None, lease_ms, trace: None })
}

/// An answer, or the service's own error.
type Passing<E> = Result<Response<Passed>, E>;

// Says whether an answer is the outcome of the effect, and gives the answer to pass on. Reads the part that is kept; an
// answer that is no outcome, or that never ends, passes as it comes.
async fn outcome<R, E>(
    answered: Result<Response<R>, E>,
    effect_id: String,
) -> Result<(Done, Response<Passed>), Failure<Passing<E>>>
where
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (parts, body) = answered.map_err(|error| Failure::Unknown(Err(error)))?.into_parts();
    match meaning(parts.status) {
        Meaning::Seal => {}
        Meaning::Release => return Err(Failure::NotApplied(Ok(Response::from_parts(parts, pass(body))))),
        Meaning::Unknown => return Err(Failure::Unknown(Ok(Response::from_parts(parts, pass(body))))),
    }
    let read = if endless(&parts.headers) { Ok((Bytes::new(), Some(Box::pin(body)))) } else { read(body).await };
    let Ok((kept, rest)) = read else {
        let broken = problem(502, "effect-failed", "the service broke off its answer; the outcome is unknown");
        return Err(Failure::Unknown(Ok(broken)));
    };
    // Too large to keep: the fence is sealed all the same before the first byte leaves, so that no retry runs again.
    let stored = rest.is_none().then(|| kept.clone());
    let done = Done::new(effect_id, StoredAnswer::new(parts.status, &parts.headers, stored).encode());
    let body = match rest {
        Some(rest) if kept.is_empty() => pass(rest),
        Some(rest) => pass(Resumed { first: Some(kept), rest }),
        None => full(kept),
    };
    Ok((done, Response::from_parts(parts, body)))
}

// The body, or its first part and the rest where it is too large to hold.
async fn read<R>(body: R) -> Result<(Bytes, Option<Pin<Box<R>>>), Broken>
where
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut kept = BytesMut::new();
    while kept.len() <= BODY_BYTES_MAX {
        match body.frame().await.transpose().map_err(|error| Broken(error.into()))? {
            Some(frame) => kept.extend_from_slice(&frame.into_data().unwrap_or_default()),
            None => return Ok((kept.freeze(), None)),
        }
    }
    Ok((kept.freeze(), Some(body)))
}

/// A body of which the first part was read already.
struct Resumed<R> {
    first: Option<Bytes>,
    rest: Pin<Box<R>>,
}

impl<R: http_body::Body<Data = Bytes>> http_body::Body for Resumed<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, R::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(http_body::Frame::data(first)))),
            None => self.rest.as_mut().poll_frame(context),
        }
    }
}

fn replay(receipt: &Bytes) -> Response<Passed> {
    let Some(answer) = StoredAnswer::decode(receipt) else {
        return problem(500, "store-damaged", "the stored answer cannot be read");
    };
    let mut response = Response::new(full(answer.body.clone().unwrap_or_default()));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    if answer.body.is_none() {
        omit(response.headers_mut());
    }
    response
}

fn omit(headers: &mut HeaderMap) {
    headers.insert("fencepost-body", HeaderValue::from_static("omitted"));
    headers.remove(header::CONTENT_LENGTH);
}

fn refused(refusal: Error) -> Response<Passed> {
    match refusal {
        Error::Conflict { .. } => problem(409, "conflict", "this key was first used with another request"),
        Error::InFlight { .. } => {
            let mut response = problem(409, "in-flight", "the first request is still being worked on");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Error::InDoubt => problem(409, "in-doubt", "the outcome of an earlier attempt must be resolved by a person"),
        Error::FencedOff { resolved: Some(resolved) } => {
            problem(409, "fenced-off", &format!("{resolved}; this answer came later and was not recorded"))
        }
        Error::FencedOff { resolved: None } => {
            problem(409, "fenced-off", "the lease ran out and another attempt was let in")
        }
        Error::WrongKey(_) | Error::WrongBody(_) => problem(400, "malformed-request", "the request cannot be fenced"),
        Error::Unsealed { .. } => problem(
            503,
            "store-unavailable",
            "it was done, and the fence store does not confirm it; repeat the request: once the lease has run out it may be \
             done again",
        ),
        _ => problem(503, "store-unavailable", "the fence store does not answer; nothing was done"),
    }
}

fn problem(status: u16, code: &str, detail: &str) -> Response<Passed> {
    let mut text =
        format!(r#"{{"type":"https://fencepost.dev/errors/{code}","title":"{code}","status":{status},"detail":"#)
            .into_bytes();
    json::write_string(&mut text, detail);
    text.extend_from_slice(format!(r#","code":"{code}"}}"#).as_bytes());
    let mut response = Response::new(full(text.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

fn full(bytes: Bytes) -> Passed {
    pass(Full::new(bytes))
}
