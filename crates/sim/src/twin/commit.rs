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
                let count = applied.iter().filter(|verdict| verdict.applied()).count();
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
            self.recorder.batches_part();
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
            let mut keys: Vec<RowKey> = set.writes.iter().map(|write| write.key).collect();
            keys.extend(&set.also.drops);
            keys.extend(set.also.append.iter().map(|append| RowKey::tail(append.lane)));
            let mut known = steps.load(&keys).await?;
            let verdicts = steps.commit(std::slice::from_ref(set), now).await?;
            if let (Some(append), [Verdict::Appended(seq)]) = (&set.also.append, verdicts.as_slice()) {
                keys.push(RowKey::entry(append.lane, *seq));
                known.push(None);
            }
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

#[cfg(test)]
mod tests {
    use fencepost_kernel::{
        Write,
        command::{Also, CommitId},
        fence::Record,
        key::LaneId,
        lane::{Append, Entry},
    };

    use super::*;
    use crate::{clock::Clocks, faults::Faults, history::History, recorder::Recorder};

    const LANE: LaneId = LaneId([1; 24]);

    async fn open(disk: Disk) -> Arc<Twin> {
        let recorder = Recorder::new(Arc::new(Clocks::new(None)), History::default());
        let rng = fastrand::Rng::with_seed(1);
        Twin::open(disk, Faults::none(), None, rng, recorder.into(), None).await.expect("the disk is sound")
    }

    fn publish(id: u64, drops: Vec<RowKey>) -> WriteSet {
        let told_in = RowKey::poke(&id.to_string(), LANE);
        let entry = Entry {
            correlation_id: id.to_string(),
            kind: String::new(),
            warehouse: String::new(),
            body: vec![id as u8].into(),
            published: Millis(1),
            redrive_of: None,
        };
        let append = Some(Append { lane: LANE, entry: entry.into(), told_in, driven: None });
        let writes = vec![Write { key: told_in, expect: None, put: Some(Record::Poke) }];
        WriteSet { id: CommitId(id), writes, also: Also { append, drops, ..Also::default() } }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_survives_a_crash_with_its_order_and_without_what_was_dropped() {
        let twin = open(Disk::default()).await;
        let sets = [publish(1, Vec::new()), publish(2, Vec::new()), publish(2, Vec::new())];
        let verdicts = twin.commit(&sets, Millis(1)).await.expect("nothing goes wrong here");
        assert_eq!(verdicts, [Verdict::Appended(1), Verdict::Appended(2), Verdict::Applied]);
        twin.commit(&[publish(3, vec![RowKey::entry(LANE, 1)])], Millis(2)).await.expect("nor here");
        let twin = open(twin.crash()).await;
        let page = twin.scan(fencepost_kernel::key::Kind::Entry, None, 9).await.expect("nor here");
        let found: Vec<_> = page.iter().map(|(key, row)| (key.place().1, row.revision.0)).collect();
        assert_eq!(found, [(2, 2), (3, 3)]);
        let next = twin.commit(&[publish(4, Vec::new())], Millis(3)).await.expect("nor here");
        assert_eq!(next, [Verdict::Appended(4)]);
    }
}
