//! The store's faulty twin: keeps every law of the contract, in the worst way that the laws allow.
//! A commit is appended, synced and only then seen by readers; it may be slow, fail, lie about its outcome or die half
//! way. Never forgives: once dead or broken it stays so. Called by the engine; `world` crashes and restarts it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fencepost_kernel::{Millis, Row, RowKey, Write, key::Kind};
use fencepost_store::{Error, Memory, Store, Verdict, WriteSet, codec, contract::Loaded};
use futures::future::BoxFuture;
use tokio::{sync::Notify, time::sleep};

use crate::{
    disk::{Disk, Stored, Tail},
    faults::{Faults, strikes},
    plant::Plant,
    recorder::Recorder,
};

/// One run of the store over a disk.
pub(crate) struct Twin {
    me: Weak<Self>,
    /// None once the machine died: nothing that is still running can touch the disk of the next run.
    disk: Mutex<Option<Disk>>,
    /// What readers see: only what is synced.
    seen: Mutex<Arc<Memory>>,
    turn: tokio::sync::Mutex<()>,
    rng: Mutex<fastrand::Rng>,
    faults: Faults,
    plant: Option<Plant>,
    broken: AtomicBool,
    dying: Notify,
    recorder: Arc<Recorder>,
}

/// Where in a commit the machine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    BeforeAppend,
    WithinAppend,
    BeforeSync,
    AfterSync,
    AfterReply,
}

/// What is told of a commit that is not what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Unknown, and it did not happen.
    Never,
    /// Unknown, and it did.
    Done,
    /// Unknown, and it will, unless its rows move first.
    Later,
}

impl Twin {
    /// Opens what a crash left.
    pub(crate) async fn open(
        mut disk: Disk,
        faults: Faults,
        plant: Option<Plant>,
        rng: fastrand::Rng,
        recorder: Arc<Recorder>,
    ) -> Result<Arc<Self>, Error> {
        let memory = Memory::new();
        let (image, floor_ms) = disk.recover();
        for (key, bytes) in image {
            let row = codec::decode(key, &Bytes::copy_from_slice(bytes))
                .map_err(|damage| Error::Broken(format!("recovered a damaged row: {damage:?}")))?;
            let set =
                WriteSet { id: row.revision, writes: vec![Write { key: *key, expect: None, put: Some(row.record) }] };
            memory.commit(&[set], Millis(0)).await?;
        }
        memory.commit(&[], Millis(floor_ms)).await?;
        Ok(Arc::new_cyclic(|me| Self {
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
        }))
    }

    /// Resolves when the machine dies of its own accord.
    pub(crate) async fn dies(&self) {
        self.dying.notified().await;
    }

    /// The machine is dead from here on; what is left of the disk is handed out.
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

    async fn die(&self, when: Death) {
        self.recorder.note(format_args!("store: dies {when:?}"));
        self.dying.notify_one();
        std::future::pending().await
    }

    async fn read(&self) -> Result<Arc<Memory>, Error> {
        let before = self.view();
        if self.roll(self.faults.slow_load) {
            let wait_ms = lock(&self.rng).u64(1..800);
            sleep(Duration::from_millis(wait_ms)).await;
        }
        if lock(&self.disk).is_none() {
            return Err(Error::Broken("the machine is off".to_owned()));
        }
        if self.roll(self.faults.refused) {
            self.recorder.tally("load_refused");
            return Err(Error::NotApplied("the connection was refused".to_owned()));
        }
        // Both are lawful: a load sees what was acknowledged before it began, and may see more.
        Ok(if self.roll(500) { before } else { self.view() })
    }

    async fn commit_sets(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        let _turn = self.turn.lock().await;
        self.alive()?;
        if self.roll(self.faults.refused) {
            self.recorder.count("commit_refused", format_args!("{} sets", sets.len()));
            return Err(Error::NotApplied("no connection".to_owned()));
        }
        let lie =
            self.roll(self.faults.unknown).then(|| [Lie::Never, Lie::Done, Lie::Later][lock(&self.rng).usize(0..3)]);
        if let Some(lie) = lie {
            self.recorder.count(&format!("unknown_{lie:?}").to_lowercase(), format_args!("{} sets", sets.len()));
        }
        match lie {
            Some(Lie::Later) => self.land_later(sets.to_vec(), now),
            Some(Lie::Never) => {}
            _ => {
                let verdicts = self.apply(sets, now).await?;
                if lie.is_none() {
                    return Ok(verdicts);
                }
            }
        }
        Err(Error::Unknown("the connection broke".to_owned()))
    }

    // The request is still on its way, as with a server that goes on after its client lost the connection.
    fn land_later(&self, sets: Vec<WriteSet>, now: Millis) {
        let (me, wait_ms) = (self.me.clone(), lock(&self.rng).u64(0..300));
        tokio::spawn(async move {
            sleep(Duration::from_millis(wait_ms)).await;
            let Some(twin) = me.upgrade() else { return };
            let _turn = twin.turn.lock().await;
            if twin.alive().is_ok() {
                let applied = twin.apply(&sets, now).await.unwrap_or_default();
                let count = applied.iter().filter(|verdict| **verdict == Verdict::Applied).count();
                twin.recorder.count("landed_late", format_args!("{count} of {} sets", sets.len()));
            }
        });
    }

