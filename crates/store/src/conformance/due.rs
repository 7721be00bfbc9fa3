//! What is due comes earliest first, once, and only while the row says so.
//! Never asks for rows beyond the limit: the caller goes on from where it stopped.

use fencepost_kernel::{Millis, RowKey, key::Kind};

use super::{
    Harness, Violation,
    rows::{NOW, commit, doubtful, fence_key, put, record, remove, set},
    same,
};
use crate::Store;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), Violation> {
    let store = harness.open();
    let at = |offset| NOW.plus(offset);
    // Key order and due order differ; two are due at the same moment.
    let dues = [(1, 40), (2, 30), (3, 20), (4, 20), (5, 10)];
    let writes = dues.map(|(number, offset)| put(fence_key(number), None, doubtful(number, at(offset))));
    commit(&*store, set(1, writes)).await?;
    commit(&*store, set(2, [put(fence_key(6), None, record(Kind::Fence, 6))])).await?;

    same("what is due in time", due(&*store, at(30), None, 10).await?, numbers([5, 3, 4, 2]))?;
    same("what is due before anything", due(&*store, at(9), None, 10).await?, numbers([]))?;
    same("what is due at the end of time", due(&*store, Millis(u64::MAX), None, 10).await?, numbers([5, 3, 4, 2, 1]))?;
    same("the first page", due(&*store, at(40), None, 2).await?, numbers([5, 3]))?;
    let after = Some((at(20), fence_key(3)));
    same("the next page", due(&*store, at(40), after, 2).await?, numbers([4, 2]))?;
    same("a page past what is due", due(&*store, at(10), after, 2).await?, numbers([]))?;

    // Renewed, settled, removed: each leaves its old place.
    commit(&*store, set(3, [put(fence_key(5), Some(1), doubtful(5, at(35)))])).await?;
    commit(&*store, set(4, [put(fence_key(3), Some(1), record(Kind::Fence, 3))])).await?;
    commit(&*store, set(5, [remove(fence_key(4), Some(1))])).await?;
    same("what is due after changes", due(&*store, at(40), None, 10).await?, numbers([2, 5, 1]))?;
    let rows = store.due(at(35), None, 10).await?;
    let found = rows.last().map(|(_, row)| (row.revision.0, row.record.clone()));
    same("the row that comes with it", found, Some((3, doubtful(5, at(35)))))
}

fn numbers<const N: usize>(numbers: [u64; N]) -> Vec<RowKey> {
    numbers.map(fence_key).into()
}

async fn due(
    store: &dyn Store,
    until: Millis,
    after: Option<(Millis, RowKey)>,
    limit: usize,
) -> Result<Vec<RowKey>, Violation> {
    Ok(store.due(until, after, limit).await?.into_iter().map(|(key, _)| key).collect())
}
