//! Law 2: a set with an expectation that no longer holds writes nothing and is told so; its neighbours go through.
//! Never relies on order between engines: in a race, any one may win, but only one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fencepost_kernel::{key::Kind, row::CommitId};

use super::{
    Harness, LawViolation,
    concurrent::{Job, let_go, meet},
    ordered::insist,
    rows::{LARGE, NOW, commit, fence_key, large, put, read, record, remove, set},
    same,
};
use crate::{
    Store,
    Verdict::{Applied, Moved},
};

const RACERS: u64 = 6;
const ROUNDS: u64 = 12;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    every_wrong_expectation_is_told_and_writes_nothing(&*harness.open()).await?;
    a_set_sees_the_sets_before_it(&*harness.open()).await?;
    if harness.open().promises().many_rows {
        one_wrong_expectation_among_thousands_is_told(&*harness.open()).await?;
    }
    a_row_to_remove_may_be_gone(&*harness.open()).await?;
    a_set_that_comes_late_does_not_undo_what_followed(&*harness.open()).await?;
    let store = harness.open();
    one_of_many_racers_wins(harness, store)?;
    a_commit_stands_whatever_becomes_of_those_beside_it(harness).await
}

async fn one_wrong_expectation_among_thousands_is_told(store: &dyn Store) -> Result<(), LawViolation> {
    commit(store, large(1, None)).await?;
    let mut wrong = large(2, Some(1));
    wrong.writes[LARGE as usize / 2].expect = Some(CommitId(9));
    let keys: Vec<_> = wrong.writes.iter().map(|write| write.key).collect();
    same("the verdict on a large set with one wrong expectation", commit(store, wrong).await?, Moved)?;
    let loaded = store.load(&keys).await?;
    let left = loaded.iter().flatten().filter(|row| row.revision == CommitId(1)).count();
    same("how many rows of it are as they were", left, keys.len())
}

async fn every_wrong_expectation_is_told_and_writes_nothing(store: &dyn Store) -> Result<(), LawViolation> {
    let value = |number| record(Kind::Fence, number);
    commit(store, set(1, [put(fence_key(1), None, value(1))])).await?;
    let wrong = [
        (2, put(fence_key(1), None, value(2))),
        (3, put(fence_key(1), Some(99), value(3))),
        (4, put(fence_key(7), Some(1), value(4))),
        (5, remove(fence_key(1), None)),
        (6, remove(fence_key(1), Some(99))),
    ];
    for (id, write) in wrong {
        let what = format!("the verdict on {write:?}");
        let innocent = put(fence_key(100 + id), None, value(id));
        if !store.promises().many_rows {
            same(&what, commit(store, set(id, [write])).await?, Moved)?;
            continue;
        }
        same(&what, commit(store, set(id, [innocent.clone(), write.clone()])).await?, Moved)?;
        same("a row of a set that moved", read(store, fence_key(100 + id)).await?, None)?;
        // The wrong write may stand before the sound one, too.
        same(&what, commit(store, set(id + 50, [write, innocent])).await?, Moved)?;
        same("a row of a set that moved", read(store, fence_key(100 + id)).await?, None)?;
    }
    same("the row that nobody may change", read(store, fence_key(1)).await?, Some((1, value(1))))?;
    same("the row that never was", read(store, fence_key(7)).await?, None)
}

async fn a_set_sees_the_sets_before_it(store: &dyn Store) -> Result<(), LawViolation> {
    let value = |number| record(Kind::Fence, number);
    let mut moved = vec![put(fence_key(1), Some(1), value(3)), put(fence_key(2), None, value(3))];
    moved.truncate(if store.promises().many_rows { 2 } else { 1 });
    let sets = [
        set(1, [put(fence_key(1), None, value(1))]),
        set(2, [put(fence_key(1), Some(1), value(2))]),
        set(3, moved),
        set(4, [put(fence_key(3), None, value(4))]),
        set(5, [remove(fence_key(1), Some(2))]),
        set(6, [put(fence_key(1), None, value(6))]),
    ];
    let verdicts = store.commit(&sets, NOW).await?;
    same(
        "the verdicts on sets that build on each other",
        verdicts,
        vec![Applied, Applied, Moved, Applied, Applied, Applied],
    )?;
    same("a row written three times in one commit", read(store, fence_key(1)).await?, Some((6, value(6))))?;
    same("a row of the set that moved", read(store, fence_key(2)).await?, None)?;
    same("the row of its neighbour", read(store, fence_key(3)).await?, Some((4, value(4))))?;
    let sets = [set(7, [put(fence_key(4), None, value(7))]), set(8, [remove(fence_key(4), Some(7))])];
    same("the verdicts on a put and its removal", store.commit(&sets, NOW).await?, vec![Applied, Applied])?;
    same("a row put and removed in one commit", read(store, fence_key(4)).await?, None)
}

