//! The rows of a fence, and its state at a given time.
//! Never decides: `claim`, `seal` and `again` do.

mod again;
pub mod body;
mod claim;
mod command;
mod decide;
pub mod diff;
mod forget;
mod key;
mod reply;
pub mod scope;
mod seal;
mod version;

use std::sync::Arc;

use bytes::Bytes;

use self::scope::OnLapse;
pub use self::{
    body::Body,
    command::{ClaimFence, Command, DoubtOutcome, Forget, Observe, PutAlias, Release, Renew, Resolve, Seal},
    key::{FenceKey, Field, Hex, Target, WrongFields},
    reply::{Earlier, Granted, Mismatch, Reply},
    scope::Scope,
    version::Version,
};
pub(crate) use self::{
    claim::claim,
    decide::{decide, fence_of, follow, footprint, row_lock},
    seal::seal_claimed,
};
use crate::{
    key::{Kind, RowKey, Tenant},
    row::{self, Ids, KindSpec, Needs, OnDrop},
    time::Millis,
};

/// Fences come first in a backup: a version head that was read later is never older than the fences under it, so a
/// restored store cannot let an older version pass.
pub(crate) const KINDS: &[KindSpec] = &[
    spec(Kind::Fence, ("fence", "fences"), true, 0, Needs::OneRow),
    spec(Kind::VersionHead, ("version head", "version heads"), false, 1, Needs::ManyRows),
    spec(Kind::AgainHead, ("repetition head", "repetition heads"), true, 2, Needs::ManyRows),
    spec(Kind::Alias, ("alias", "aliases"), false, 3, Needs::OneRow),
    spec(Kind::Trace, ("trace", "traces"), true, 4, Needs::OneRow),
];

const fn spec(
    kind: Kind,
    names: (&'static str, &'static str),
    swept: bool,
    backup_place: u8,
    needs: Needs,
) -> KindSpec {
    KindSpec {
        kind,
        names,
        swept,
        backup_place: Some(backup_place),
        cached: true,
        needs,
        ids: Ids::Digests,
        merged: false,
        on_drop: OnDrop::Lock,
        since_format: 1,
    }
}

/// The right to act under a fence. Grows with every claim of a key, across expiry, release and restore.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// The source of an effect, as its claimant names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The kind of source.
    pub kind: String,
    pub id: String,
}

/// The W3C trace id of a request, as its 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HolderTrace(pub [u8; 16]);

/// The recorded outcome, which every later duplicate gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    pub effect_id: String,
    /// The exact bytes that were sealed.
    pub body: Bytes,
}

/// Where a fence stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Somebody holds a claim, or held one that lapsed.
    Pending {
        /// When the holder's lease runs out.
        lease_expires: Millis,
        /// Whether a lapsed claim may be run again or waits for a person.
        on_lapse: OnLapse,
        /// When a lapsed claim is forgotten; never, where a lapse is a doubt.
        forget_at: Option<Millis>,
        /// When a caller was first told that it is in doubt. From then on it is, even by a clock that is behind.
        doubted_at: Option<Millis>,
        /// The trace of the request that claimed it, where it had one: shown to other callers while the key is held.
        held_by: Option<HolderTrace>,
    },
    Sealed {
        /// Sent to duplicates.
        receipt: Receipt,
        at: Millis,
        /// When the key becomes free again.
        expires: Millis,
    },
    /// The holder gave the key back.
    Released {
        at: Millis,
        /// When its attempts are forgotten.
        expires: Millis,
    },
}

/// A step in a fence's life, beyond its first claim and its seal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FenceEvent {
    pub at: Millis,
    /// By which token; for [`What::Recovered`], the token of the attempt that lapsed.
    pub token: Token,
    pub what: What,
}

