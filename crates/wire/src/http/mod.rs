//! The router and what every request goes through: who calls, which trace, how large, and what the answer carries.
//! Routes translate and ask the engine; none of them decides.

mod admin;
mod backup;
mod call;
mod fences;
mod health;
mod nodes;
pub mod openapi;
mod reply;
mod request;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post, put},
};
use fencepost::{
    Fencepost,
    policy::{Policy, identity::Directory},
    store::Node,
};

use crate::{log::Log, metrics::Metrics};

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
    /// This process, as others see it.
    pub node: Node,
    /// Where the store is, without a password.
    pub store: String,
}

impl App {
    fn policy(&self) -> &Policy {
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
        .route("/admin/idempotency/lookup", get(admin::lookup))
        .route("/admin/idempotency/in-doubt", get(admin::in_doubt))
        .route("/admin/idempotency/resolve", post(admin::resolve))
        .route("/admin/nodes", get(nodes::list))
        .route("/admin/backup", get(backup::backup))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::serve))
        .fallback(call::not_found)
        .method_not_allowed_fallback(call::method_not_allowed)
        .with_state(app)
}
