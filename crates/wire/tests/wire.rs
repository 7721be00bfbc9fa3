//! What clients see, over real sockets. One binary for the crate, to save linking.

#![allow(clippy::unwrap_used)]

mod server;
mod sinks;
mod wes;
