//! The store contract with its laws, every backend, and one conformance suite for all of them.
//! No policy in here: a store keeps rows and compares revisions; the kernel decides.

pub mod address;
pub mod codec;
pub mod contract;
pub mod embedded;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod private;
#[cfg(feature = "redis")]
pub mod redis;

mod hot;
mod judge;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod shared_clock;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use address::Address;
pub use contract::{Durability, Error, Found, Loaded, Node, Promises, Store, Verdict, WriteSet};
pub use embedded::Embedded;
pub use memory::Memory;
