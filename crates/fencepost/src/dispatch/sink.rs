//! The port through which events leave: a sink gets one delivery, and returns whether it was received.
//! Never decides when or whether to try: the driver does. Called by the driver; the wire and tests implement it.

use std::sync::Arc;

use fencepost_kernel::{
    dispatch::WarehouseTransport,
    lane::{AttemptFailure, Entry},
};
use futures::future::BoxFuture;

/// One attempt at one event.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The lane's name.
    pub lane: Arc<str>,
    /// The event's position in it.
    pub seq: u64,
    /// The position before it. A receiver that last got another one has a gap: the events between were given up.
    pub prev_seq: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The transport that it goes over.
    pub transport: Arc<WarehouseTransport>,
    /// The event, with the exact bytes to send.
    pub entry: Arc<Entry>,
}

impl Delivery {
    /// Whether a person has sent it again, out of order.
    pub fn redrive(&self) -> bool {
        self.entry.redrive_of.is_some()
    }
}

/// Delivers events over one or more kinds of transport.
pub trait Sink: Send + Sync + 'static {
    /// The name under which deliveries over this transport share a bound, such as the host that they go to.
    fn host(&self, transport: &WarehouseTransport) -> String;

    /// Makes one attempt, and returns whether it was received or why not. Ends by itself within the transport's time.
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>>;
}
