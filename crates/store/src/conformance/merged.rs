//! Law 8: a counter is the sum of all additions, and each addition learns the value before and after it.
//! Also checks sets with several merges: each merge has its own outcome, in the order of the set.
//! Never asks a store without lanes for a merge, except to see it refused.

use std::{collections::BTreeMap, sync::Arc};

use fencepost_kernel::{
    RowKey,
    fence::{Receipt, State},
    key::Kind,
    lane::{self, Append, LaneId, Tail},
    law::Also,
    merge::{Counter, Merge, Merged},
    row::{CommitId, Record},
};

use super::{
    Harness, LawViolation,
    concurrent::Job,
    holds,
    ordered::insist,
    rows::{DAY_MS, NOW, commit, entry, fence, fence_key, key, put, read, record, set},
    same,
};
use crate::{
    Error, Store,
    Verdict::{self, Applied, Moved, Overflow},
    WriteSet,
};

const WRITERS: u64 = 3;
const COMMITS: u64 = 20;
const BATCH: u64 = 3;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    if !store.promises().lanes {
        return merges_are_refused(&*store).await;
    }
    sums_grow_in_order(&*store).await?;
    a_set_that_moved_adds_nothing(&*harness.open()).await?;
    a_repetition_adds_nothing(&*harness.open()).await?;
    a_sum_that_is_too_large_refuses_its_set_alone(&*harness.open()).await?;
    a_set_has_several_merges(&*harness.open()).await?;
    a_set_without_proof_is_refused(&*harness.open()).await?;
    a_crash_adds_once_or_not_at_all(harness).await?;
    many_add_at_the_same_time(harness).await
}

fn counter(number: u64) -> RowKey {
    key(Kind::Counter, number)
}

fn add(number: u64, delta: i128) -> Merge {
    Merge::Add { key: counter(number), delta }
}

/// A set with merges, and with a row of its own that proves that it was applied.
fn merging(id: u64, merges: impl Into<Vec<Merge>>) -> WriteSet {
    let writes = vec![put(fence_key(id), None, record(Kind::Fence, id))];
    WriteSet { id: CommitId(id), writes, also: Also { merges: merges.into(), ..Also::default() } }
}

fn sum(before: i128, after: i128) -> Merged {
    Merged::Sum { before, after }
}

fn merged(outcomes: impl Into<Vec<Merged>>) -> Verdict {
    Verdict::Merged(outcomes.into())
}

// Every way to read the counter returns this revision and value; none where there is no row.
async fn shows(store: &dyn Store, number: u64, wanted: Option<(u64, i128)>) -> Result<(), LawViolation> {
    let wanted = wanted.map(|(id, value)| (id, Record::Counter(Counter { value, due: None })));
    same("a counter", read(store, counter(number)).await?, wanted.clone())?;
    for seen in [store.recall(&counter(number)), store.peek(&counter(number))].into_iter().flatten() {
        let seen = seen?.map(|row| (row.revision.0, row.record.clone()));
        same("a counter that is at hand", seen, wanted.clone())?;
    }
    Ok(())
}

async fn sums_grow_in_order(store: &dyn Store) -> Result<(), LawViolation> {
    same("the first addition", commit(store, merging(1, [add(1, 5)])).await?, merged([sum(0, 5)]))?;
    shows(store, 1, Some((1, 5))).await?;
    same("a subtraction", commit(store, merging(2, [add(1, -7)])).await?, merged([sum(5, -2)]))?;
    shows(store, 1, Some((2, -2))).await?;
    let sets = [
        merging(3, [add(1, 10)]),
        merging(4, [add(2, 1)]),
        set(5, [put(fence_key(5), None, record(Kind::Fence, 5))]),
        merging(6, [add(1, 100), add(2, 20), add(1, 1_000)]),
    ];
    let wanted =
        vec![merged([sum(-2, 8)]), merged([sum(0, 1)]), Applied, merged([sum(8, 108), sum(1, 21), sum(108, 1_108)])];
    same("the verdicts on additions in one commit", store.commit(&sets, NOW).await?, wanted)?;
    shows(store, 1, Some((6, 1_108))).await?;
    shows(store, 2, Some((6, 21))).await?;

    // A counter that was put with a due time keeps it.
    let due = Some(NOW.plus(7));
    let record = |value| Record::Counter(Counter { value, due });
    commit(store, set(7, [put(counter(3), None, record(40))])).await?;
    same("an addition to it", commit(store, merging(8, [add(3, 2)])).await?, merged([sum(40, 42)]))?;
    same("the counter after it", read(store, counter(3)).await?, Some((8, record(42))))?;
    let found = store.due(Kind::Counter, NOW.plus(7), None, 10).await?;
    same("what is due", found.iter().map(|(key, row)| (*key, row.revision.0)).collect(), vec![(counter(3), 8)])
}

