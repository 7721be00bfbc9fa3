//! What Fencepost's clients see. Bytes become commands here, and replies become bytes; nothing is decided.
//! Only this crate knows HTTP; it never touches a store, and it holds no rule about fences.

pub mod deliveries;
mod exposition;
pub mod http;
pub mod log;
pub mod metrics;
pub mod problem;
pub mod sinks;
pub mod sources;
pub mod time;
pub mod trace;
mod trust;
