//! One commit of the twin, and everything that can go wrong with it: refused, half written, unsynced, told wrongly.
//! Never lets a reader see what is not synced, and never writes a set twice. Called by the twin's `Store`.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fencepost_kernel::{Millis, RowKey};
use fencepost_store::{Error, Memory, Store, Verdict, WriteSet, codec};
use tokio::time::sleep;

use super::{Twin, lock};
use crate::{
    disk::{Disk, Stored},
    plant::Plant,
};

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
    async fn die(&self, when: Death) {
        self.recorder.note(format_args!("store: dies {when:?}"));
        self.dying.notify_one();
        std::future::pending().await
    }

    pub(super) async fn commit_sets(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
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
        // A store that several share drops nothing by itself: its nodes sweep, and leave what is over for a while.
        if self.clock.is_none() && self.roll(self.faults.compaction) {
            self.compact();
        }
        let before = self.view();
        let forgetful;
        let sets = if self.plant == Some(Plant::LostUpdate) && self.clock.is_some() {
            forgetful = overwriting(sets, &before, now).await?;
            &forgetful
        } else {
            sets
        };
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
                .map(|((key, _), left)| {
                    (*key, left.map(|row| codec::encode(key, &row.record, row.revision, codec::VERSION)))
                })
                .collect();
            out.extend(Disk::record(now.0, &rows));
        }
        Ok(out)
    }
}

// The planted bug: a set of one row expects whatever is there.
async fn overwriting(sets: &[WriteSet], before: &Memory, now: Millis) -> Result<Vec<WriteSet>, Error> {
    let (steps, mut sets) = (Memory::clone(before), sets.to_vec());
    for set in &mut sets {
        if let [write] = &mut set.writes[..] {
            write.expect = steps.load(&[write.key]).await?.pop().flatten().map(|row| row.revision);
        }
        steps.commit(std::slice::from_ref(set), now).await?;
    }
    Ok(sets)
}
