//! What may be asked of the kernel, and what it answers.

mod lanes;

use std::sync::Arc;

use bytes::Bytes;

pub use lanes::{Act, Failure, LetterVerdict, Members, OnLane, OnLetter, Publish, PutRoute};

use crate::{
    body::Body,
    fence::{Alias, Fence, HolderTrace, Record, Sighting, Source, Token},
    key::{LaneId, RowKey, Target, Tenant},
    lane::{Append, DeadLetter, Lane, Original, placed},
    merge::Merge,
    time::Millis,
    version::Version,
};

/// One request for a decision.
#[derive(Clone, Debug)]
pub enum Command {
    /// Asks for the right to act.
    Claim(Claim),
    /// Records the outcome.
    Seal(Seal),
    /// Asks for more time.
    Renew(Renew),
    /// Gives the right back: nothing happened.
    Release(Release),
    /// A person's word on a doubt.
    Resolve(Resolve),
    /// Points a name at a sealed effect.
    PutAlias(PutAlias),
    /// Adds lazily kept counts to a fence.
    Observe(Observe),
    /// Drops a row whose time is over.
    Sweep(RowKey),
    /// Puts an event at the end of its lane, once.
    Publish(Box<Publish>),
    /// Says where the events of a warehouse go.
    PutRoute(Box<PutRoute>),
    /// Something that happens to a lane.
    Lane(Box<OnLane>),
    /// A person's word on a dead letter.
    Letter(Box<OnLetter>),
    /// Forgets words from other nodes that were heard.
    Heard(Vec<RowKey>),
}

/// See [`Command::Claim`].
#[derive(Clone, Debug)]
pub struct Claim {
    /// The fence.
    pub target: Target,
    /// What the effect is asked with, for comparing.
    pub body: Option<Body>,
    /// The version of the source, where given.
    pub version: Option<Version>,
    /// What the effect comes from.
    pub source: Option<Source>,
    /// The lease asked for, already within the scope's bounds.
    pub lease_ms: u64,
    /// The trace of the request, where it has one.
    pub trace: Option<HolderTrace>,
}

/// See [`Command::Seal`].
#[derive(Clone, Debug)]
pub struct Seal {
    /// The fence.
    pub target: Target,
    /// The right to act.
    pub token: Token,
    /// The id of the effect.
    pub effect_id: String,
    /// The bytes that duplicates get.
    pub receipt: Bytes,
}

/// See [`Command::Renew`].
#[derive(Clone, Debug)]
pub struct Renew {
    /// The fence.
    pub target: Target,
    /// The right to act.
    pub token: Token,
    /// The new lease, counted from now.
    pub lease_ms: u64,
}

/// See [`Command::Release`].
#[derive(Clone, Debug)]
pub struct Release {
    /// The fence.
    pub target: Target,
    /// The right to act.
    pub token: Token,
}

/// See [`Command::Resolve`].
#[derive(Clone, Debug)]
pub struct Resolve {
    /// The fence.
    pub target: Target,
    /// Which attempt the doubt is about, where the person says so: a late repeat then never meets a later doubt.
    pub token: Option<Token>,
    /// What the person found.
    pub outcome: Outcome,
    /// Who says so.
    pub by: String,
    /// Their reason.
    pub why: String,
}

/// What a person found out about a doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The effect happened.
    Sealed {
        /// Its id.
        effect_id: String,
        /// What duplicates get.
        receipt: Bytes,
    },
    /// It did not; the next claimant may run.
    Released,
}

/// See [`Command::PutAlias`].
#[derive(Clone, Debug)]
pub struct PutAlias {
    /// The name.
    pub name: String,
    /// The fence it shall stand for.
    pub target: Target,
}

/// See [`Command::Observe`].
#[derive(Clone, Debug)]
pub struct Observe {
    /// The fence.
    pub key: crate::FenceKey,
    /// Duplicates since the last flush.
    pub replays: u64,
    /// Conflicts since the last flush.
    pub conflicts: u64,
    /// How many of the duplicates had another body than the first, since the last flush.
    pub body_mismatches: u64,
    /// The latest of all these, oldest first.
    pub recent: Vec<(Millis, Sighting)>,
}

/// Which write gave a row its present content: chosen by the writer, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CommitId(pub u64);

/// A record with the write that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The content.
    pub record: Record,
    /// The write that made it.
    pub revision: CommitId,
}

