//! State shared by the routes, and the steps of every request: its caller, its trace, its size, and the headers of its
//! answer.
//! Routes translate and ask the engine; none of them decides.

mod admin;
mod audit;
mod backup;
mod call;
pub mod executor;
mod fences;
pub mod gateway;
mod health;
mod ingest;
mod nodes;
pub mod openapi;
pub mod policy;
mod query;
mod reply;
mod request;
mod route;
mod routes;
mod scopes;
mod wes;

use std::sync::Arc;

use fencepost::{
    Fencepost,
    dispatch::Dispatch,
    policy::{Policy, identity::Directory},
    store::Node,
};

use tokio::runtime::Handle;

pub use routes::{Listener, Routes};

use crate::{log::Log, metrics::Metrics, sinks::webhook::Egress};
use fencepost_front::Budget;

pub struct App {
    /// The engine and the policy.
    pub fencepost: Fencepost,
    pub directory: Directory,
    pub metrics: Metrics,
    /// Where decisions are logged.
    pub log: Log,
    /// Where the policy came from.
    pub origin: policy::PolicyOrigin,
    /// This process, as others see it.
    pub node: Node,
    /// Where the store is, without a password.
    pub store: String,
    /// Events on their way out, or why there are none here.
    pub dispatch: Result<Dispatch, String>,
    /// Requests that pass through to other services.
    pub gateway: gateway::Gateway,
    /// Where events may be sent.
    pub egress: Egress,
    /// The runtime that requests are answered on that may take long, where it is not that of their connections.
    pub slow_runtime: Option<Handle>,
    /// The bytes of bodies and answers that are in memory.
    pub budget: Arc<Budget>,
    /// Whether the public development tokens are valid, and figures need no credential.
    pub dev: bool,
}

impl App {
    fn policy(&self) -> Arc<Policy> {
        self.fencepost.policy()
    }
}
