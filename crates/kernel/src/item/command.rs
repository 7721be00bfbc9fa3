//! The commands about items, and their replies.
//! Made by `fencepost::ingest`, which reads items as their collections say; `submit` decides them.

use std::sync::Arc;

use bytes::Bytes;

use super::{ItemId, ItemVersion, Missing, QuarantineId, Retirement};
use crate::{
    fence::{self, Target},
    key::Tenant,
    row::CommitId,
    time::Millis,
};

/// One command about items.
#[derive(Clone, Debug)]
pub enum Command {
    /// Changes items, all in one commit with the answer to the request that asks for it.
    Submit(Box<Submit>),
    /// Everything that waited for an item has been looked at.
    Settle(Box<Settle>),
    /// An operator lets the next version of an item be accepted, whatever it is.
    ForgetVersion(Box<ForgetVersion>),
}

/// See [`Command::Submit`].
#[derive(Clone, Debug)]
pub struct Submit {
    pub tenant: Tenant,
    /// The claim of the request's fence; none where no request asks: a dry run, or a release by itself.
    pub claim: Option<Box<fence::ClaimFence>>,
    /// The identity of the credential.
    pub by: Arc<str>,
    pub correlation_id: Arc<str>,
    pub collection: Arc<str>,
    /// Decided in this order, each over those before it.
    pub changes: Vec<Change>,
    /// Whether items that wait for what arrives are looked at again by themselves.
    pub auto_release: bool,
    /// How long a quarantine that ended can be read, in milliseconds.
    pub quarantine_retain_ms: u64,
    /// Writes the answer that is sealed with the changes and sent to every repeat.
    pub answer: fn(&Submit, &[ChangeVerdict]) -> Bytes,
}

/// One change of one item.
#[derive(Clone, Debug)]
pub enum Change {
    Put(Put),
    /// The item is not what its collection asks for: nothing is changed, and the answer says what is wrong.
    Refuse {
        source_id: Option<String>,
        faults: Vec<ItemFault>,
    },
    /// Makes the item count no more.
    Retire {
        item: ItemId,
        source_id: String,
        cause: Retirement,
    },
    /// Looks at an item in quarantine again: this content, which was read from there.
    Release {
        quarantine: QuarantineId,
        put: Put,
    },
}

impl Change {
    /// How many references the item makes to others.
    pub fn references(&self) -> usize {
        match self {
            Self::Put(put) | Self::Release { put, .. } => put.references.len(),
            Self::Refuse { .. } | Self::Retire { .. } => 0,
        }
    }

    /// The sender's id of the item, where it has one.
    pub fn source_id(&self) -> Option<&str> {
        match self {
            Self::Put(put) | Self::Release { put, .. } => Some(&put.source_id),
            Self::Refuse { source_id, .. } => source_id.as_deref(),
            Self::Retire { source_id, .. } => Some(source_id),
        }
    }
}

/// An item as it was sent.
#[derive(Clone, Debug)]
pub struct Put {
    pub item: ItemId,
    /// Other than the request's where items of several collections are released together.
    pub collection: Arc<str>,
    pub source_id: String,
    pub version: Option<ItemVersion>,
    pub content: Bytes,
    pub references: Vec<ItemReference>,
}

/// Another item that an item refers to.
#[derive(Clone, Debug)]
pub struct ItemReference {
    pub item: ItemId,
    /// The entry in the list of missing items, where it is missing.
    pub missing: Missing,
}

/// A fault of an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ItemFault {
    /// A JSON pointer into the item.
    pub pointer: String,
    pub message: String,
}

/// See [`Command::Settle`].
#[derive(Clone, Debug)]
pub struct Settle {
    pub item: ItemId,
    /// The write of the arrival that was followed up.
    pub arrived: CommitId,
}

