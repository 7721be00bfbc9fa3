//! Background work in bounded steps: flushing counts, and dropping rows whose time is over.
//! Never scans on the request path. Called once a second by the housekeeping thread, or by the simulator.

use std::sync::PoisonError;

use fencepost_kernel::{Command, Millis, RowKey, fence, key::Kind};

use super::{Engine, Error};

/// Rows looked at in one page.
const PAGE_ROWS: usize = 1_000;
/// Pages looked at in one step, while there is something to drop.
const PAGES_MAX: usize = 10;
/// How long a row outlives its expiry where other engines write, too: one that guesses that there is none, and is then paused
/// before it commits, must still find it.
const SHARED_GRACE_MS: u64 = 60_000;
/// Counts flushed in one step.
const FLUSH_MAX: usize = 1_000;

/// Where the sweep stands, and how many rows it takes at a time: fewer where so many were too much for the store.
pub(super) struct Sweep {
    /// Which kind of [`Kind::ALL`].
    kind: usize,
    after: Option<RowKey>,
    rows: usize,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { kind: 0, after: None, rows: PAGE_ROWS }
    }
}

impl Engine {
    /// One bounded step of background work.
    pub async fn housekeep(&self) -> Result<(), Error> {
        self.flush_sightings().await?;
        for _ in 0..PAGES_MAX {
            // A store with an index of expiries drops them itself; elsewhere they are looked for.
            let dropped = match self.shared.store.sweep(self.swept_until(), PAGE_ROWS).await? {
                Some(dropped) => dropped,
                None => self.sweep_page().await?,
            };
            if dropped == 0 {
                break;
            }
        }
        Ok(())
    }

    // Rows that expired before this may be dropped.
    fn swept_until(&self) -> Millis {
        let grace_ms = if self.shared.shared { SHARED_GRACE_MS } else { 0 };
        Millis(self.now().0.saturating_sub(grace_ms))
    }

    /// Writes down the counts that are only in memory.
    pub async fn flush_sightings(&self) -> Result<(), Error> {
        let seen = self.shared.sightings.drain(FLUSH_MAX);
        if !seen.is_empty() {
            self.submit_patiently(seen.into_iter().map(|seen| fence::Command::Observe(seen).into()).collect()).await?;
        }
        Ok(())
    }

    async fn sweep_page(&self) -> Result<usize, Error> {
        let (kind, after, rows) = {
            let mut sweep = self.shared.sweep.lock().unwrap_or_else(PoisonError::into_inner);
            let rows = sweep.rows;
            // Until the page is there, the next try asks for less.
            sweep.rows = (rows / 4).max(1);
            (sweep.kind, sweep.after, rows)
        };
        let until = self.swept_until();
        let page = self.shared.store.scan(Kind::ALL[kind], after, rows).await?;
        let next = page.last().filter(|_| page.len() == rows).map(|(key, _)| *key);
        let over: Vec<Command> = page
            .iter()
            .filter(|(_, row)| row.record.expires_at().is_some_and(|expires| expires <= until))
            .map(|(key, _)| Command::Sweep(*key))
            .collect();
        let count = over.len();
        if count > 0 {
            self.submit_patiently(over.into()).await?;
        }
        let mut sweep = self.shared.sweep.lock().unwrap_or_else(PoisonError::into_inner);
        sweep.after = next;
        sweep.rows = (rows * 2).min(PAGE_ROWS);
        if next.is_none() {
            sweep.kind = next_swept(kind);
        }
        Ok(count)
    }
}

// The place of the next kind whose rows may expire. Fences do, so there always is one.
fn next_swept(kind: usize) -> usize {
    let places = (kind + 1..Kind::ALL.len()).chain(0..=kind);
    places.into_iter().find(|place| Kind::ALL[*place].spec().swept).unwrap_or(0)
}
