//! `GET /v1/scopes`: the scopes that a caller can use, with how long each remembers a key.
//! Never shows masked values, nor a scope that the store at hand cannot carry.

use std::sync::Arc;

use axum::response::Response;
use fencepost::{
    dispatch, ingest,
    policy::{duration, identity::Role, is_own},
};
use fencepost_kernel::fence::scope::{OnLapse, Scope};
use http::Method;

use super::{
    call::Call,
    openapi::parameter,
    query::{Query, array, page, window},
    reply::{Object, quoted},
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, buffered},
};
use crate::problem::Problem;

pub(super) const ROUTES: &[Route] = &[Route {
    method: Method::GET,
    path: "/v1/scopes",
    handler: buffered!(list),
    access: Access::AnyCredential,
    class: Class::Normal,
    body_limit: BodyLimit::Policy,
    operation_id: "listScopes",
    summary: "The scopes that the caller can use, by their names, and how long each remembers a key",
    parameters: &[&parameter::LIMIT, &parameter::AFTER, &parameter::SINCE],
    request: RequestBody::None,
    answers: &[(200, Content::Json("Scopes"), "A page")],
    errors: &[],
}];

/// `GET /v1/scopes`
async fn list(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let limit = query.limit()?;
    let after = query.cursor(|name| Some(name.to_owned()))?;
    // The map is sorted by name, as `window` needs it.
    let names = call.policy.scopes.keys().filter(|name| is_callers(call, name));
    let scopes: Vec<&Arc<Scope>> = names.filter_map(|name| call.policy.scope(name).ok()).collect();
    let (scopes, next) = window(scopes, |scope| &scope.name, after.as_deref(), limit);
    Ok(page(scopes.into_iter().map(|scope| shown(scope)), next).response())
}

// Of Fencepost's own scopes, a caller sees only the one that its role's requests are kept under.
fn is_callers(call: &Call, name: &str) -> bool {
    let own = [(dispatch::SCOPE, Role::Planner), (ingest::SCOPE, Role::Partner)];
    !is_own(name) || own.iter().any(|(scope, role)| name == *scope && call.caller.has(*role))
}

fn shown(scope: &Scope) -> Vec<u8> {
    let text = |value: Option<&str>| value.map_or_else(|| "null".to_owned(), quoted);
    let horizon = scope.horizon_ms.map(duration::display);
    let version = scope.version.as_ref().map(|rule| {
        let per = array(rule.per.iter().map(|name| quoted(name)));
        Object::new().text("field", &rule.field).raw("per", &per).end()
    });
    let on_lapse = match scope.on_lapse {
        OnLapse::Recover => "recover",
        OnLapse::Hold => "hold",
    };
    Object::new()
        .text("scope", &scope.name)
        .raw("key", &array(scope.key.iter().map(|name| quoted(name))))
        .text("retain", &duration::display(scope.retain_ms))
        .raw("horizon", text(horizon.as_deref()).as_bytes())
        .text("lease", &duration::display(scope.lease_ms))
        .text("on_lapse", on_lapse)
        .raw("again", text(scope.again.as_deref()).as_bytes())
        .raw("version", version.as_deref().unwrap_or(b"null"))
        .end()
}
