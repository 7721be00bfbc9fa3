//! Events on their way out, by the real binary: published over HTTP, delivered to a receiver that verifies, remembers,
//! fails and dies as it is told; polled; restarted, killed and shared between nodes.

mod cancelled;
pub mod checker;
mod dead;
pub mod delivery;
mod executor;
mod handover;
mod keys;
mod nodes;
mod outages;
pub mod planner;
mod poll;
mod published;
pub mod publishers;
pub mod receiver;
mod restart;
mod retries;
pub mod rounds;
mod routes;
mod signed;
