//! The store's faulty twin: keeps every law of the contract, in the worst way that the laws allow.
//! A commit is appended, synced and only then seen by readers; it may be slow, fail, lie about its outcome or die half
//! way. Never forgives: once dead or broken it stays so. Called by the engine, where
//! it is shared through a `Door` for each node; `world` crashes and restarts it.

mod commit;
mod door;
mod failover;
mod flaws;
mod items;
mod lives;
mod time;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fencepost_kernel::{Millis, Row, RowKey, Write, key::Kind};
use fencepost_store::{Durability, Error, Memory, Promises, Store, Verdict, WriteSet, codec, contract::Loaded};
use futures::future::BoxFuture;
use tokio::{sync::Notify, time::sleep};

pub(crate) use door::{Door, OldReading};
use failover::Primary;
use lives::Lives;
use time::Times;

use crate::{
    clock::Clocks,
    disk::{Disk, Tail},
    faults::{Faults, strikes},
    plant::Plant,
    recorder::Recorder,
};

/// One run of the store over a disk.
pub(crate) struct Twin {
    me: Weak<Self>,
    /// None once the machine died: nothing that is still running can touch the disk of the next run.
    disk: Mutex<Option<Disk>>,
    /// The synced rows, which are all that readers see.
    seen: Mutex<Arc<Memory>>,
    turn: tokio::sync::Mutex<()>,
    rng: Mutex<fastrand::Rng>,
    faults: Faults,
    plant: Option<Plant>,
    broken: AtomicBool,
    dying: Notify,
    recorder: Arc<Recorder>,
    /// Where several nodes share it, the clock that they all go by.
    clock: Option<Arc<Clocks>>,
    /// Whether a write set may have several rows.
    many_rows: bool,
    primary: Mutex<Primary>,
    times: Mutex<Times>,
    lives: Mutex<Lives>,
}

impl Twin {
    /// Opens what a crash left.
    pub(crate) async fn open(
        mut disk: Disk,
        faults: Faults,
        plant: Option<Plant>,
        rng: fastrand::Rng,
        recorder: Arc<Recorder>,
        clock: Option<Arc<Clocks>>,
        many_rows: bool,
    ) -> Result<Arc<Self>, Error> {
        let memory = Memory::new();
        let (image, floor_ms) = disk.recover();
        for (key, bytes) in image {
            let row = codec::decode(key, &Bytes::copy_from_slice(bytes))
                .map_err(|damage| Error::Broken(format!("recovered a damaged row: {damage:?}")))?;
            let set = WriteSet::new(row.revision, vec![Write { key: *key, expect: None, put: Some(row.record) }]);
            memory.commit(&[set], Millis(0)).await?;
        }
        memory.commit(&[], Millis(floor_ms)).await?;
        let twin = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            disk: Mutex::new(Some(disk)),
            seen: Mutex::new(Arc::new(memory)),
            turn: tokio::sync::Mutex::new(()),
            rng: Mutex::new(rng),
            faults,
            plant,
            broken: AtomicBool::new(false),
            dying: Notify::new(),
            recorder,
            clock,
            many_rows,
            primary: Mutex::default(),
            times: Mutex::default(),
            lives: Mutex::default(),
        });
        if let Some(clock) = &twin.clock {
            twin.keep_time(clock.clone());
        }
        Ok(twin)
    }

    /// Resolves when the machine dies of its own accord.
    pub(crate) async fn dies(&self) {
        self.dying.notified().await;
    }

    /// The machine is dead from here on; the rest of the disk is handed out.
    pub(crate) fn crash(&self) -> Disk {
        let mut disk = lock(&self.disk).take().unwrap_or_default();
        let mut rng = lock(&self.rng);
        let tail = [Tail::Lost, Tail::Kept, Tail::Torn, Tail::Garbled][rng.usize(0..4)];
        let unsynced_len = disk.unsynced_len();
        if unsynced_len > 0 {
            self.recorder
                .count(&format!("tail_{tail:?}").to_lowercase(), format_args!("{unsynced_len} bytes unsynced"));
        }
        disk.crash(tail, &mut rng);
        disk
    }

    /// Drops expired rows from what readers see, as a compaction may at any moment.
    pub(crate) fn compact(&self) {
        self.view().sweep();
    }

    fn view(&self) -> Arc<Memory> {
        lock(&self.seen).clone()
    }

    fn roll(&self, chance: u32) -> bool {
        strikes(&mut lock(&self.rng), chance)
    }

    fn alive(&self) -> Result<(), Error> {
        match (self.broken.load(Ordering::Relaxed), lock(&self.disk).is_some()) {
            (false, true) => Ok(()),
            _ => Err(Error::Broken("the disk is gone".to_owned())),
        }
    }

    /// A commit that the store finishes, even if its client stops waiting for the answer.
    pub(crate) async fn commit_detached(&self, sets: Vec<WriteSet>, now: Millis) -> Result<Vec<Verdict>, Error> {
        let gone = || Error::Unknown("the store is gone".to_owned());
        let twin = self.me.upgrade().ok_or_else(gone)?;
        tokio::spawn(async move { twin.commit(&sets, now).await }).await.unwrap_or_else(|_| Err(gone()))
    }

    /// One moment of the store, for a transaction of the user's.
    pub(crate) async fn snapshot(&self) -> Result<Arc<Memory>, Error> {
        self.read().await
    }

    /// Whether a question gets an answer.
    fn answers(&self) -> Result<(), Error> {
        if lock(&self.disk).is_none() {
            return Err(Error::Broken("the machine is off".to_owned()));
        }
        if self.roll(self.faults.refused) {
            self.recorder.tally("load_refused");
            return Err(Error::NotApplied("the connection was refused".to_owned()));
        }
        Ok(())
    }

    async fn read(&self) -> Result<Arc<Memory>, Error> {
        let before = self.view();
        if self.roll(self.faults.slow_load) {
            let wait_ms = lock(&self.rng).u64(1..800);
            sleep(Duration::from_millis(wait_ms)).await;
        }
        self.answers()?;
        // Both are lawful: a load sees what was acknowledged before it began, and may see more.
        Ok(if self.roll(500) { before } else { self.view() })
    }
}

impl Store for Twin {
    fn promises(&self) -> Promises {
        Promises {
            durability: Durability::Synced,
            because: "a simulated disk".to_owned(),
            shared: self.clock.is_some(),
            many_rows: self.many_rows,
            lanes: self.many_rows,
        }
    }

    fn now(&self) -> Option<Millis> {
        self.clock.as_ref().map(|clock| Millis(clock.server_ms()))
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move {
            let found = self.read().await?.load(keys).await?;
            // Another node wrote while it was read, or while the answer was on its way.
            if !door::same(&self.view().load(keys).await?, &found) {
                self.recorder.tally("read_overtaken");
            }
            Ok(found)
        })
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        if lock(&self.disk).is_none() {
            return Some(Err(Error::Broken("the machine is off".to_owned())));
        }
        if self.roll(self.faults.blind_peek) { None } else { self.view().peek(key) }
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(self.commit_sets(sets, now))
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        Box::pin(async move { self.view().time_floor().await })
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(RowKey, Arc<Row>)>, Error>> {
        Box::pin(async move { self.read().await?.due(kind, until, after, limit).await })
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(RowKey, Arc<Row>)>, Error>> {
        Box::pin(async move { self.read().await?.range(kind, prefix, after, limit).await })
    }

    fn sweep(&self, now: Millis, limit: usize) -> BoxFuture<'_, Result<Option<usize>, Error>> {
        Box::pin(self.sweep_rows(now, limit))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
