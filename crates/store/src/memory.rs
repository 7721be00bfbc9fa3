//! The memory store: every law but durability, for tests and for simulation.
//! Never depends on the order of a hash: two runs over the same commits are identical to the byte.
//! Called by the commit loop like any store.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencepost_kernel::{Millis, Row, RowKey, key::Kind};
use futures::future::BoxFuture;

use crate::{
    Durability, Error, Promises, Store, Verdict, WriteSet,
    contract::{Found, Loaded, Span},
    judge::{After, Judged, Known, judge},
};

/// Rows in memory. Cloning copies them: an image of the store at that moment.
#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    rows: BTreeMap<RowKey, Arc<Row>>,
    due: BTreeSet<(Kind, Millis, RowKey)>,
    time_floor: Millis,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops every row past its expiry by the store's own time, as a compaction may at any moment.
    pub fn sweep(&self) {
        let mut state = self.state();
        let now = state.time_floor;
        let State { rows, due, .. } = &mut *state;
        rows.retain(|key, row| {
            let keep = row.record.expires_at().is_none_or(|expires| expires > now);
            if !keep && let Some(due_at) = row.record.due_at() {
                due.remove(&(key.kind, due_at, *key));
            }
            keep
        });
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.state().rows.len()
    }

    /// Whether there is no row at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // A panic elsewhere cannot leave the state half changed: nothing here panics between two changes.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self { state: Mutex::new(self.state().clone()) }
    }
}

impl State {
    fn commit(&mut self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        let rows = &self.rows;
        let Judged { verdicts, changes } = judge(sets, |key| Ok(rows.get(key).map(|row| Known::of(row))))?;
        for change in changes {
            if let Some(due) = change.before.and_then(|known| known.due) {
                self.due.remove(&(change.key.kind, due, change.key));
            }
            match change.after {
                None => {
                    self.rows.remove(&change.key);
                }
                Some(After { revision, record }) => {
                    if let Some(due) = record.due_at() {
                        self.due.insert((change.key.kind, due, change.key));
                    }
                    self.rows.insert(change.key, Arc::new(Row { record: record.into_owned(), revision }));
                }
            }
        }
        self.time_floor = self.time_floor.max(now);
        Ok(verdicts)
    }
}

impl Store for Memory {
    fn promises(&self) -> Promises {
        Promises {
            durability: Durability::None,
            because: "memory".to_owned(),
            shared: false,
            many_rows: true,
            lanes: true,
        }
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move {
            let state = self.state();
            Ok(keys.iter().map(|key| state.rows.get(key).cloned()).collect())
        })
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        Some(Ok(self.state().rows.get(key).cloned()))
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(async move { self.state().commit(sets, now) })
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        Box::pin(async move { Ok(self.state().time_floor) })
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(async move {
            let state = self.state();
            let from = match after {
                Some((due, key)) => Bound::Excluded((kind, due, key)),
                None => Bound::Included((kind, Millis(0), RowKey { kind, id: [0; 32] })),
            };
            Ok(state
                .due
                .range((from, Bound::Unbounded))
                .take_while(|(of, due, _)| *of == kind && *due <= until)
                .filter_map(|(.., key)| state.rows.get(key).map(|row| (*key, row.clone())))
                .take(limit)
                .collect())
        })
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(async move {
            let Some(Span { from, last }) = Span::new(kind, prefix, after) else { return Ok(Found::new()) };
            let state = self.state();
            let rows = state.rows.range((from, Bound::Included(last))).take(limit);
            Ok(rows.map(|(key, row)| (*key, row.clone())).collect())
        })
    }
}
