//! Law 7: an entry that is appended to a lane gets the position after the last one, without a gap, and readers see
//! entries in that order. With it the other parts of a set beside writes: rows that must stay as they are, and rows to
//! remove.
//! Of a store that keeps no lanes it asks only for rows that stay as they are: the rest it must refuse.

use fencepost_kernel::{
    RowKey, Write,
    fence::{Receipt, State},
    key::Kind,
    lane::{self, Append, Fate, LaneId, Tail},
    law::Also,
    merge::{Merge, Merged},
    row::{CommitId, Record},
};

use super::{
    Harness, LawViolation, concurrent, holds,
    rows::{DAY_MS, NOW, commit, entry, fence, fence_key, key, letter, put, read, record, set},
    same,
};
use crate::{
    Error, Store, Verdict,
    Verdict::{Applied, Moved},
    WriteSet,
};

pub(super) const LANE: LaneId = LaneId([0x11; 24]);
const OTHER: LaneId = LaneId([0x22; 24]);

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    if store.promises().many_rows {
        rows_that_writes_rest_on_must_not_have_moved(&*harness.open()).await?;
    }
    if !store.promises().lanes {
        return lanes_are_refused(&*store).await;
    }
    positions_have_no_gap(&*store).await?;
    a_set_that_moved_takes_no_position(&*harness.open()).await?;
    a_repetition_appends_nothing(&*harness.open()).await?;
    a_held_row_must_not_have_moved(&*harness.open()).await?;
    a_dropped_row_goes(&*harness.open()).await?;
    a_crash_leaves_no_gap(harness).await?;
    concurrent::check(harness).await
}

/// The verdict on a set whose one merge is an entry that got this position.
pub(super) fn appended(seq: u64) -> Verdict {
    Verdict::Merged(vec![Merged::Position(seq)])
}

/// A fence that waits for its position, with its entry for the end of a lane.
pub(super) fn publish(id: u64, lane: LaneId, number: u64) -> WriteSet {
    let position_row = fence_key(number);
    let append = Append { lane, entry: entry(number).into(), position_row, driven: None };
    let writes = vec![put(position_row, None, waiting(number))];
    WriteSet { id: CommitId(id), writes, also: Also { merges: vec![Merge::Append(append)], ..Also::default() } }
}

