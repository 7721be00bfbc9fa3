//! Law 1: a write set is applied whole or not at all, also across a crash.
//! Never looks at a row alone: only at whether rows that were written together are seen together. Called by the suite.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use fencepost_kernel::{RowKey, key::Kind, row::CommitId};

use super::{
    Harness, LawViolation, holds,
    rows::{self, NOW, commit, fence_key, key, large, put, read, record, remove, set},
    same,
};
use crate::{Error, Store, Verdict, WriteSet, contract::Loaded};

const ROUNDS: u64 = 30;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    if !store.promises().many_rows {
        several_rows_are_refused_and_nothing_is_written(&*store).await?;
        return a_crash_leaves_all_of_a_set_or_none(harness, 1).await;
    }
    rows_of_every_kind_are_written_together(&*store).await?;
    thousands_of_rows_are_written_together(&*harness.open()).await?;
    let store = harness.open();
    a_reader_never_sees_half_of_a_set(harness, store)?;
    a_crash_leaves_all_of_a_set_or_none(harness, 2).await
}

async fn several_rows_are_refused_and_nothing_is_written(store: &dyn Store) -> Result<(), LawViolation> {
    // Rows with close ids and rows with distant ids. A set of one row in the same commit is refused with them.
    for (id, other) in [(1, key(Kind::Alias, 1)), (3, fence_key(2)), (5, fence_key(3_000))] {
        let several = set(id, [fence_key(1), other].map(|key| put(key, None, record(key.kind, id))));
        let neighbour = set(id + 1, [put(fence_key(4), None, record(Kind::Fence, 4))]);
        let refused = store.commit(&[neighbour, several], NOW).await;
        holds("a set of several rows is refused", matches!(refused, Err(Error::NotApplied(_))))?;
        for key in [fence_key(1), other, fence_key(4)] {
            same("a row of a commit that was refused", read(store, key).await?, None)?;
        }
    }
    Ok(())
}

async fn rows_of_every_kind_are_written_together(store: &dyn Store) -> Result<(), LawViolation> {
    let kinds = [Kind::Fence, Kind::VersionHead, Kind::AgainHead, Kind::Alias, Kind::Trace];
    let writes: Vec<_> = kinds.map(|kind| put(key(kind, 1), None, record(kind, 9))).into();
    same("the verdict on a set of every kind", commit(store, set(1, writes)).await?, Verdict::Applied)?;
    for kind in kinds {
        let wanted = Some((1, record(kind, 9)));
        same(&format!("the {kind:?} row as it was written"), read(store, key(kind, 1)).await?, wanted)?;
    }
    let exchange = [remove(fence_key(1), Some(1)), put(fence_key(2), None, record(Kind::Fence, 2))];
    same("the verdict on an exchange", commit(store, set(2, exchange)).await?, Verdict::Applied)?;
    same("the removed row", read(store, fence_key(1)).await?, None)?;
    same("the row in its place", read(store, fence_key(2)).await?, Some((2, record(Kind::Fence, 2))))
}

// As for a complete list of items: each is written, and each rests on others that are left alone.
async fn thousands_of_rows_are_written_together(store: &dyn Store) -> Result<(), LawViolation> {
    let (there, absent) = (0..500, 500..1_000);
    let held = |number| key(Kind::VersionHead, number);
    let writes: Vec<_> =
        there.clone().map(|number| put(held(number), None, record(Kind::VersionHead, number))).collect();
    same("the verdict on rows to hold", commit(store, set(1, writes)).await?, Verdict::Applied)?;
    let holding = |mut set: WriteSet| {
        let there = there.clone().map(|number| (held(number), Some(CommitId(1))));
        set.also.held = there.chain(absent.clone().map(|number| (held(number), None))).collect();
        set
    };
    let keys: Vec<RowKey> = large(2, None).writes.iter().map(|write| write.key).collect();
    for set in [holding(large(2, None)), holding(large(3, Some(2)))] {
        let id = set.id;
        same("the verdict on a large set", commit(store, set).await?, Verdict::Applied)?;
        let loaded = store.load(&keys).await?;
        let sound = |(key, row): (&RowKey, &Loaded)| {
            row.as_ref().is_some_and(|row| row.revision == id && row.record == record(key.kind, id.0))
        };
        let count = keys.iter().zip(&loaded).filter(|row| sound(*row)).count();
        same("how many rows of a large set are as it wrote them", count, keys.len())?;
    }
    let loaded = store.load(&absent.map(held).collect::<Vec<_>>()).await?;
    same("how many rows there are that were held to be absent", loaded.iter().flatten().count(), 0)
}

// A fence and a row of another kind: a store may keep them in different places.
fn pair() -> [RowKey; 2] {
    [fence_key(10), key(Kind::VersionHead, 10)]
}

fn generation(number: u64, rows: usize) -> WriteSet {
    let expect = number.checked_sub(1).filter(|earlier| *earlier > 0);
    let writes = pair().into_iter().take(rows).map(|key| put(key, expect, record(key.kind, number)));
    set(number, writes.collect::<Vec<_>>())
}

fn a_reader_never_sees_half_of_a_set(harness: &mut dyn Harness, store: Arc<dyn Store>) -> Result<(), LawViolation> {
    let done = Arc::new(AtomicBool::new(false));
    let (reading, reader_done) = (store.clone(), done.clone());
    harness.together(vec![
        Box::pin(async move {
            let mut outcome = Ok(());
            for number in 1..=ROUNDS {
                outcome = rows::commit(&*store, generation(number, 2))
                    .await
                    .and_then(|verdict| same("the verdict on a pair", verdict, Verdict::Applied));
                if outcome.is_err() {
                    break;
                }
            }
            done.store(true, Ordering::Release);
            outcome
        }),
        Box::pin(async move {
            while !reader_done.load(Ordering::Acquire) {
                let [one, other] = revisions(&*reading).await?;
                same("the revisions of two rows that are always written together", one, other)?;
            }
            Ok(())
        }),
    ])
}

async fn revisions(store: &dyn Store) -> Result<[Option<u64>; 2], LawViolation> {
    let rows = store.load(&pair()).await?;
    let revision = |at: usize| rows.get(at).cloned().flatten().map(|row| row.revision.0);
    Ok([revision(0), revision(1)])
}

async fn a_crash_leaves_all_of_a_set_or_none(harness: &mut dyn Harness, rows: usize) -> Result<(), LawViolation> {
    let store = harness.open();
    commit(&*store, generation(1, rows)).await?;
    for found in harness.interrupt(store, &[generation(2, rows)], NOW) {
        let [one, other] = revisions(&*found).await?;
        if rows == 2 {
            same("the revisions of a pair after a crash within its commit", one, other)?;
        }
        holds("what was there before the crash is there, or what was being written", matches!(one, Some(1 | 2)))?;
    }
    Ok(())
}
