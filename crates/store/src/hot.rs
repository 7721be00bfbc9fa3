//! Rows that were written lately: a seal after its claim, or a duplicate after its seal, needs no look into the tables.
//! In a store of one process that is what is there; in a shared one it is a guess.
//! Filled by commits. A reader that put back what it read could overwrite a newer row, and must compare revisions.

use std::{marker::PhantomData, sync::Arc};

use fencepost_kernel::{Millis, Row, RowKey, key::Kind};
use quick_cache::{Weighter, sync::Cache};

use crate::weight::{ROW_BYTES, weight};

/// Larger rows would push out too many others.
const ROW_BYTES_MAX: usize = 64 << 10;

/// A row as it is kept in memory.
pub(crate) trait Kept: Clone {
    /// What most rows take at least.
    const USUAL: usize;
    /// What this one takes, about.
    fn weight(&self) -> usize;
}

/// Ready to be used.
impl Kept for Arc<Row> {
    const USUAL: usize = ROW_BYTES;

    fn weight(&self) -> usize {
        weight(&self.record)
    }
}

/// As it lies on disk: a third of the memory, for the time to read it.
#[derive(Clone)]
pub(crate) struct Stored {
    /// One piece of memory with its count, which is all that a look at it touches.
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) expires: Option<Millis>,
}

/// What a row takes beside its bytes: its place in the table, and its share of what the allocator rounds up.
const STORED_BESIDE: usize = 176;

impl Kept for Stored {
    const USUAL: usize = STORED_BESIDE + 192;

    fn weight(&self) -> usize {
        STORED_BESIDE + self.bytes.len()
    }
}

pub(crate) struct Hot<T: Kept>(Cache<RowKey, T, Weight<T>>);

struct Weight<T>(PhantomData<fn(&T)>);

impl<T> Clone for Weight<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T: Kept> Weighter<RowKey, T> for Weight<T> {
    fn weight(&self, _: &RowKey, row: &T) -> u64 {
        row.weight() as u64
    }
}

impl<T: Kept> Hot<T> {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self(Cache::with_weighter((bytes_max as usize / T::USUAL).max(1), bytes_max, Weight(PhantomData)))
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<T> {
        self.0.get(key)
    }

    /// Keeps a row, or forgets it. What a commit wrote: after it is durable, and before it is acknowledged.
    pub(crate) fn put(&self, key: RowKey, row: Option<T>) {
        match row {
            // Entries are read in pages, and mostly by who wrote them: they would push out what is asked for again.
            Some(row) if key.kind != Kind::Entry && row.weight() <= ROW_BYTES_MAX => self.0.insert(key, row),
            _ => drop(self.0.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencepost_kernel::{
        Millis, Tenant,
        command::CommitId,
        fence::{Fence, State, Token},
        key::FenceKey,
    };

    use super::*;

    #[test]
    fn what_a_client_makes_large_is_counted() {
        let hot = Hot::new(1 << 20);
        let row = |value: usize| {
            Arc::new(Row {
                record: Fence {
                    tenant: Tenant::new("acme"),
                    scope: "FILE".to_owned(),
                    fields: vec![("file".to_owned(), "x".repeat(value))].into(),
                    seq: None,
                    first_seen: Millis(0),
                    token: Token(1),
                    attempt: 1,
                    body: None,
                    source: None,
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
