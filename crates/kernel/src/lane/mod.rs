//! The rows of lanes, and a lane's state at a given time.
//! Never decides: `acts` and `append` do. The order of a lane is its positions: 1, 2, 3, without a gap.

mod acts;
mod append;
mod command;
pub mod cursor;
mod id;
mod reply;
pub mod retry;

use std::sync::Arc;

use bytes::Bytes;

pub(crate) use self::{
    acts::{decide, follow, footprint, subject, trim},
    append::{End, append, follow_append, tell},
};
pub use self::{
    append::{Append, Driving},
    command::{Act, AttemptFailure, Command, Members, OnLane},
    id::LaneId,
    reply::Reply,
};
use crate::{
    key::{Kind, RowKey, Tenant},
    row::{self, Ids, KindSpec, Needs, OnDrop, Rows},
    time::Millis,
};

/// In a backup the entries of a lane come before its tail, and its state before both. Notices between nodes expire
/// within moments and are left out.
pub(crate) const KINDS: &[KindSpec] = &[
    KindSpec { backup_place: Some(6), ..spec(Kind::Lane, ("lane", "lanes"), Ids::FewRanges) },
    // Entries are read in pages, and mostly by the process that wrote them: in a cache they would push out rows that
    // are read again.
    KindSpec {
        backup_place: Some(7),
        cached: false,
        on_drop: OnDrop::Blind,
        ..spec(Kind::Entry, ("event", "events"), Ids::Ranges)
    },
    KindSpec { backup_place: Some(8), merged: true, ..spec(Kind::Tail, ("lane end", "lane ends"), Ids::Ranges) },
    KindSpec {
        backup_place: Some(9),
        swept: true,
        ..spec(Kind::DeadLetter, ("dead letter", "dead letters"), Ids::FewRanges)
    },
    KindSpec {
        backup_place: Some(10),
        swept: true,
        ..spec(Kind::Cancelled, ("cancellation", "cancellations"), Ids::Ranges)
    },
    KindSpec {
        on_drop: OnDrop::SkipHeld,
        ..spec(Kind::LaneNotice, ("word between nodes", "words between nodes"), Ids::FewRanges)
    },
];

pub(crate) const fn spec(kind: Kind, names: (&'static str, &'static str), ids: Ids) -> KindSpec {
    KindSpec {
        kind,
        names,
        swept: false,
        backup_place: None,
        cached: true,
        needs: Needs::Lanes,
        ids,
        merged: false,
        on_drop: OnDrop::Lock,
        since_format: 1,
    }
}

/// How much of a receiver's answer is kept for a person.
pub const NOTE_BYTES_MAX: usize = 512;

/// A kind of lanes. A capability declares those of its own, and the table in `row` lists them.
#[derive(PartialEq, Eq, Debug)]
pub struct LaneKind {
    /// Its number in stored rows.
    pub number: u8,
    /// Its word in the addresses of its lanes, which no other kind has.
    pub word: &'static str,
    /// The part of its lanes' names between the tenant and the id.
    pub prefix: &'static str,
    /// Whether receivers fetch the entries themselves, so that no node drives its lanes.
    pub polled: bool,
}

/// The receiver of a lane's entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LanePurpose {
    pub kind: &'static LaneKind,
    /// Names the receiver among those of the tenant and the kind.
    pub id: String,
}

impl LanePurpose {
    /// Whether its receiver fetches the entries itself, so that no node drives its lane.
    pub fn is_polled(&self) -> bool {
        self.kind.polled
    }

    pub fn lane(&self, tenant: &Tenant) -> LaneId {
        LaneId::of(tenant, &[self.kind.word, &self.id])
    }

    /// The name of that lane, for people and on the wire.
    pub fn name(&self, tenant: &Tenant) -> String {
        format!("{tenant}:{}{}", self.kind.prefix, self.id)
    }
}

/// Whether a lane goes on after a dead letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum AfterDead {
    /// The next event of the lane.
    #[default]
    Continue = 1,
    /// Nothing, until a person has decided.
    Block = 2,
}

