//! The router and what every request goes through: who calls, which trace, how large, and what the answer carries.
//! Routes translate and ask the engine; none of them decides.

mod admin;
mod backup;
mod call;
pub mod executor;
mod fences;
pub mod gateway;
mod health;
mod nodes;
pub mod openapi;
pub mod policy;
mod reply;
mod request;
mod wes;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post, put},
};
use fencepost::{
    Fencepost,
    dispatch::Dispatch,
    policy::{Policy, identity::Directory},
    store::Node,
};

use crate::{log::Log, metrics::Metrics, sinks::webhook::Egress};

/// What the routes share.
pub struct App {
    /// The engine and the policy.
    pub fencepost: Fencepost,
    /// Who may call.
    pub directory: Directory,
    /// What is counted.
    pub metrics: Metrics,
    /// Where decisions are logged.
    pub log: Log,
    /// Where the policy came from.
    pub origin: policy::Origin,
    /// This process, as others see it.
    pub node: Node,
    /// Where the store is, without a password.
    pub store: String,
    /// Events on their way out, or why there are none here.
    pub dispatch: Result<Dispatch, String>,
    /// What passes through to other services.
    pub gateway: gateway::Gateway,
    /// Where events may be sent.
    pub egress: Egress,
}

impl App {
    fn policy(&self) -> Arc<Policy> {
        self.fencepost.policy()
    }
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/fences/claim", post(fences::claim))
        .route("/v1/fences/again", post(fences::again))
        .route("/v1/fences/seal", post(fences::seal))
        .route("/v1/fences/renew", post(fences::renew))
        .route("/v1/fences/release", post(fences::release))
        .route("/v1/fences/batch", post(fences::batch))
        .route("/v1/aliases/{name}", put(fences::put_alias).get(fences::get_alias))
        .route("/wes/v1/dispatch/events", post(wes::publish::events))
        .route("/wes/v1/warehouses/{warehouse_id}/transport", put(wes::transport::put).get(wes::transport::get))
        .route("/wes/v1/dispatch/lanes", get(wes::lanes::list))
        .route("/wes/v1/dispatch/lanes/{lane}", get(wes::lanes::one))
        .route("/wes/v1/dispatch/lanes/{lane}/skip", post(wes::skip))
        .route("/wes/v1/dispatch/lanes/{lane}/pause", post(wes::pause))
        .route("/wes/v1/dispatch/lanes/{lane}/resume", post(wes::resume))
        .route("/wes/v1/dispatch/dlq", get(wes::letters::list))
        .route("/wes/v1/dispatch/dlq/redrive", post(wes::redrive_many))
        .route("/wes/v1/dispatch/dlq/{id}", get(wes::letters::one))
        .route("/wes/v1/dispatch/dlq/{id}/redrive", post(wes::letters::redrive))
        .route("/wes/v1/dispatch/dlq/{id}/discard", post(wes::letters::discard))
        .route("/wes/v1/dispatch/pending", get(wes::poll::pending))
        .route("/wes/v1/dispatch/ack", post(wes::poll::ack))
        .route("/admin/idempotency/lookup", get(admin::lookup))
        .route("/admin/idempotency/in-doubt", get(admin::in_doubt))
        .route("/admin/idempotency/resolve", post(admin::resolve))
        .route("/admin/policy", get(policy::show).post(policy::post))
        .route("/admin/nodes", get(nodes::list))
        .route("/admin/backup", get(backup::backup))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::serve))
        .fallback(gateway::serve)
        .method_not_allowed_fallback(call::method_not_allowed)
        .with_state(app)
}