/// See [`Command::ForgetVersion`].
#[derive(Clone, Debug)]
pub struct ForgetVersion {
    pub tenant: Tenant,
    pub collection: Arc<str>,
    pub source_id: String,
    /// The version that shall not count, as it is shown: another one, sent since, stays.
    pub version: String,
    /// The identity of the operator.
    pub by: Arc<str>,
    /// The operator's reason.
    pub why: String,
}

impl ForgetVersion {
    pub(super) fn item(&self) -> ItemId {
        ItemId::new(&self.tenant, &self.collection, &self.source_id)
    }
}

/// The result of one change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeVerdict {
    Accepted {
        item: ItemId,
        /// Whether it is the version that had become inactive.
        reactivated: bool,
    },
    /// This version or a higher one is known.
    Replay {
        item: ItemId,
        /// Whether it is the present version with other content.
        differs: bool,
    },
    Quarantined {
        quarantine: QuarantineId,
        unresolved: Vec<Missing>,
    },
    /// A release of content that was sent again since it was read: the new content was judged when it came.
    Resent {
        quarantine: QuarantineId,
        unresolved: Vec<Missing>,
    },
    Rejected(Vec<ItemFault>),
    Retired {
        item: ItemId,
        cause: Retirement,
        /// Whether it was so already.
        replay: bool,
        /// Whether only an item in quarantine was withdrawn: no version was ever accepted.
        withdrawn: bool,
    },
    /// The stay in quarantine had ended before.
    AlreadyResolved {
        quarantine: QuarantineId,
    },
}

impl ChangeVerdict {
    /// The word for it on the wire and in metrics.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "ACCEPTED",
            Self::Replay { .. } => "REPLAY",
            Self::Quarantined { .. } | Self::Resent { .. } => "QUARANTINED",
            Self::Rejected(_) => "REJECTED",
            Self::Retired { withdrawn: true, .. } => "WITHDRAWN",
            Self::Retired { cause, .. } => cause.status(),
            Self::AlreadyResolved { .. } => "RESOLVED",
        }
    }
}

/// The reply to a command about items.
#[derive(Clone, Debug)]
pub enum Reply {
    /// All changes are decided. The answer is the one that repeats get.
    Submitted {
        verdicts: Arc<[ChangeVerdict]>,
        answer: Bytes,
        /// Until when the request is remembered; none where no request asked.
        expires: Option<Millis>,
    },
    /// There is no such item, or it was never in quarantine: nothing was changed, and the request may be sent again.
    NoSuchItem,
    /// The follow-up of an arrival is over.
    Settled,
    /// The version does not count any more.
    VersionForgotten {
        /// Whether nothing was changed: the version did not count before.
        replay: bool,
        /// The version that the next one must be above; none after one was forgotten.
        highest: Option<ItemVersion>,
    },
}

impl Reply {
    /// The word for this reply in logs, metrics and answers.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::Submitted { .. } => "new",
            Self::NoSuchItem => "no_such_item",
            Self::Settled => "done",
            Self::VersionForgotten { .. } => "version_forgotten",
        }
    }
}

impl Command {
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Submit(submit) => submit.weight_bytes(),
            Self::Settle(_) | Self::ForgetVersion(_) => 0,
        }
    }

    /// The fence of the request.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Submit(submit) => submit.claim.as_ref().map(|claim| &claim.target),
            Self::Settle(_) | Self::ForgetVersion(_) => None,
        }
    }
}

/// Bytes of an item in memory beside its content.
const CHANGE_BYTES: usize = 256;

impl Submit {
    pub(crate) fn weight_bytes(&self) -> usize {
        let content = |change: &Change| match change {
            Change::Put(put) | Change::Release { put, .. } => put.content.len() + put.references.len() * CHANGE_BYTES,
            Change::Refuse { .. } | Change::Retire { .. } => 0,
        };
        self.claim.as_ref().map_or(0, |claim| claim.weight_bytes())
            + self.changes.iter().map(|change| CHANGE_BYTES + content(change)).sum::<usize>()
    }
}
