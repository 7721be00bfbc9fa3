//! Remembers the rows of the last loads, so that the commit they lead to need not read them again.
//! Never keeps a row past a commit: rows loaded before it are forgotten at its end, rows loaded during it are not kept.
//! Called by the embedded store's load and commit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::HashMap;
use fencepost_kernel::RowKey;

use crate::{contract::Loaded, judge::Known};

/// The most rows that are kept: loads that lead to no commit must not use memory without bound.
const ROWS_MAX: usize = 1 << 14;

pub(super) type Rows = HashMap<RowKey, Option<Known>>;

#[derive(Default)]
struct State {
    /// Grows at the begin and at the end of every commit: odd while a commit is under way.
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

    /// Keeps the rows of a load that began in `epoch`.
    // INVARIANT recent-is-current: a load that a commit began or ended beside may have read the old rows, and is
    // told apart by its epoch; a load during a commit is not kept. No commit has touched the rows that are left.
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

    /// Begins a commit, and returns the rows that are known to be current.
    pub(super) fn begin(&self) -> Rows {
        let mut state = self.state();
        state.epoch += 1;
        std::mem::take(&mut state.rows)
    }

    /// Ends a commit, whatever its outcome, and takes the map back for the next one's rows.
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
