//! Every route: a path, the methods that it takes, and what answers them. What is nobody's is the gateway's.
//! Allocates once for a short request: for the future of its answer.
//! Called by the front.

use std::{
    convert::Infallible,
    error::Error,
    future::{pending, ready},
    panic::resume_unwind,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, header};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tower_service::Service;

use crate::{server::Budget, trace::TraceId};

use super::{App, admin, backup, call, fences, gateway, health, nodes, openapi, policy, scopes, wes};

/// Whether the server lives, and how it does.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// A body that takes long to judge: some tens of commands.
const LONG_BYTES_MIN: u64 = 8 * 1024;

type Answer = BoxFuture<'static, Result<Response, Infallible>>;
type Handler = fn(Arc<App>, Request) -> Answer;

macro_rules! handler {
    ($route:path) => {
        |app, request| Box::pin(async move { Ok($route(app, request).await) })
    };
}

/// What answers the methods of a path.
#[derive(Clone, Copy, Default)]
struct Methods {
    get: Option<Handler>,
    post: Option<Handler>,
    put: Option<Handler>,
}

fn get(handler: Handler) -> Methods {
    Methods { get: Some(handler), ..Methods::default() }
}

fn post(handler: Handler) -> Methods {
    Methods { post: Some(handler), ..Methods::default() }
}

fn put(handler: Handler) -> Methods {
    Methods { put: Some(handler), ..Methods::default() }
}

fn methods(path: &str) -> Option<Methods> {
    let between = |before: &str, after: &str| {
        let name = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
    };
    Some(match path {
        "/v1/fences/claim" => post(handler!(fences::claim)),
        "/v1/fences/again" => post(handler!(fences::again)),
        "/v1/fences/seal" => post(handler!(fences::seal)),
        "/v1/fences/renew" => post(handler!(fences::renew)),
        "/v1/fences/release" => post(handler!(fences::release)),
        "/v1/fences/batch" => post(handler!(fences::batch)),
        "/v1/scopes" => get(handler!(scopes::list)),
        "/wes/v1/dispatch/events" => post(handler!(wes::publish::events)),
        "/wes/v1/dispatch/lanes" => get(handler!(wes::lanes::list)),
        "/wes/v1/dispatch/dlq" => get(handler!(wes::letters::list)),
        "/wes/v1/dispatch/dlq/redrive" => post(handler!(wes::redrive_many)),
        "/wes/v1/dispatch/pending" => get(handler!(wes::poll::pending)),
        "/wes/v1/dispatch/ack" => post(handler!(wes::poll::ack)),
        "/admin/idempotency/lookup" => get(handler!(admin::lookup)),
        "/admin/idempotency/in-doubt" => get(handler!(admin::in_doubt)),
        "/admin/idempotency/resolve" => post(handler!(admin::resolve)),
        "/admin/policy" => Methods { post: Some(handler!(policy::post)), ..get(handler!(policy::show)) },
        "/admin/nodes" => get(handler!(nodes::list)),
        "/admin/backup" => get(handler!(backup::backup)),
        "/healthz" => get(handler!(health::healthz)),
        "/readyz" => get(handler!(health::readyz)),
        "/metrics" => get(handler!(health::metrics)),
        "/openapi.json" => get(handler!(openapi::serve)),
        _ if between("/v1/aliases/", "") => {
            Methods { get: Some(handler!(fences::get_alias)), ..put(handler!(fences::put_alias)) }
        }
        _ if between("/wes/v1/warehouses/", "/transport") => {
            Methods { get: Some(handler!(wes::transport::get)), ..put(handler!(wes::transport::put)) }
        }
        _ if between("/wes/v1/dispatch/lanes/", "") => get(handler!(wes::lanes::one)),
        _ if between("/wes/v1/dispatch/lanes/", "/skip") => post(handler!(wes::skip)),
        _ if between("/wes/v1/dispatch/lanes/", "/pause") => post(handler!(wes::pause)),
        _ if between("/wes/v1/dispatch/lanes/", "/resume") => post(handler!(wes::resume)),
        _ if between("/wes/v1/dispatch/dlq/", "") => get(handler!(wes::letters::one)),
        _ if between("/wes/v1/dispatch/dlq/", "/redrive") => post(handler!(wes::letters::redrive)),
        _ if between("/wes/v1/dispatch/dlq/", "/discard") => post(handler!(wes::letters::discard)),
        _ => return None,
    })
}

impl Methods {
    fn handler(&self, method: &Method) -> Option<Handler> {
        match *method {
            Method::GET | Method::HEAD => self.get,
            Method::POST => self.post,
            Method::PUT => self.put,
            _ => None,
        }
    }

