//! The duties of a store, and the laws that the conformance suite checks.
//!
//! 1. **Atomic**: a write set is applied whole or not at all, also across a crash.
//! 2. **Moved**: a write set with one expectation that no longer holds writes nothing and is told so;
//!    its neighbours in the same commit go through.
//! 3. **Fresh**: a load sees every commit that was acknowledged before it began, and never a commit that a
//!    crash could still undo.
//! 4. **Durable**: an acknowledged commit survives a crash, to the strength the store declares.
//! 5. **Repeatable**: a write set whose outcome is unknown may be committed again under the same id.
//! 6. **Patient**: a row vanishes by itself only past its expiry.
//! 7. **Ordered**: an entry that is appended to a lane gets the position after the last one; no position is left out, and
//!    no reader sees one before those below it.
//! 8. **Merged**: a counter is the sum of all additions, also of simultaneous ones; each addition is told the figures
//!    before and after it. A set that was not applied adds nothing, and a repeated one adds nothing again.
//!
//! And of its reads:
//!
//! * **Due**: the due rows of a kind come earliest first, once, and only while the row says so. Any kind may have a due time.
//! * **Range**: a page holds the rows of one kind whose ids begin with a prefix, in key order, and misses none.
//!
//! Never contains a rule about fences. Called by the commit loop: one commit at a time, or a few at once where the store says
//! that it is shared; other engines may share it.

use std::{fmt, ops::Bound, sync::Arc};

use fencepost_kernel::{
    Millis, Row, RowKey, Write,
    key::Kind,
    law::Also,
    merge::Merged,
    row::{CommitId, Needs},
};
use futures::future::BoxFuture;

use crate::codec;

/// A row as loaded; shared, so that a large receipt is never copied.
pub type Loaded = Option<Arc<Row>>;

/// Rows that a range was asked for, with their addresses.
pub type Found = Vec<(RowKey, Arc<Row>)>;

/// Writes that stand or fall together.
#[derive(Clone, Debug)]
pub struct WriteSet {
    /// Becomes the revision of every row it puts. Chosen by the writer and never used for anything else.
    pub id: CommitId,
    /// The changes, each with the revision it was decided over.
    pub writes: Vec<Write>,
    /// Committed with the writes or refused with them. A merge comes with a put of a row that no other set ever writes,
    /// which proves it when the set is repeated: without any put, such a set is refused.
    pub also: Also,
}

impl WriteSet {
    /// Writes, and nothing beside them.
    pub fn new(id: CommitId, writes: Vec<Write>) -> Self {
        Self { id, writes, also: Also::default() }
    }
}

/// The result of one write set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All of it is durable. It has no merges, or was applied by an earlier try: then the row that holds a position
    /// says which it was, and the figures of a counter are not known any more.
    Applied,
    /// All of it is durable; these are the results of its merges, in their order.
    Merged(Vec<Merged>),
    /// Something it was decided over has moved; none of it was written. Decide again.
    Moved,
    /// Another transaction holds a row of it and did not let go in time, or the one server that has its rows takes no
    /// writes; none of it was written. Ask later.
    Held,
    /// A counter cannot take what the set adds, also if only for a moment: none of it was written. Decided again over the same
    /// figures it comes to the same.
    Overflow,
}

impl Verdict {
    /// Whether all of it is durable.
    pub fn applied(&self) -> bool {
        matches!(self, Self::Applied | Self::Merged(_))
    }

    /// The positions that its entries got, in their order, where the verdict has them.
    pub fn positions(&self) -> impl Iterator<Item = u64> {
        let merged = if let Self::Merged(merged) = self { &merged[..] } else { &[] };
        merged.iter().filter_map(|merged| match merged {
            Merged::Position(seq) => Some(*seq),
            Merged::Sum { .. } => None,
        })
    }
}

/// An infrastructure failure. Its kind answers one question: did it happen?
#[derive(Debug)]
pub enum Error {
    /// No. It may be tried again.
    NotApplied(String),
    /// Perhaps. Look before trying again.
    Unknown(String),
    /// The store can no longer be trusted, or no longer trusts its disk: stop serving.
    Broken(String),
}

