//! Rows: their content, their changes, and the table of row kinds.
//! Never decides: the capability that owns the kind does. Read wherever rows are treated by kind.

use crate::{
    audit, dispatch, fence, item, job,
    key::{Kind, RowKey},
    lane::{self, LaneKind},
    merge,
    merge::Counter,
    time::Millis,
};

/// Anything a store holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Fence(fence::Record),
    Lane(lane::Record),
    Dispatch(dispatch::Record),
    Counter(Counter),
    Audit(audit::Record),
    /// Belongs to items.
    Item(item::Record),
    /// Belongs to a job.
    Job(job::Record),
}

impl Record {
    /// From when on a store may drop the row by itself. Before that it never may.
    pub fn expires_at(&self) -> Option<Millis> {
        match self {
            Self::Fence(record) => record.expires_at(),
            Self::Lane(record) => record.expires_at(),
            Self::Audit(record) => record.expires_at(),
            Self::Item(record) => record.expires_at(),
            Self::Job(record) => record.expires_at(),
            Self::Dispatch(_) | Self::Counter(_) => None,
        }
    }

    /// When the row is due: a claim becomes a doubt, or a capability has work to do.
    pub fn due_at(&self) -> Option<Millis> {
        match self {
            Self::Fence(record) => record.due_at(),
            Self::Counter(counter) => counter.due,
            Self::Item(record) => record.due_at(),
            Self::Job(record) => record.due_at(),
            Self::Lane(_) | Self::Dispatch(_) | Self::Audit(_) => None,
        }
    }

    /// The latest time in the row, tokens included: no time or token after it may be lower. Leases and expiries are
    /// left out: they lie ahead, and time must not jump to them.
    pub fn latest_at(&self) -> Millis {
        match self {
            Self::Fence(record) => record.latest_at(),
            Self::Lane(record) => record.latest_at(),
            Self::Dispatch(record) => record.latest_at(),
            Self::Audit(record) => record.latest_at(),
            Self::Item(record) => record.latest_at(),
            Self::Job(record) => record.latest_at(),
            Self::Counter(_) => Millis(0),
        }
    }

    /// Bytes in memory and on the wire, roughly: never less than the texts whose length a client chose.
    pub fn weight_bytes(&self) -> usize {
        ROW_BYTES
            + match self {
                Self::Fence(record) => record.weight_bytes(),
                Self::Lane(record) => record.weight_bytes(),
                Self::Audit(record) => record.weight_bytes(),
                Self::Item(record) => record.weight_bytes(),
                Self::Job(record) => record.weight_bytes(),
                Self::Dispatch(_) | Self::Counter(_) => 0,
            }
    }

    /// The row that waited for the position of an entry, with it.
    pub fn with_position(&self, seq: u64) -> Self {
        match self {
            Self::Fence(record) => dispatch::fence_with_position(record, seq).into(),
            Self::Lane(record) => record.with_position(seq).into(),
            Self::Dispatch(_) | Self::Counter(_) | Self::Audit(_) | Self::Item(_) | Self::Job(_) => self.clone(),
        }
    }

    /// The position that the row was given.
    pub fn position(&self) -> Option<u64> {
        match self {
            Self::Fence(record) => dispatch::position_of_fence(record),
            Self::Lane(record) => record.position(),
            Self::Dispatch(_) | Self::Counter(_) | Self::Audit(_) | Self::Item(_) | Self::Job(_) => None,
        }
    }
}

/// Bytes of a row beside its weighed texts: the record itself, its short texts, and its place in a table.
pub const ROW_BYTES: usize = 1 << 10;

/// Which write gave a row its present content: chosen by the writer, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CommitId(pub u64);

/// A record with the write that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub record: Record,
    /// The write that made it.
    pub revision: CommitId,
}

/// The rows that a decision may look at: those of its footprint, loaded before.
pub trait Rows {
    /// The row under a key, if there is one.
    fn row(&self, key: &RowKey) -> Option<&Row>;
}

/// One change, valid only while the row is as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: RowKey,
    /// The revision it was read at; none where it was absent.
    pub expect: Option<CommitId>,
    /// The new content; none removes the row.
    pub put: Option<Record>,
}

/// A change to a row as it was read.
pub(crate) fn write(rows: &impl Rows, key: RowKey, put: Option<Record>) -> Write {
    Write { key, expect: rows.row(&key).map(|row| row.revision), put }
}

