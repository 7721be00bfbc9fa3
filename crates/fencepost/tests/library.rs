//! The library as its users see it. One binary, to save linking.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "library/engines.rs"]
mod engines;
#[path = "library/layer.rs"]
mod layer;
#[path = "library/moving.rs"]
mod moving;
#[path = "library/run.rs"]
mod run;
#[path = "library/world.rs"]
mod world;