/// The kinds of [`FenceEvent`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The holder gave the key back.
    Released,
    /// A new attempt began after a release.
    Retried,
    /// A new attempt began while the outcome of an earlier one was unknown.
    Recovered,
    /// The current holder sealed although its lease had run out.
    SealedLate,
    /// An old holder tried to seal, and was refused.
    SealRefused,
    /// A person resolved a doubt.
    Resolved {
        by: String,
        why: String,
        /// Whether the effect was declared done.
        sealed: bool,
    },
    /// A person gave up what was sealed or released.
    Forgotten {
        by: String,
        /// The person's reason.
        why: String,
        /// When it had been sealed; none where it had been released.
        sealed: Option<Millis>,
    },
}

impl What {
    /// Whether a person said it.
    pub fn is_by_person(&self) -> bool {
        match self {
            Self::Resolved { .. } | Self::Forgotten { .. } => true,
            Self::Released | Self::Retried | Self::Recovered | Self::SealedLate | Self::SealRefused => false,
        }
    }
}

/// How many events a fence keeps.
pub const EVENTS_MAX: usize = 24;
/// How many refused seals a fence records; a hostile holder cannot make it write for ever.
pub const REFUSALS_MAX: usize = 4;

/// The record under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    pub tenant: Tenant,
    /// Its scope's name.
    pub scope: Arc<str>,
    /// Its key fields, sorted by name. Shared: a fence is copied at every step of its life.
    pub fields: Arc<[Field]>,
    /// Which repetition it is.
    pub seq: Option<u64>,
    /// When this life of the key began.
    pub first_seen: Millis,
    /// The token of the latest claim.
    pub token: Token,
    /// How many claims this life has seen.
    pub attempt: u32,
    /// The first body, where one was sent.
    pub body: Option<Body>,
    pub source: Option<Source>,
    /// The version it carries, and where that is kept once sealed.
    pub version: Option<(Version, RowKey)>,
    /// Where it stands.
    pub state: State,
    /// Oldest first.
    pub events: Vec<FenceEvent>,
}

/// Where a fence stands at a given time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Claimed, within its lease.
    Pending,
    /// The lease ran out; the next claimant may run.
    Lapsed,
    /// The lease ran out; a person must decide.
    InDoubt,
    Sealed,
    Released,
    /// As if it had never been.
    Expired,
}

impl Phase {
    /// The word for it on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Lapsed => "lapsed",
            Self::InDoubt => "in_doubt",
            Self::Sealed => "sealed",
            Self::Released => "released",
            Self::Expired => "expired",
        }
    }
}

impl Fence {
    /// Where the fence stands at `now`.
    pub fn phase(&self, now: Millis) -> Phase {
        if self.expires_at().is_some_and(|expires| expires <= now) {
            return Phase::Expired;
        }
        match &self.state {
            // Over for good, see `over`: also for a node whose time is behind.
            State::Released { at, expires } if at == expires => Phase::Expired,
            State::Pending { doubted_at: Some(_), .. } => Phase::InDoubt,
            State::Pending { lease_expires, .. } if now < *lease_expires => Phase::Pending,
            State::Pending { on_lapse: OnLapse::Recover, .. } => Phase::Lapsed,
            State::Pending { on_lapse: OnLapse::Hold, .. } => Phase::InDoubt,
            State::Sealed { .. } => Phase::Sealed,
            State::Released { .. } => Phase::Released,
        }
    }

    /// The id of the effect, once it is sealed.
    pub fn effect_id(&self) -> Option<&str> {
        match &self.state {
            State::Sealed { receipt, .. } => Some(&receipt.effect_id),
            State::Pending { .. } | State::Released { .. } => None,
        }
    }

    /// When the fence vanishes by itself. A claim that may become a doubt never does.
    pub fn expires_at(&self) -> Option<Millis> {
        match &self.state {
            State::Pending { forget_at, .. } => *forget_at,
            State::Sealed { expires, .. } | State::Released { expires, .. } => Some(*expires),
        }
    }