async fn a_set_that_moved_adds_nothing(store: &dyn Store) -> Result<(), LawViolation> {
    let taken = |id| {
        let mut set = merging(id, [add(1, 1_000)]);
        set.writes[0].key = fence_key(1);
        set
    };
    let sets = [merging(1, [add(1, 1)]), taken(2), merging(3, [add(1, 1)])];
    let wanted = vec![merged([sum(0, 1)]), Moved, merged([sum(1, 2)])];
    same("the verdicts around a set that moved", store.commit(&sets, NOW).await?, wanted)?;
    same("a set that moved, alone", commit(store, taken(4)).await?, Moved)?;
    shows(store, 1, Some((3, 2))).await
}

async fn a_repetition_adds_nothing(store: &dyn Store) -> Result<(), LawViolation> {
    let (first, second) = (merging(1, [add(1, 1)]), merging(2, [add(1, 10)]));
    same("the verdict on a set", commit(store, first.clone()).await?, merged([sum(0, 1)]))?;
    same("the verdict on its repetition", commit(store, first.clone()).await?, Applied)?;
    let sets = [first.clone(), second.clone(), second, merging(3, [add(1, 100)])];
    let wanted = vec![Applied, merged([sum(1, 11)]), Applied, merged([sum(11, 111)])];
    same("the verdicts beside repetitions", store.commit(&sets, NOW).await?, wanted)?;
    // Other sets have moved the counter since: the store recognizes the set by its own row.
    same("the verdict on a late repetition", commit(store, first).await?, Applied)?;
    shows(store, 1, Some((3, 111))).await
}

async fn a_sum_that_is_too_large_refuses_its_set_alone(store: &dyn Store) -> Result<(), LawViolation> {
    same("the largest sum", commit(store, merging(1, [add(1, i128::MAX)])).await?, merged([sum(0, i128::MAX)]))?;
    let refused = merging(2, [add(2, 7), add(1, 1), add(1, -1)]);
    let sets = [merging(3, [add(2, 1)]), refused.clone(), merging(4, [add(2, 1)])];
    let wanted = vec![merged([sum(0, 1)]), Overflow, merged([sum(1, 2)])];
    same("the verdicts around a sum that is too large", store.commit(&sets, NOW).await?, wanted)?;
    same("the same alone", commit(store, refused).await?, Overflow)?;
    same("a row of what was refused", read(store, fence_key(2)).await?, None)?;
    shows(store, 1, Some((1, i128::MAX))).await?;
    shows(store, 2, Some((4, 2))).await?;
    let within = merging(5, [add(3, i128::MIN), add(1, -1), add(1, 1)]);
    let wanted = [sum(0, i128::MIN), sum(i128::MAX, i128::MAX - 1), sum(i128::MAX - 1, i128::MAX)];
    same("sums at both ends", commit(store, within).await?, merged(wanted))?;
    same("one below the least", commit(store, merging(6, [add(3, -1)])).await?, Overflow)?;
    shows(store, 3, Some((5, i128::MIN))).await
}

