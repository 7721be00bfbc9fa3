//! The commands about events for a warehouse.
//! Called by `fencepost::dispatch`, which makes them; `dispatch` decides them.

use std::sync::Arc;

use super::WarehouseTransport;
use crate::{
    fence::{self, Target},
    lane::{Entry, LaneId, Members},
};

/// One command about events for a warehouse.
#[derive(Clone, Debug)]
pub enum Command {
    /// Puts an event at the end of its lane, once.
    Publish(Box<Publish>),
    /// Sets the transport of a warehouse's events.
    PutTransport(Box<PutTransport>),
    /// Redrives or discards a dead letter, for a person.
    Letter(Box<OnLetter>),
}

impl Command {
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Publish(publish) => publish.claim.weight_bytes() + publish.entry.body.len(),
            Self::PutTransport(_) | Self::Letter(_) => 0,
        }
    }

    /// The fence of the command's claim, where it has one.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Publish(publish) => Some(&publish.claim.target),
            Self::PutTransport(_) | Self::Letter(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Publish {
    /// The claim of the publication's fence; its body is compared with that of an earlier claim.
    pub claim: fence::ClaimFence,
    pub entry: Arc<Entry>,
    /// The fence of the earlier publication that this event cancels.
    pub cancels: Option<Target>,
    /// The nodes that share the store.
    pub members: Arc<Members>,
    /// The last position that pollers may have read in the lane of the cancelled event; `None` where that is unknown.
    pub served: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct PutTransport {
    /// The new transport. Its time is set when the command is decided.
    pub transport: WarehouseTransport,
    /// The position up to which the old lane was searched for open events of this warehouse and had none.
    pub seen_to: Option<u64>,
    /// Writes only over exactly this transport, and keeps its time. For the same transport sealed with another key: a change
    /// made meanwhile must not be overwritten.
    pub over: Option<Arc<WarehouseTransport>>,
}

#[derive(Clone, Debug)]
pub struct OnLetter {
    /// The lane that the event left.
    pub lane: LaneId,
    /// The position that it had there.
    pub seq: u64,
    pub verdict: LetterVerdict,
    /// The person who decides, for the record.
    pub by: String,
    /// The nodes that share the store.
    pub members: Arc<Members>,
}

/// A person's decision about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterVerdict {
    /// Send the event again. Past the time that the receiver remembers events, this needs a reason.
    Redrive {
        /// The reason to redrive past that time; `None` refuses it.
        force: Option<String>,
    },
    /// Give the event up.
    Discard { why: String },
}
