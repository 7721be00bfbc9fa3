//! Every rule of Fencepost, as pure functions.
//! No I/O, no clock, no randomness, no async: `now` is an argument, and `decide` cannot fail.
//! Called by the commit loop in the `fencepost` crate; nothing here knows who called.

pub mod body;
pub mod command;
pub mod cursor;
pub mod decide;
pub mod diff;
pub mod fence;
pub mod json;
pub mod key;
pub mod lane;
pub mod merge;
pub mod retry;
pub mod row;
pub mod scope;
pub mod time;

mod again;
mod claim;
mod dispatch;
mod seal;
mod version;

pub use command::{Command, Decision, Reply, Row, Rows, Write};
pub use decide::decide;
pub use key::{FenceKey, LaneId, RowKey, Tenant};
pub use scope::Scope;
pub use time::Millis;
pub use version::Version;