    /// The time at which a claim becomes a doubt unless its holder ends it: the end of its lease.
    pub fn due_at(&self) -> Option<Millis> {
        match &self.state {
            State::Pending { lease_expires, on_lapse: OnLapse::Hold, .. } => Some(*lease_expires),
            _ => None,
        }
    }

    /// The same claim as one that is over for good, for a decision that relies on its being forgotten: a write of its
    /// holder that was decided before then cannot land after. None where no such write is possible.
    pub(crate) fn over(&self) -> Option<Self> {
        match self.state {
            State::Pending { forget_at: Some(over), .. } => {
                Some(Self { state: State::Released { at: over, expires: over }, ..self.clone() })
            }
            _ => None,
        }
    }

    fn latest_at(&self) -> Millis {
        let state = match &self.state {
            State::Pending { .. } => Millis(0),
            State::Sealed { at, .. } | State::Released { at, .. } => *at,
        };
        // The fence's own token is the highest that was given; a refused seal may have shown any other.
        let events = self.events.iter().map(|event| event.at);
        events.fold(state.max(self.first_seen).max(Millis(self.token.0)), Millis::max)
    }

    fn weight_bytes(&self) -> usize {
        let receipt = match &self.state {
            State::Sealed { receipt, .. } => receipt.effect_id.len() + receipt.body.len(),
            State::Pending { .. } | State::Released { .. } => 0,
        };
        let kept = self.body.as_ref().and_then(|body| body.kept.as_ref()).map_or(0, |kept| kept.len());
        let fields: usize = self.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        let source = self.source.as_ref().map_or(0, |source| source.kind.len() + source.id.len());
        let version = self.version.as_ref().map_or(0, |(version, _)| version.weight_bytes());
        let words = |event: &FenceEvent| match &event.what {
            What::Resolved { by, why, .. } | What::Forgotten { by, why, .. } => by.len() + why.len(),
            What::Released | What::Retried | What::Recovered | What::SealedLate | What::SealRefused => 0,
        };
        receipt + kept + fields + source + version + self.events.iter().map(words).sum::<usize>()
    }

    /// Adds an event; the oldest leave when there are too many, a person's word last of all.
    /// One that follows the seal is dated at least a millisecond after it: so a history shows the two in their order.
    pub(crate) fn record(&mut self, at: Millis, token: Token, what: What) {
        let at = match self.state {
            State::Sealed { at: sealed, .. } => at.max(sealed.plus(1)),
            State::Pending { .. } | State::Released { .. } => at,
        };
        if self.events.len() >= EVENTS_MAX {
            let oldest = self.events.iter().position(|event| !event.what.is_by_person());
            self.events.remove(oldest.unwrap_or(0));
        }
        self.events.push(FenceEvent { at, token, what });
    }
}

/// When a fence that rests from `at` on is forgotten: one retention later, but never before the clock has passed its
/// token. Only so is the time alone a token higher than all before it once the row is gone.
pub(crate) fn forgotten_at(token: Token, at: Millis, retain_ms: u64) -> Millis {
    at.plus(retain_ms).max(Millis(token.0.saturating_add(1)))
}

/// The last sealed version of a source. Outlives its fences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionHead {
    /// The highest version sealed so far.
    pub version: Version,
}

/// The last deliberate repetition of an effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgainHead {
    /// The highest sequence number claimed.
    pub last: u64,
    /// Whether that one is sealed.
    pub sealed: bool,
    /// When the sequence is forgotten; never while its last repetition is under way.
    pub expires: Option<Millis>,
}

/// A name that stands for a sealed fence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    pub tenant: Tenant,
    pub name: String,
    /// The scope of the effect it stands for.
    pub scope: String,
    /// The fence it stands for.
    pub target: FenceKey,
    /// Copied from the fence: a name outlives the fence's retention.
    pub receipt: Receipt,
    /// When the name last moved.
    pub at: Millis,
}

