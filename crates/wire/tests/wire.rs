//! What clients see, over real sockets. One binary for the crate, to save linking.

#![allow(clippy::unwrap_used)]
// What holds of a front is asked of both its ways.
#![allow(clippy::duplicate_mod)]

mod server;
mod sinks;
mod wes;
