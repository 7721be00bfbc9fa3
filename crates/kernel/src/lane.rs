//! The rows that lanes are made of, and what can be read off them at a given time.
//! Never decides: `dispatch` does. The order of a lane is its positions: 1, 2, 3, without a gap.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    fence::{Fence, Receipt, Record, State},
    json,
    key::{Kind, LaneId, RowKey, Tenant},
    row::{Ids, KindSpec, Needs},
    time::Millis,
};

/// What the table of kinds says of the rows of lanes. In a backup the entries of a lane come before its tail, and its state
/// before both. Words between nodes are about this moment only and stay behind.
pub(crate) const KINDS: &[KindSpec] = &[
    KindSpec { backup_place: Some(6), ..spec(Kind::Lane, ("lane", "lanes"), Ids::FewRanges) },
    // Entries are read in pages, and mostly by who wrote them: in a cache they would push out what is asked for again.
    KindSpec { backup_place: Some(7), cached: false, ..spec(Kind::Entry, ("event", "events"), Ids::Ranges) },
    KindSpec { backup_place: Some(8), ..spec(Kind::Tail, ("lane end", "lane ends"), Ids::Ranges) },
    KindSpec {
        backup_place: Some(9),
        swept: true,
        ..spec(Kind::DeadLetter, ("dead letter", "dead letters"), Ids::FewRanges)
    },
    spec(Kind::Poke, ("word between nodes", "words between nodes"), Ids::FewRanges),
];

pub(crate) const fn spec(kind: Kind, names: (&'static str, &'static str), ids: Ids) -> KindSpec {
    KindSpec { kind, names, swept: false, backup_place: None, cached: true, needs: Needs::Lanes, ids }
}

/// How much of a receiver's answer is kept for a person.
pub const NOTE_BYTES_MAX: usize = 512;

/// What a lane is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A warehouse whose events are pushed.
    Warehouse(String),
    /// An executor that polls, for all its warehouses.
    Executor(String),
}

impl Place {
    /// The lane that is for it.
    pub fn lane(&self, planner: &Tenant) -> LaneId {
        match self {
            Self::Warehouse(warehouse) => LaneId::warehouse(planner, warehouse),
            Self::Executor(executor) => LaneId::executor(planner, executor),
        }
    }

    /// The name of that lane, for people and on the wire.
    pub fn name(&self, planner: &Tenant) -> String {
        match self {
            Self::Warehouse(warehouse) => format!("{planner}:{warehouse}"),
            Self::Executor(executor) => format!("{planner}:poll:{executor}"),
        }
    }
}

/// How events reach an executor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Each event is posted.
    Webhook(Webhook),
    /// Each event is produced to a topic.
    Kafka {
        /// Its name.
        topic: String,
    },
    /// The executor comes for them.
    Poll,
}

impl Transport {
    /// The word for it on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Kafka { .. } => "kafka",
            Self::Poll => "poll",
        }
    }
}

/// Where events are posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhook {
    /// The address.
    pub url: String,
    /// What signs, the newest first; sealed, so that the store holds no secret.
    pub secrets: Vec<Bytes>,
    /// Whether the headers of Standard Webhooks are sent, too.
    pub standard: bool,
}

/// What follows a dead letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum AfterDead {
    /// The next event of the lane.
    #[default]
    Continue = 1,
    /// Nothing, until a person has decided.
    Block = 2,
}

/// Where the events of a warehouse go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Whose warehouse.
    pub planner: Tenant,
    /// Which.
    pub warehouse: String,
    /// Who works there.
    pub executor: String,
    /// How it is reached.
    pub transport: Transport,
    /// What follows a dead letter.
    pub after_dead: AfterDead,
    /// How long the receiver remembers what it has seen: a redrive later than that could run twice.
    pub receiver_retain_ms: u64,
    /// When it was last changed.
    pub at: Millis,
}

impl Route {
    /// What its lane is for.
    pub fn place(&self) -> Place {
        match self.transport {
            Transport::Poll => Place::Executor(self.executor.clone()),
            _ => Place::Warehouse(self.warehouse.clone()),
        }
    }

