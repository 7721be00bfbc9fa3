//! One commit of the twin, and everything that can go wrong with it: refused, half written, unsynced, told wrongly.
//! Never lets a reader see what is not synced, and never writes a set twice. Called by the twin's `Store`.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fencepost_kernel::{
    Millis, RowKey, Write,
    key::Kind,
    merge::{Merge, Merged},
    row::CommitId,
};
use fencepost_store::{Error, Memory, Store, Verdict, WriteSet, codec};
use tokio::time::sleep;

use super::{Twin, lock};
use crate::{
    disk::{Disk, Stored},
    plant::Plant,
};

/// Where in a commit the machine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashPoint {
    BeforeAppend,
    WithinAppend,
    BeforeSync,
    AfterSync,
    AfterReply,
}

/// A commit's false answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Unknown, and it did not happen.
    Never,
    /// Unknown, and it did.
    Done,
    /// Unknown, and it will, unless its rows move first.
    Later,
    /// Unknown, and some of its sets did.
    InParts,
}

impl Twin {
    async fn die(&self, when: CrashPoint) {
        self.recorder.note(format_args!("store: dies {when:?}"));
        self.dying.notify_one();
        std::future::pending().await
    }

    pub(super) async fn commit_sets(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        let _turn = self.turn.lock().await;
        self.alive()?;
        if !self.many_rows && sets.iter().any(|set| set.writes.len() + set.also.held.len() > 1) {
            self.recorder.count("damaged", "a write set of several rows for a store that takes one");
        }
        if self.roll(self.faults.refused) {
            self.recorder.count("commit_refused", format_args!("{} sets", sets.len()));
            return Err(Error::NotApplied("no connection".to_owned()));
        }
        let lie = self
            .roll(self.faults.unknown)
            .then(|| [Lie::Never, Lie::Done, Lie::Later, Lie::InParts][lock(&self.rng).usize(0..4)]);
        if let Some(lie) = lie {
            self.recorder.count(&format!("unknown_{lie:?}").to_lowercase(), format_args!("{} sets", sets.len()));
        }
        match lie {
            Some(Lie::Later) => self.land_later(sets.to_vec(), now),
            Some(Lie::Never) => {}
            Some(Lie::InParts) => {
                let some: Vec<WriteSet> = sets.iter().filter(|_| lock(&self.rng).bool()).cloned().collect();
                if (1..sets.len()).contains(&some.len()) {
                    self.recorder.tally("commit_in_parts");
                    self.recorder.batches_part();
                }
                self.apply(&some, now).await?;
            }
            Some(Lie::Done) => drop(self.apply(sets, now).await?),
            None => return self.apply_but_held(sets, now).await,
        }
        Err(Error::Unknown("the connection broke".to_owned()))
    }

    // Somebody else's transaction holds the rows of some sets: nothing of those is written.
    async fn apply_but_held(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        if self.clock.is_none() || !self.roll(self.faults.held) {
            return self.apply(sets, now).await;
        }
        let held: Vec<bool> = sets.iter().map(|_| lock(&self.rng).bool()).collect();
        let rest: Vec<WriteSet> =
            sets.iter().zip(&held).filter(|(_, held)| !**held).map(|(set, _)| set.clone()).collect();
        self.recorder.count("row_held", format_args!("{} of {} sets", sets.len() - rest.len(), sets.len()));
        let mut verdicts = self.apply(&rest, now).await?.into_iter();
        let verdict = |held: &bool| if *held { Some(Verdict::Held) } else { verdicts.next() };
        Ok(held.iter().filter_map(verdict).collect())
    }

    /// Drops rows that had expired by then, where the store has an index of them.
    pub(super) async fn sweep_rows(&self, now: Millis, limit: usize) -> Result<Option<usize>, Error> {
        if self.clock.is_none() || !self.faults.sweeps {
            return Ok(None);
        }
        let _turn = self.turn.lock().await;
        self.alive()?;
        let (view, mut sets) = (self.view(), Vec::new());
        for kind in Kind::ALL {
            let over = view.scan(kind, None, usize::MAX).await?;
            let over =
                over.into_iter().filter(|(_, row)| row.record.expires_at().is_some_and(|expires| expires <= now));
            sets.extend(over.map(|(key, row)| {
                let gone = Write { key, expect: Some(row.revision), put: None };
                WriteSet::new(CommitId(lock(&self.rng).u64(..)), vec![gone])
            }));
        }
        sets.truncate(limit);
        if !sets.is_empty() {
            self.recorder.count("store_swept", format_args!("{} rows", sets.len()));
            // A row that expired by then stays expired: time never falls back behind it.
            self.apply(&sets, now).await?;
        }
        Ok(Some(sets.len()))
    }

