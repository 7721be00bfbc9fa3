//! The store contract with its laws, every backend, and one conformance suite for all of them.
//! No policy in here: a store keeps rows and compares revisions; the kernel decides.

pub mod codec;
pub mod contract;
pub mod embedded;
pub mod memory;

mod judge;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use contract::{Error, Found, Loaded, Store, Verdict, WriteSet};
pub use embedded::Embedded;
pub use memory::Memory;
