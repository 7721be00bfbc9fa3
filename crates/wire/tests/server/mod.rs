//! The HTTP front against hostile, slow and ordinary clients, over raw sockets.

mod bounds;
pub mod bytes_on_the_wire;
mod corpus;
mod files;
mod frames;
mod hostile;
mod http2;
mod keep_alive;
mod malformed;
mod shutdown;
mod slow;
mod streaming;
mod tls;