    /// Its lane.
    pub fn lane(&self) -> LaneId {
        self.place().lane(&self.planner)
    }
}

/// Who drives a lane. On a store of one process it never changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The node; empty where there is only one.
    pub node: String,
    /// Grows with every change of owner: what an earlier one says late does not count.
    pub epoch: u64,
}

/// What a receiver said, or what kept it from saying anything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// The status, where there was one.
    pub status: Option<u16>,
    /// The beginning of the answer, or the fault, for a person.
    pub note: String,
}

impl Answer {
    /// An answer whose note is cut to what is kept.
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
    /// How many.
    pub attempts: u32,
    /// The time of the first: the horizon counts from here.
    pub first_at: Millis,
    /// The time of the last.
    pub last_at: Millis,
    /// When the next one is due.
    pub next_at: Millis,
    /// What came of the last.
    pub answer: Answer,
}

/// Why a lane stands still although nothing is wrong with its head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Since when.
    pub at: Millis,
    /// Who says so.
    pub by: String,
    /// Their reason.
    pub why: String,
}

impl Pause {
    /// Who is named where the receiver paused its lane by its own answer, 410.
    pub const BY_RECEIVER: &str = "receiver";

    /// Whether the receiver's answer paused the lane, and no person.
    pub fn is_by_receiver(&self) -> bool {
        self.by == Self::BY_RECEIVER
    }
}

/// How far a lane has come. Written by who drives it, and by people; never by who publishes, but for the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Whose lane.
    pub planner: Tenant,
    /// What for.
    pub place: Place,
    /// Who drives it.
    pub owner: Owner,
    /// Everything up to here is acknowledged or dead.
    pub settled: u64,
    /// Everything up to here is gone from the store.
    pub trimmed: u64,
    /// What is wrong with the head, which is at `settled + 1`.
    pub trouble: Option<Trouble>,
    /// Whether a person, or a receiver that said it is gone, stopped it.
    pub paused: Option<Pause>,
    /// Whether the head is a dead letter that a person must decide about first.
    pub blocked: bool,
}

impl Lane {
    /// A lane that nothing has gone through yet.
    pub fn new(planner: Tenant, place: Place) -> Self {
        let owner = Owner::default();
        Self { planner, place, owner, settled: 0, trimmed: 0, trouble: None, paused: None, blocked: false }
    }

    /// The same, with the first epoch that belongs to its time.
    pub fn begun(planner: Tenant, place: Place, at: Millis) -> Self {
        let owner = Owner { epoch: at.0, ..Owner::default() };
        Self { owner, ..Self::new(planner, place) }
    }

    /// Its address.
    pub fn id(&self) -> LaneId {
        self.place.lane(&self.planner)
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        self.place.name(&self.planner)
    }

    /// Whether nothing is sent, whatever is due.
    pub fn stands(&self) -> bool {
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
    /// Where it goes.
    pub warehouse: String,
    /// The exact bytes that were published.
    pub body: Bytes,
    /// When.
    pub published: Millis,
    /// Where it died, where a person has sent it again: it is out of order then.
    pub redrive_of: Option<(LaneId, u64)>,
}

/// Why an event left its lane undelivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// It was tried until the horizon.
    Horizon = 1,
    /// No receiver of this kind takes one so large.
    TooLarge = 2,
    /// A person skipped it.
    Skipped = 3,
}

