//! Gathers the bytes of one commit in one buffer; every key and value is a slice of it.
//! Never allocates per row: the memtable that takes the rows frees them under a lock that readers wait for, and
//! a memtable holds a hundred thousand rows, so each free counts there.
//! Called by the embedded store's commit.

use std::ops::Range;

use byteview::ByteView;
use fjall::{Database, Keyspace, OwnedWriteBatch};

/// The usual bytes of a row with its address and the addresses of its due times.
const ROW_BYTES: usize = 320;

pub(super) struct Staged<'k> {
    bytes: Vec<u8>,
    pub(super) items: Vec<Item<'k>>,
}

pub(super) struct Item<'k> {
    keyspace: &'k Keyspace,
    key: Range<usize>,
    /// None removes the key.
    value: Option<Range<usize>>,
}

impl<'k> Staged<'k> {
    /// Has room for `count` rows of the usual size: a buffer that grows is copied, and a commit may have thousands.
    pub(super) fn for_rows(count: usize) -> Self {
        Self { bytes: Vec::with_capacity(count * ROW_BYTES), items: Vec::with_capacity(count * 2 + 1) }
    }

    /// Stages a put, and returns where its value is.
    pub(super) fn put(&mut self, keyspace: &'k Keyspace, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let key = self.append(|bytes| bytes.extend_from_slice(key));
        let value = self.append(value);
        self.items.push(Item { keyspace, key, value: Some(value.clone()) });
        value
    }

    pub(super) fn remove(&mut self, keyspace: &'k Keyspace, key: &[u8]) {
        let key = self.append(|bytes| bytes.extend_from_slice(key));
        self.items.push(Item { keyspace, key, value: None });
    }

    /// An upper estimate of the journal bytes that fjall writes: 21 for each item, 26 for the batch, and what LZ4 adds
    /// to values that it cannot make smaller.
    pub(super) fn journal_bytes(&self) -> u64 {
        (self.bytes.len() + self.bytes.len() / 255 + 22 * self.items.len() + 32) as u64
    }

    /// The batch, and the bytes that its values are in.
    pub(super) fn batch(self, db: &Database) -> (OwnedWriteBatch, ByteView) {
        let mut batch = OwnedWriteBatch::with_capacity(db.clone(), self.items.len());
        let bytes = ByteView::from(self.bytes);
        for item in self.items {
            let key = bytes.slice(item.key);
            match item.value {
                Some(value) => batch.insert(item.keyspace, key, bytes.slice(value)),
                None => batch.remove(item.keyspace, key),
            }
        }
        (batch, bytes)
    }

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let begin = self.bytes.len();
        write(&mut self.bytes);
        begin..self.bytes.len()
    }
}
