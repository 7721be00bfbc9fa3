//! `/healthz`, `/readyz` and `/metrics`: no credential needed, nothing internal told.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use http::{HeaderValue, header};

use super::App;
use crate::{
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
        Ok(()) => json(r#"{"status":"ready"}"#),
        Err(_) => Problem::new(Code::StoreUnavailable, "the store does not acknowledge")
            .retry_after(1)
            .response(request.uri().path(), &TraceId::of(request.headers().get("traceparent")))
            .map(Body::new),
    }
}

/// `GET /metrics`
pub(super) async fn metrics(app: Arc<App>, _: Request) -> Response {
    let engine = app.fencepost.engine();
    if let Ok(dispatch) = &app.dispatch {
        app.metrics.deliveries.lanes(dispatch.counts(), engine.now());
    }
    let text = app.metrics.render(
        engine.waiting(),
        engine.stopped().is_none(),
        engine.wall().0 as i64 - engine.now().0 as i64,
    );
    typed(text, "application/openmetrics-text; version=1.0.0; charset=utf-8")
}

fn json(text: &'static str) -> Response {
    typed(text.to_owned(), "application/json")
}

fn typed(text: String, kind: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