    async fn apply(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        let death = self.roll(self.faults.crash).then(|| {
            let all =
                [Death::BeforeAppend, Death::WithinAppend, Death::BeforeSync, Death::AfterSync, Death::AfterReply];
            all[lock(&self.rng).usize(0..all.len())]
        });
        if death == Some(Death::BeforeAppend) {
            self.die(Death::BeforeAppend).await;
        }
        if self.roll(self.faults.compaction) {
            self.compact();
        }
        let before = self.view();
        let after = Memory::clone(&before);
        let verdicts = after.commit(sets, now).await?;
        let records = self.records(sets, &before, now).await?;
        if death == Some(Death::WithinAppend) {
            let cut = lock(&self.rng).usize(0..=records.len());
            self.append(&records[..cut]);
            self.die(Death::WithinAppend).await;
        }
        self.append(&records);
        if self.plant == Some(Plant::ReplyBeforeSync) {
            *lock(&self.seen) = Arc::new(after);
            self.sync_later();
            if death.is_some() {
                self.dying.notify_one();
            }
            return Ok(verdicts);
        }
        if death == Some(Death::BeforeSync) {
            self.die(Death::BeforeSync).await;
        }
        self.sync().await?;
        *lock(&self.seen) = Arc::new(after);
        match death {
            Some(Death::AfterSync) => self.die(Death::AfterSync).await,
            Some(Death::AfterReply) => self.dying.notify_one(),
            _ => {}
        }
        let moved = verdicts.iter().filter(|verdict| **verdict == Verdict::Moved).count();
        if moved > 0 {
            self.recorder.count("moved", format_args!("{moved} of {} sets", sets.len()));
        }
        Ok(verdicts)
    }

    async fn sync(&self) -> Result<(), Error> {
        let slow = self.roll(self.faults.slow_sync);
        let ms_max = if slow { self.faults.slow_sync_ms_max } else { self.faults.sync_ms_max };
        let wait_ms = lock(&self.rng).u64(0..=ms_max);
        if slow {
            self.recorder.count("slow_sync", format_args!("{wait_ms} ms"));
        }
        sleep(Duration::from_millis(wait_ms)).await;
        if self.roll(self.faults.sync_fails) {
            self.recorder.count("sync_failed", "the store stops");
            self.broken.store(true, Ordering::Relaxed);
            return Err(Error::Broken("the sync failed".to_owned()));
        }
        match lock(&self.disk).as_mut() {
            Some(disk) => disk.sync(),
            None => return Err(Error::Broken("the machine is off".to_owned())),
        }
        Ok(())
    }

    fn sync_later(&self) {
        let (me, wait_ms) = (self.me.clone(), lock(&self.rng).u64(1..60));
        tokio::spawn(async move {
            sleep(Duration::from_millis(wait_ms)).await;
            if let Some(twin) = me.upgrade()
                && let Some(disk) = lock(&twin.disk).as_mut()
            {
                disk.sync();
            }
        });
    }

    fn append(&self, records: &[u8]) {
        if let Some(disk) = lock(&self.disk).as_mut() {
            disk.append(records);
        }
    }

    // One record per set, so that a torn commit leaves some sets and not others: each is atomic, the commit is not.
    // Only what really changes is written: a set that was applied before must not undo what came after it.
    async fn records(&self, sets: &[WriteSet], before: &Memory, now: Millis) -> Result<Vec<u8>, Error> {
        let (steps, mut out) = (Memory::clone(before), Vec::new());
        for set in sets {
            let keys: Vec<RowKey> = set.writes.iter().map(|write| write.key).collect();
            let known = steps.load(&keys).await?;
            steps.commit(std::slice::from_ref(set), now).await?;
            let changed = keys.iter().zip(known).zip(steps.load(&keys).await?);
            let rows: Stored = changed
                .filter(|((_, known), left)| {
                    known.as_ref().map(|row| row.revision) != left.as_ref().map(|row| row.revision)
                })
                .map(|((key, _), left)| (*key, left.map(|row| codec::encode(key, &row.record, row.revision))))
                .collect();
            out.extend(Disk::record(now.0, &rows));
        }
        Ok(out)
    }
}

impl Store for Twin {
    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move { self.read().await?.load(keys).await })
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
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(RowKey, Arc<Row>)>, Error>> {
        Box::pin(async move { self.read().await?.due(until, after, limit).await })
    }

    fn scan<'a>(
        &'a self,
        kind: Kind,
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(RowKey, Arc<Row>)>, Error>> {
        Box::pin(async move { self.read().await?.scan(kind, after, limit).await })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
