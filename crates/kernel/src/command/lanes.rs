//! What may be asked about events on their way out.
//! Part of `command`; decided by `dispatch`.

use std::sync::Arc;

use super::Claim;
use crate::{
    key::{LaneId, Target},
    lane::{AfterDead, Answer, Entry, Reason, Route},
    retry::Chance,
    time::Millis,
};

/// See [`crate::Command::Publish`].
#[derive(Clone, Debug)]
pub struct Publish {
    /// The fence of the publication; its body is compared.
    pub claim: Claim,
    /// The event.
    pub entry: Arc<Entry>,
    /// The publication that it cancels.
    pub cancels: Option<Target>,
    /// Who publishes.
    pub members: Arc<Members>,
    /// How much of the lane of what it cancels pollers may have seen; none where nobody knows.
    pub served: Option<u64>,
}

/// The nodes that share a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// This one; empty where there is only one.
    pub me: String,
    /// Those that live.
    pub alive: Vec<String>,
}

/// See [`crate::Command::PutRoute`].
#[derive(Clone, Debug)]
pub struct PutRoute {
    /// The new one. Its time is set when it is decided.
    pub route: Route,
    /// Up to which position of the lane that is left somebody has looked for events of this warehouse, and found none.
    pub seen_to: Option<u64>,
    /// The route that this one is written over, and over no other, where it says the same sealed with another key: a change
    /// that somebody made meanwhile stands, and its time stays.
    pub over: Option<Arc<Route>>,
}

/// See [`crate::Command::Lane`].
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

/// See [`crate::Command::Letter`].
#[derive(Clone, Debug)]
pub struct OnLetter {
    /// The lane it left.
    pub lane: LaneId,
    /// Where.
    pub seq: u64,
    /// What shall become of it.
    pub verdict: LetterVerdict,
    /// Who says so.
    pub by: String,
    /// The nodes that share the store.
    pub members: Arc<Members>,
}

/// What a person may decide about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterVerdict {
    /// Send it again, past the receiver's memory only with a reason.
    Redrive {
        /// That reason.
        force: Option<String>,
    },
    /// Give it up.
    Discard {
        /// Why.
        why: String,
    },
}
