//! What may be asked about a lane that has come into being.
//! Decided by `lane::acts`.

use super::{AfterDead, Answer, LaneId, Reason, retry::Chance};
use crate::{key::RowKey, time::Millis};

/// One request about lanes.
#[derive(Clone, Debug)]
pub enum Command {
    /// Something that happens to a lane.
    Act(Box<OnLane>),
    /// Forgets words from other nodes that were heard.
    Heard(Vec<RowKey>),
}

impl Command {
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Act(_) => 0,
            Self::Heard(words) => words.len() * size_of::<RowKey>(),
        }
    }
}

/// See [`Command::Act`].
#[derive(Clone, Debug)]
pub struct OnLane {
    /// Which.
    pub lane: LaneId,
    /// What happens.
    pub act: Act,
}

/// What may happen to a lane.
#[derive(Clone, Debug)]
pub enum Act {
    /// Everything up to a position was received.
    Ack {
        /// The position.
        upto: u64,
        /// The epoch of who drives the lane; none where the receiver comes itself.
        epoch: Option<u64>,
    },
    /// An attempt at the head failed.
    Fail {
        /// The head.
        seq: u64,
        /// The epoch of who drives the lane.
        epoch: u64,
        /// When the attempt began.
        began: Millis,
        /// What came of it.
        failure: Failure,
        /// What follows a dead letter.
        after_dead: AfterDead,
        /// For the jitter.
        chance: Chance,
    },
    /// The head goes to the dead letters now.
    Skip {
        /// The head.
        seq: u64,
        /// Who says so.
        by: String,
    },
    /// Nothing is sent any more.
    Pause {
        /// Who says so.
        by: String,
        /// Their reason.
        why: String,
    },
    /// Sending goes on.
    Resume,
    /// Who drives it shall look at it.
    Tell,
    /// Another node drives it now.
    Take {
        /// Who.
        node: String,
        /// The epoch that ended.
        after: u64,
    },
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may go better later.
    Later {
        /// What came of it.
        answer: Answer,
        /// How long the receiver asks to be left alone.
        wish_ms: Option<u64>,
    },
    /// The way to the receiver is down: that is not the event's fault, and it is tried for as long as it takes.
    Away(Answer),
    /// The receiver says that it is gone for good: the lane is paused, and nothing is lost.
    Gone(Answer),
    /// It will never be taken.
    Never(Answer, Reason),
}

/// The nodes that share a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// This one; empty where there is only one.
    pub me: String,
    /// Those that live.
    pub alive: Vec<String>,
}