async fn a_set_has_several_merges(store: &dyn Store) -> Result<(), LawViolation> {
    let (lane, other) = (LaneId([0x33; 24]), LaneId([0x44; 24]));
    let waiting = |number: u64| {
        let receipt = Receipt { effect_id: number.to_string(), body: r#"{"seq":"#.into() };
        fence(number, State::Sealed { receipt, at: NOW, expires: NOW.plus(DAY_MS) })
    };
    let append = |lane, number: u64| {
        Merge::Append(Append { lane, entry: entry(number).into(), position_row: fence_key(number), driven: None })
    };
    let writes: Vec<_> = (1..=4).map(|number| put(fence_key(number), None, waiting(number))).collect();
    let merges = vec![append(lane, 1), add(1, 5), append(other, 2), append(lane, 3), add(1, 6), append(lane, 4)];
    let set = WriteSet { id: CommitId(1), writes, also: Also { merges, ..Also::default() } };
    let at = Merged::Position;
    let wanted = vec![merged([at(1), sum(0, 5), at(1), at(2), sum(5, 11), at(3)]), Applied];
    same("the verdicts on many merges, and again", store.commit(&[set.clone(), set], NOW).await?, wanted)?;
    for (number, lane, seq) in [(1, lane, 1), (2, other, 1), (3, lane, 2), (4, lane, 3)] {
        let told = read(store, fence_key(number)).await?;
        same("the row that is told", told, Some((1, waiting(number).with_position(seq))))?;
        let found = read(store, RowKey::entry(lane, seq)).await?;
        same("the entry at its position", found, Some((1, Record::Lane(lane::Record::Entry(entry(number).into())))))?;
    }
    same(
        "the tail",
        read(store, RowKey::tail(lane)).await?,
        Some((1, Record::Lane(lane::Record::Tail(Tail { last: 3 })))),
    )?;
    same("what lies behind it", read(store, RowKey::entry(lane, 4)).await?, None)?;
    shows(store, 1, Some((1, 11))).await
}

async fn a_set_without_proof_is_refused(store: &dyn Store) -> Result<(), LawViolation> {
    let mut unproven = merging(1, [add(1, 1)]);
    unproven.writes.clear();
    match store.commit(&[unproven], NOW).await {
        Err(Error::NotApplied(_)) => shows(store, 1, None).await,
        outcome => Err(LawViolation(format!("a set with a merge and no row to prove it: {outcome:?}"))),
    }
}

async fn a_crash_adds_once_or_not_at_all(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    commit(&*store, merging(1, [add(1, 1)])).await?;
    let cut = merging(2, [add(1, 10), add(2, 5)]);
    for found in harness.interrupt(store, std::slice::from_ref(&cut), NOW) {
        let (figure, proof) = (read(&*found, counter(1)).await?, read(&*found, fence_key(2)).await?);
        same("whether it was added, and is proven", figure.map(|(id, _)| id == 2), Some(proof.is_some()))?;
        holds("the set is applied, once", commit(&*found, cut.clone()).await?.applied())?;
        same("the one after it", commit(&*found, merging(3, [add(1, 100)])).await?, merged([sum(11, 111)]))?;
        shows(&*found, 2, Some((2, 5))).await?;
    }
    Ok(())
}

// Each addition starts from the result of another, and no writer has to decide again.
async fn many_add_at_the_same_time(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    let told = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let mut jobs: Vec<Job> = Vec::new();
    for writer in 0..WRITERS {
        let store = if writer == 0 { store.clone() } else { harness.beside(&store) };
        let told = told.clone();
        jobs.push(Box::pin(async move {
            for turn in 0..COMMITS {
                let ids = (0..BATCH).map(|at| 1 + (turn * WRITERS + writer) * BATCH + at);
                // Both counters, in either order: the writers must not deadlock.
                let merges =
                    |id: u64| if id.is_multiple_of(2) { [add(1, 1), add(2, 2)] } else { [add(2, 2), add(1, 1)] };
                let sets: Vec<_> = ids.map(|id| merging(id, merges(id))).collect();
                for verdict in insist(&*store, &sets).await? {
                    let Verdict::Merged(outcomes) = verdict else {
                        return Err(LawViolation(format!("an addition that nothing is in the way of: {verdict:?}")));
                    };
                    for outcome in outcomes {
                        let Merged::Sum { before, after } = outcome else {
                            return Err(LawViolation(format!("an addition that came to {outcome:?}")));
                        };
                        let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        let twice = told.insert((after - before, before), after).is_some();
                        holds("no two additions begin at the same figure", !twice)?;
                    }
                }
            }
            Ok(())
        }));
    }
    harness.together(jobs)?;
    let count = i128::from(WRITERS * COMMITS * BATCH);
    let told: Vec<(i128, i128)> = {
        let told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        told.iter().map(|((_, before), after)| (*before, *after)).collect()
    };
    let chain = |step: i128| (0..count).map(move |at| (at * step, (at + 1) * step));
    same("the figures that were told", told, chain(1).chain(chain(2)).collect())?;
    for (number, step) in [(1, 1), (2, 2)] {
        let found = read(&*store, counter(number)).await?.map(|(_, record)| record);
        same("the sum", found, Some(Record::Counter(Counter { value: count * step, due: None })))?;
    }
    Ok(())
}

async fn merges_are_refused(store: &dyn Store) -> Result<(), LawViolation> {
    match store.commit(&[merging(1, [add(1, 1)])], NOW).await {
        Err(Error::NotApplied(_)) => same("a row of what was refused", read(store, fence_key(1)).await?, None),
        outcome => Err(LawViolation(format!("a store without counters took an addition: {outcome:?}"))),
    }
}