    fn names(&self) -> HeaderValue {
        let named = [("PUT", self.put), ("GET,HEAD", self.get), ("POST", self.post)];
        let names: Vec<_> = named.into_iter().filter_map(|(name, handler)| handler.map(|_| name)).collect();
        HeaderValue::from_str(&names.join(",")).unwrap_or(HeaderValue::from_static(""))
    }
}

/// All routes, as a service.
#[derive(Clone)]
pub struct Routes {
    app: Arc<App>,
    listener: Listener,
    /// Of the operators' listener.
    budget: Option<Arc<Budget>>,
}

/// Which paths a listener serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// Every path: there is one listener.
    Only,
    /// What clients ask; operators have a listener of their own.
    Public,
    /// Health, metrics and admin paths.
    Admin,
}

/// Marks requests that came by the operators' own listener. What clients keep in memory does not count there.
#[derive(Clone)]
pub(super) struct OnAdminListener(pub(super) Arc<Budget>);

impl Routes {
    /// Serves those paths of `app` that belong to a listener.
    pub fn new(app: Arc<App>, listener: Listener) -> Self {
        Self { app, listener, budget: None }
    }

    /// Serves operators on a listener of their own, with memory of their own.
    pub fn admin(app: Arc<App>, budget: Arc<Budget>) -> Self {
        Self { app, listener: Listener::Admin, budget: Some(budget) }
    }

    /// Whether a request asks if the server lives, or how it does.
    pub fn is_probe(method: &Method, path: &str) -> bool {
        matches!(*method, Method::GET | Method::HEAD) && PROBES.contains(&path)
    }

    // The document of all routes is anybody's.
    fn is_elsewhere(&self, path: &str) -> bool {
        let is_admin = PROBES.contains(&path)
            || matches!(path, "/admin" | "/console")
            || path.starts_with("/admin/")
            || path.starts_with("/console/");
        match self.listener {
            Listener::Only => false,
            Listener::Public => is_admin,
            Listener::Admin => !is_admin && path != "/openapi.json",
        }
    }

    /// Whether a request is one of those that come by the thousand, whose answers are whole and never the gateway's.
    pub fn is_plain(method: &Method, path: &str) -> bool {
        let fences = || {
            matches!(path.strip_prefix("/v1/fences/"), Some("claim" | "seal" | "renew" | "release" | "again" | "batch"))
        };
        *method == Method::POST && (fences() || path == "/wes/v1/dispatch/events")
    }
}

impl<B> Service<http::Request<B>> for Routes
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answer {
        let (app, mut request) = (self.app.clone(), request.map(Body::new));
        gateway::spell(request.uri_mut());
        if self.is_elsewhere(request.uri().path()) {
            return Box::pin(ready(Ok(call::served_elsewhere(&request))));
        }
        if let Some(budget) = &self.budget {
            request.extensions_mut().insert(OnAdminListener(budget.clone()));
        }
        let Some(methods) = methods(request.uri().path()) else {
            // Operators' own listener leads to no upstream.
            if self.listener == Listener::Admin {
                return Box::pin(ready(Ok(call::no_such_path(&request))));
            }
            return Box::pin(async move { Ok(gateway::serve(app, request).await) });
        };
        match methods.handler(request.method()) {
            Some(handler) if request.method() == Method::HEAD => Box::pin(headed(aside(handler, app, request))),
            Some(handler) => aside(handler, app, request),
            None => {
                let trace = TraceId::of(request.headers().get("traceparent"));
                let (method, path) = (request.method(), request.uri().path());
                Box::pin(ready(Ok(call::method_not_allowed(method, path, &trace, methods.names()))))
            }
        }
    }
}

// What may take long must not hold up those whose connections share a thread with the caller's.
fn aside(handler: Handler, app: Arc<App>, request: Request) -> Answer {
    let is_short = |request: &Request| {
        let len = http_body::Body::size_hint(request.body()).exact();
        len.is_some_and(|len| len < LONG_BYTES_MIN) && Routes::is_plain(request.method(), request.uri().path())
    };
    let Some(aside) = app.aside.as_ref().filter(|_| !is_short(&request)).cloned() else {
        return handler(app, request);
    };
    Box::pin(async move {
        let answering = AbortOnDropHandle::new(aside.spawn(handler(app, request)));
        match answering.await.map_err(JoinError::try_into_panic) {
            Ok(answer) => answer,
            Err(Ok(panic)) => resume_unwind(panic),
            // All of it is being shut down.
            Err(Err(_)) => pending().await,
        }
    })
}

// As long as the body of a GET would be, and without it.
async fn headed(answer: Answer) -> Result<Response, Infallible> {
    let response = answer.await?;
    let len = http_body::Body::size_hint(response.body()).exact();
    let mut response = response.map(|_| Body::empty());
    if let Some(len) = len {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(len.into());
    }
    Ok(response)
}
