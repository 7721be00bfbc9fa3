//! Turns bytes into commands and replies into bytes: the HTTP API, metrics, log lines, sinks and sources.
//! Never decides, never touches a store, and holds no rule about fences. Called by the binary.

pub mod deliveries;
mod exposition;
pub mod http;
mod item_figures;
pub mod log;
pub mod metrics;
pub mod problem;
pub mod sinks;
pub mod sources;
pub mod time;
pub mod trace;
mod trust;