fn waiting(number: u64) -> Record {
    let receipt = Receipt { effect_id: number.to_string(), body: r#"{"seq":"#.into() };
    fence(number, State::Sealed { receipt, at: NOW, expires: NOW.plus(DAY_MS) })
}

/// The same set, with rows that must be as they are said to be.
pub(super) fn holding(mut set: WriteSet, held: impl IntoIterator<Item = (RowKey, Option<u64>)>) -> WriteSet {
    set.also.held.extend(held.into_iter().map(|(key, revision)| (key, revision.map(CommitId))));
    set
}

fn dropping(mut set: WriteSet, drops: impl IntoIterator<Item = RowKey>) -> WriteSet {
    set.also.drops.extend(drops);
    set
}

async fn positions(store: &dyn Store, lane: LaneId) -> Result<Vec<(u64, u64)>, LawViolation> {
    let found = store.scan(Kind::Entry, Some(RowKey::entry(lane, 0)), 1_000).await?;
    let own = found.iter().filter(|(key, _)| key.place().0 == lane);
    Ok(own.map(|(key, row)| (key.place().1, row.revision.0)).collect())
}

// The lane holds these sets in this order, and its tail is the last of them.
async fn lane_holds(store: &dyn Store, lane: LaneId, sets: &[u64]) -> Result<(), LawViolation> {
    let wanted: Vec<(u64, u64)> = (1..).zip(sets.iter().copied()).collect();
    same("the positions of a lane and who took them", positions(store, lane).await?, wanted)?;
    let tail = sets.last().map(|id| (*id, Record::Lane(lane::Record::Tail(Tail { last: sets.len() as u64 }))));
    same("the tail of the lane", read(store, RowKey::tail(lane)).await?, tail)
}

async fn positions_have_no_gap(store: &dyn Store) -> Result<(), LawViolation> {
    same("the first verdict of a lane", commit(store, publish(1, LANE, 1)).await?, appended(1))?;
    same("the next one", commit(store, publish(2, LANE, 2)).await?, appended(2))?;
    let sets = [
        publish(3, LANE, 3),
        publish(4, OTHER, 4),
        publish(5, LANE, 5),
        set(6, [put(fence_key(6), None, waiting(6))]),
        publish(7, OTHER, 7),
        publish(8, LANE, 8),
    ];
    let verdicts = store.commit(&sets, NOW).await?;
    let wanted = vec![appended(3), appended(1), appended(4), Applied, appended(2), appended(5)];
    same("the verdicts of two lanes in one commit", verdicts, wanted)?;
    lane_holds(store, LANE, &[1, 2, 3, 5, 8]).await?;
    lane_holds(store, OTHER, &[4, 7]).await?;
    let last = read(store, RowKey::entry(LANE, 5)).await?;
    same("the entry at its position", last, Some((8, Record::Lane(lane::Record::Entry(entry(8).into())))))?;
    same("the row that is told", read(store, fence_key(8)).await?, Some((8, waiting(8).with_position(5))))?;

    let position_row = RowKey::dead_letter(OTHER, 1);
    let fate = |seq| Fate::Redriven { at: NOW, by: "ann".to_owned(), why: None, seq };
    let redriven = |seq| Record::Lane(lane::Record::DeadLetter(letter(9, fate(seq)).into()));
    let mut again = publish(9, LANE, 9);
    again.writes = vec![put(position_row, None, redriven(0))];
    for merge in &mut again.also.merges {
        if let Merge::Append(append) = merge {
            append.position_row = position_row;
        }
    }
    same("the verdict on a letter that is sent again", commit(store, again).await?, appended(6))?;
    same("the letter", read(store, position_row).await?, Some((9, redriven(6))))
}

async fn a_set_that_moved_takes_no_position(store: &dyn Store) -> Result<(), LawViolation> {
    let sets = [
        publish(1, LANE, 1),
        // Another claim has its fence already.
        publish(2, LANE, 1),
        publish(3, LANE, 3),
        holding(publish(4, LANE, 4), [(fence_key(3), Some(99))]),
        publish(5, LANE, 5),
    ];
    let verdicts = store.commit(&sets, NOW).await?;
    same("the verdicts around sets that moved", verdicts, vec![appended(1), Moved, appended(2), Moved, appended(3)])?;
    same("a set that moved, alone", commit(store, publish(6, LANE, 1)).await?, Moved)?;
    same("the set after it", commit(store, publish(7, LANE, 7)).await?, appended(4))?;
    lane_holds(store, LANE, &[1, 3, 5, 7]).await
}

async fn a_repetition_appends_nothing(store: &dyn Store) -> Result<(), LawViolation> {
    let first = publish(1, LANE, 1);
    same("the verdict on a set", commit(store, first.clone()).await?, appended(1))?;
    same("the verdict on its repetition", commit(store, first.clone()).await?, Applied)?;
    let second = publish(2, LANE, 2);
    let verdicts = store.commit(&[first, second.clone(), second, publish(3, LANE, 3)], NOW).await?;
    same("the verdicts beside repetitions", verdicts, vec![Applied, appended(2), Applied, appended(3)])?;
    lane_holds(store, LANE, &[1, 2, 3]).await?;
    same("what the first was told", read(store, fence_key(1)).await?, Some((1, waiting(1).with_position(1))))
}

async fn a_held_row_must_not_have_moved(store: &dyn Store) -> Result<(), LawViolation> {
    let (held, absent) = (key(Kind::Transport, 1), key(Kind::LaneNotice, 1));
    let route = |value| record(Kind::Transport, value);
    commit(store, set(1, [put(held, None, route(1))])).await?;
    let good = holding(publish(2, LANE, 2), [(held, Some(1)), (absent, None), (fence_key(700), None)]);
    same("the verdict where all stands", commit(store, good).await?, appended(1))?;
    same("a row that was held", read(store, held).await?, Some((1, route(1))))?;
    for wrong in [(held, Some(9)), (held, None), (absent, Some(1)), (fence_key(2), None)] {
        let number = 10;
        let what = format!("the verdict over {wrong:?}");
        same(&what, commit(store, holding(publish(3, LANE, number), [wrong])).await?, Moved)?;
        same("a row of a set that moved", read(store, fence_key(number)).await?, None)?;
        let plain = holding(set(4, [put(fence_key(number), None, waiting(number))]), [wrong]);
        same("the same of a set that appends nothing", commit(store, plain).await?, Moved)?;
        same("its row", read(store, fence_key(number)).await?, None)?;
    }
    let sets = [
        holding(publish(5, LANE, 5), [(held, Some(1))]),
        set(6, [put(held, Some(1), route(6)), put(absent, None, Record::Lane(lane::Record::LaneNotice))]),
        holding(publish(7, LANE, 7), [(held, Some(1))]),
        holding(publish(8, LANE, 8), [(held, Some(6)), (absent, Some(6))]),
        holding(publish(9, LANE, 9), [(absent, None)]),
    ];
    let verdicts = store.commit(&sets, NOW).await?;
    same("the verdicts where it moves", verdicts, vec![appended(2), Applied, Moved, appended(3), Moved])?;
    lane_holds(store, LANE, &[2, 5, 8]).await?;
    same("what was held to be absent", read(store, fence_key(700)).await?, None)
}

async fn rows_that_writes_rest_on_must_not_have_moved(store: &dyn Store) -> Result<(), LawViolation> {
    let plain = |id, number, expect| set(id, [put(fence_key(number), expect, record(Kind::Fence, id))]);
    let leaning = |id, number, held| holding(plain(id, number, None), held);
    commit(store, plain(1, 1, None)).await?;
    let (good, absent) = ((fence_key(1), Some(1)), (key(Kind::Alias, 1), None));
    same("the verdict over what stands", commit(store, leaning(2, 2, vec![good, absent])).await?, Applied)?;
    for wrong in [(fence_key(1), Some(9)), (fence_key(1), None), (fence_key(9), Some(1))] {
        let verdict = commit(store, leaning(3, 3, vec![good, absent, wrong])).await?;
        same(&format!("the verdict over {wrong:?}"), verdict, Moved)?;
        same("its row", read(store, fence_key(3)).await?, None)?;
    }
    let over = |id| vec![(fence_key(1), Some(id))];
    same("the verdict on what others lean on", commit(store, plain(4, 1, Some(1))).await?, Applied)?;
    same("the verdict over what it was", commit(store, leaning(5, 5, over(1))).await?, Moved)?;
    let verdicts = store.commit(&[plain(6, 1, Some(4)), leaning(7, 7, over(6)), plain(8, 8, None)], NOW).await?;
    same("the verdicts on what depends on its neighbour", verdicts, vec![Applied; 3])?;
    same("a row that was held", read(store, fence_key(1)).await?, Some((6, record(Kind::Fence, 6))))?;
    same("what was held to be absent", read(store, key(Kind::Alias, 1)).await?, None)
}

async fn a_dropped_row_goes(store: &dyn Store) -> Result<(), LawViolation> {
    let sets: Vec<_> = (1..=4).map(|number| publish(number, LANE, number)).collect();
    store.commit(&sets, NOW).await?;
    let notice = key(Kind::LaneNotice, 1);
    commit(store, set(5, [put(notice, None, Record::Lane(lane::Record::LaneNotice))])).await?;
    let lane = |value| put(RowKey::lane(LANE), None, record(Kind::Lane, value));
    let entries = [1, 2, 77].map(|seq| RowKey::entry(LANE, seq));
    let settled = dropping(set(6, [lane(6)]), entries);
    same("the verdict on dropping rows, some absent", commit(store, settled.clone()).await?, Applied)?;
    same("the same again", commit(store, settled).await?, Applied)?;
    same("what is left", positions(store, LANE).await?, vec![(3, 3), (4, 4)])?;
    let moved = dropping(set(7, [lane(7)]), [RowKey::entry(LANE, 3)]);
    same("the verdict on a drop beside what moved", commit(store, moved).await?, Moved)?;
    same("what is left after that", positions(store, LANE).await?, vec![(3, 3), (4, 4)])?;

    // Removed as heard, and written again before any node looked.
    let nothing: [Write; 0] = [];
    let sets = [
        dropping(set(8, nothing.clone()), [notice, key(Kind::LaneNotice, 2)]),
        set(9, [put(notice, None, Record::Lane(lane::Record::LaneNotice))]),
        dropping(set(10, nothing), [RowKey::entry(LANE, 3)]),
        publish(11, LANE, 11),
    ];
    let verdicts = store.commit(&sets, NOW).await?;
    same("the verdicts on drops alone", verdicts, vec![Applied, Applied, Applied, appended(5)])?;
    same(
        "a row that went and came back",
        read(store, notice).await?,
        Some((9, Record::Lane(lane::Record::LaneNotice))),
    )?;
    same("the lane goes on", positions(store, LANE).await?, vec![(4, 4), (5, 11)])
}

async fn a_crash_leaves_no_gap(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    commit(&*store, publish(1, LANE, 1)).await?;
    let cut = publish(2, LANE, 2);
    for found in harness.interrupt(store, std::slice::from_ref(&cut), NOW) {
        let (entry, told) = (read(&*found, RowKey::entry(LANE, 2)).await?, read(&*found, fence_key(2)).await?);
        same("whether the entry is there, and its fence", entry.is_some(), told.is_some())?;
        holds("the set is applied, once", commit(&*found, cut.clone()).await?.applied())?;
        same("the one after it", commit(&*found, publish(3, LANE, 3)).await?, appended(3))?;
        lane_holds(&*found, LANE, &[1, 2, 3]).await?;
        same("what it was told", read(&*found, fence_key(2)).await?, Some((2, waiting(2).with_position(2))))?;
    }
    Ok(())
}

async fn lanes_are_refused(store: &dyn Store) -> Result<(), LawViolation> {
    let sound = set(2, [put(fence_key(2), None, waiting(2))]);
    let mut refused = vec![publish(1, LANE, 1), dropping(sound.clone(), [fence_key(3)])];
    if !store.promises().many_rows {
        refused.push(holding(sound, [(fence_key(3), None)]));
    }
    for set in refused {
        let key = fence_key(set.id.0);
        match store.commit(&[set], NOW).await {
            Err(Error::NotApplied(_)) => {}
            outcome => return Err(LawViolation(format!("a store without lanes took a set for one: {outcome:?}"))),
        }
        same("a row of what was refused", read(store, key).await?, None)?;
    }
    Ok(())
}

/// Commits sets until each has its verdict; a set that is held up by another transaction is committed again.
pub(super) async fn insist(store: &dyn Store, sets: &[WriteSet]) -> Result<Vec<Verdict>, LawViolation> {
    let mut verdicts = store.commit(sets, NOW).await?;
    for (set, verdict) in sets.iter().zip(&mut verdicts) {
        while *verdict == Verdict::Held {
            *verdict = commit(store, set.clone()).await?;
        }
    }
    Ok(verdicts)
}
