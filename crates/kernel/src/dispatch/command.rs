//! What may be asked about events for a warehouse.
//! Decided by `dispatch`.

use std::sync::Arc;

use super::Route;
use crate::{
    fence::{self, Target},
    lane::{Entry, LaneId, Members},
};

/// One request about events for a warehouse.
#[derive(Clone, Debug)]
pub enum Command {
    /// Puts an event at the end of its lane, once.
    Publish(Box<Publish>),
    /// Says where the events of a warehouse go.
    PutRoute(Box<PutRoute>),
    /// A person's word on a dead letter.
    Letter(Box<OnLetter>),
}

impl Command {
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Publish(publish) => publish.claim.weight_bytes() + publish.entry.body.len(),
            Self::PutRoute(_) | Self::Letter(_) => 0,
        }
    }

    /// The fence that the command is about, where it is about one.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Publish(publish) => Some(&publish.claim.target),
            Self::PutRoute(_) | Self::Letter(_) => None,
        }
    }
}

/// See [`Command::Publish`].
#[derive(Clone, Debug)]
pub struct Publish {
    /// The fence of the publication; its body is compared.
    pub claim: fence::Claim,
    /// The event.
    pub entry: Arc<Entry>,
    /// The publication that it cancels.
    pub cancels: Option<Target>,
    /// Who publishes.
    pub members: Arc<Members>,
    /// How much of the lane of what it cancels pollers may have seen; none where nobody knows.
    pub served: Option<u64>,
}

/// See [`Command::PutRoute`].
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

/// See [`Command::Letter`].
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