/// The node that drives a lane. On a store of one process it never changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The node; empty where there is only one.
    pub node: String,
    /// Grows with every change of owner: a late act of an earlier owner does not count.
    pub epoch: u64,
}

/// A receiver's answer, or the fault that kept it from answering.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceiverAnswer {
    pub status: Option<u16>,
    /// The beginning of the answer, or the fault, for a person.
    pub note: String,
}

impl ReceiverAnswer {
    /// An answer whose note is cut to the kept length.
    pub fn new(status: Option<u16>, note: &str) -> Self {
        let mut end = note.len().min(NOTE_BYTES_MAX);
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        Self { status, note: note[..end].to_owned() }
    }
}

/// Failed attempts at the head of a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    pub attempts: u32,
    /// The time of the first: the horizon counts from here.
    pub first_at: Millis,
    /// The time of the last.
    pub last_at: Millis,
    /// When the next one is due.
    pub next_at: Millis,
    /// The answer to the last.
    pub answer: ReceiverAnswer,
}

/// Why a lane stands still although nothing is wrong with its head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    pub at: Millis,
    pub by: String,
    pub why: String,
}

impl Pause {
    /// The `by` of a pause that the receiver itself asked for, by answering 410.
    pub const BY_RECEIVER: &str = "receiver";

    /// Whether the receiver's answer paused the lane, and no person.
    pub fn is_by_receiver(&self) -> bool {
        self.by == Self::BY_RECEIVER
    }
}

/// The progress of a lane. Written by its driver and by people's acts; a publication writes the owner only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    pub tenant: Tenant,
    pub purpose: LanePurpose,
    pub owner: Owner,
    /// Everything up to here is acknowledged or dead.
    pub settled: u64,
    /// Everything up to here is gone from the store.
    pub trimmed: u64,
    /// Failures of the head, which is at `settled + 1`.
    pub trouble: Option<Trouble>,
    /// Whether a person, or a receiver that said it is gone, stopped it.
    pub paused: Option<Pause>,
    /// Whether the head is a dead letter that a person must decide about first.
    pub blocked: bool,
}

impl Lane {
    /// A lane that nothing has gone through yet.
    pub fn new(tenant: Tenant, purpose: LanePurpose) -> Self {
        let owner = Owner::default();
        Self { tenant, purpose, owner, settled: 0, trimmed: 0, trouble: None, paused: None, blocked: false }
    }

    /// The same, with the first epoch that belongs to its time.
    pub fn begun(tenant: Tenant, purpose: LanePurpose, at: Millis) -> Self {
        let owner = Owner { epoch: at.0, ..Owner::default() };
        Self { owner, ..Self::new(tenant, purpose) }
    }

    pub fn id(&self) -> LaneId {
        self.purpose.lane(&self.tenant)
    }

    pub fn name(&self) -> String {
        self.purpose.name(&self.tenant)
    }

    /// Whether nothing is sent, even if something is due.
    pub fn is_halted(&self) -> bool {
        self.blocked || self.paused.is_some()
    }
}

/// The last position of a lane. Only the store moves it, when it appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// The position of the last entry; 0 before the first.
    pub last: u64,
}

/// An event on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The publisher's id of it.
    pub correlation_id: String,
    /// Its kind, such as `SHIPPER_RELEASED`.
    pub kind: String,
    /// The thing that the entry is about; entries of one lane may be about several.
    pub subject: String,
    /// The exact bytes that were published.
    pub body: Bytes,
    pub published: Millis,
    /// Where it died, where a person has sent it again: it is out of order then.
    pub redrive_of: Option<(LaneId, u64)>,
}

/// Why an event left its lane undelivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DeadLetterReason {
    /// It was tried until the horizon.
    Horizon = 1,
    /// No receiver of this kind takes one so large.
    TooLarge = 2,
    /// A person skipped it.
    Skipped = 3,
}

