//! Stores with a planted bug, to show that the auditor has teeth. Everything else is the memory store's.

use std::{collections::BTreeMap, sync::Arc};

use fencepost::{
    kernel::{Millis, RowKey, fence::Record, key::Kind, lane::Lane},
    store::{
        Error, Promises, Store, Verdict, WriteSet,
        contract::{Found, Loaded},
        memory::Memory,
    },
};
use futures::future::BoxFuture;

use super::dispatch_outcome::Bug;

/// The memory store, which changes what is written as its bug says.
pub struct Liar {
    pub inner: Memory,
    pub bug: Bug,
}

impl Liar {
    fn lie(&self, set: &WriteSet, tails: &BTreeMap<RowKey, u64>) -> WriteSet {
        let mut set = set.clone();
        if self.bug == Bug::ForgetsLetters {
            set.writes.retain(|write| write.key.kind != Kind::DeadLetter);
        }
        for write in &mut set.writes {
            if let Some(Record::Lane(lane)) = &mut write.put {
                let tail = tails.get(&RowKey::tail(lane.id())).copied().unwrap_or(0);
                self.falsify(Arc::make_mut(lane), tail);
            }
        }
        set
    }

    fn falsify(&self, lane: &mut Lane, tail: u64) {
        match self.bug {
            Bug::SettlesAhead if lane.trouble.is_none() && lane.settled > 0 => {
                lane.settled = (lane.settled + 1).min(tail.max(lane.settled));
            }
            Bug::ForgetsPauses => lane.paused = None,
            Bug::ForgetsWaits => {
                if let Some(trouble) = &mut lane.trouble {
                    trouble.next_at = trouble.last_at;
                }
            }
            _ => {}
        }
    }
}

impl Store for Liar {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        self.inner.load(keys)
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.inner.peek(key)
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(async move {
            let tails = self.inner.scan(Kind::Tail, None, usize::MAX).await?;
            let last = |record: &Record| if let Record::Tail(tail) = record { tail.last } else { 0 };
            let tails = tails.iter().map(|(key, row)| (*key, last(&row.record))).collect();
            let lies: Vec<WriteSet> = sets.iter().map(|set| self.lie(set, &tails)).collect();
            self.inner.commit(&lies, now).await
        })
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        self.inner.time_floor()
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        self.inner.due(kind, until, after, limit)
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        self.inner.range(kind, prefix, after, limit)
    }
}
