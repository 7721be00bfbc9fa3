//! Stores that are sound but for one flaw, to test the suite with.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use fencepost_kernel::{
    Millis, RowKey, Write,
    fence::State,
    key::Kind,
    lane::{self, Cancelled, LaneId},
    law::Also,
    merge::Merge,
    row::{CommitId, Record},
};
use fencepost_store::{Error, Found, Loaded, Memory, Promises, Store, Verdict, WriteSet, conformance::Harness};
use fencepost_testkit::{Forwarding, Hooks};
use futures::{FutureExt, future::BoxFuture};

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Flaw {
    None,
    TornWrite,
    NoCompareAndSet,
    AllOrNobody,
    StaleRead,
    StaleMemory,
    ForgetsAcknowledged,
    NotRepeatable,
    VanishesEarly,
    DueOutOfOrder,
    DueKnowsFencesOnly,
    DueMixesKinds,
    RangeSkips,
    RangeGoesPastItsPrefix,
    CountsFromOneInEveryCommit,
    MovedTakesAPosition,
    HeldIgnored,
    LosesAdditions,
    AddsAgainWhenRepeated,
    MovedAdds,
    OverflowWritesTheRest,
    /// A row that only marks a doubt is taken for the row that is there.
    DropsDoubts,
    /// None, in a store that takes one row at a time and refuses more.
    Alone,
    TakesMoreThanItPromises,
}

/// A memory store whose copies stand for its disk, with one flaw.
struct Flawed {
    flaw: Flaw,
    now: Arc<Memory>,
    /// As it was before the last commit.
    before: Mutex<Memory>,
    peeked: Mutex<BTreeMap<RowKey, Loaded>>,
    seen: Mutex<Vec<CommitId>>,
}

impl Flawed {
    fn new(flaw: Flaw, now: Memory) -> Arc<Forwarding<Self>> {
        let (now, before) = (Arc::new(now.clone()), Mutex::new(now));
        Self { flaw, now: now.clone(), before, peeked: Mutex::default(), seen: Mutex::default() }.over(now)
    }

    // From a cache that no commit clears.
    fn outdated(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        let mut peeked = self.peeked.lock().unwrap();
        let row = peeked.entry(*key).or_insert_with(|| self.now.peek(key).unwrap().unwrap());
        Some(Ok(row.clone()))
    }