impl DeadLetterReason {
    pub const ALL: [Self; 3] = [Self::Horizon, Self::TooLarge, Self::Skipped];

    /// The word for it on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Horizon => "horizon",
            Self::TooLarge => "too_large",
            Self::Skipped => "skipped",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// No person has decided.
    Waiting,
    Redriven {
        at: Millis,
        by: String,
        /// The reason, where it had to be forced.
        why: Option<String>,
        /// Its new position.
        seq: u64,
    },
    Discarded {
        at: Millis,
        by: String,
        why: String,
    },
}

impl Fate {
    /// The word for it on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Redriven { .. } => "redriven",
            Self::Discarded { .. } => "discarded",
        }
    }
}

/// How long a letter is kept after a person has decided about it.
pub const DECIDED_RETAIN_MS: u64 = 30 * 24 * 3_600_000;

/// An event that left its lane undelivered. One that dies again after a redrive is the same letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    pub tenant: Tenant,
    /// The lane it left; the lane it is in again, once it was sent again.
    pub purpose: LanePurpose,
    pub entry: Arc<Entry>,
    pub reason: DeadLetterReason,
    /// How often it was tried.
    pub attempts: u32,
    /// The first attempt; its death where there was none.
    pub first_at: Millis,
    pub at: Millis,
    pub answer: ReceiverAnswer,
    /// The event that cancelled it.
    pub cancelled_by: Option<String>,
    pub fate: Fate,
    /// Whether its lane waits for a decision about it.
    pub blocks: bool,
}

impl DeadLetter {
    /// The same letter, sent again at this position.
    pub(crate) fn with_position(&self, seq: u64) -> Self {
        let mut letter = self.clone();
        if let Fate::Redriven { seq: place, .. } = &mut letter.fate {
            *place = seq;
        }
        letter
    }

    /// Whether a receiver that remembers so long may have had it and forgotten it: it may have seen the first attempt.
    pub fn forgotten(&self, receiver_retain_ms: u64, now: Millis) -> bool {
        self.attempts > 0 && now.since(self.first_at) > receiver_retain_ms
    }

    /// When it goes by itself: never while it waits for a person.
    pub fn expires_at(&self) -> Option<Millis> {
        match &self.fate {
            Fate::Waiting => None,
            Fate::Redriven { at, .. } | Fate::Discarded { at, .. } => Some(at.plus(DECIDED_RETAIN_MS)),
        }
    }
}

/// That an event was cancelled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cancelled {
    /// The event that did so.
    pub by: String,
    /// When this need not be remembered any more.
    pub expires: Millis,
}

/// A row of a lane. Large ones are shared: they are passed on far more often than they change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Lane(Arc<Lane>),
    Tail(Tail),
    Entry(Arc<Entry>),
    DeadLetter(Arc<DeadLetter>),
    /// A lane has something new.
    LaneNotice,
    Cancelled(Cancelled),
}

impl From<Record> for row::Record {
    fn from(record: Record) -> Self {
        Self::Lane(record)
    }
}

impl From<DeadLetter> for row::Record {
    fn from(letter: DeadLetter) -> Self {
        Record::DeadLetter(letter.into()).into()
    }
}

impl From<Lane> for row::Record {
    fn from(lane: Lane) -> Self {
        Record::Lane(lane.into()).into()
    }
}

impl Record {
    pub(crate) fn expires_at(&self) -> Option<Millis> {
        match self {
            Self::DeadLetter(letter) => letter.expires_at(),
            Self::Cancelled(cancelled) => Some(cancelled.expires),
            Self::Lane(_) | Self::Tail(_) | Self::Entry(_) | Self::LaneNotice => None,
        }
    }

