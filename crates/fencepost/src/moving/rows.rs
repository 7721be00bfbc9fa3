//! Reads rows in pages, from a store or a file, and tells whether a row has expired.
//! Never holds more than a page. Called by the other files of this module.

use std::sync::Arc;

use fencepost_kernel::{
    Millis, RowKey,
    row::{self, Record},
};
use fencepost_store::{Found, Store};

use super::Error;

/// The most rows in one page, and so in one commit.
pub(super) const PAGE_ROWS_MAX: usize = 500;
/// The most bytes that a page should have; one row may have more.
pub(super) const PAGE_BYTES_MAX: usize = 4 << 20;

/// A source of rows.
pub(super) trait Pages {
    /// The next rows; empty at the end.
    async fn page(&mut self) -> Result<Found, Error>;
}

/// Every row of a store, kind after kind.
pub(super) struct Scan {
    store: Arc<dyn Store>,
    kind: usize,
    after: Option<RowKey>,
    limit: usize,
}

impl Scan {
    pub(super) fn new(store: &Arc<dyn Store>) -> Self {
        Self { store: store.clone(), kind: 0, after: None, limit: PAGE_ROWS_MAX / 8 }
    }
}

impl Pages for Scan {
    async fn page(&mut self) -> Result<Found, Error> {
        while let Some(kind) = row::BACKUP.get(self.kind) {
            let page = self.store.scan(*kind, self.after, self.limit).await?;
            if let Some((last, _)) = page.last() {
                self.after = Some(*last);
                self.limit = next_limit(self.limit, &page);
                return Ok(page);
            }
            self.kind += 1;
            self.after = None;
        }
        Ok(Vec::new())
    }
}

// A store limits a page by rows and not by bytes, so the last page tells how many rows fit the next.
fn next_limit(limit: usize, page: &Found) -> usize {
    let bytes: usize = page.iter().map(|(_, row)| row.record.weight_bytes()).sum();
    let fitting = page.len() * PAGE_BYTES_MAX / bytes.max(1);
    fitting.min(limit * 2).clamp(1, PAGE_ROWS_MAX)
}

/// Whether a row has expired at `now`.
pub(super) fn is_over(record: &Record, now: Millis) -> bool {
    record.expires_at().is_some_and(|expires| expires <= now)
}