    fn commit_now(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        // One at a time, so that each flaw is the only one.
        let mut before = self.before.lock().unwrap();
        *before = Memory::clone(&self.now);
        match self.flaw {
            _ if sets.iter().any(|set| !self.takes(&set.also)) => Err(Error::NotApplied("no lanes".to_owned())),
            Flaw::Alone if sets.iter().any(|set| set.writes.len() > 1) => {
                Err(Error::NotApplied("one row at a time".to_owned()))
            }
            Flaw::NoCompareAndSet => self.commit_blindly(sets, now),
            Flaw::AllOrNobody => {
                let verdicts = at_once(before.clone().commit(sets, now))?;
                if verdicts.contains(&Verdict::Moved) {
                    at_once(self.now.commit(&[], now))?;
                    return Ok(vec![Verdict::Moved; sets.len()]);
                }
                at_once(self.now.commit(sets, now))
            }
            Flaw::NotRepeatable => {
                let mut verdicts = Vec::new();
                for set in sets {
                    let mut seen = self.seen.lock().unwrap();
                    if seen.contains(&set.id) {
                        verdicts.push(Verdict::Moved);
                        continue;
                    }
                    let verdict = at_once(self.now.commit(std::slice::from_ref(set), now))?;
                    if verdict == [Verdict::Applied] {
                        seen.push(set.id);
                    }
                    verdicts.extend(verdict);
                }
                at_once(self.now.commit(&[], now))?;
                Ok(verdicts)
            }
            Flaw::CountsFromOneInEveryCommit => {
                let lanes = sets.iter().flat_map(|set| set.also.appends()).map(|append| append.lane);
                let tails = lanes.map(|lane| Write { key: RowKey::tail(lane), expect: self.revision(lane), put: None });
                at_once(self.now.commit(&[WriteSet::new(CommitId(u64::MAX), tails.collect())], now))?;
                at_once(self.now.commit(sets, now))
            }
            Flaw::MovedTakesAPosition => {
                let verdicts = at_once(self.now.commit(sets, now))?;
                for (set, _) in sets.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Moved) {
                    let merges = set.also.appends().cloned().map(Merge::Append).collect();
                    at_once(self.now.commit(&[merging(set.id, merges)], now))?;
                }
                Ok(verdicts)
            }
            // The figure is read before the commit, and written with it.
            Flaw::LosesAdditions => {
                let figures = at_once(self.now.scan(Kind::Counter, None, usize::MAX))?;
                let verdicts = at_once(self.now.commit(sets, now))?;
                let additions = |set: &WriteSet| set.also.merges.iter().any(|merge| matches!(merge, Merge::Add { .. }));
                if let Some((set, Verdict::Merged(_))) =
                    sets.iter().zip(&verdicts).rev().find(|(set, _)| additions(set))
                {
                    for merge in &set.also.merges {
                        let Merge::Add { key, delta } = merge else { continue };
                        let before = figures.iter().find(|(found, _)| found == key).map(|(_, row)| value(&row.record));
                        let lost = value(&at_once(self.now.load(&[*key]))?.remove(0).unwrap().record);
                        let correction = (before.unwrap_or(0).wrapping_add(*delta)).wrapping_sub(lost);
                        at_once(
                            self.now.commit(&[merging(set.id, vec![Merge::Add { key: *key, delta: correction }])], now),
                        )?;
                    }
                }
                Ok(verdicts)
            }
            Flaw::AddsAgainWhenRepeated | Flaw::MovedAdds => {
                let verdicts = at_once(self.now.commit(sets, now))?;
                let wrong = if self.flaw == Flaw::MovedAdds { Verdict::Moved } else { Verdict::Applied };
                for (set, _) in sets.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == wrong) {
                    let merges = set.also.merges.iter().filter(|merge| matches!(merge, Merge::Add { .. })).cloned();
                    let merges: Vec<Merge> = merges.collect();
                    if !merges.is_empty() {
                        at_once(self.now.commit(&[merging(set.id, merges)], now))?;
                    }
                }
                Ok(verdicts)
            }
            Flaw::OverflowWritesTheRest => {
                let verdicts = at_once(self.now.commit(sets, now))?;
                for (set, _) in sets.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Overflow) {
                    at_once(self.now.commit(&[WriteSet::new(set.id, set.writes.clone())], now))?;
                }
                Ok(verdicts)
            }
            Flaw::HeldIgnored => {
                let mut sets = sets.to_vec();
                sets.iter_mut().for_each(|set| set.also.held.clear());
                at_once(self.now.commit(&sets, now))
            }
            Flaw::DropsDoubts => {
                let mut sets = sets.to_vec();
                sets.iter_mut().for_each(|set| set.writes.retain(|write| !marks_a_doubt(write)));
                at_once(self.now.commit(&sets, now))
            }
            _ => at_once(self.now.commit(sets, now)),
        }
    }

    fn takes(&self, also: &Also) -> bool {
        let Promises { many_rows, lanes, .. } = self.promises(&*self.now);
        lanes || (also.merges.is_empty() && also.drops.is_empty() && (many_rows || also.held.is_empty()))
    }

    fn revision(&self, lane: LaneId) -> Option<CommitId> {
        at_once(self.now.load(&[RowKey::tail(lane)])).unwrap().remove(0).map(|row| row.revision)
    }

    fn commit_blindly(&self, sets: &[WriteSet], now: Millis) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::new();
        for set in sets {
            let mut set = set.clone();
            for write in &mut set.writes {
                let current = at_once(self.now.load(&[write.key]))?.remove(0);
                write.expect = current.map(|row| row.revision);
            }
            verdicts.extend(at_once(self.now.commit(&[set], now))?);
        }
        at_once(self.now.commit(&[], now))?;
        Ok(verdicts)
    }
}

impl Hooks for Flawed {
    fn promises(&self, inner: &dyn Store) -> Promises {
        let many_rows = !matches!(self.flaw, Flaw::Alone | Flaw::TakesMoreThanItPromises);
        // A flaw of another law would show in the lanes, too.
        let lanes = matches!(
            self.flaw,
            Flaw::None
                | Flaw::CountsFromOneInEveryCommit
                | Flaw::MovedTakesAPosition
                | Flaw::HeldIgnored
                | Flaw::LosesAdditions
                | Flaw::AddsAgainWhenRepeated
                | Flaw::MovedAdds
                | Flaw::OverflowWritesTheRest
        );
        Promises { many_rows, lanes, ..inner.promises() }
    }

    fn peek(&self, inner: &dyn Store, key: &RowKey) -> Option<Result<Loaded, Error>> {
        if self.flaw == Flaw::StaleRead { self.outdated(key) } else { inner.peek(key) }
    }

    fn recall(&self, _: &dyn Store, key: &RowKey) -> Option<Result<Loaded, Error>> {
        if self.flaw == Flaw::StaleMemory { self.outdated(key) } else { None }
    }