impl Error {
    /// The reason alone, for where it is plain that nothing happened: a store that could not be opened.
    pub fn why(&self) -> &str {
        let (Self::NotApplied(why) | Self::Unknown(why) | Self::Broken(why)) = self;
        why
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApplied(why) => write!(f, "not applied: {why}"),
            Self::Unknown(why) => write!(f, "outcome unknown: {why}"),
            Self::Broken(why) => write!(f, "store stopped: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// The failures that an acknowledged commit survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    /// Nothing: gone with the process.
    None,
    /// A crash of the process, but perhaps not a power cut or a failover.
    Delayed,
    /// A power cut: it was on stable storage before it was acknowledged.
    Synced,
}

/// A backend's guarantees, so that a policy which asks for more is refused at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promises {
    pub durability: Durability,
    /// How the backend knows its durability, in a few words for people.
    pub because: String,
    /// Whether other engines may write at the same time: rows then move under us, and wake-ups are only hints.
    pub shared: bool,
    /// Whether a write set may touch several rows, held ones included. Where it may not, version heads and repetitions cannot
    /// be kept.
    pub many_rows: bool,
    /// Whether a write set may merge and drop beside its writes. Where it may not, lanes and counters cannot be kept.
    pub lanes: bool,
}

impl Promises {
    /// Whether the store can keep rows of this kind.
    pub fn keeps(&self, kind: Kind) -> bool {
        match kind.spec().needs {
            Needs::OneRow => true,
            Needs::ManyRows => self.many_rows,
            Needs::Lanes => self.lanes,
        }
    }
}

/// One of the processes that share a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its name, unique among all that ever shared the store.
    pub id: String,
    /// Where its clients reach it.
    pub address: String,
    pub release: String,
    /// The newest row format that it reads.
    pub format: u8,
    /// When it started, by the store's clock.
    pub started: Millis,
    /// When it last said that it lives, by the store's clock.
    pub seen: Millis,
    /// How many claims it granted or renewed that are pending or lapsed; none where the store does not know.
    pub holds: Option<u64>,
}

pub trait Store: Send + Sync + 'static {
    fn promises(&self) -> Promises;

    /// The time of the shared store's clock; none where the engine's own clock decides. Never goes back.
    fn now(&self) -> Option<Millis> {
        None
    }

    /// The newest row format that may be written now: every process that shares the store reads it. Never falls.
    fn format(&self) -> u8 {
        codec::VERSION
    }

    /// The rows under `keys`, in that order.
    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>>;

    /// The row under one key if it can be had without waiting; none where only [`Store::load`] can tell.
    /// Lets a duplicate be answered without a queue or an allocation.
    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>>;

    /// A cached guess at the row: this process's last write there, or nothing. Good enough to decide a write over,
    /// since the commit compares; never to answer from. None where guessing does not pay.
    fn guess(&self, key: &RowKey) -> Option<Loaded> {
        let _ = key;
        None
    }

    /// Commits the sets in order, in one transaction and one sync; a set sees the sets before it.
    /// One verdict per set. `now` is recorded with them as the store's time floor.
    /// An error means that no verdict is known for any of them.
    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>>;

    /// The latest `now` ever committed. Time given to the kernel never falls below it.
    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>>;

    /// Up to `limit` rows of one kind whose [`due_at`](fencepost_kernel::row::Record::due_at) is at or before `until`,
    /// earliest first and in key order where times are equal, starting after the row of that kind named by `after`.
    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>>;

    /// Up to `limit` rows of one kind whose ids begin with `prefix`, in key order, starting after `after`. The entries of a
    /// lane are a range, and so are the lanes of a planner. Keys are ordered by kind, then by id: an `after` before the first
    /// of these rows starts with it, and after one behind the last there is nothing.
    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>>;

    /// Up to `limit` rows of one kind in key order, starting after `after`. For housekeeping and for moving stores.
    fn scan<'a>(&'a self, kind: Kind, after: Option<RowKey>, limit: usize) -> BoxFuture<'a, Result<Found, Error>> {
        self.range(kind, &[], after, limit)
    }

    /// Drops up to `limit` rows past their expiry at `now`, and says how many; none where the store has no index of them
    /// and the caller must look for them with [`Store::scan`].
    fn sweep(&self, now: Millis, limit: usize) -> BoxFuture<'_, Result<Option<usize>, Error>> {
        let _ = (now, limit);
        Box::pin(async { Ok(None) })
    }

    /// This node drives lanes from now on. Nothing where the store is not shared.
    fn drive(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// The nodes that share the store, serve clients and drive lanes, and when each was last seen.
    fn alive(&self) -> BoxFuture<'_, Result<Vec<(String, Millis)>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Tells the other nodes that this one serves no clients any more: they need not wait until it has been silent for
    /// long. Does nothing where the store is not shared.
    fn leave(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Every process that shares the store and was seen lately; empty where it is not shared.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// The keys that a range walks over.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from: Bound<RowKey>,
    /// The last possible key: it is in the span.
    pub(crate) last: RowKey,
}

impl Span {
    /// The keys of one kind that begin with `prefix` and come after `after`; none where there cannot be any.
    pub(crate) fn new(kind: Kind, prefix: &[u8], after: Option<RowKey>) -> Option<Self> {
        let filled = |rest: u8| {
            let mut id = [rest; 32];
            id.get_mut(..prefix.len())?.copy_from_slice(prefix);
            Some(RowKey { kind, id })
        };
        let (first, last) = (filled(0)?, filled(0xff)?);
        match after {
            Some(after) if after >= last => None,
            Some(after) if after >= first => Some(Self { from: Bound::Excluded(after), last }),
            _ => Some(Self { from: Bound::Included(first), last }),
        }
    }
}
