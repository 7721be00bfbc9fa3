//! What a store computes at commit, so that a busy row causes no retries: figures that additions move.
//! Never compares: two commits that move one counter both go through.
//! Called by whoever decides; the store applies it.

use crate::{
    key::Kind,
    row::{Ids, KindSpec, Needs},
    time::Millis,
};

/// Counters are derived: what moved them is kept elsewhere. So a backup leaves them out, and a restore counts anew.
pub(crate) const KINDS: &[KindSpec] = &[KindSpec {
    kind: Kind::Counter,
    names: ("counter", "counters"),
    swept: false,
    backup_place: None,
    cached: true,
    needs: Needs::Lanes,
    ids: Ids::Ranges,
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
    /// When somebody should look at the counter, where that is so. Additions leave it as it is.
    pub due: Option<Millis>,
}
