//! Rows that were written lately, as they are: a seal after its claim, or a duplicate after its seal, needs no read
//! and no decoding. In a store of one process that is what is there; in a shared one it is a guess.
//! Filled by commits only. A reader that put back what it read could overwrite a newer row.

use std::sync::Arc;

use fencepost_kernel::{
    Row, RowKey,
    fence::{Record, State},
    key::Kind,
};
use quick_cache::{Weighter, sync::Cache};

/// What a row weighs beside its receipt and its body, roughly: the record, its texts, and its place here.
const ROW_BYTES: usize = 768;
/// Larger rows would push out too many others.
const ROW_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Hot(Cache<RowKey, Arc<Row>, Weight>);

#[derive(Clone)]
struct Weight;

impl Weighter<RowKey, Arc<Row>> for Weight {
    fn weight(&self, _: &RowKey, row: &Arc<Row>) -> u64 {
        bytes(&row.record) as u64
    }
}

fn bytes(record: &Record) -> usize {
    let variable = match record {
        Record::Fence(fence) => {
            let receipt = match &fence.state {
                State::Sealed { receipt, .. } => receipt.body.len(),
                _ => 0,
            };
            receipt + fence.body.as_ref().and_then(|body| body.kept.as_ref()).map_or(0, |kept| kept.len())
        }
        Record::Alias(alias) => alias.receipt.body.len(),
        Record::DeadLetter(letter) => letter.entry.body.len(),
        _ => 0,
    };
    ROW_BYTES + variable
}

impl Hot {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self(Cache::with_weighter((bytes_max as usize / ROW_BYTES).max(1), bytes_max, Weight))
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<Arc<Row>> {
        self.0.get(key)
    }

    /// After a commit is durable, and before it is acknowledged.
    pub(crate) fn written(&self, key: RowKey, row: Option<Row>) {
        match row {
            // Entries are read in pages, and mostly by who wrote them: they would push out what is asked for again.
            Some(row) if key.kind != Kind::Entry && bytes(&row.record) <= ROW_BYTES_MAX => {
                self.0.insert(key, Arc::new(row));
            }
            _ => drop(self.0.remove(&key)),
        }
    }
}
