//! Law 4: an acknowledged commit survives a crash.
//! Never checked on a store that promises no durability: its harness then returns no store after a crash.

use fencepost_kernel::key::Kind;

use super::{
    Harness, LawViolation, holds,
    rows::{NOW, commit, doubtful, fence_key, key, put, read, record, remove, set},
    same,
};

const ROWS: u64 = 50;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    for number in 1..=ROWS {
        let writes = [Kind::Fence, Kind::Alias].map(|kind| put(key(kind, number), None, record(kind, number)));
        commit(&*store, set(number, writes)).await?;
    }
    commit(&*store, set(100, [remove(fence_key(1), Some(1))])).await?;
    let due = NOW.plus(5);
    store.commit(&[set(101, [put(fence_key(2), Some(2), doubtful(2, due))])], NOW.plus(9)).await?;

    // Twice: the second crash hits the store as the first recovery left it.
    let mut survived = store;
    for _ in 0..2 {
        let Some(found) = harness.crash(survived) else { return Ok(()) };
        survived = found;
        same("a removed row after a crash", read(&*survived, fence_key(1)).await?, None)?;
        same("an overwritten row", read(&*survived, fence_key(2)).await?, Some((101, doubtful(2, due))))?;
        for number in 3..=ROWS {
            let wanted = Some((number, record(Kind::Fence, number)));
            same("a row after a crash", read(&*survived, fence_key(number)).await?, wanted)?;
        }
        let alias = read(&*survived, key(Kind::Alias, ROWS)).await?;
        same("a row of another kind", alias, Some((ROWS, record(Kind::Alias, ROWS))))?;
        holds("the time floor survives a crash", survived.time_floor().await? >= NOW.plus(9))?;
        let due: Vec<_> = survived.due(Kind::Fence, due, None, 10).await?.into_iter().map(|(key, _)| key).collect();
        same("what is due after a crash", due, vec![fence_key(2)])?;
    }
    // The recovered store accepts commits.
    commit(&*survived, set(102, [put(fence_key(1), None, record(Kind::Fence, 1))])).await?;
    same("a row written after it", read(&*survived, fence_key(1)).await?, Some((102, record(Kind::Fence, 1))))
}
