//! Rows in pages, wherever they come from; and whether a row is over.
//! Never holds more than a page. Called by the other files of this module.

use std::sync::Arc;

use fencepost_kernel::{
    Millis, RowKey,
    row::{self, Record},
};
use fencepost_store::{Found, Store};

use super::Error;

/// Rows in one page, and so in one commit.
pub(super) const PAGE_ROWS_MAX: usize = 500;
/// What a page should weigh at most; one row may weigh more.
pub(super) const PAGE_BYTES_MAX: usize = 4 << 20;

/// Somewhere rows come from.
pub(super) trait Pages {
    /// The next rows; none at the end.
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

// A store counts rows and not bytes, so the rows before tell how many of the next fit a page.
fn next_limit(limit: usize, page: &Found) -> usize {
    let bytes: usize = page.iter().map(|(_, row)| row.record.weight_bytes()).sum();
    let fitting = page.len() * PAGE_BYTES_MAX / bytes.max(1);
    fitting.min(limit * 2).clamp(1, PAGE_ROWS_MAX)
}

/// Whether a row's time is over at `now`.
pub(super) fn is_over(record: &Record, now: Millis) -> bool {
    record.expires_at().is_some_and(|expires| expires <= now)
}
