//! `/admin/nodes`: the nodes that share the store, which of them are alive, and how many claims each holds.

use axum::response::Response;
use fencepost::{
    dispatch::Dispatch,
    policy::identity::Role,
    store::{Durability, Node},
};
use http::Method;

use super::{
    call::Call,
    openapi::parameter,
    query::{Query, paged, window},
    reply::{Answer, Object},
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, buffered},
};
use crate::problem::Problem;

pub(super) const ROUTES: &[Route] = &[Route {
    method: Method::GET,
    path: "/admin/nodes",
    handler: buffered!(list),
    access: Access::Roles(&[Role::Admin, Role::Viewer]),
    class: Class::Normal,
    body_limit: BodyLimit::Policy,
    operation_id: "listNodes",
    summary: "Who shares the store, who is alive, and how many claims each holds",
    parameters: &[&parameter::LIMIT, &parameter::AFTER, &parameter::SINCE],
    request: RequestBody::None,
    answers: &[(200, Content::Json("Nodes"), "The store and its nodes, by their ids")],
    errors: &[],
}];

/// `GET /admin/nodes`
async fn list(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let limit = query.limit()?;
    let engine = call.app.fencepost.engine();
    let (own, promises) = (&call.app.node, engine.promises());
    let mut nodes = engine.nodes().await?;
    // A store that is not shared lists no nodes: this process is the only one.
    if nodes.is_empty() {
        nodes.push(Node { seen: engine.now(), ..own.clone() });
    }
    nodes.sort_by(|a, b| a.id.cmp(&b.id));
    let (nodes, next) = window(nodes, |node| &node.id, query.cursor(|id| Some(id.to_owned()))?.as_deref(), limit);
    let durability = match promises.durability {
        Durability::None => "none",
        Durability::Delayed => "delayed",
        Durability::Synced => "synced",
    };
    let body = Object::new()
        .text("store", &call.app.store)
        .text("durability", durability)
        .text("because", &promises.because)
        .value("shared", promises.shared)
        .time("store_time", engine.now());
    let body = paged(body, nodes.iter().map(|node| shown(node, node.id == own.id)), next);
    let body = match &call.app.dispatch {
        Ok(dispatch) => body.raw("keys", &keys(dispatch)),
        Err(_) => body,
    };
    Ok(Answer::ok(body.end()).response())
}

// How stored transports are sealed, as this node knows it: fingerprints, never keys.
fn keys(dispatch: &Dispatch) -> Vec<u8> {
    let keys = dispatch.vault().fingerprints();
    let resealed = dispatch.resealed();
    let mut body = Object::new()
        .text("first", keys.first().map_or("", String::as_str))
        .value("others", keys.len().saturating_sub(1))
        .value("resealed", resealed.is_some());
    if let Some(found) = resealed {
        body = body.value("unreadable", found.unreadable);
    }
    let missing: Vec<String> = dispatch.missing_keys().iter().map(|key| format!("\"{key}\"")).collect();
    body.raw("missing", format!("[{}]", missing.join(",")).as_bytes()).end()
}

fn shown(node: &Node, own: bool) -> Vec<u8> {
    let mut body = Object::new()
        .text("id", &node.id)
        .text("address", &node.address)
        .text("release", &node.release)
        .value("row_format", node.format)
        .time("started_at", node.started)
        .time("seen_at", node.seen)
        .value("answering", own);
    if let Some(holds) = node.holds {
        body = body.value("holds", holds);
    }
    body.end()
}
