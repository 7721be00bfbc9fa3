//! The library as its users see it. One binary, to save linking.

#![allow(clippy::unwrap_used)]

#[path = "library/batches.rs"]
mod batches;
#[path = "library/dispatch_bounds.rs"]
mod dispatch_bounds;
#[path = "library/dispatch_drain.rs"]
mod dispatch_drain;
#[path = "library/dispatch_lives.rs"]
mod dispatch_lives;
#[path = "library/dispatch_receiver.rs"]
mod dispatch_receiver;
#[path = "library/dispatch_world.rs"]
mod dispatch_world;
#[path = "library/engines.rs"]
mod engines;
#[path = "library/idempotency_key.rs"]
mod idempotency_key;
#[path = "library/in_transaction.rs"]
mod in_transaction;
#[path = "library/in_transaction_isolation.rs"]
mod in_transaction_isolation;
#[path = "library/in_transaction_lanes.rs"]
mod in_transaction_lanes;
#[path = "library/ingest_bounds.rs"]
mod ingest_bounds;
#[path = "library/layer.rs"]
mod layer;
#[path = "library/moving.rs"]
mod moving;
#[path = "library/queue.rs"]
mod queue;
#[path = "library/reload.rs"]
mod reload;
#[path = "library/run.rs"]
mod run;
#[path = "library/settle.rs"]
mod settle;
#[path = "library/verify.rs"]
mod verify;
#[path = "library/world.rs"]
mod world;
