//! Replies about a fence.
//! Made by `fence::decide`; the wire turns it into bytes.

use std::sync::Arc;

use super::{Alias, Body, Fence, HolderTrace, Sighting, Source, Token, Version};
use crate::time::Millis;

/// A reply to a caller. A refusal is a reply, not an error.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The right to act.
    New(Granted),
    /// The first one's answer.
    Duplicate {
        /// The sealed fence.
        fence: Arc<Fence>,
        /// Whether the body differs and the scope lets that pass.
        body_differs: bool,
    },
    /// Another caller is acting.
    InFlight {
        lease_expires: Millis,
        /// When the key was first claimed.
        first_seen: Millis,
        /// The trace of their request, where it is known.
        held_by: Option<HolderTrace>,
    },
    /// Same key, other body.
    Conflict(Box<Mismatch>),
    /// A newer version of the source is already sealed.
    Stale {
        sealed_version: Version,
    },
    /// The version does not compare with the sealed one.
    Incomparable {
        sealed_version: Version,
    },
    /// A person must decide first.
    InDoubt {
        /// When the doubt began.
        since: Millis,
    },
    /// Not the next repetition.
    SequenceGap {
        /// The last one claimed.
        last: u64,
        /// Whether it is sealed.
        sealed: bool,
    },
    /// The outcome is recorded.
    Sealed {
        /// Whether it already was.
        replay: bool,
        at: Millis,
        /// Until when duplicates get it.
        expires: Millis,
        /// When the key was first claimed.
        first_seen: Millis,
        /// The source of the effect, as its claim named it.
        source: Option<Source>,
    },
    /// The same holder sealed something else before.
    SealConflict {
        /// The effect that it sealed.
        effect_id: String,
    },
    /// The token is not the one that may act.
    FencedOff {
        /// The token that may, if any.
        current: Option<Token>,
    },
    Renewed {
        lease_expires: Millis,
    },
    /// The key is free.
    Released {
        /// Whether it already was.
        replay: bool,
    },
    /// The doubt is gone.
    Resolved {
        /// Whether it already was.
        replay: bool,
    },
    /// The sealed outcome is given up.
    Forgotten {
        /// Whether it already was.
        replay: bool,
        /// Whether anything is known under the key.
        exists: bool,
    },
    /// There is no doubt to resolve.
    NotInDoubt,
    /// The name stands for the effect.
    Aliased {
        /// Whether it already did.
        replay: bool,
        /// The name and its receipt.
        alias: Arc<Alias>,
    },
    /// A name may stand for a sealed effect only.
    NotSealed,
}

impl Reply {
    /// The word for the decision, in logs, metrics and answers.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::New(_) => "new",
            Self::Duplicate { .. } => "duplicate",
            Self::InFlight { .. } => "in_flight",
            Self::Conflict(_) | Self::SealConflict { .. } => "conflict",
            Self::Stale { .. } => "stale",
            Self::Incomparable { .. } => "incomparable",
            Self::InDoubt { .. } => "in_doubt",
            Self::SequenceGap { .. } => "sequence_gap",
            Self::Sealed { .. } => "sealed",
            Self::FencedOff { .. } => "fenced_off",
            Self::Renewed { .. } => "renewed",
            Self::Released { .. } => "released",
            Self::Resolved { .. } => "resolved",
            Self::Forgotten { .. } => "forgotten",
            Self::NotInDoubt => "not_in_doubt",
            Self::Aliased { .. } => "aliased",
            Self::NotSealed => "not_sealed",
        }
    }
}

impl Reply {
    // INVARIANT told-doubt, final-refusal: the writes of a refusal are durable before any caller is told of it.
    pub(crate) fn outlives_rollback(&self) -> bool {
        matches!(self, Self::InDoubt { .. } | Self::FencedOff { .. })
    }

    /// The sighting that an explanation counts for a reply that wrote nothing; none where the fence itself records it.
    pub fn sighting(&self) -> Option<Sighting> {
        match self {
            Self::Duplicate { body_differs: false, .. } => Some(Sighting::Duplicate),
            Self::Duplicate { body_differs: true, .. } => Some(Sighting::OtherBody),
            Self::Conflict(_) => Some(Sighting::Conflict),
            Self::InFlight { .. } => Some(Sighting::InFlight),
            Self::Stale { .. } => Some(Sighting::Stale),
            Self::InDoubt { .. } => Some(Sighting::InDoubt),
            Self::New(_)
            | Self::Incomparable { .. }
            | Self::SequenceGap { .. }
            | Self::Sealed { .. }
            | Self::SealConflict { .. }
            | Self::FencedOff { .. }
            | Self::Renewed { .. }
            | Self::Released { .. }
            | Self::Resolved { .. }
            | Self::Forgotten { .. }
            | Self::NotInDoubt
            | Self::Aliased { .. }
            | Self::NotSealed => None,
        }
    }
}

/// See [`Reply::New`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Must be shown at seal, renew and release.
    pub token: Token,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// An earlier attempt whose outcome is unknown.
    pub recovering: Option<Earlier>,
    pub lease_expires: Millis,
    /// When the key was first claimed.
    pub first_seen: Millis,
}

/// The latest attempt that lapsed. Still reported after later holders gave up: their release says nothing of its
/// outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    pub token: Token,
    /// Which attempt it was, as far back as the fence's events reach.
    pub attempt: u32,
    /// When its lease ran out; where others gave up in between, when that was first noticed.
    pub lease_expired: Millis,
}

/// Both sides of a conflict; `diff::between` explains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The body of the first request under this key.
    pub first: Body,
    /// The body of this request.
    pub second: Body,
    /// The effect that the first request was sealed with, once it is.
    pub effect_id: Option<String>,
}
