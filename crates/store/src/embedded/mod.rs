//! The embedded store: one directory on one machine, an LSM tree under a synced journal (fjall).
//! Never acknowledges before the sync, never retries a failed one, and never holds a rule about fences.
//! Called by the commit loop; others may read at the same time.
//!
//! Why a reader never sees what a crash could undo: fjall's batch commit writes the journal, syncs it, inserts into the
//! memtables and only then publishes, all under the journal's lock. A plain get reads the memtables, so it sees a
//! row after its sync, and perhaps before its neighbours in the batch; a load of several keys therefore reads
//! a snapshot, which moves only when a batch is published whole.

mod fault;
mod journal;
mod journal_zeros;
mod open;
mod pace;
mod staged;
mod tuning;

use std::{
    ops::{Bound, Range},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ahash::HashSet;
use bytes::Bytes;
use fencepost_kernel::{
    Millis, Row, RowKey,
    fence::{self, State},
    key::Kind,
    row::Record,
};
use fjall::{Database, Keyspace, PersistMode, Readable, Snapshot};
use futures::future::BoxFuture;

use crate::{
    Durability, Error, Promises, Store, Verdict, WriteSet, codec,
    contract::{Found, Loaded, Span},
    hot::{Hot, Stored},
    judge::{After, Change, Judged, Known, judge},
};
use fault::Fault;
use journal_zeros::JournalZeros;
pub use open::{FILES, IN_USE, is_store};
use staged::Staged;

/// Claims up to this size stay decoded in memory for their seal. Only the body that a claim came with can be large.
const CLAIM_BYTES_MAX: usize = 4 << 10;

/// Fences due later than this never come due: there the due index goes on with other kinds. It is in two million years.
const FENCE_DUE_MAX: Millis = Millis((1 << 56) - 1);

/// So many rows are noted as absent at most: a few megabytes.
const ABSENT_MAX: usize = 1 << 16;

/// How to open an embedded store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of memory for blocks that were read from disk.
    pub cache_bytes: u64,
    /// Bytes of memory for rows that were written lately.
    pub hot_bytes: u64,
    /// Bytes of memory for decoded forms of those rows that were read again.
    pub ready_bytes: u64,
    /// Whether zeros are written ahead of the journal, which makes a sync cheaper.
    pub journal_zeros: bool,
    /// Acknowledges without a sync, so that a test can show that a power cut then loses writes.
    #[doc(hidden)]
    pub unsynced_loses_acknowledged_writes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            hot_bytes: 64 << 20,
            ready_bytes: 64 << 20,
            journal_zeros: true,
            unsynced_loses_acknowledged_writes: false,
        }
    }
}

/// A store in a directory. One process at a time; share the object between engines.
pub struct Embedded {
    db: Database,
    fences: Keyspace,
    rows: Keyspace,
    due: Keyspace,
    meta: Keyspace,
    path: PathBuf,
    persist: PersistMode,
    /// The durable time floor; rows that have expired by it may be dropped.
    time_floor: Arc<AtomicU64>,
    mark: journal::Mark,
    /// Counts the begin and the end of each commit: odd while one is under way.
    commit_steps: AtomicU64,
    /// Rows that were written lately.
    hot: Hot<Stored>,
    /// Decoded forms of rows in `hot`. Readers fill it, so an entry counts only if `hot` has the same revision.
    ready: Hot<Arc<Row>>,
    /// Rows that were looked for in vain since the last commit: the next one, which puts them, need not look again.
    absent: Mutex<HashSet<RowKey>>,
    fault: Fault,
    /// Expected revisions are checked and rows written under this lock: no other commit changes a row in between.
    commit: Mutex<Option<JournalZeros>>,
    /// Released last, when nothing of the store is in use any more.
    _lock: std::fs::File,
}

