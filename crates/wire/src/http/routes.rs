//! Assembles the route tables of all capabilities into one router, and answers each request by its route. A path in no
//! table is the gateway's. Allocates once for a short request: for the future of its answer.
//! Called by the front.

use std::{
    convert::Infallible,
    error::Error,
    future::{pending, ready},
    panic::resume_unwind,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderValue, Method, Uri, header};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tower_service::Service;

use crate::trace::TraceId;
use fencepost_front::Budget;

use super::{
    App, admin, audit, backup, call, fences, gateway, health, ingest, nodes, openapi, policy,
    route::{Admitted, Answer, Audience, BodyLimit, Class, Entry, Route, Table},
    scopes, wes,
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// One line per capability.
pub(super) const TABLES: &[Table] = &[
    Table { tag: "fences", audience: Audience::Clients, routes: fences::ROUTES },
    Table { tag: "fences", audience: Audience::Clients, routes: scopes::ROUTES },
    Table { tag: "dispatch", audience: Audience::Clients, routes: wes::ROUTES },
    Table { tag: "ingest", audience: Audience::Clients, routes: ingest::ROUTES },
    Table { tag: "admin", audience: Audience::Operators, routes: admin::ROUTES },
    Table { tag: "admin", audience: Audience::Operators, routes: audit::ROUTES },
    Table { tag: "admin", audience: Audience::Operators, routes: policy::ROUTES },
    Table { tag: "admin", audience: Audience::Operators, routes: nodes::ROUTES },
    Table { tag: "admin", audience: Audience::Operators, routes: backup::ROUTES },
    Table { tag: "admin", audience: Audience::Operators, routes: ingest::OPERATORS_ROUTES },
    Table { tag: "server", audience: Audience::Monitoring, routes: health::ROUTES },
    Table { tag: "server", audience: Audience::Everyone, routes: openapi::ROUTES },
];

/// The operators' paths, with all that is below them, whether or not a route is there.
const OPERATORS_PATHS: [&str; 2] = ["/admin", "/console"];

/// A body that takes long to judge: some tens of commands.
const LONG_BYTES_MIN: u64 = 8 * 1024;

static ROUTER: LazyLock<Router> = LazyLock::new(|| Router::new(TABLES));

/// The tables, as requests look them up.
struct Router {
    paths: matchit::Router<Endpoint>,
    /// Endpoints that the front looks up before a request is read whole: lists, because they are shorter than a
    /// look-up.
    fast: Vec<&'static Route>,
    probes: Vec<&'static Route>,
    limited: Vec<&'static Route>,
}

/// All methods of one path.
struct Endpoint {
    audience: Audience,
    entries: Vec<Entry>,
    /// In the order of the table.
    allow: HeaderValue,
}

impl Router {
    /// Panics where a table contradicts itself or another one. A test builds the product's.
    fn new(tables: &[Table]) -> Self {
        let mut by_path: Vec<(&'static str, Audience, Vec<Entry>)> = Vec::new();
        let (mut fast, mut probes, mut limited) = (Vec::new(), Vec::new(), Vec::new());
        for table in tables {
            for route in table.routes {
                let entry = Entry { route, label: format!("{} {}", route.method, route.path).into() };
                match by_path.iter_mut().find(|(path, ..)| *path == route.path) {
                    Some((.., entries)) => entries.push(entry),
                    None => by_path.push((route.path, table.audience, vec![entry])),
                }
                fast.extend((route.class == Class::Fast).then_some(route));
                probes.extend((table.audience == Audience::Monitoring).then_some(route));
                limited.extend((!matches!(route.body_limit, BodyLimit::Policy)).then_some(route));
            }
        }
        let mut paths = matchit::Router::new();
        for (path, audience, entries) in by_path {
            let endpoint = Endpoint { audience, allow: allow(&entries), entries };
            paths.insert(path, endpoint).expect("the patterns of the tables do not overlap");
        }
        Self { paths, fast, probes, limited }
    }

    fn endpoint(&self, path: &str) -> Option<&Endpoint> {
        self.paths.at(path).ok().map(|found| found.value)
    }
}

// A route for GET answers HEAD too.
fn allow(entries: &[Entry]) -> HeaderValue {
    let names = entries.iter().map(|Entry { route, .. }| match route.method {
        Method::GET => "GET,HEAD",
        ref other => other.as_str(),
    });
    let names: Vec<&str> = names.collect();
    HeaderValue::from_str(&names.join(",")).expect("a method is a token")
}

impl Endpoint {
    fn entry(&self, method: &Method) -> Option<&Entry> {
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        self.entries.iter().find(|entry| entry.route.method == *wanted)
    }
}

/// All routes, as a service.
#[derive(Clone)]
pub struct Routes {
    app: Arc<App>,
    router: &'static Router,
    listener: Listener,
    /// Of the operators' listener.
    budget: Option<Arc<Budget>>,
}

/// Which paths a listener serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// Every path: there is one listener.
    Only,
    /// Clients' paths; operators have a listener of their own.
    Public,
    /// Health, metrics and admin paths.
    Admin,
}

/// Marks requests that came by the operators' own listener. Memory that clients take does not count there.
#[derive(Clone)]
pub(super) struct OnAdminListener(pub(super) Arc<Budget>);

impl Routes {
    /// Serves those paths of `app` that belong to a listener.
    pub fn new(app: Arc<App>, listener: Listener) -> Self {
        Self { app, router: &ROUTER, listener, budget: None }
    }

    /// Serves operators on a listener of their own, with memory of their own.
    pub fn admin(app: Arc<App>, budget: Arc<Budget>) -> Self {
        Self { app, router: &ROUTER, listener: Listener::Admin, budget: Some(budget) }
    }

    /// Whether a request asks if the server lives, or how it does.
    pub fn is_probe(method: &Method, path: &str) -> bool {
        matches!(*method, Method::GET | Method::HEAD) && ROUTER.probes.iter().any(|route| route.path == path)
    }

    /// Whether a request is one of those that come by the thousand, whose answers are whole and never the gateway's.
    pub fn is_plain(method: &Method, path: &str) -> bool {
        ROUTER.fast.iter().any(|route| route.path == path && route.method == *method)
    }

    /// How many bytes the body of a request may have, given the limit of all that have none of their own.
    pub fn body_bytes_max(method: &Method, uri: &Uri, default: u64) -> u64 {
        ROUTER.body_bytes_max(method, uri, default)
    }

    // An unknown path belongs to the operators if it lies under theirs, and else to the clients.
    fn is_elsewhere(&self, path: &str, found: Option<&Endpoint>) -> bool {
        let audience = found.map_or_else(
            || if is_operators_path(path) { Audience::Operators } else { Audience::Clients },
            |found| found.audience,
        );
        match self.listener {
            Listener::Only => false,
            Listener::Public => matches!(audience, Audience::Operators | Audience::Monitoring),
            Listener::Admin => audience == Audience::Clients,
        }
    }
}

impl Router {
    fn body_bytes_max(&self, method: &Method, uri: &Uri, default: u64) -> u64 {
        // No look-up where no route has a limit of its own.
        if self.limited.is_empty() {
            return default;
        }
        let entry = self.endpoint(uri.path()).and_then(|endpoint| endpoint.entry(method));
        entry.map_or(default, |entry| entry.route.body_limit.bytes(default, uri))
    }
}

fn is_operators_path(path: &str) -> bool {
    let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    OPERATORS_PATHS.iter().any(|root| below(root))
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
        let found = self.router.endpoint(request.uri().path());
        if self.is_elsewhere(request.uri().path(), found) {
            return Box::pin(ready(Ok(call::served_elsewhere(&request))));
        }
        if let Some(budget) = &self.budget {
            request.extensions_mut().insert(OnAdminListener(budget.clone()));
        }
        let Some(found) = found else {
            // The operators' own listener leads to no upstream.
            if self.listener == Listener::Admin {
                return Box::pin(ready(Ok(call::no_such_path(&request))));
            }
            return Box::pin(async move { Ok(gateway::serve(app, request).await) });
        };
        match found.entry(request.method()) {
            Some(entry) if request.method() == Method::HEAD => Box::pin(headed(answer(app, entry, request))),
            Some(entry) => answer(app, entry, request),
            None => {
                let trace = TraceId::of(request.headers().get("traceparent"));
                let (method, path) = (request.method(), request.uri().path());
                Box::pin(ready(Ok(call::method_not_allowed(method, path, &trace, found.allow.clone()))))
            }
        }
    }
}

// Refused by its head before anything of the body is asked for.
fn answer(app: Arc<App>, entry: &'static Entry, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let trace = TraceId::of(parts.headers.get("traceparent"));
    match entry.route.access.admit(&app, &parts) {
        Ok(caller) => offload_if_slow(Admitted { app, entry, caller, trace, parts, body }),
        Err(problem) => Box::pin(ready(Ok(problem.response(parts.uri.path(), &trace).map(Body::new)))),
    }
}

// A request that may take long must not hold up others whose connections share a thread with its own.
fn offload_if_slow(admitted: Admitted) -> Answer {
    let Admitted { ref app, entry: &Entry { route, .. }, ref body, .. } = admitted;
    let len = http_body::Body::size_hint(body).exact();
    let is_short = route.class == Class::Fast && len.is_some_and(|len| len < LONG_BYTES_MIN);
    let Some(runtime) = app.slow_runtime.as_ref().filter(|_| !is_short).cloned() else {
        return route.handler.answer(admitted);
    };
    Box::pin(async move {
        let answering = AbortOnDropHandle::new(runtime.spawn(route.handler.answer(admitted)));
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
