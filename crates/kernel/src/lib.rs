//! Every rule of Fencepost, as pure functions.
//! No I/O, no clock, no randomness, no async: `now` is an argument, and `decide` cannot fail.
//! Called by the commit loop in the `fencepost` crate; nothing here knows its caller.

pub mod audit;
pub mod dispatch;
pub mod fence;
pub mod item;
pub mod job;
pub mod json;
pub mod key;
pub mod lane;
pub mod law;
pub mod merge;
pub mod row;
pub mod time;

pub use fence::{FenceKey, Scope, Version};
pub use key::{RowKey, Tenant};
pub use lane::LaneId;
pub use law::{Command, Decision, Reply, decide};
pub use row::{Record, Row, Rows, Write};
pub use time::Millis;
