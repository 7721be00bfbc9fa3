//! The commands about a lane that exists.
//! Called by `fencepost::dispatch`, which makes them; `lane::acts` decides them.

use super::{AfterDead, DeadLetterReason, LaneId, ReceiverAnswer, retry::Chance};
use crate::{key::RowKey, time::Millis};

/// One command about lanes.
#[derive(Clone, Debug)]
pub enum Command {
    /// Applies an act to a lane.
    Act(Box<OnLane>),
    /// Deletes notices of other nodes that this node has read.
    DropNotices(Vec<RowKey>),
}

impl Command {
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Act(_) => 0,
            Self::DropNotices(words) => words.len() * size_of::<RowKey>(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct OnLane {
    pub lane: LaneId,
    pub act: Act,
}

/// The acts on a lane.
#[derive(Clone, Debug)]
pub enum Act {
    /// The events up to a position were received.
    Ack {
        upto: u64,
        /// The epoch of the node that drives the lane; `None` for a receiver that polls.
        epoch: Option<u64>,
    },
    /// An attempt to deliver the event at the head failed.
    Fail {
        /// The position of the head.
        seq: u64,
        /// The epoch of the node that drives the lane.
        epoch: u64,
        /// When the attempt began.
        began: Millis,
        /// The kind of failure.
        failure: AttemptFailure,
        /// Whether the lane goes on if the event becomes a dead letter.
        after_dead: AfterDead,
        /// The random number for the jitter.
        chance: Chance,
    },
    /// The event at the head becomes a dead letter now.
    Skip {
        /// The position of the head.
        seq: u64,
        /// The person who asks for it.
        by: String,
    },
    /// No event is sent until the lane is resumed.
    Pause {
        /// The person who asks for it.
        by: String,
        why: String,
    },
    /// Events are sent again.
    Resume,
    /// Notifies the node that drives the lane to look at it.
    Tell,
    /// Another node drives the lane from now on.
    Take {
        /// The name of that node.
        node: String,
        /// The epoch that ends; the act is refused where another has begun.
        after: u64,
    },
}

/// Why an attempt failed, and so whether to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// A later attempt may succeed.
    Later {
        /// The receiver's answer, or why there is none.
        answer: ReceiverAnswer,
        /// How long the receiver asks to wait, in milliseconds.
        wish_ms: Option<u64>,
    },
    /// The transport itself failed (Kafka is down, a key is missing): not the event's fault, so tries have no limit.
    Away(ReceiverAnswer),
    /// The receiver says that it is gone for good: the lane is paused and keeps its events.
    Gone(ReceiverAnswer),
    /// The receiver will never accept this event.
    Never(ReceiverAnswer, DeadLetterReason),
}

/// The nodes that share a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// This node; empty where there is only one.
    pub me: String,
    /// The nodes that are alive.
    pub alive: Vec<String>,
}