    fn commit<'a>(
        &'a self,
        _: &'a dyn Store,
        sets: &'a [WriteSet],
        now: Millis,
    ) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(async move { self.commit_now(sets, now) })
    }

    fn due<'a>(
        &'a self,
        inner: &'a dyn Store,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(async move {
            let asked = if self.flaw == Flaw::DueMixesKinds { Kind::Fence } else { kind };
            let mut rows = inner.due(asked, until, after, limit).await?;
            if self.flaw == Flaw::DueKnowsFencesOnly && kind != Kind::Fence {
                rows.clear();
            }
            if self.flaw == Flaw::DueOutOfOrder {
                rows.sort_by_key(|(key, _)| *key);
            }
            Ok(rows)
        })
    }

    fn range<'a>(
        &'a self,
        inner: &'a dyn Store,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(async move {
            // The next page begins one row too late.
            let skipped = if self.flaw == Flaw::RangeSkips && after.is_some() { 1 } else { 0 };
            let mut rows = inner.range(kind, prefix, after, limit.saturating_add(skipped)).await?;
            if self.flaw == Flaw::RangeGoesPastItsPrefix
                && let Some((last, _)) = rows.last()
            {
                rows.extend(inner.scan(kind, Some(*last), limit - rows.len()).await?);
            }
            Ok(rows.into_iter().skip(skipped).collect())
        })
    }
}

// These merges alone, as a set that nobody has seen before.
fn merging(id: CommitId, merges: Vec<Merge>) -> WriteSet {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut proof = RowKey { kind: Kind::Cancelled, id: [0xee; 32] };
    proof.id[..8].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let record = Record::Lane(lane::Record::Cancelled(Cancelled { by: String::new(), expires: Millis(u64::MAX) }));
    let writes = vec![Write { key: proof, expect: None, put: Some(record) }];
    WriteSet { id, writes, also: Also { merges, ..Also::default() } }
}

fn value(record: &Record) -> i128 {
    if let Record::Counter(counter) = record { counter.value } else { 0 }
}

fn marks_a_doubt(write: &Write) -> bool {
    let fence = write.put.as_ref().and_then(Record::as_fence);
    fence.is_some_and(|fence| matches!(fence.state, State::Pending { doubted_at: Some(_), .. }))
}

// The memory store never waits.
fn at_once<T>(answer: BoxFuture<'_, T>) -> T {
    answer.now_or_never().unwrap()
}

pub struct Bench {
    flaw: Flaw,
    stores: Vec<Arc<Forwarding<Flawed>>>,
}

impl Bench {
    pub fn new(flaw: Flaw) -> Self {
        Self { flaw, stores: Vec::new() }
    }

    fn keep(&mut self, store: Arc<Forwarding<Flawed>>) -> Arc<dyn Store> {
        self.stores.push(store.clone());
        store
    }

    fn take(&mut self) -> Arc<Forwarding<Flawed>> {
        self.stores.pop().unwrap()
    }
}

impl Harness for Bench {
    fn open(&mut self) -> Arc<dyn Store> {
        let store = Flawed::new(self.flaw, Memory::new());
        self.keep(store)
    }

    fn crash(&mut self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let store = self.take();
        let disk = match self.flaw {
            Flaw::ForgetsAcknowledged => store.before.lock().unwrap().clone(),
            _ => Memory::clone(&store.now),
        };
        Some(self.keep(Flawed::new(self.flaw, disk)))
    }

    fn interrupt(&mut self, _: Arc<dyn Store>, sets: &[WriteSet], now: Millis) -> Vec<Arc<dyn Store>> {
        let store = self.take();
        let (nothing, all) = (Memory::clone(&store.now), Memory::clone(&store.now));
        at_once(all.commit(sets, now)).unwrap();
        let mut disks = vec![nothing, all];
        if self.flaw == Flaw::TornWrite {
            let half = Memory::clone(&store.now);
            for set in sets {
                let writes = set.writes[..set.writes.len().div_ceil(2)].to_vec();
                at_once(half.commit(&[WriteSet::new(set.id, writes)], now)).unwrap();
            }
            disks.push(half);
        }
        disks.into_iter().map(|disk| self.keep(Flawed::new(self.flaw, disk))).collect()
    }

    fn sweep(&mut self, _: &Arc<dyn Store>, _: Millis) {
        let store = self.stores.last().unwrap();
        if self.flaw == Flaw::VanishesEarly {
            let floor = at_once(store.now.time_floor()).unwrap();
            at_once(store.now.commit(&[], floor.plus(60_000))).unwrap();
        }
        store.now.sweep();
    }
}
