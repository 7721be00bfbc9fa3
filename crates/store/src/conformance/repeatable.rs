//! Law 5: a write set whose outcome is unknown may be committed again under the same id.
//! Never passes a store that takes a writer's own earlier write for another writer's.

use fencepost_kernel::key::Kind;

use super::{
    Harness, LawViolation,
    rows::{NOW, commit, fence_key, key, large, put, read, record, remove, set},
    same,
};
use crate::{Store, Verdict::Applied};

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    if store.promises().many_rows {
        thousands_of_rows_are_written_again(&*store).await?;
    }
    let store = harness.open();
    let value = |number| record(Kind::Fence, number);
    commit(&*store, set(1, [put(fence_key(1), None, value(1)), put(fence_key(2), None, value(1))])).await?;
    let mixed = set(
        2,
        [put(fence_key(1), Some(1), value(2)), remove(fence_key(2), Some(1)), put(fence_key(3), None, value(2))],
    );
    for _ in 0..3 {
        same("the verdict on a set and on its repetitions", commit(&*store, mixed.clone()).await?, Applied)?;
        same("a row of it", read(&*store, fence_key(1)).await?, Some((2, value(2))))?;
        same("the row that it removed", read(&*store, fence_key(2)).await?, None)?;
        same("its last row", read(&*store, fence_key(3)).await?, Some((2, value(2))))?;
    }
    let only_removal = set(3, [remove(fence_key(3), Some(2))]);
    for _ in 0..2 {
        same("the verdict on a removal, again", commit(&*store, only_removal.clone()).await?, Applied)?;
    }

    if store.promises().many_rows {
        one_row_tells_of_the_others(&*store).await?;
    }

    // Also in one commit: the repetition comes right after the original.
    let twice = set(6, [put(fence_key(6), None, value(6))]);
    let verdicts = store.commit(&[twice.clone(), twice], NOW).await?;
    same("the verdicts on a set and its repetition in one commit", verdicts, vec![Applied, Applied])?;

    // If one set overwrites the row of another, only the last id is left there. Both sets were applied all the same.
    let chain = [set(8, [put(fence_key(8), None, value(8))]), set(9, [put(fence_key(8), Some(8), value(9))])];
    for _ in 0..2 {
        let verdicts = store.commit(&chain, NOW).await?;
        same("the verdicts on a chain of sets, and on its repetition", verdicts, vec![Applied, Applied])?;
        same("the row that both wrote", read(&*store, fence_key(8)).await?, Some((9, value(9))))?;
    }

    let unknown = set(7, [put(fence_key(7), None, value(7))]);
    for found in harness.interrupt(store, std::slice::from_ref(&unknown), NOW) {
        same("the verdict after a crash", commit(&*found, unknown.clone()).await?, Applied)?;
        same("the row after a crash and a repetition", read(&*found, fence_key(7)).await?, Some((7, value(7))))?;
    }
    Ok(())
}

async fn thousands_of_rows_are_written_again(store: &dyn Store) -> Result<(), LawViolation> {
    for _ in 0..2 {
        same("the verdict on a large set, and again", commit(store, large(1, None)).await?, Applied)?;
    }
    Ok(())
}

async fn one_row_tells_of_the_others(store: &dyn Store) -> Result<(), LawViolation> {
    let value = |number| record(Kind::Fence, number);
    // Another writer has since changed one of its rows: the other row still proves that the set was applied.
    let pair = [put(fence_key(5), None, value(4)), put(key(Kind::Alias, 5), None, record(Kind::Alias, 4))];
    let pair = set(4, pair);
    commit(store, pair.clone()).await?;
    commit(store, set(5, [put(fence_key(5), Some(4), value(5))])).await?;
    same("the verdict on a set of which a row has moved on", commit(store, pair).await?, Applied)?;
    same("the row that moved on", read(store, fence_key(5)).await?, Some((5, value(5))))
}