impl Embedded {
    /// Opens the store in `dir`, and makes it where there is none.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        open::open(dir.as_ref(), &options)
    }

    /// Flushes all memtables, compacts all tables, and drops expired rows. Takes long on a large store.
    pub fn compact(&self) -> Result<(), Error> {
        for keyspace in [&self.fences, &self.rows, &self.due, &self.meta] {
            keyspace.rotate_memtable_and_wait().map_err(|error| self.fault.read(&error))?;
        }
        for keyspace in [&self.fences, &self.rows, &self.due, &self.meta] {
            keyspace.major_compact().map_err(|error| self.fault.read(&error))?;
        }
        // fjall deletes the old tables only at the next flush of a memtable. One write makes a memtable to flush now.
        let written = {
            let _alone = self.alone()?;
            self.meta.insert(open::COMPACTED, [])
        };
        written
            .and_then(|()| self.meta.rotate_memtable_and_wait())
            .map_err(|error| self.fault.write(&error, &self.path))
    }

    /// The bytes that the store occupies on disk, journals included.
    pub fn disk_bytes(&self) -> Result<u64, Error> {
        open::allocated_bytes(&self.path)
            .map_err(|error| Error::NotApplied(format!("the size of {} is unknown: {error}", self.path.display())))
    }

    fn bytes(&self, snapshot: Option<&Snapshot>, key: &RowKey) -> Result<Option<Bytes>, Error> {
        let found = match (key.kind, snapshot) {
            (Kind::Fence, None) => self.fences.get(key.id),
            (Kind::Fence, Some(snapshot)) => snapshot.get(&self.fences, key.id),
            (_, None) => self.rows.get(row_address(key)),
            (_, Some(snapshot)) => snapshot.get(&self.rows, row_address(key)),
        };
        Ok(found.map_err(|error| self.fault.read(&error))?.map(Bytes::from_owner))
    }

    fn row(&self, snapshot: Option<&Snapshot>, key: &RowKey) -> Result<Loaded, Error> {
        match snapshot.is_none().then(|| self.hot(key)).flatten() {
            Some(hot) => self.ready(key, hot).map(Some),
            None => self.bytes(snapshot, key)?.map(|bytes| self.decoded(key, &bytes)).transpose(),
        }
    }

    fn decoded(&self, key: &RowKey, bytes: &Bytes) -> Result<Arc<Row>, Error> {
        codec::decode(key, bytes).map(Arc::new).map_err(|damage| self.fault.damaged(key, damage))
    }

    fn ready(&self, key: &RowKey, hot: Stored) -> Result<Arc<Row>, Error> {
        let bytes = match hot {
            Stored::Row(row) => return Ok(row),
            Stored::Bytes { bytes, .. } => bytes,
        };
        if let Some(row) = self.ready.get(key).filter(|row| codec::revision(&bytes) == Some(row.revision)) {
            return Ok(row);
        }
        let row = self.decoded(key, &Bytes::from_owner(bytes))?;
        self.ready.put(*key, Some(row.clone()));
        Ok(row)
    }

    // An expired row may have left the tree already: then the tree decides, not this cache.
    fn hot(&self, key: &RowKey) -> Option<Stored> {
        let over = |row: &Stored| row.expires().is_some_and(|at| at.0 <= self.time_floor.load(Ordering::Acquire));
        self.hot.get(key).filter(|row| !over(row))
    }

    fn known(&self, key: &RowKey) -> Result<Option<Known>, Error> {
        if self.absent().contains(key) {
            return Ok(None);
        }
        let known = |bytes: &[u8]| {
            let head = codec::head(key, bytes).map_err(|damage| self.fault.damaged(key, damage))?;
            Ok(Known { revision: head.revision, due: head.due, figure: head.figure })
        };
        match self.hot(key) {
            Some(Stored::Row(row)) => Ok(Some(Known::of(&row))),
            Some(Stored::Bytes { bytes, .. }) => known(&bytes).map(Some),
            None => self.bytes(None, key)?.map(|bytes| known(&bytes)).transpose(),
        }
    }

    fn load_now(&self, keys: &[RowKey]) -> Result<Vec<Loaded>, Error> {
        let steps = self.commit_steps.load(Ordering::SeqCst);
        let rows = self.rows_at(None, keys)?;
        let mut absent = self.absent();
        if steps.is_multiple_of(2) && self.commit_steps.load(Ordering::SeqCst) == steps {
            if absent.len() > ABSENT_MAX {
                absent.clear();
            }
            // A commit that has begun since clears them when it has written, before it ends.
            absent.extend(keys.iter().zip(&rows).filter(|(_, row)| row.is_none()).map(|(key, _)| *key));
            return Ok(rows);
        }
        drop(absent);
        // Rows that were read during a commit may be of two moments; a snapshot is of one.
        if keys.len() > 1 { self.rows_at(Some(&self.db.snapshot()), keys) } else { Ok(rows) }
    }

    fn absent(&self) -> MutexGuard<'_, HashSet<RowKey>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows_at(&self, snapshot: Option<&Snapshot>, keys: &[RowKey]) -> Result<Vec<Loaded>, Error> {
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            rows.push(self.row(snapshot, key)?);
        }
        Ok(rows)
    }

    fn commit_now(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        let mut zeros = self.alone()?;
        self.fault.check()?;
        self.commit_steps.fetch_add(1, Ordering::SeqCst);
        let outcome = judge(sets, |key| self.known(key))
            .and_then(|Judged { verdicts, changes }| self.write(zeros.as_mut(), changes, now).map(|()| verdicts));
        self.absent().clear();
        self.commit_steps.fetch_add(1, Ordering::SeqCst);
        outcome
    }

    fn alone(&self) -> Result<MutexGuard<'_, Option<JournalZeros>>, Error> {
        let panicked = || self.fault.stop("a commit panicked; restart to recover from the journal".to_owned());
        self.commit.lock().map_err(|_| panicked())
    }

    fn write(&self, zeros: Option<&mut JournalZeros>, changes: Vec<Change<'_>>, now: Millis) -> Result<(), Error> {
        let mut staged = Staged::for_rows(changes.len());
        let rows: Vec<_> = changes.iter().map(|change| self.stage(&mut staged, change)).collect();
        let floor = self.time_floor.load(Ordering::Acquire);
        if staged.items.is_empty() && now.0 <= floor {
            return Ok(());
        }
        staged.put(&self.meta, open::TIME_FLOOR, |out| {
            out.extend_from_slice(&now.0.max(floor).to_be_bytes());
            out.extend_from_slice(&self.mark);
        });
        if let Some(zeros) = zeros {
            zeros.prepare(staged.journal_bytes());
        }
        // Snapshots show the commit before `hot` does, below: a reader of one must not find an older row in `hot`.
        for change in changes.iter().filter(|change| change.before.is_some()) {
            self.hot.put(change.key, None);
        }
        let (batch, bytes) = staged.batch(&self.db);
        let batch = batch.durability(Some(self.persist));
        pace::wait_for_room(&self.db, [&self.fences, &self.rows, &self.due, &self.meta])
            .and_then(|()| batch.commit())
            .map_err(|error| self.fault.write(&error, &self.path))?;
        // Only a time that is durable may make rows expire: after a crash the clock could otherwise seem to go back.
        self.time_floor.fetch_max(now.0, Ordering::AcqRel);
        for (Change { key, after, .. }, row) in changes.into_iter().zip(rows) {
            let stored = after.zip(row).map(|(After { revision, record }, at)| {
                // The claim's seal will soon read it. A large claim would push out too many others.
                if claimed(&record) && record.weight_bytes() <= CLAIM_BYTES_MAX {
                    return Stored::Row(Arc::new(Row { record: record.into_owned(), revision }));
                }
                // A copy: a slice would keep the bytes of the whole commit in memory.
                Stored::Bytes { bytes: bytes[at].into(), expires: record.expires_at() }
            });
            self.hot.put(key, stored);
        }
        Ok(())
    }

    // Returns where the row's bytes are, if there are any. Stages each key once: fjall gives a whole batch one sequence
    // number, so two puts of a key would have no order.
    fn stage<'k>(&'k self, staged: &mut Staged<'k>, change: &Change<'_>) -> Option<Range<usize>> {
        let key = &change.key;
        let due_before = change.before.and_then(|known| known.due);
        let due_after = change.after.as_ref().and_then(|after| after.record.due_at());
        if due_before != due_after {
            if let Some(due) = due_before {
                staged.remove(&self.due, &due_address(due, key));
            }
            if let Some(due) = due_after {
                staged.put(&self.due, &due_address(due, key), |_| {});
            }
        }
        let address = row_address(key);
        let (keyspace, address) =
            if key.kind == Kind::Fence { (&self.fences, &address[1..]) } else { (&self.rows, &address[..]) };
        match &change.after {
            Some(After { revision, record }) => Some(
                staged.put(keyspace, address, |out| codec::encode_into(out, key, record, *revision, codec::VERSION)),
            ),
            None => {
                staged.remove(keyspace, address);
                None
            }
        }
    }

    fn due_now(
        &self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> Result<Found, Error> {
        let until = if kind == Kind::Fence { until.min(FENCE_DUE_MAX) } else { until };
        if after.is_some_and(|(due, _)| due > until) {
            return Ok(Vec::new());
        }
        let from = match after {
            Some((due, key)) => Bound::Excluded(due_address(due, &key)),
            None => Bound::Included(due_address(Millis(0), &RowKey { kind, id: [0; 32] })),
        };
        let to = Bound::Included(due_address(until, &RowKey { kind, id: [0xff; 32] }));
        let snapshot = self.db.snapshot();
        let mut found = Vec::new();
        for entry in snapshot.range(&self.due, (from, to)) {
            if found.len() >= limit {
                break;
            }
            let address = entry.key().map_err(|error| self.fault.read(&error))?;
            let (due, key) = read_due_address(kind, &address)
                .ok_or_else(|| self.fault.stop("the index of due rows is damaged".to_owned()))?;
            // A dropped, expired row leaves its due entry behind: an entry counts only if its row still has that due
            // time.
            if let Some(row) = self.row(Some(&snapshot), &key)?
                && row.record.due_at() == Some(due)
            {
                found.push((key, row));
            }
        }
        Ok(found)
    }

    fn range_now(&self, Span { from, last }: Span, limit: usize) -> Result<Found, Error> {
        let kind = last.kind;
        let snapshot = self.db.snapshot();
        let (keyspace, prefix_len) = if kind == Kind::Fence { (&self.fences, 0) } else { (&self.rows, 1) };
        let address = |key: RowKey| row_address(&key)[1 - prefix_len..].to_vec();
        let (from, to) = (from.map(address), Bound::Included(address(last)));
        let mut found = Vec::new();
        for entry in snapshot.range(keyspace, (from, to)).take(limit) {
            let (address, value) = entry.into_inner().map_err(|error| self.fault.read(&error))?;
            let Some(id) = address.get(prefix_len..).and_then(|id| id.try_into().ok()) else {
                return Err(self.fault.stop("a row has an address of the wrong length".to_owned()));
            };
            let key = RowKey { kind, id };
            let row =
                codec::decode(&key, &Bytes::from_owner(value)).map_err(|damage| self.fault.damaged(&key, damage))?;
            found.push((key, Arc::new(row)));
        }
        Ok(found)
    }
}

