//! One node's way to the store it shares: a network with delays, behind which the store finishes every commit, also of
//! a dead node.
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
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    Twin, lock,
    time::{BEAT_MS, BEAT_SOON_MS, BEHIND_MS, SETTLED_MS},
};
use crate::{clock::Clocks, hold::Gate, plant::Plant};

pub(crate) struct Door {
    /// The node's name, as the store knows it.
    name: String,
    twin: Arc<Twin>,
    gate: Arc<Gate>,
    rng: Mutex<fastrand::Rng>,
    travel_ms_max: u64,
    /// Rows as they once were.
    stale: Mutex<Arc<Memory>>,
    /// Shared by every commit under way.
    under_way: Arc<()>,
    clock: NodeClock,
    /// The primary that it reads from while it is not redialled.
    reads_term: u64,
    /// The term whose primary it still reads from, for a moment.
    old_term: Mutex<Option<u64>>,
}

/// How a node knows the time: from answers that are some time old. It is behind, now more and now less, and never goes back.
struct NodeClock {
    /// Which of the times that the twin keeps is this node's.
    id: usize,
    skew_ms: u64,
    behind_ms: AtomicU64,
    last_ms: AtomicU64,
    /// An answer showed the server behind.
    server_behind: Notify,
}

impl Door {
    pub(crate) fn new(name: String, twin: Arc<Twin>, gate: Arc<Gate>, skew_ms: u64, mut rng: fastrand::Rng) -> Self {
        let travel_ms_max = [0, 3, 40][rng.usize(0..3)];
        let id = twin.clock.as_ref().map_or(0, |clock| twin.node_starts(clock));
        // Even with old answers, it starts past every time that was ever reported.
        let last_ms = if twin.plant == Some(Plant::NodeBehind) { 0 } else { twin.floor_ms() + 1 };
        let behind_ms = rng.u64(0..=skew_ms).into();
        let clock = NodeClock { id, skew_ms, behind_ms, last_ms: last_ms.into(), server_behind: Notify::new() };
        let reads_term = twin.term();
        let (stale, under_way) = Default::default();
        Self {
            name,
            twin,
            gate,
            rng: Mutex::new(rng),
            travel_ms_max,
            stale,
            under_way,
            clock,
            reads_term,
            old_term: Mutex::default(),
        }
    }

    /// Which of the twin's times is this node's.
    pub(crate) fn time_id(&self) -> usize {
        self.clock.id
    }

    // An answer of the server tells its time anew.
    fn hear_time(&self) {
        let Some(clock) = &self.twin.clock else { return };
        self.twin.node_hears(self.clock.id, clock, clock.server_ms());
        if self.clock.skew_ms > 0 {
            let behind_ms = lock(&self.rng).u64(0..=self.clock.skew_ms);
            self.clock.behind_ms.store(behind_ms, Ordering::Relaxed);
            if behind_ms > 0 {
                self.twin.recorder.tally("node_clock_behind");
            }
        }
        if self.twin.node_ms(self.clock.id, clock) > clock.server_ms() + BEHIND_MS {
            self.clock.server_behind.notify_one();
        }
    }

    /// Sends heartbeats with its time and receives the floor, for as long as the node lives.
    pub(crate) async fn beat(self: Arc<Self>, clock: Arc<Clocks>) {
        let (mut soon, started_ms) = (true, clock.elapsed_ms());
        loop {
            sleep(Duration::from_millis(BEAT_SOON_MS)).await;
            if !soon {
                // A node that hears that the server is behind reports its own time.
                let rest = Duration::from_millis(BEAT_MS - BEAT_SOON_MS);
                let _ = timeout(rest, self.clock.server_behind.notified()).await;
            }
            while self.gate.is_shut() {
                sleep(Duration::from_millis(10)).await;
            }
            let left_ms = clock.elapsed_ms();
            let node_ms = self.twin.node_ms(self.clock.id, &clock);
            self.travel().await;
            self.twin.hears_from(&self.name, &clock);
            let [server_ms, lived_ms] = self.twin.beaten(node_ms, &clock);
            self.travel().await;
            self.twin.node_hears(self.clock.id, &clock, server_ms.max(lived_ms));
            self.twin.node_has_beaten(self.clock.id, left_ms);
            soon = lived_ms.max(node_ms) > server_ms + BEHIND_MS || left_ms < started_ms + SETTLED_MS;
        }
    }

    /// Whether it reads from the primary before this one, which is alive and answers, until it finds out.
    pub(crate) fn read_old_primary(&self, reads: OldReading) {
        *lock(&self.old_term) = match reads {
            OldReading::Begins => Some(self.twin.term()),
            OldReading::Ends => None,
        };
    }

