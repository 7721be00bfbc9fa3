//! Remembers what the last loads found, so that the commit they lead to need not read the same rows again.
//! Never outlives a commit: what was loaded before one is forgotten when it ends, and what is loaded during one is not kept.
//! Called by the embedded store's load and commit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::HashMap;
use fencepost_kernel::RowKey;

use crate::{contract::Loaded, judge::Known};

/// Loads that lead to no commit must not grow the memory without end.
const ROWS_MAX: usize = 1 << 14;

pub(super) type Rows = HashMap<RowKey, Option<Known>>;

#[derive(Default)]
struct State {
    /// Grows at the begin and at the end of every commit.
    epoch: u64,
    rows: Rows,
}

#[derive(Default)]
pub(super) struct Recent(Mutex<State>);

impl Recent {
    pub(super) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// Whether no commit was under way in `epoch`, and none has begun since.
    pub(super) fn still(&self, epoch: u64) -> bool {
        epoch.is_multiple_of(2) && self.epoch() == epoch
    }

    /// Keeps what a load found that began in `epoch`.
    // INVARIANT recent-is-current: a load that a commit began or ended beside may have read the old rows, and is
    // told apart by its epoch; one within a commit is not kept. What is left, no commit has touched since.
    pub(super) fn remember<'a>(&self, epoch: u64, rows: impl Iterator<Item = (RowKey, &'a Loaded)>) {
        let mut state = self.state();
        if state.epoch != epoch || !epoch.is_multiple_of(2) {
            return;
        }
        if state.rows.len() >= ROWS_MAX {
            state.rows.clear();
        }
        state.rows.extend(rows.map(|(key, row)| {
            let known = row.as_ref().map(|row| Known::of(row));
            (key, known)
        }));
    }

    /// Begins a commit: hands out what is known to be current.
    pub(super) fn begin(&self) -> Rows {
        let mut state = self.state();
        state.epoch += 1;
        std::mem::take(&mut state.rows)
    }

    /// Ends a commit, whatever became of it, and takes back the room for the next one's rows.
    pub(super) fn end(&self, mut rows: Rows) {
        rows.clear();
        let mut state = self.state();
        state.epoch += 1;
        state.rows = rows;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
