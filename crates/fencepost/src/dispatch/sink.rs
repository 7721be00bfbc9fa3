//! The port through which events leave: what a transport is given, and what it may say of it.
//! Never decides when or whether to try: the driver does. Implemented by the wire, and by tests.

use std::sync::Arc;

use fencepost_kernel::{
    dispatch::Route,
    lane::{Entry, Failure},
};
use futures::future::BoxFuture;

/// One attempt at one event.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The lane's name.
    pub lane: Arc<str>,
    /// The event's position in it.
    pub seq: u64,
    /// The position before it. A receiver whose last one was another has a gap: what is between was given up.
    pub prev_seq: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Where it goes.
    pub route: Arc<Route>,
    /// What.
    pub entry: Arc<Entry>,
}

impl Delivery {
    /// Whether a person has sent it again, out of order.
    pub fn redrive(&self) -> bool {
        self.entry.redrive_of.is_some()
    }
}

/// A way out.
pub trait Sink: Send + Sync + 'static {
    /// What deliveries over this route share a bound with, such as the host that they go to.
    fn host(&self, route: &Route) -> String;

    /// One attempt. Ends by itself within the transport's time; that it was received, or why not.
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), Failure>>;
}