impl Store for Embedded {
    fn promises(&self) -> Promises {
        let (durability, because) = match self.persist {
            PersistMode::Buffer => (Durability::Delayed, "opened without syncs"),
            PersistMode::SyncData | PersistMode::SyncAll => (Durability::Synced, "every commit is synced to disk"),
        };
        Promises { durability, because: because.to_owned(), shared: false, many_rows: true, lanes: true }
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move { self.load_now(keys) })
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        Some(self.row(None, key))
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(async move { self.commit_now(sets, now) })
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        Box::pin(async move { Ok(Millis(self.time_floor.load(Ordering::Acquire))) })
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(async move { self.due_now(kind, until, after, limit) })
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(
            async move { Span::new(kind, prefix, after).map_or(Ok(Found::new()), |span| self.range_now(span, limit)) },
        )
    }
}

fn claimed(record: &Record) -> bool {
    matches!(record, Record::Fence(fence::Record::Fence(fence)) if matches!(fence.state, State::Pending { .. }))
}

fn row_address(key: &RowKey) -> [u8; 33] {
    let mut address = [0; 33];
    address[0] = key.kind as u8;
    address[1..].copy_from_slice(&key.id);
    address
}

fn read_row_address(address: &[u8]) -> Option<RowKey> {
    let (kind, id) = address.split_first()?;
    Some(RowKey { kind: Kind::from_u8(*kind)?, id: id.try_into().ok()? })
}

// Big-endian, so that byte order is time order. The address of a fence begins with the time, as in every release, and
// so with a zero byte. Every other address begins with the kind, so that each kind is a range of its own.
fn due_address(due: Millis, key: &RowKey) -> [u8; 41] {
    let mut address = [0; 41];
    let (time_at, kind_at) = if key.kind == Kind::Fence { (0, 8) } else { (1, 0) };
    address[kind_at] = key.kind as u8;
    address[time_at..time_at + 8].copy_from_slice(&due.0.to_be_bytes());
    address[9..].copy_from_slice(&key.id);
    address
}

fn read_due_address(kind: Kind, address: &[u8]) -> Option<(Millis, RowKey)> {
    let (head, id) = address.split_first_chunk::<9>()?;
    let (time_at, kind_at) = if kind == Kind::Fence { (0, 8) } else { (1, 0) };
    let due = u64::from_be_bytes(head[time_at..time_at + 8].try_into().ok()?);
    (head[kind_at] == kind as u8).then_some((Millis(due), RowKey { kind, id: id.try_into().ok()? }))
}