impl Reason {
    /// Every reason.
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

/// What became of a dead letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nobody has decided.
    Waiting,
    /// Sent again.
    Redriven {
        /// When.
        at: Millis,
        /// By whom.
        by: String,
        /// The reason, where it had to be forced.
        why: Option<String>,
        /// Its new position.
        seq: u64,
    },
    /// Given up.
    Discarded {
        /// When.
        at: Millis,
        /// By whom.
        by: String,
        /// Their reason.
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

/// An event that left its lane undelivered. One that dies again after a redrive is the same letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// Whose.
    pub planner: Tenant,
    /// The lane it left; the lane it is in again, once it was sent again.
    pub place: Place,
    /// The event.
    pub entry: Arc<Entry>,
    /// Why it died.
    pub reason: Reason,
    /// How often it was tried.
    pub attempts: u32,
    /// The first attempt; its death where there was none.
    pub first_at: Millis,
    /// When it died.
    pub at: Millis,
    /// What came of the last attempt.
    pub answer: Answer,
    /// The event that cancelled it.
    pub cancelled_by: Option<String>,
    /// What became of it.
    pub fate: Fate,
    /// Whether its lane waits for a decision about it.
    pub blocks: bool,
}

/// How long a letter is kept after a person has decided about it.
pub const DECIDED_RETAIN_MS: u64 = 30 * 24 * 3_600_000;

impl DeadLetter {
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

/// What became of an event that is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Original {
    /// Nobody has seen it.
    Undelivered,
    /// It was sent, or may have been, and is not acknowledged.
    InFlight,
    /// It was acknowledged.
    Delivered,
    /// It is a dead letter.
    Dead,
    /// It is too long ago to tell.
    Unknown,
}

impl Original {
    /// The word for it on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undelivered => "undelivered",
            Self::InFlight => "in_flight",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }
}

/// An entry for the end of a lane. The store gives it its position when it commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Which lane.
    pub lane: LaneId,
    /// What.
    pub entry: Arc<Entry>,
    /// A row that the same write set puts and no other ever writes. It tells the position once that is known, and proves that the
    /// set was applied. Each append of a set has one of its own.
    pub position_row: RowKey,
    /// How this process drives the lane; none where another does, or nobody.
    pub driven: Option<Driving>,
}

/// How a process drives a lane, as of an entry that it has appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driving {
    /// Under which epoch.
    pub epoch: u64,
    /// Over which route. Another node may have changed it a moment ago.
    pub route: Arc<Route>,
}

/// What a repeated publication hears: all of it but the position, which [`placed`] adds.
pub(crate) fn unplaced(lane: LaneId, name: &str, original: Option<Original>) -> Bytes {
    let mut out = br#"{"accepted":true,"replay":true,"lane":"#.to_vec();
    json::write_string(&mut out, name);
    out.extend_from_slice(format!(r#","lane_id":"{lane}""#).as_bytes());
    if let Some(original) = original {
        out.extend_from_slice(format!(r#","original":"{}""#, original.name()).as_bytes());
    }
    out.extend_from_slice(br#","seq":"#);
    out.into()
}

/// The row that waited for its position, with it.
pub fn placed(record: &Record, seq: u64) -> Record {
    match record {
        Record::Fence(fence) => {
            let mut fence = Fence::clone(fence);
            if let State::Sealed { receipt: Receipt { body, .. }, .. } = &mut fence.state {
                let mut text = body.to_vec();
                text.extend_from_slice(format!("{seq}}}").as_bytes());
                *body = text.into();
            }
            fence.into()
        }
        Record::DeadLetter(letter) => {
            let mut letter = DeadLetter::clone(letter);
            if let Fate::Redriven { seq: place, .. } = &mut letter.fate {
                *place = seq;
            }
            Record::DeadLetter(letter.into())
        }
        other => other.clone(),
    }
}

/// Where a publication went: what its sealed fence says.
pub fn published(fence: &Fence) -> Option<(LaneId, u64)> {
    let State::Sealed { receipt, .. } = &fence.state else { return None };
    let node = json::parse(&receipt.body).ok()?;
    let lane = LaneId::from_hex(node.get("lane_id")?.as_str()?)?;
    // Nobody's word counts about the lanes of another.
    let own = lane.0.starts_with(&LaneId::prefix(&fence.tenant));
    Some((lane, node.get("seq")?.as_u64()?)).filter(|_| own)
}

/// The position that a row was told.
pub fn position(record: &Record) -> Option<u64> {
    match record {
        Record::Fence(fence) => published(fence).map(|(_, seq)| seq),
        Record::DeadLetter(letter) => match letter.fate {
            Fate::Redriven { seq, .. } => Some(seq),
            _ => None,
        },
        _ => None,
    }
}
