//! The wire as clients see it, over real sockets. One binary for the crate, to save linking.

#![allow(clippy::unwrap_used)]
// Both ways of a front run the same tests.
#![allow(clippy::duplicate_mod)]

mod server;
mod sinks;
mod wes;
