//! Law 3: a load sees every commit that was acknowledged before it began.
//! Never checks that a load hides commits that a crash could still undo: the law on durability covers that half.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fencepost_kernel::{Millis, key::Kind, row::Record};

use super::{
    Harness, LawViolation, holds,
    rows::{NOW, commit, fence_key, put, read, record, remove, sealed, set},
    same,
};
use crate::{Store, Verdict::Applied};

const ROUNDS: u64 = 30;
/// Long after any clock that a store may have.
const FAR: Millis = Millis(1 << 42);

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    every_way_to_read_sees_the_last_commit(&*harness.open()).await?;
    the_time_floor_only_rises(&*harness.open()).await?;
    let store = harness.open();
    another_reader_sees_what_was_acknowledged(harness, store)
}

// A claim, then a seal, and so on: a store may cache the two in different forms.
fn version(id: u64) -> Record {
    if id.is_multiple_of(2) { sealed(id, FAR) } else { record(Kind::Fence, id) }
}

fn peeked(store: &dyn Store) -> Result<Option<Option<u64>>, LawViolation> {
    store.peek(&fence_key(1)).transpose().map(|row| row.map(|row| row.map(|row| row.revision.0))).map_err(Into::into)
}

// A row that is not in memory need not be recalled; a recalled row must be the last version.
fn recalls(store: &dyn Store, last: Option<u64>) -> Result<(), LawViolation> {
    match store.recall(&fence_key(1)).transpose()? {
        Some(row) => same("what is recalled after the commit", row.map(|row| row.revision.0), last),
        None => Ok(()),
    }
}

async fn every_way_to_read_sees_the_last_commit(store: &dyn Store) -> Result<(), LawViolation> {
    // A store that cannot peek at first never can.
    let peeks = peeked(store)?.is_some();
    for id in 1..=5 {
        let write = put(fence_key(1), (id > 1).then(|| id - 1), version(id));
        same("the verdict on the next version", commit(store, set(id, [write])).await?, Applied)?;
        let peeked = peeked(store)?;
        same("a peek after the commit", peeked, peeks.then_some(Some(id)))?;
        recalls(store, Some(id))?;
        same("a load after the commit", read(store, fence_key(1)).await?, Some((id, version(id))))?;
        let both = store.load(&[fence_key(2), fence_key(1)]).await?;
        let both: Vec<_> = both.iter().map(|row| row.as_ref().map(|row| row.revision.0)).collect();
        same("a load of two after the commit, in the order asked", both, vec![None, Some(id)])?;
    }
    commit(store, set(6, [remove(fence_key(1), Some(5))])).await?;
    same("a peek after the removal", peeked(store)?, peeks.then_some(None))?;
    recalls(store, None)?;
    same("a load after the removal", read(store, fence_key(1)).await?, None)?;
    same("a load of nothing", store.load(&[]).await?.len(), 0)
}

// The store's own heartbeat may raise the floor further, at any moment.
async fn the_time_floor_only_rises(store: &dyn Store) -> Result<(), LawViolation> {
    for (id, now, floor) in [(1, 1_000, 1_000), (2, 3_000, 3_000), (3, 2_000, 3_000)] {
        let write = put(fence_key(id), None, record(Kind::Fence, id));
        store.commit(&[set(id, [write])], NOW.plus(now)).await?;
        holds("the time floor does not fall", store.time_floor().await? >= NOW.plus(floor))?;
    }
    let moved = set(4, [put(fence_key(1), None, record(Kind::Fence, 4))]);
    store.commit(&[moved], NOW.plus(5_000)).await?;
    holds("a commit that moved raises the time floor", store.time_floor().await? >= NOW.plus(5_000))
}

fn another_reader_sees_what_was_acknowledged(
    harness: &mut dyn Harness,
    store: Arc<dyn Store>,
) -> Result<(), LawViolation> {
    let acknowledged = Arc::new(AtomicU64::new(0));
    let (reading, heard) = (store.clone(), acknowledged.clone());
    harness.together(vec![
        Box::pin(async move {
            for id in 1..=ROUNDS {
                let write = put(fence_key(1), (id > 1).then(|| id - 1), version(id));
                let verdicts = store.commit(&[set(id, [write])], Millis(NOW.0 + id)).await;
                if !matches!(verdicts.as_deref(), Ok([Applied])) {
                    // Lets the reader end.
                    acknowledged.store(ROUNDS, Ordering::Release);
                    return Err(LawViolation(format!("the next version was not applied: {verdicts:?}")));
                }
                acknowledged.store(id, Ordering::Release);
            }
            Ok(())
        }),
        Box::pin(async move {
            loop {
                let floor = heard.load(Ordering::Acquire);
                let found = read(&*reading, fence_key(1)).await?.map_or(0, |(revision, _)| revision);
                holds("a reader elsewhere finds what was acknowledged, or something later", found >= floor)?;
                if floor == ROUNDS {
                    return Ok(());
                }
            }
        }),
    ])
}