/// Facts about one kind of row.
#[derive(Clone, Copy, Debug)]
pub struct KindSpec {
    /// Which kind, and by that its stored number.
    pub kind: Kind,
    /// The word for one row of it, and for several.
    pub names: (&'static str, &'static str),
    /// Whether its rows may expire, so that a sweep looks at them.
    pub swept: bool,
    /// Its place in a backup; none where it stays behind. A backup counts rows in this order, so a new kind comes last.
    pub backup_place: Option<u8>,
    /// Whether caches of hot rows keep it.
    pub cached: bool,
    pub needs: Needs,
    pub ids: Ids,
    /// Whether merges read its rows: the store computes their next content at commit.
    pub merged: bool,
    pub on_drop: OnDrop,
    /// The first row format whose readers know the kind. On a shared store it is not written before every node reads that.
    pub since_format: u8,
}

/// Abilities that a store needs for a kind of row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Commit one row at a time.
    OneRow,
    /// Commit several rows together.
    ManyRows,
    /// Commit several rows with appends and drops among them.
    Lanes,
}

/// How the ids of a kind's rows are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ids {
    /// Digests: spread evenly, and eight bytes tell two of them apart.
    Digests,
    /// Ids that begin alike and are read in ranges. Many rows share a prefix.
    Ranges,
    /// The same, for a kind of which there are few rows among many others.
    FewRanges,
}

/// How a store removes rows of a kind that a decision drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDrop {
    /// Reads and locks them first, like rows that it changes.
    Lock,
    /// Does not read them: they are written once and never changed.
    Blind,
    /// Skips a row that another transaction holds: the decision is made again after it.
    SkipHeld,
}

/// One table a capability.
const CAPABILITIES: [&[KindSpec]; 7] =
    [fence::KINDS, lane::KINDS, dispatch::KINDS, merge::KINDS, audit::KINDS, item::KINDS, job::KINDS];

/// The kinds of lanes: one list a capability.
const LANE_KINDS: [&[&LaneKind]; 1] = [dispatch::LANE_KINDS];

impl LaneKind {
    /// Every kind of lanes.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        LANE_KINDS.iter().flat_map(|of_one| of_one.iter().copied())
    }

    /// The kind behind its stored number.
    pub fn from_number(number: u8) -> Option<&'static Self> {
        Self::all().find(|kind| kind.number == number)
    }
}

/// Every kind, by its stored number.
const BY_NUMBER: [Option<KindSpec>; 256] = {
    let mut table = [None; 256];
    let mut capability = 0;
    while capability < CAPABILITIES.len() {
        let mut at = 0;
        while at < CAPABILITIES[capability].len() {
            let spec = CAPABILITIES[capability][at];
            assert!(table[spec.kind as usize].is_none(), "two rows of the table are about one kind");
            table[spec.kind as usize] = Some(spec);
            at += 1;
        }
        capability += 1;
    }
    table
};

/// How many kinds of row there are.
const KINDS: usize = {
    let (mut number, mut count) = (0, 0);
    while number < BY_NUMBER.len() {
        count += BY_NUMBER[number].is_some() as usize;
        number += 1;
    }
    count
};

/// How many kinds a backup holds.
pub const BACKUP_KINDS: usize = {
    let (mut number, mut count) = (0, 0);
    while number < BY_NUMBER.len() {
        if let Some(spec) = BY_NUMBER[number] {
            count += spec.backup_place.is_some() as usize;
        }
        number += 1;
    }
    count
};

/// The kinds that a backup holds, in its order.
pub const BACKUP: [Kind; BACKUP_KINDS] = {
    let mut backup = [Kind::Fence; BACKUP_KINDS];
    let (mut number, mut seen) = (0, [false; BACKUP_KINDS]);
    while number < BY_NUMBER.len() {
        if let Some(spec) = BY_NUMBER[number]
            && let Some(place) = spec.backup_place
        {
            assert!(!seen[place as usize], "two kinds have one place in a backup");
            seen[place as usize] = true;
            backup[place as usize] = spec.kind;
        }
        number += 1;
    }
    backup
};

impl Kind {
    /// Every kind, in stored order.
    pub const ALL: [Self; KINDS] = {
        let mut all = [Self::Fence; KINDS];
        let (mut number, mut at) = (0, 0);
        while number < BY_NUMBER.len() {
            if let Some(spec) = BY_NUMBER[number] {
                all[at] = spec.kind;
                at += 1;
            }
            number += 1;
        }
        all
    };

    pub fn spec(self) -> &'static KindSpec {
        static TABLE: [Option<KindSpec>; 256] = BY_NUMBER;
        // A test walks every kind of the enum through this line.
        TABLE[self as usize].as_ref().expect("INVARIANT every-kind-has-a-row: a capability lists it in its KINDS")
    }

    /// The kind behind its stored number.
    pub fn from_u8(number: u8) -> Option<Self> {
        BY_NUMBER[usize::from(number)].map(|spec| spec.kind)
    }
}