/// What a decision may look at: the rows of its footprint, loaded before.
pub trait Rows {
    /// The row under a key, if there is one.
    fn row(&self, key: &RowKey) -> Option<&Row>;
}

/// One change, valid only while the row is as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which row.
    pub key: RowKey,
    /// The revision it was read at; none where it was absent.
    pub expect: Option<CommitId>,
    /// The new content; none removes the row.
    pub put: Option<Record>,
}

/// What stands or falls with a set of writes, beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Also {
    /// Rows that must still be as they were read, and are left alone.
    pub held: Vec<(RowKey, Option<CommitId>)>,
    /// What the store computes when it commits, in this order.
    pub merges: Vec<Merge>,
    /// Rows that go, whatever they hold.
    pub drops: Vec<RowKey>,
    /// Lanes that who drives them must look at once this is durable, however the asker fares. Not for the store.
    pub news: Vec<LaneId>,
}

impl Also {
    /// Whether there is nothing for the store.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.merges.is_empty() && self.drops.is_empty()
    }

    /// The entries among the merges, in their order.
    pub fn appends(&self) -> impl Iterator<Item = &Append> {
        self.merges.iter().filter_map(|merge| match merge {
            Merge::Append(append) => Some(append),
            Merge::Add { .. } => None,
        })
    }
}

/// What follows from a command: first the writes, and only then the reply.
#[derive(Clone, Debug)]
pub struct Decision {
    /// All or nothing.
    pub writes: Vec<Write>,
    /// And this with them.
    pub also: Also,
    /// For the asker, once the writes are durable.
    pub reply: Reply,
}

impl Decision {
    pub(crate) fn reply(reply: Reply) -> Self {
        Self::new(Vec::new(), reply)
    }

    pub(crate) fn new(writes: Vec<Write>, reply: Reply) -> Self {
        Self { writes, also: Also::default(), reply }
    }

    /// Whether it changes nothing: then it needs no commit.
    pub fn only_answers(&self) -> bool {
        self.writes.is_empty() && self.also.drops.is_empty()
    }
}

/// What the asker hears. A refusal is a reply, not an error.
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
    /// Somebody else is acting.
    InFlight {
        /// When their lease runs out.
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
        /// That version.
        sealed_version: Version,
    },
    /// The version does not compare with the sealed one.
    Incomparable {
        /// That version.
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
        /// When.
        at: Millis,
        /// Until when duplicates get it.
        expires: Millis,
        /// When the key was first claimed.
        first_seen: Millis,
        /// What the effect comes from, as its claim named it.
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
    /// More time.
    Renewed {
        /// Until when.
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
    /// Housekeeping; nobody listens.
    Done,
    /// The event is in its lane.
    Published {
        /// The lane's name.
        lane: String,
        /// Its position, once it is known.
        seq: u64,
        /// What became of the event that it cancels.
        original: Option<Original>,
        /// Until when a repetition is known as one.
        expires: Millis,
    },
    /// The warehouse has no transport.
    NoRoute,
    /// What it cancels was never published.
    UnknownOriginal,
    /// The transport is as asked for.
    Routed {
        /// Whether it already was.
        replay: bool,
    },
    /// Events are still on their way over the transport that is to be left.
    NotDrained {
        /// The lane.
        lane: LaneId,
        /// Its last position.
        tail: u64,
        /// Everything up to here is settled.
        settled: u64,
    },
    /// How the lane stands after what happened to it.
    OnLane {
        /// The lane.
        lane: Arc<Lane>,
        /// Whether nothing changed.
        replay: bool,
        /// The letter that came of it.
        died: Option<Arc<DeadLetter>>,
    },
    /// There is no such lane, or none at that position.
    NoLane,
    /// Not the head of the lane.
    NotHead {
        /// Everything up to here is settled.
        settled: u64,
    },
    /// The position is past the lane's end.
    Ahead {
        /// The last one.
        tail: u64,
    },
    /// Another node drives the lane by now.
    LaneLost,
    /// There is no such letter.
    NoLetter,
    /// The letter's event was cancelled.
    LetterCancelled {
        /// By which event.
        by: String,
    },
    /// The receiver no longer remembers whether it has seen the event.
    PastRetention {
        /// How long it remembers.
        receiver_retain_ms: u64,
    },
    /// Somebody has decided otherwise.
    LetterDecided(Arc<DeadLetter>),
    /// What became of the letter.
    Letter {
        /// The letter.
        letter: Arc<DeadLetter>,
        /// Whether it already was so.
        replay: bool,
    },
}

impl Reply {
    /// The same reply with the position that the store has given.
    pub fn placed(mut self, seq: u64) -> Self {
        match &mut self {
            Self::Published { seq: place, .. } => *place = seq,
            Self::Letter { letter, .. } => {
                if let Record::DeadLetter(told) = placed(&Record::DeadLetter(letter.clone()), seq) {
                    *letter = told;
                }
            }
            _ => {}
        }
        self
    }
}

/// See [`Reply::New`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Must be shown at seal, renew and release.
    pub token: Token,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What is known of an earlier attempt whose outcome nobody knows.
    pub recovering: Option<Earlier>,
    /// When the right runs out.
    pub lease_expires: Millis,
    /// When the key was first claimed.
    pub first_seen: Millis,
}