/// Approximate counts of decisions that wrote nothing. Flushed lazily: a duplicate never costs a sync.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The life of the key that this belongs to.
    pub first_seen: Millis,
    /// Duplicates answered.
    pub replays: u64,
    /// Conflicts refused.
    pub conflicts: u64,
    /// How many of the duplicates had another body than the first: their scope lets that pass.
    pub body_mismatches: u64,
    /// The latest sightings, oldest first.
    pub recent: Vec<(Millis, Sighting)>,
    /// When it goes, with its fence.
    pub expires: Option<Millis>,
}

/// A decision that only read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Sighting {
    /// The receipt was replayed.
    Duplicate = 1,
    /// Another body was refused.
    Conflict = 2,
    /// Somebody else held the claim.
    InFlight = 3,
    /// An older version was refused.
    Stale = 4,
    /// A person must decide first.
    InDoubt = 5,
    /// The receipt was replayed to another body.
    OtherBody = 6,
}

/// How many sightings a trace keeps.
pub const SIGHTINGS_MAX: usize = 16;

/// A row that belongs to fences.
// Nearly every record is a fence: a box would cost an allocation on each read and save nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// See [`Fence`]. Shared: it is read far more often than it changes.
    Fence(Arc<Fence>),
    VersionHead(VersionHead),
    AgainHead(AgainHead),
    /// See [`Alias`]. Shared because it is large: every record takes the room of the largest.
    Alias(Arc<Alias>),
    Trace(Arc<Trace>),
}

impl From<Record> for row::Record {
    fn from(record: Record) -> Self {
        Self::Fence(record)
    }
}

impl From<Fence> for row::Record {
    fn from(fence: Fence) -> Self {
        Record::Fence(Arc::new(fence)).into()
    }
}

impl Record {
    pub(crate) fn expires_at(&self) -> Option<Millis> {
        match self {
            Self::Fence(fence) => fence.expires_at(),
            Self::AgainHead(head) => head.expires,
            Self::Trace(trace) => trace.expires,
            Self::VersionHead(_) | Self::Alias(_) => None,
        }
    }

    pub(crate) fn due_at(&self) -> Option<Millis> {
        match self {
            Self::Fence(fence) => fence.due_at(),
            Self::VersionHead(_) | Self::AgainHead(_) | Self::Alias(_) | Self::Trace(_) => None,
        }
    }

    pub(crate) fn latest_at(&self) -> Millis {
        match self {
            Self::Fence(fence) => fence.latest_at(),
            Self::Alias(alias) => alias.at,
            Self::Trace(trace) => trace.recent.iter().map(|(at, _)| *at).max().unwrap_or(trace.first_seen),
            Self::VersionHead(_) | Self::AgainHead(_) => Millis(0),
        }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Fence(fence) => fence.weight_bytes(),
            Self::VersionHead(head) => head.version.weight_bytes(),
            Self::Alias(alias) => alias.receipt.body.len(),
            Self::AgainHead(_) | Self::Trace(_) => 0,
        }
    }
}

impl row::Record {
    pub fn as_fence(&self) -> Option<&Arc<Fence>> {
        if let Self::Fence(Record::Fence(found)) = self { Some(found) } else { None }
    }

    /// The version head, where it is one.
    pub fn as_version_head(&self) -> Option<&VersionHead> {
        if let Self::Fence(Record::VersionHead(found)) = self { Some(found) } else { None }
    }

    /// The repetition head, where it is one.
    pub fn as_again_head(&self) -> Option<&AgainHead> {
        if let Self::Fence(Record::AgainHead(found)) = self { Some(found) } else { None }
    }

    pub fn as_alias(&self) -> Option<&Arc<Alias>> {
        if let Self::Fence(Record::Alias(found)) = self { Some(found) } else { None }
    }

    pub fn as_trace(&self) -> Option<&Arc<Trace>> {
        if let Self::Fence(Record::Trace(found)) = self { Some(found) } else { None }
    }
}
