//! The HTTP front against hostile, slow and ordinary clients, over raw sockets.

mod bounds;
mod buffers;
pub mod bytes_on_the_wire;
mod corpus;
mod files;
mod frames;
mod hostile;
mod http2;
mod http2_bytes;
mod keep_alive;
mod malformed;
mod plain;
mod shutdown;
mod slow;
mod streaming;
mod threads;
mod tls;

/// Which requests a front takes the short way for.
const IS_PLAIN: fn(&http::Method, &str) -> bool = |_, _| false;