/// The latest attempt that lapsed. Still told after others gave up in between: they said nothing of its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Its token.
    pub token: Token,
    /// Which attempt it was, as far back as the fence's events reach.
    pub attempt: u32,
    /// When its lease ran out; where others gave up in between, when that was first noticed.
    pub lease_expired: Millis,
}

/// Both sides of a conflict; `diff::between` explains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What the key was first used with.
    pub first: Body,
    /// What it was used with now.
    pub second: Body,
    /// The effect that the first request was sealed with, once it is.
    pub effect_id: Option<String>,
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
            Self::NotInDoubt => "not_in_doubt",
            Self::Aliased { .. } => "aliased",
            Self::NotSealed => "not_sealed",
            Self::Done => "done",
            Self::Published { .. } => "published",
            Self::NoRoute => "no_transport",
            Self::UnknownOriginal => "unknown_original",
            Self::Routed { .. } => "routed",
            Self::NotDrained { .. } => "not_drained",
            Self::OnLane { .. } => "lane",
            Self::NoLane => "no_lane",
            Self::NotHead { .. } => "not_head",
            Self::Ahead { .. } => "ahead",
            Self::LaneLost => "lane_lost",
            Self::NoLetter => "no_letter",
            Self::LetterCancelled { .. } => "letter_cancelled",
            Self::PastRetention { .. } => "past_retention",
            Self::LetterDecided(_) => "letter_decided",
            Self::Letter { letter, .. } => letter.fate.name(),
        }
    }
}

impl Command {
    /// What the command brings to a commit, roughly: the bytes whose number a client chose.
    pub fn weight_bytes(&self) -> usize {
        let kept = |claim: &Claim| claim.body.as_ref().and_then(|body| body.kept.as_ref()).map_or(0, Bytes::len);
        match self {
            Self::Claim(claim) => kept(claim),
            Self::Seal(seal) => seal.effect_id.len() + seal.receipt.len(),
            Self::Resolve(Resolve { outcome: Outcome::Sealed { effect_id, receipt }, .. }) => {
                effect_id.len() + receipt.len()
            }
            Self::Publish(publish) => kept(&publish.claim) + publish.entry.body.len(),
            Self::Heard(words) => words.len() * size_of::<RowKey>(),
            Self::Resolve(_)
            | Self::Renew(_)
            | Self::Release(_)
            | Self::PutAlias(_)
            | Self::Observe(_)
            | Self::Sweep(_)
            | Self::PutRoute(_)
            | Self::Lane(_)
            | Self::Letter(_) => 0,
        }
    }

    /// Whose fence the command is about; none for housekeeping.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.target().map(|target| &target.tenant)
    }

    /// The fence that the command is about; none for housekeeping.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Claim(Claim { target, .. })
            | Self::Seal(Seal { target, .. })
            | Self::Renew(Renew { target, .. })
            | Self::Release(Release { target, .. })
            | Self::Resolve(Resolve { target, .. })
            | Self::PutAlias(PutAlias { target, .. }) => Some(target),
            Self::Publish(publish) => Some(&publish.claim.target),
            Self::Observe(_)
            | Self::Sweep(_)
            | Self::PutRoute(_)
            | Self::Lane(_)
            | Self::Letter(_)
            | Self::Heard(_) => None,
        }
    }
}
