//! Rows that were written lately: a seal after its claim, or a duplicate after its seal, needs no look into the tables.
//! In a store of one process they are current; in a shared one they are a guess.
//! Filled by commits. A reader that puts back the rows it read could overwrite a newer row, and must compare revisions.

use std::sync::Arc;

use fencepost_kernel::{Millis, Row, RowKey, row::ROW_BYTES};
use quick_cache::{Weighter, sync::Cache};

/// Larger rows would push out too many others.
const ROW_BYTES_MAX: usize = 64 << 10;

/// A row as it is kept in memory.
pub(crate) trait Kept: Clone {
    /// Bytes that most rows take at least.
    const USUAL: usize;
    /// Bytes, roughly.
    fn weight(&self) -> usize;
}

/// Ready to be used.
impl Kept for Arc<Row> {
    const USUAL: usize = ROW_BYTES;

    fn weight(&self) -> usize {
        self.record.weight_bytes()
    }
}

/// A row of the embedded store.
#[derive(Clone)]
pub(crate) enum Stored {
    /// As it lies on disk: a third of the memory, for the time to read it.
    Bytes {
        /// One piece of memory with its count, which is all that a look at it touches.
        bytes: Arc<[u8]>,
        expires: Option<Millis>,
    },
    /// Ready to be used: it soon will be.
    Row(Arc<Row>),
}

impl Stored {
    pub(crate) fn expires(&self) -> Option<Millis> {
        match self {
            Self::Bytes { expires, .. } => *expires,
            Self::Row(row) => row.record.expires_at(),
        }
    }
}

/// Bytes of a row beside its content: its place in the table, and its share of the allocator's rounding.
const STORED_BESIDE: usize = 184;

impl Kept for Stored {
    const USUAL: usize = STORED_BESIDE + 192;

    fn weight(&self) -> usize {
        match self {
            Self::Bytes { bytes, .. } => STORED_BESIDE + bytes.len(),
            Self::Row(row) => row.weight(),
        }
    }
}

pub(crate) struct Hot<T: Kept>(Cache<RowKey, Weighed<T>, Weight>);

// Weighed once: the cache asks again when the row leaves, and what it points to is no longer in the processor's caches then.
#[derive(Clone)]
struct Weighed<T> {
    row: T,
    weight: usize,
}

#[derive(Clone)]
struct Weight;

impl<T> Weighter<RowKey, Weighed<T>> for Weight {
    fn weight(&self, _: &RowKey, row: &Weighed<T>) -> u64 {
        row.weight as u64
    }
}

impl<T: Kept> Hot<T> {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self(Cache::with_weighter((bytes_max as usize / T::USUAL).max(1), bytes_max, Weight))
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<T> {
        self.0.get(key).map(|weighed| weighed.row)
    }

    /// Keeps a row, or forgets it. Called for the rows of a commit after it is durable, and before it is acknowledged.
    pub(crate) fn put(&self, key: RowKey, row: Option<T>) {
        let weighed = row.map(|row| Weighed { weight: row.weight(), row });
        match weighed {
            Some(row) if key.kind.spec().cached && row.weight <= ROW_BYTES_MAX => self.0.insert(key, row),
            _ => drop(self.0.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencepost_kernel::{
        Millis, Tenant,
        fence::{Fence, FenceKey, Source, State, Token},
        row::CommitId,
    };

    use super::*;

    #[test]
    fn texts_that_a_client_makes_large_are_counted() {
        let hot = Hot::new(1 << 20);
        let row = |value: usize| {
            Arc::new(Row {
                record: Fence {
                    tenant: Tenant::new("acme"),
                    scope: "FILE".into(),
                    fields: vec![("file".to_owned(), "x".repeat(value / 2))].into(),
                    seq: None,
                    first_seen: Millis(0),
                    token: Token(1),
                    attempt: 1,
                    body: None,
                    source: Some(Source { kind: "s3".to_owned(), id: "x".repeat(value / 2) }),
                    version: None,
                    state: State::Released { at: Millis(0), expires: Millis(1) },
                    events: Vec::new(),
                }
                .into(),
                revision: CommitId(1),
            })
        };
        let key = |number: u8| RowKey::fence(FenceKey([number; 32]));
        hot.put(key(0), Some(row(ROW_BYTES_MAX)));
        assert!(hot.get(&key(0)).is_none(), "it would push out too many others");
        (0..200).for_each(|number| hot.put(key(number), Some(row(ROW_BYTES_MAX / 2))));
        let kept = (0..200).filter(|number| hot.get(&key(*number)).is_some()).count();
        assert!((1..=(1 << 20) / (ROW_BYTES_MAX / 2)).contains(&kept), "{kept}");
    }
}
