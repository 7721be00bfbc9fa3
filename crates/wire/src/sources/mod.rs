//! Sources take messages from queues and hand them to the user's own handler, each with its effect once.
//! Never decides whether a message may be acknowledged; the library's `queue` does. Started by `fencepost consume`.

pub mod handler;
pub mod kafka;
