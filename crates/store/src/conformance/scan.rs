//! A scan walks one kind in key order, page by page, and misses nothing; and so does a walk of one lane's entries.
//! Never mixes kinds: neighbours in the address space belong to others.

use fencepost_kernel::{RowKey, key::Kind, lane::LaneId};

use super::{
    Harness, Violation,
    rows::{commit, key, number, put, record, remove, set},
    same,
};
use crate::Store;

const ROWS: u64 = 23;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), Violation> {
    let store = harness.open();
    for kind in Kind::ALL {
        let writes: Vec<_> = (0..ROWS).rev().map(|number| put(key(kind, number), None, record(kind, number))).collect();
        commit(&*store, set(1 + kind as u64, writes)).await?;
        commit(&*store, set(100 + kind as u64, [remove(key(kind, 7), Some(1 + kind as u64))])).await?;
    }
    for kind in Kind::ALL {
        let wanted: Vec<u64> = (0..ROWS).filter(|number| *number != 7).collect();
        for limit in [1, 5, 100] {
            same(&format!("{kind:?} in pages of {limit}"), walk(&*store, kind, limit).await?, wanted.clone())?;
        }
        let past = store.scan(kind, Some(key(kind, ROWS)), 5).await?;
        same("a page past the last row", past.len(), 0)?;
        let page = store.scan(kind, Some(key(kind, 6)), 1).await?;
        let found = page.first().map(|(key, row)| (*key, row.revision.0, row.record.clone()));
        same("the row that comes with it", found, Some((key(kind, 8), 1 + kind as u64, record(kind, 8))))?;
    }
    entries_are_those_of_one_lane(&*harness.open()).await
}

async fn entries_are_those_of_one_lane(store: &dyn Store) -> Result<(), Violation> {
    let lane = |last: u8| LaneId(std::array::from_fn(|at| if at == 23 { last } else { 0xff }));
    let (last, neighbours) = (u64::MAX, [lane(0xfc), lane(0xfe), lane(0xff)]);
    let mut keys: Vec<RowKey> = neighbours.map(|lane| RowKey::entry(lane, 1)).into();
    keys.extend([1, 2, 3, 300, last].map(|seq| RowKey::entry(lane(0xfd), seq)));
    keys.extend([RowKey::entry(neighbours[0], last), RowKey::lane(lane(0xfd)), RowKey::dead_letter(lane(0xfd), 2)]);
    let writes: Vec<_> = keys.into_iter().map(|key| put(key, None, record(key.kind, 1))).collect();
    commit(store, set(1, writes)).await?;
    let pages: [(u64, usize, &[u64]); 6] = [
        (0, 100, &[1, 2, 3, 300, last]),
        (0, 2, &[1, 2]),
        (2, 2, &[3, 300]),
        (3, 100, &[300, last]),
        (300, 100, &[last]),
        (last, 100, &[]),
    ];
    for (after, limit, wanted) in pages {
        let found = store.entries(lane(0xfd), after, limit).await?;
        let found: Vec<_> = found.iter().map(|(key, row)| (*key, row.record.clone())).collect();
        let wanted: Vec<_> =
            wanted.iter().map(|seq| (RowKey::entry(lane(0xfd), *seq), record(Kind::Entry, 1))).collect();
        same(&format!("{limit} entries after {after}"), found, wanted)?;
    }
    Ok(())
}

async fn walk(store: &dyn Store, kind: Kind, limit: usize) -> Result<Vec<u64>, Violation> {
    let mut numbers = Vec::new();
    let mut after = None;
    loop {
        let page = store.scan(kind, after, limit).await?;
        let Some((last, _)) = page.last() else { return Ok(numbers) };
        same("the size of a page is within its limit", page.len() <= limit, true)?;
        after = Some(*last);
        numbers.extend(page.iter().map(|(key, _)| number(key)));
    }
}
