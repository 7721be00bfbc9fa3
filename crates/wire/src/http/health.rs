//! `/healthz` and `/readyz` need no credential and show nothing internal. `/metrics` names tenants and scopes, so it
//! needs a credential, except under `--dev` and on the operators' listener.

use axum::{body::Body, response::Response};
use fencepost::policy::identity::Role;
use http::{HeaderMap, HeaderValue, Method, header, request::Parts};

use super::{
    App,
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, head_only},
};
use crate::{
    exposition,
    metrics::Readings,
    problem::{Code, Problem},
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/healthz",
        handler: head_only!(healthz),
        access: Access::Public,
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "healthz",
        summary: "The process serves requests",
        parameters: &[],
        request: RequestBody::None,
        answers: &[(200, Content::Json("Health"), "The process serves requests")],
        errors: &[],
    },
    Route {
        method: Method::GET,
        path: "/readyz",
        handler: head_only!(readyz),
        access: Access::Public,
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "readyz",
        summary: "The store acknowledges",
        parameters: &[],
        request: RequestBody::None,
        answers: &[(200, Content::Json("Health"), "The store acknowledges")],
        errors: &[Code::StoreUnavailable],
    },
    Route {
        method: Method::GET,
        path: "/metrics",
        handler: head_only!(metrics),
        access: Access::RolesUnlessTrusted(&[Role::Viewer, Role::Admin]),
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "metrics",
        summary: "Figures for Prometheus: OpenMetrics, or its older text format for those who accept no other",
        parameters: &[],
        request: RequestBody::None,
        answers: &[(
            200,
            Content::Text(&[exposition::OPENMETRICS, exposition::PLAIN]),
            "Figures for Prometheus: OpenMetrics, or its older text format for those who accept no other",
        )],
        errors: &[],
    },
];

/// `GET /healthz`: the process serves requests.
async fn healthz(_: &App, _: &Parts) -> Result<Response, Problem> {
    Ok(json(r#"{"status":"ok"}"#))
}

/// `GET /readyz`: the store acknowledges.
async fn readyz(app: &App, _: &Parts) -> Result<Response, Problem> {
    match app.fencepost.engine().ready().await {
        // Fences work without that key: no reason to take the node out of service.
        Ok(()) if app.dispatch.as_ref().is_ok_and(|dispatch| !dispatch.missing_keys().is_empty()) => {
            Ok(json(r#"{"status":"ready","dispatch":"key-missing"}"#))
        }
        Ok(()) => Ok(json(r#"{"status":"ready"}"#)),
        Err(_) => Err(Problem::new(Code::StoreUnavailable, "the store does not acknowledge").retry_after(1)),
    }
}

/// `GET /metrics`
async fn metrics(app: &App, parts: &Parts) -> Result<Response, Problem> {
    Ok(figures(app, &parts.headers))
}

fn figures(app: &App, headers: &HeaderMap) -> Response {
    let engine = app.fencepost.engine();
    if let Ok(dispatch) = &app.dispatch {
        app.metrics.deliveries.lanes(dispatch.counts(), engine.now());
    }
    let text = app.metrics.render(&Readings {
        waiting: engine.waiting(),
        ready: engine.stopped().is_none(),
        wall_ahead_ms: engine.wall().0 as i64 - engine.now().0 as i64,
        budget: &app.budget,
    });
    match exposition::prefers_plain(headers) {
        true => typed(exposition::plain(&text), exposition::PLAIN),
        false => typed(text, exposition::OPENMETRICS),
    }
}

fn json(text: &'static str) -> Response {
    typed(text, "application/json")
}

fn typed(text: impl Into<Body>, kind: &'static str) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