async fn a_row_to_remove_may_be_gone(store: &dyn Store) -> Result<(), LawViolation> {
    let gone = set(1, [remove(fence_key(1), Some(77)), put(fence_key(2), None, record(Kind::Fence, 2))]);
    same("the verdict on removing an absent row", commit(store, gone).await?, Applied)?;
    same("the row written beside it", read(store, fence_key(2)).await?, Some((1, record(Kind::Fence, 2))))
}

async fn a_set_that_comes_late_does_not_undo_what_followed(store: &dyn Store) -> Result<(), LawViolation> {
    let value = |number| record(Kind::Fence, number);
    let first = set(1, [put(fence_key(1), None, value(1))]);
    commit(store, first.clone()).await?;
    commit(store, set(2, [put(fence_key(1), Some(1), value(2))])).await?;
    // Whether it is told that it was applied once or that it moved: it must not be applied again.
    commit(store, first).await?;
    same("the row after a late repetition", read(store, fence_key(1)).await?, Some((2, value(2))))
}

fn one_of_many_racers_wins(harness: &mut dyn Harness, store: Arc<dyn Store>) -> Result<(), LawViolation> {
    let wins: Arc<[AtomicU64]> = (0..ROUNDS).map(|_| AtomicU64::new(0)).collect();
    let jobs = (0..RACERS).map(|racer| {
        let (store, wins) = (store.clone(), wins.clone());
        let job: Job = Box::pin(async move {
            for round in 0..ROUNDS {
                let id = 1 + round * RACERS + racer;
                let claim = set(id, [put(fence_key(round), None, record(Kind::Fence, id))]);
                if commit(&*store, claim).await? == Applied {
                    wins[round as usize].fetch_add(1, Ordering::AcqRel);
                    let found = read(&*store, fence_key(round)).await?;
                    same("what the winner finds", found, Some((id, record(Kind::Fence, id))))?;
                }
            }
            Ok(())
        });
        job
    });
    harness.together(jobs.collect())?;
    let wins: Vec<u64> = wins.iter().map(|wins| wins.load(Ordering::Acquire)).collect();
    same("the winners of each race", wins, vec![1; ROUNDS as usize])
}

// Two of three writers get in each other's way, which may undo a commit; the third shares the store with one of them.
async fn a_commit_stands_whatever_becomes_of_those_beside_it(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    let beside = harness.beside(&store);
    let rows = if store.promises().many_rows { 2 } else { 1 };
    let (arrived, wins) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let contested = |store: Arc<dyn Store>, first: u64| -> Job {
        let (arrived, wins) = (arrived.clone(), wins.clone());
        Box::pin(async move {
            for race in 0..ROUNDS {
                let id = first + race;
                let row = |at| put(fence_key(1_000 + race * rows + at), None, record(Kind::Fence, id));
                let claim = set(id, (0..rows).map(row).collect::<Vec<_>>());
                meet(&arrived, 2 * (race + 1)).await;
                if insist(&*store, &[claim]).await.inspect_err(|_| let_go(&arrived))?[0] == Applied {
                    wins.fetch_add(1, Ordering::AcqRel);
                }
            }
            Ok(())
        })
    };
    let own = store.clone();
    let in_nobodys_way: Job = Box::pin(async move {
        for id in 1..=4 * ROUNDS {
            let claim = set(id, [put(fence_key(id), None, record(Kind::Fence, id))]);
            same("the verdict on a row of one's own", insist(&*own, &[claim]).await?, vec![Applied])?;
        }
        Ok(())
    });
    let jobs = vec![contested(store.clone(), 200), contested(beside, 300), in_nobodys_way];
    harness.together(jobs)?;
    for id in 1..=4 * ROUNDS {
        let found = read(&*store, fence_key(id)).await?.map(|(revision, _)| revision);
        same("an acknowledged row", found, Some(id))?;
    }
    same("the winners of all races", wins.load(Ordering::Acquire), ROUNDS)
}