    // For a moment, or for ever where that bug is planted.
    fn old_primary(&self) -> Option<Arc<Memory>> {
        let term = self.twin.term();
        let planted = self.twin.plant == Some(Plant::OldPrimaryReads) && term > self.reads_term;
        (planted || *lock(&self.old_term) == Some(term)).then(|| self.twin.old_primary())?
    }

    // Counts an answer that differs from the rows that readers see now.
    fn tally_if_old(&self, name: &str, keys: &[RowKey], found: &[Loaded]) {
        if self.twin.view().load(keys).now_or_never().and_then(Result::ok).is_some_and(|now| !same(&now, found)) {
            self.twin.recorder.tally(name);
        }
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
        self.gate.opened().await;
        answer
    }
}

/// Whether a door's reads from an old primary begin or end.
pub(crate) enum OldReading {
    Begins,
    Ends,
}

pub(super) fn same(now: &[Loaded], found: &[Loaded]) -> bool {
    let revisions = |rows: &[Loaded]| rows.iter().map(|row| row.as_ref().map(|row| row.revision)).collect::<Vec<_>>();
    revisions(now) == revisions(found)
}

impl Store for Door {
    fn promises(&self) -> Promises {
        self.twin.promises()
    }

    fn now(&self) -> Option<Millis> {
        let clock = self.twin.clock.as_ref()?;
        let known_ms = match self.twin.plant {
            Some(Plant::CallersClock) => clock.told_ms(),
            _ => self.twin.node_ms(self.clock.id, clock),
        };
        let told_ms = known_ms.saturating_sub(self.clock.behind_ms.load(Ordering::Relaxed));
        Some(Millis(self.clock.last_ms.fetch_max(told_ms, Ordering::Relaxed).max(told_ms)))
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move {
            let found = match self.old_primary() {
                Some(old) => {
                    let found = self.there_and_back(old.load(keys)).await;
                    self.tally_if_old("read_from_old_primary", keys, found.as_deref().unwrap_or_default());
                    found
                }
                None => self.there_and_back(self.twin.load(keys)).await,
            };
            self.hear_time();
            found
        })
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.twin.peek(key)
    }

    // Right, outdated, or nothing at all: only a commit may rest on it.
    fn guess(&self, key: &RowKey) -> Option<Loaded> {
        let draw = lock(&self.rng).u8(0..10);
        let guess = match draw {
            0 => None,
            1 => Some(None),
            2 => lock(&self.stale).load(&[*key]).now_or_never()?.ok()?.pop(),
            _ => {
                let now = self.twin.view();
                *lock(&self.stale) = now.clone();
                now.load(&[*key]).now_or_never()?.ok()?.pop()
            }
        };
        if let Some(guess) = &guess {
            self.tally_if_old("guess_stale", &[*key], std::slice::from_ref(guess));
        }
        guess
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
            // A node that dies on the way there never asked; one that dies later has asked, and the store does it all the same.
            let verdicts = self.there_and_back(self.twin.commit_detached(sets.to_vec(), now)).await;
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
        Box::pin(self.there_and_back(async move {
            let twin = self.twin.clone();
            let swept = tokio::spawn(async move { twin.sweep(now, limit).await });
            swept.await.unwrap_or_else(|_| Err(Error::Unknown("the store is gone".to_owned())))
        }))
    }

    fn drive(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.there_and_back(async {
            let Some(clock) = &self.twin.clock else { return Ok(()) };
            self.twin.answers()?;
            self.twin.hears_from(&self.name, clock);
            self.twin.node_drives(&self.name);
            Ok(())
        }))
    }

    fn alive(&self) -> BoxFuture<'_, Result<Vec<(String, Millis)>, Error>> {
        Box::pin(async {
            let Some(clock) = &self.twin.clock else { return Ok(Vec::new()) };
            let drivers = self.there_and_back(async { self.twin.answers().map(|()| self.twin.drivers(clock)) }).await?;
            self.hear_time();
            // As of this node's time: a server whose clock is set makes nobody look silent.
            let now = self.now().unwrap_or_default();
            let alone = self.twin.plant == Some(Plant::TwoDrivers);
            let drivers = drivers.into_iter().filter(|(node, _)| !alone || *node == self.name);
            Ok(drivers.map(|(node, silent_ms)| (node, Millis(now.0.saturating_sub(silent_ms)))).collect())
        })
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.there_and_back(async {
            self.twin.answers()?;
            self.twin.node_leaves(&self.name);
            Ok(())
        }))
    }
}
