//! Shared by the tests of several crates: clocks, stores that pass calls on or fail on request, waiting.
//! Beside `rig`, not inside it: `rig` and `bench` know nothing of the product, and this crate implements its traits.
//! Never used by the product. Called by tests only.

#![allow(clippy::panic, clippy::unwrap_used)]

#[cfg(feature = "clocks")]
pub mod clock;
pub mod faults;
pub mod forwarding;
mod wait;

pub use faults::Faults;
pub use fencepost_rig::wait::{PATIENCE, until, until_within};
pub use forwarding::{Forwarding, Hooks};
pub use wait::{settle, until_async};
