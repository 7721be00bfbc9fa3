//! `/healthz` and `/readyz`: no credential needed, nothing internal told. `/metrics`: names of tenants and scopes, so it needs a
//! credential, but under `--dev` and on the listener for operators.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use fencepost::policy::identity::Role;
use http::{HeaderMap, HeaderValue, header};

use super::{App, call::Call, routes::OnAdminListener};
use crate::{
    exposition,
    metrics::Readings,
    problem::{Code, Problem},
    trace::TraceId,
};

/// `GET /healthz`: the process serves requests.
pub(super) async fn healthz(_: Arc<App>, _: Request) -> Response {
    json(r#"{"status":"ok"}"#)
}

/// `GET /readyz`: the store acknowledges.
pub(super) async fn readyz(app: Arc<App>, request: Request) -> Response {
    match app.fencepost.engine().ready().await {
        // Fences are served all the same: no reason to take the node out of service.
        Ok(()) if app.dispatch.as_ref().is_ok_and(|dispatch| !dispatch.missing_keys().is_empty()) => {
            json(r#"{"status":"ready","dispatch":"key-missing"}"#)
        }
        Ok(()) => json(r#"{"status":"ready"}"#),
        Err(_) => Problem::new(Code::StoreUnavailable, "the store does not acknowledge")
            .retry_after(1)
            .response(request.uri().path(), &TraceId::of(request.headers().get("traceparent")))
            .map(Body::new),
    }
}

/// `GET /metrics`
pub(super) async fn metrics(app: Arc<App>, request: Request) -> Response {
    let is_open = app.dev || request.extensions().get::<OnAdminListener>().is_some();
    if is_open {
        return figures(&app, request.headers());
    }
    Call::run(app, request, async |call| {
        call.require(&[Role::Viewer, Role::Admin])?;
        Ok(figures(&call.app, &call.parts.headers))
    })
    .await
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