    // The request is still on its way, as with a server that goes on after its client lost the connection.
    fn land_later(&self, sets: Vec<WriteSet>, now: Millis) {
        let (me, wait_ms, term) = (self.me.clone(), lock(&self.rng).u64(0..300), self.term());
        tokio::spawn(async move {
            sleep(Duration::from_millis(wait_ms)).await;
            let Some(twin) = me.upgrade() else { return };
            let _turn = twin.turn.lock().await;
            // A commit on its way to a former primary gets nowhere.
            if twin.alive().is_ok() && twin.term() == term {
                let applied = twin.apply(&sets, now).await.unwrap_or_default();
                let count = applied.iter().filter(|verdict| verdict.applied()).count();
                twin.recorder.count("landed_late", format_args!("{count} of {} sets", sets.len()));
            }
        });
    }

    async fn apply(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        let death = self.roll(self.faults.crash).then(|| {
            let all = [
                CrashPoint::BeforeAppend,
                CrashPoint::WithinAppend,
                CrashPoint::BeforeSync,
                CrashPoint::AfterSync,
                CrashPoint::AfterReply,
            ];
            all[lock(&self.rng).usize(0..all.len())]
        });
        if death == Some(CrashPoint::BeforeAppend) {
            self.die(CrashPoint::BeforeAppend).await;
        }
        // A store that several share drops nothing by itself: its nodes sweep, and leave expired rows for a while.
        if self.clock.is_none() && self.roll(self.faults.compaction) {
            self.compact();
        }
        let (before, term) = (self.view(), self.term());
        self.dated(now);
        let asked = sets.len();
        let sets = &*self.flawed(sets, &before, now).await?;
        let after = Memory::clone(&before);
        let (records, mut verdicts) = self.records(sets, &after, now).await?;
        verdicts.truncate(asked);
        if death == Some(CrashPoint::WithinAppend) {
            let cut = lock(&self.rng).usize(0..=records.len());
            self.append(&records[..cut]);
            self.die(CrashPoint::WithinAppend).await;
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
        if death == Some(CrashPoint::BeforeSync) {
            self.die(CrashPoint::BeforeSync).await;
        }
        self.sync_wait().await?;
        if self.term() != term {
            // No client is told, and whether the new primary has it is unknown.
            self.recorder.tally("failover_in_commit");
            if lock(&self.primary).handed_on == Some(term) {
                self.land(after, now)?;
            } else if let Some(disk) = lock(&self.disk).as_mut() {
                disk.drop_unsynced();
            }
            return Err(Error::Unknown("the primary is gone".to_owned()));
        }
        self.land(after, now)?;
        match death {
            Some(CrashPoint::AfterSync) => self.die(CrashPoint::AfterSync).await,
            Some(CrashPoint::AfterReply) => self.dying.notify_one(),
            _ => {}
        }
        let moved = verdicts.iter().filter(|verdict| **verdict == Verdict::Moved).count();
        if moved > 0 {
            self.tally_moved_items(sets, &verdicts);
            self.recorder.count("moved", format_args!("{moved} of {} sets", sets.len()));
            self.recorder.batches_part();
        }
        Ok(verdicts)
    }

    async fn sync_wait(&self) -> Result<(), Error> {
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
        Ok(())
    }

    fn land(&self, rows: Memory, now: Millis) -> Result<(), Error> {
        match lock(&self.disk).as_mut() {
            Some(disk) => disk.sync(),
            None => return Err(Error::Broken("the machine is off".to_owned())),
        }
        *lock(&self.seen) = Arc::new(rows);
        // While it was synced, the last node that knew its date may have ended, and time fell back behind it.
        self.dated(now);
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
    async fn records(&self, sets: &[WriteSet], rows: &Memory, now: Millis) -> Result<(Vec<u8>, Vec<Verdict>), Error> {
        let (mut out, mut all) = (Vec::new(), Vec::new());
        for set in sets {
            let mut keys: Vec<RowKey> = set.writes.iter().map(|write| write.key).collect();
            keys.extend(&set.also.drops);
            keys.extend(set.also.merges.iter().map(Merge::key));
            // Two merges may change one row: it is written once.
            keys.sort_unstable();
            keys.dedup();
            let mut known = rows.load(&keys).await?;
            let verdicts = rows.commit(std::slice::from_ref(set), now).await?;
            if let [Verdict::Merged(merged)] = verdicts.as_slice() {
                for (merge, merged) in set.also.merges.iter().zip(merged) {
                    if let (Merge::Append(append), Merged::Position(seq)) = (merge, merged) {
                        keys.push(RowKey::entry(append.lane, *seq));
                        known.push(None);
                    }
                }
            }
            let changed = keys.iter().zip(known).zip(rows.load(&keys).await?);
            let changed: Stored = changed
                .filter(|((_, known), left)| {
                    known.as_ref().map(|row| row.revision) != left.as_ref().map(|row| row.revision)
                })
                .map(|((key, _), left)| {
                    (*key, left.map(|row| codec::encode(key, &row.record, row.revision, codec::VERSION)))
                })
                .collect();
            out.extend(Disk::record(now.0, &changed));
            all.extend(verdicts);
        }
        Ok((out, all))
    }
}

#[cfg(test)]
mod tests {
    use fencepost_kernel::{
        lane::{Append, Entry, LaneId},
        law::Also,
    };
    use tokio::time::timeout;

    use super::*;
    use crate::{clock::Clocks, faults::Faults, history::History, recorder::Recorder};

    const LANE: LaneId = LaneId([1; 24]);

    async fn open(disk: Disk) -> Arc<Twin> {
        open_with(Faults::none(), disk).await
    }

    async fn open_with(faults: Faults, disk: Disk) -> Arc<Twin> {
        let recorder = Recorder::new(Arc::new(Clocks::new(None)), History::default());
        let rng = fastrand::Rng::with_seed(1);
        Twin::open(disk, faults, None, rng, recorder.into(), None, true).await.expect("the disk is sound")
    }

    async fn entries(twin: &Twin) -> Vec<(u64, u64)> {
        let page = twin.scan(Kind::Entry, None, 9).await.expect("nothing goes wrong here");
        page.iter().map(|(key, row)| (key.place().1, row.revision.0)).collect()
    }

    fn appended(seq: u64) -> Verdict {
        Verdict::Merged(vec![Merged::Position(seq)])
    }

    fn publish(id: u64, drops: Vec<RowKey>) -> WriteSet {
        let position_row = RowKey::lane_notice(&id.to_string(), LANE);
        let entry = Entry {
            correlation_id: id.to_string(),
            kind: String::new(),
            subject: String::new(),
            body: vec![id as u8].into(),
            published: Millis(1),
            redrive_of: None,
        };
        let merges = vec![Merge::Append(Append { lane: LANE, entry: entry.into(), position_row, driven: None })];
        let writes = vec![Write {
            key: position_row,
            expect: None,
            put: Some(fencepost_kernel::lane::Record::LaneNotice.into()),
        }];
        WriteSet { id: CommitId(id), writes, also: Also { merges, drops, ..Also::default() } }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_survives_a_crash_with_its_order_and_without_what_was_dropped() {
        let twin = open(Disk::default()).await;
        let sets = [publish(1, Vec::new()), publish(2, Vec::new()), publish(2, Vec::new())];
        let verdicts = twin.commit(&sets, Millis(1)).await.expect("nothing goes wrong here");
        assert_eq!(verdicts, [appended(1), appended(2), Verdict::Applied]);
        twin.commit(&[publish(3, vec![RowKey::entry(LANE, 1)])], Millis(2)).await.expect("nor here");
        let twin = open(twin.crash()).await;
        assert_eq!(entries(&twin).await, [(2, 2), (3, 3)]);
        let next = twin.commit(&[publish(4, Vec::new())], Millis(3)).await.expect("nor here");
        assert_eq!(next, [appended(4)]);
    }

    // Seeds 12000026837 and 12000027255: a user stopped waiting in the middle of a sync, and the journal kept what no reader saw.
    // The next event got the same position, and after a crash the user's event was sealed and in no lane.
    #[tokio::test(start_paused = true)]
    async fn commit_is_finished_although_its_client_has_stopped_waiting() {
        let twin = open_with(Faults { sync_ms_max: 1_000, ..Faults::none() }, Disk::default()).await;
        let given_up = twin.commit_detached(vec![publish(1, Vec::new())], Millis(1));
        assert!(timeout(Duration::from_millis(1), given_up).await.is_err(), "the sync takes longer");
        let next = twin.commit(&[publish(2, Vec::new())], Millis(2)).await.expect("nothing goes wrong here");
        assert_eq!(next, [appended(2)]);
        let twin = open(twin.crash()).await;
        assert_eq!(entries(&twin).await, [(1, 1), (2, 2)]);
    }
}
