//! Rows in pages, wherever they come from; and what of a row matters to a move: its size, its latest moment.
//! Never holds more than a page. Called by the other files of this module.

use std::sync::Arc;

use fencepost_kernel::{
    Millis, RowKey,
    fence::{Fence, Record, State},
    lane::Fate,
};
use fencepost_store::{Found, Store};

use super::{Error, KINDS};

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
        while let Some(kind) = KINDS.get(self.kind) {
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
    let bytes: usize = page.iter().map(|(_, row)| weight(&row.record)).sum();
    let fitting = page.len() * PAGE_BYTES_MAX / bytes.max(1);
    fitting.min(limit * 2).clamp(1, PAGE_ROWS_MAX)
}

/// About how many bytes a row keeps in memory.
pub(super) fn weight(record: &Record) -> usize {
    const REST: usize = 512;
    REST + match record {
        Record::Fence(fence) => {
            let body = fence.body.as_ref().and_then(|body| body.kept.as_ref()).map_or(0, |kept| kept.len());
            let receipt = if let State::Sealed { receipt, .. } = &fence.state { receipt.body.len() } else { 0 };
            body + receipt
        }
        Record::Alias(alias) => alias.receipt.body.len(),
        Record::Entry(entry) => entry.body.len(),
        Record::DeadLetter(letter) => letter.entry.body.len(),
        _ => 0,
    }
}

/// The latest moment that a row tells of, tokens included: no time or token after it may be lower.
/// Leases and expiries are left out: they lie ahead, and time must not jump to them.
pub(super) fn latest(record: &Record) -> Millis {
    match record {
        Record::Fence(fence) => latest_of(fence),
        Record::Alias(alias) => alias.at,
        Record::Trace(trace) => trace.recent.iter().map(|(at, _)| *at).max().unwrap_or(trace.first_seen),
        Record::Route(route) => route.at,
        Record::Entry(entry) => entry.published,
        Record::Lane(lane) => {
            let tried = lane.trouble.as_ref().map_or(Millis(0), |trouble| trouble.last_at);
            tried.max(lane.paused.as_ref().map_or(Millis(0), |pause| pause.at))
        }
        Record::DeadLetter(letter) => match &letter.fate {
            Fate::Waiting => letter.at,
            Fate::Redriven { at, .. } | Fate::Discarded { at, .. } => *at,
        },
        _ => Millis(0),
    }
}

fn latest_of(fence: &Fence) -> Millis {
    let state = match &fence.state {
        State::Pending { .. } => Millis(0),
        State::Sealed { at, .. } | State::Released { at, .. } => *at,
    };
    // The fence's own token is the highest that was given; a refused seal may have shown any other.
    let events = fence.events.iter().map(|event| event.at);
    events.fold(state.max(fence.first_seen).max(Millis(fence.token.0)), Millis::max)
}

/// Whether a row's time is over at `now`.
pub(super) fn is_over(record: &Record, now: Millis) -> bool {
    record.expires_at().is_some_and(|expires| expires <= now)
}
