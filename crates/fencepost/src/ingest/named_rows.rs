//! How much a request would load: the stored items that it changes, and those that they refer to.
//! Never keeps a row: it reads page by page. Called before a request that names many rows is decided, since the decision loads
//! them all at once.

use std::collections::BTreeSet;

use fencepost_kernel::{
    RowKey,
    item::{Change, ItemId},
};

use super::Ingest;
use crate::engine::Error;

/// The most bytes of stored items that a request may name which names many.
pub const NAMED_BYTES_MAX: usize = 256 << 20;
/// Fewer rows are not read before: a request of a thousand new items would pay for each twice, and these have half a gibibyte at
/// most.
const FEW_ROWS: usize = 2_048;
/// How many rows are read at once.
const PAGE_ROWS: usize = 512;

impl Ingest {
    /// Whether the changes name no more than [`NAMED_BYTES_MAX`] of stored items, or few of them.
    pub async fn may_load(&self, changes: &[Change]) -> Result<bool, Error> {
        let (mut changed, mut named) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Put(put) | Change::Release { put, .. } => {
                    changed.insert(put.item);
                    named.extend(put.references.iter().map(|reference| reference.item));
                }
                Change::Retire { item, .. } => drop(changed.insert(*item)),
                Change::Refuse { .. } => {}
            }
        }
        named.extend(&changed);
        // An item that is changed may have a row in quarantine, too.
        if named.len() + changed.len() <= FEW_ROWS {
            return Ok(true);
        }
        let (mut bytes, mut quarantined) = (0, Vec::new());
        let named: Vec<ItemId> = named.into_iter().collect();
        for page in named.chunks(PAGE_ROWS) {
            let keys: Vec<RowKey> = page.iter().copied().map(RowKey::item).collect();
            for (item, row) in page.iter().zip(self.engine.load(&keys).await?) {
                let Some(row) = row else { continue };
                bytes += row.record.weight_bytes();
                let waits = row.record.as_item().is_some_and(|known| known.quarantine.is_some());
                quarantined.extend((waits && changed.contains(item)).then_some(RowKey::quarantine(*item)));
            }
            if bytes > NAMED_BYTES_MAX {
                return Ok(false);
            }
        }
        for keys in quarantined.chunks(PAGE_ROWS) {
            bytes += self.engine.load(keys).await?.iter().flatten().map(|row| row.record.weight_bytes()).sum::<usize>();
            if bytes > NAMED_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
