//! The table of row kinds: what every store and everything that moves, sweeps or caches rows must know of each.
//! Never says how a row is decided over: the capability that owns the kind does. Read wherever rows are treated by kind.

use crate::{dispatch, fence, key::Kind, lane, merge};

/// What is known of one kind of row.
#[derive(Clone, Copy, Debug)]
pub struct KindSpec {
    /// Which kind, and by that its stored number.
    pub kind: Kind,
    /// What one row of it is called, and several.
    pub names: (&'static str, &'static str),
    /// Whether its rows may expire, so that a sweep looks at them.
    pub swept: bool,
    /// Its place in a backup; none where it stays behind. A backup counts rows in this order, so a new kind comes last.
    pub backup_place: Option<u8>,
    /// Whether caches of hot rows keep it.
    pub cached: bool,
    /// What a store must be able to do to keep it.
    pub needs: Needs,
    /// What the ids of its rows are.
    pub ids: Ids,
}

/// What a store must be able to do to keep a kind of row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Commit one row at a time.
    OneRow,
    /// Commit several rows together.
    ManyRows,
    /// Commit several rows with appends and drops among them.
    Lanes,
}

/// What the ids of a kind's rows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ids {
    /// Digests: spread evenly, and eight bytes tell two of them apart.
    Digests,
    /// Ids that begin alike and are read in ranges. Many rows share a prefix.
    Ranges,
    /// The same, for a kind of which there are few rows among many others.
    FewRanges,
}

/// One table a capability.
const CAPABILITIES: [&[KindSpec]; 4] = [fence::KINDS, lane::KINDS, dispatch::KINDS, merge::KINDS];

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

    /// What is known of this kind.
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
