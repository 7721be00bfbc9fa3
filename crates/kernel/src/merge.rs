//! Values that a store computes at commit, so that a busy row causes no retries: the next position of a log, and the
//! sum of a counter.
//! Never compares: two commits that move one counter both go through. An effect that must happen once is proven by
//! another row.
//! A decision names the merge; the store applies it.

use crate::{
    key::{Kind, RowKey},
    lane::Append,
    row::{Ids, KindSpec, Needs, OnDrop},
    time::Millis,
};

/// Counters are derived from rows that are kept elsewhere. So a backup leaves them out, and a restore counts anew.
pub(crate) const KINDS: &[KindSpec] = &[KindSpec {
    kind: Kind::Counter,
    names: ("counter", "counters"),
    swept: false,
    backup_place: None,
    cached: true,
    needs: Needs::Lanes,
    ids: Ids::Ranges,
    merged: true,
    on_drop: OnDrop::Lock,
    since_format: 1,
}];

/// How many parts one has: decimal figures have nine digits after the point.
pub const SCALE: i128 = 1_000_000_000;

/// A figure under a key.
///
/// No release has written one yet. On a shared store, a node of a release before this one stops at the first counter that it
/// reads: the first use of counters must wait until every node knows them, by a row format of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// In parts of one: see [`SCALE`].
    pub value: i128,
    /// When the counter is due for its owner, if ever. Additions leave it as it is.
    pub due: Option<Millis>,
}

/// A change that the store computes at commit, over what is there then.
///
/// It expects nothing of the row that it changes, and proves nothing. So a write set with a merge also puts a row that
/// no other set ever writes: when the set is repeated because its outcome is unknown, that row shows that it was
/// applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// An entry takes the next position of its lane.
    Append(Append),
    /// A counter moves; where there is none, it begins at zero.
    Add {
        /// The row of the counter. No write of the set names it.
        key: RowKey,
        /// By how much. A sum beyond 128 bits refuses the whole set.
        delta: i128,
    },
}

impl Merge {
    /// The row that the store computes.
    pub fn key(&self) -> RowKey {
        match self {
            Self::Append(append) => RowKey::tail(append.lane),
            Self::Add { key, .. } => *key,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {
    /// The position that an entry got.
    Position(u64),
    Sum {
        before: i128,
        after: i128,
    },
}