    pub(crate) fn latest_at(&self) -> Millis {
        match self {
            Self::Entry(entry) => entry.published,
            Self::Lane(lane) => {
                let tried = lane.trouble.as_ref().map_or(Millis(0), |trouble| trouble.last_at);
                tried.max(lane.paused.as_ref().map_or(Millis(0), |pause| pause.at))
            }
            Self::DeadLetter(letter) => match &letter.fate {
                Fate::Waiting => letter.at,
                Fate::Redriven { at, .. } | Fate::Discarded { at, .. } => *at,
            },
            Self::Tail(_) | Self::Cancelled(_) | Self::LaneNotice => Millis(0),
        }
    }

    /// The row that waited for the position of its entry, with it.
    pub(crate) fn with_position(&self, seq: u64) -> Self {
        if let Self::DeadLetter(letter) = self {
            Self::DeadLetter(letter.with_position(seq).into())
        } else {
            self.clone()
        }
    }

    /// The position that the row was given.
    pub(crate) fn position(&self) -> Option<u64> {
        let Self::DeadLetter(letter) = self else { return None };
        match letter.fate {
            Fate::Redriven { seq, .. } => Some(seq),
            Fate::Waiting | Fate::Discarded { .. } => None,
        }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Entry(entry) => entry.body.len(),
            Self::DeadLetter(letter) => letter.entry.body.len(),
            Self::Lane(_) | Self::Tail(_) | Self::Cancelled(_) | Self::LaneNotice => 0,
        }
    }
}

pub(crate) fn lane_of(rows: &impl Rows, lane: LaneId) -> Option<&Arc<Lane>> {
    rows.row(&RowKey::lane(lane))?.record.as_lane()
}

pub(crate) fn letter_of(rows: &impl Rows, lane: LaneId, seq: u64) -> Option<&Arc<DeadLetter>> {
    rows.row(&RowKey::dead_letter(lane, seq))?.record.as_dead_letter()
}

pub(crate) fn entry_of(rows: &impl Rows, lane: LaneId, seq: u64) -> Option<&Arc<Entry>> {
    rows.row(&RowKey::entry(lane, seq))?.record.as_entry()
}

pub(crate) fn tail_of(rows: &impl Rows, lane: LaneId) -> u64 {
    rows.row(&RowKey::tail(lane)).and_then(|row| row.record.as_tail()).map_or(0, |tail| tail.last)
}

pub(crate) fn cancelled_by(rows: &impl Rows, lane: LaneId, seq: u64) -> Option<&str> {
    let marked = rows.row(&RowKey::cancelled(lane, seq)).and_then(|row| row.record.as_cancelled());
    marked.map(|cancelled| cancelled.by.as_str()).or_else(|| letter_of(rows, lane, seq)?.cancelled_by.as_deref())
}

// An event published into a paused lane was never tried. One that was there before may be on its way. Only the dates of one
// process tell which of the two it is: where nodes share the store, a pause may land long after its date, behind an event of a
// later date that was sent meanwhile. A lane without a node was driven by a single process, or by none.
pub(crate) fn came_after_pause(lane: &Lane, published: Millis) -> bool {
    lane.owner.node.is_empty() && lane.paused.as_ref().is_some_and(|pause| published > pause.at)
}

impl row::Record {
    pub fn as_lane(&self) -> Option<&Arc<Lane>> {
        if let Self::Lane(Record::Lane(found)) = self { Some(found) } else { None }
    }

    /// The end of a lane, where it is one.
    pub fn as_tail(&self) -> Option<&Tail> {
        if let Self::Lane(Record::Tail(found)) = self { Some(found) } else { None }
    }

    /// The event, where it is one.
    pub fn as_entry(&self) -> Option<&Arc<Entry>> {
        if let Self::Lane(Record::Entry(found)) = self { Some(found) } else { None }
    }

    /// The dead letter, where it is one.
    pub fn as_dead_letter(&self) -> Option<&Arc<DeadLetter>> {
        if let Self::Lane(Record::DeadLetter(found)) = self { Some(found) } else { None }
    }

    /// The cancellation, where it is one.
    pub fn as_cancelled(&self) -> Option<&Cancelled> {
        if let Self::Lane(Record::Cancelled(found)) = self { Some(found) } else { None }
    }
}
