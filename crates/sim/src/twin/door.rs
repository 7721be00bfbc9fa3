//! One node's way to the store it shares: a network with delays, behind which the store goes on whoever asked.
//! Never judges and never refuses by itself. Each node of a shared world has its own; the engine calls it as its store.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::{Millis, RowKey, key::Kind};
use fencepost_store::{
    Error, Memory, Promises, Store, Verdict, WriteSet,
    contract::{Found, Loaded},
};
use futures::{FutureExt, future::BoxFuture};
use tokio::time::sleep;

use super::{Twin, lock};
use crate::{hold::Gate, plant::Plant};

pub(crate) struct Door {
    twin: Arc<Twin>,
    gate: Arc<Gate>,
    rng: Mutex<fastrand::Rng>,
    travel_ms_max: u64,
    /// Rows as they once were.
    stale: Mutex<Arc<Memory>>,
    /// Shared by every commit under way.
    under_way: Arc<()>,
    clock: NodeClock,
    /// Which primary it reads from, where nobody redials it.
    reads_term: u64,
}

/// How a node knows the time: from answers that are some time old. It is behind, now more and now less, and never goes back.
struct NodeClock {
    skew_ms: u64,
    behind_ms: AtomicU64,
    last_ms: AtomicU64,
}

impl Door {
    pub(crate) fn new(twin: Arc<Twin>, gate: Arc<Gate>, skew_ms: u64, mut rng: fastrand::Rng) -> Self {
        let travel_ms_max = [0, 3, 40][rng.usize(0..3)];
        // It starts past all that was ever committed, unless the bug is planted.
        let floor = twin.view().time_floor().now_or_never().and_then(Result::ok).unwrap_or_default();
        let (behind_ms, start_ms) = match (twin.plant, &twin.clock) {
            (Some(Plant::NodeBehind), Some(clock)) => (clock.server_behind_ms(), 0),
            _ => (rng.u64(0..=skew_ms), floor.0 + 1),
        };
        let clock = NodeClock { skew_ms, behind_ms: behind_ms.into(), last_ms: start_ms.into() };
        let reads_term = twin.term();
        let (stale, under_way) = Default::default();
        Self { twin, gate, rng: Mutex::new(rng), travel_ms_max, stale, under_way, clock, reads_term }
    }

    // An answer of the server tells its time anew.
    fn hear_time(&self) {
        if self.clock.skew_ms > 0 && self.twin.plant != Some(Plant::NodeBehind) {
            self.clock.behind_ms.store(lock(&self.rng).u64(0..=self.clock.skew_ms), Ordering::Relaxed);
            self.twin.recorder.tally("node_clock_behind");
        }
    }

    // The planted bug: what the old primary says, which is alive and answers.
    fn old_primary(&self) -> Option<Arc<Memory>> {
        let stays = self.twin.plant == Some(Plant::OldPrimaryReads) && self.twin.term() > self.reads_term;
        stays.then(|| self.twin.old_primary())?
    }

    async fn travel(&self) {
        let wait_ms = lock(&self.rng).u64(0..=self.travel_ms_max);
        if wait_ms > 0 {
            sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    async fn there_and_back<T>(&self, asked: impl Future<Output = T>) -> T {
        self.travel().await;
        let answer = asked.await;
        self.travel().await;
        answer
    }

    // A node that dies on the way there never asked; one that dies later has asked, and the store does it all the same.
    async fn hand_over(&self, sets: Vec<WriteSet>, now: Millis) -> Result<Vec<Verdict>, Error> {
        let twin = self.twin.clone();
        let done = tokio::spawn(async move { twin.commit(&sets, now).await });
        done.await.unwrap_or_else(|_| Err(Error::Unknown("the store is gone".to_owned())))
    }
}

impl Store for Door {
    fn promises(&self) -> Promises {
        self.twin.promises()
    }

    fn now(&self) -> Option<Millis> {
        let told_ms = self.twin.now()?.0.saturating_sub(self.clock.behind_ms.load(Ordering::Relaxed));
        Some(Millis(self.clock.last_ms.fetch_max(told_ms, Ordering::Relaxed).max(told_ms)))
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move {
            match self.old_primary() {
                Some(old) => self.there_and_back(old.load(keys)).await,
                None => self.there_and_back(self.twin.load(keys)).await,
            }
        })
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.twin.peek(key)
    }

    // Right, long gone, or nothing at all: whatever it says, only a commit may rest on it.
    fn guess(&self, key: &RowKey) -> Option<Loaded> {
        match lock(&self.rng).u8(0..10) {
            0 => None,
            1 => Some(None),
            2 => lock(&self.stale).load(&[*key]).now_or_never()?.ok()?.pop(),
            _ => {
                let now = self.twin.view();
                *lock(&self.stale) = now.clone();
                now.load(&[*key]).now_or_never()?.ok()?.pop()
            }
        }
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(async move {
            let under_way = self.under_way.clone();
            if Arc::strong_count(&under_way) > 2 {
                self.twin.recorder.tally("commits_at_once");
            }
            let late = self.gate.catches_up();
            if self.twin.roll(self.twin.faults.hangs) {
                let wait_ms = lock(&self.rng).u64(1..2_500);
                self.twin.recorder.count("commit_hung", format_args!("{wait_ms} ms"));
                sleep(Duration::from_millis(wait_ms)).await;
            }
            let verdicts = self.there_and_back(self.hand_over(sets.to_vec(), now)).await;
            self.hear_time();
            let verdicts = verdicts?;
            if late && verdicts.contains(&Verdict::Moved) {
                self.twin.recorder.tally("late_commit_refused");
            }
            Ok(verdicts)
        })
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        self.twin.time_floor()
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(self.there_and_back(self.twin.due(kind, until, after, limit)))
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(self.there_and_back(self.twin.range(kind, prefix, after, limit)))
    }

    fn sweep(&self, now: Millis, limit: usize) -> BoxFuture<'_, Result<Option<usize>, Error>> {
        Box::pin(self.there_and_back(self.twin.sweep(now, limit)))
    }
}
