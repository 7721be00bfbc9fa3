//! Commands about a fence.
//! Decided by `fence::decide`.

use bytes::Bytes;

use super::{Body, FenceKey, HolderTrace, Sighting, Source, Target, Token, Version};
use crate::{audit::Subject, time::Millis};

/// One request about a fence.
#[derive(Clone, Debug)]
pub enum Command {
    /// Asks for the right to act.
    Claim(ClaimFence),
    /// Records the outcome.
    Seal(Seal),
    /// Asks for more time.
    Renew(Renew),
    /// Gives the right back: nothing happened.
    Release(Release),
    /// A person's word on a doubt.
    Resolve(Resolve),
    /// Gives up what was sealed, so that the effect may be had again.
    Forget(Forget),
    /// Points a name at a sealed effect.
    PutAlias(PutAlias),
    /// Adds lazily kept counts to a fence.
    Observe(Observe),
}

impl Command {
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Claim(claim) => claim.weight_bytes(),
            Self::Seal(seal) => seal.effect_id.len() + seal.receipt.len(),
            Self::Resolve(Resolve { outcome: DoubtOutcome::Sealed { effect_id, receipt }, .. }) => {
                effect_id.len() + receipt.len()
            }
            Self::Forget(_)
            | Self::Resolve(_)
            | Self::Renew(_)
            | Self::Release(_)
            | Self::PutAlias(_)
            | Self::Observe(_) => 0,
        }
    }

    /// The fence that the command is about; none where it only counts.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Claim(ClaimFence { target, .. })
            | Self::Seal(Seal { target, .. })
            | Self::Renew(Renew { target, .. })
            | Self::Release(Release { target, .. })
            | Self::Resolve(Resolve { target, .. })
            | Self::Forget(Forget { target, .. })
            | Self::PutAlias(PutAlias { target, .. }) => Some(target),
            Self::Observe(_) => None,
        }
    }

    /// The thing that the command is about, for the audit.
    pub(crate) fn subject(&self) -> Subject {
        let why = match self {
            Self::Resolve(Resolve { why, .. }) | Self::Forget(Forget { why, .. }) => Some(why.clone()),
            Self::Claim(_)
            | Self::Seal(_)
            | Self::Renew(_)
            | Self::Release(_)
            | Self::PutAlias(_)
            | Self::Observe(_) => None,
        };
        let subject = self.target().map(Target::subject).unwrap_or_default();
        Subject { why, ..subject }
    }
}

#[derive(Clone, Debug)]
pub struct ClaimFence {
    pub target: Target,
    /// The request's body, compared with the first one under this key.
    pub body: Option<Body>,
    /// The version of the source, where given.
    pub version: Option<Version>,
    pub source: Option<Source>,
    /// The lease asked for, already within the scope's bounds.
    pub lease_ms: u64,
    /// The trace of the request, where it has one.
    pub trace: Option<HolderTrace>,
}

impl ClaimFence {
    pub(crate) fn weight_bytes(&self) -> usize {
        self.body.as_ref().and_then(|body| body.kept.as_ref()).map_or(0, Bytes::len)
    }
}

#[derive(Clone, Debug)]
pub struct Seal {
    pub target: Target,
    pub token: Token,
    pub effect_id: String,
    /// The bytes that duplicates get.
    pub receipt: Bytes,
}

#[derive(Clone, Debug)]
pub struct Renew {
    pub target: Target,
    pub token: Token,
    /// The new lease, counted from now.
    pub lease_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Release {
    pub target: Target,
    pub token: Token,
}

#[derive(Clone, Debug)]
pub struct Resolve {
    pub target: Target,
    /// Which attempt the doubt is about, where the person says so: a late repeat then never meets a later doubt.
    pub token: Option<Token>,
    pub outcome: DoubtOutcome,
    pub by: String,
    pub why: String,
}

#[derive(Clone, Debug)]
pub struct Forget {
    pub target: Target,
    /// The attempt whose outcome is given up, where the person says so: a late repeat then never meets a later one.
    pub token: Option<Token>,
    pub by: String,
    /// The person's reason.
    pub why: String,
}

/// Result of a person's look at a fence in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoubtOutcome {
    /// The effect happened.
    Sealed {
        effect_id: String,
        /// Sent to duplicates.
        receipt: Bytes,
    },
    /// It did not; the next claimant may run.
    Released,
}

#[derive(Clone, Debug)]
pub struct PutAlias {
    pub name: String,
    /// The fence it shall stand for.
    pub target: Target,
}

#[derive(Clone, Debug)]
pub struct Observe {
    pub key: FenceKey,
    /// Duplicates since the last flush.
    pub replays: u64,
    /// Conflicts since the last flush.
    pub conflicts: u64,
    /// How many of the duplicates had another body than the first, since the last flush.
    pub body_mismatches: u64,
    /// The latest of all these, oldest first.
    pub recent: Vec<(Millis, Sighting)>,
}
