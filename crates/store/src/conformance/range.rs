//! A range walks the rows of one kind whose ids begin with a prefix, in key order, page by page, and misses nothing.
//! Without a prefix it walks the whole kind.
//! Never mixes kinds: adjacent addresses may belong to another kind.

use fencepost_kernel::{RowKey, key::Kind, lane::LaneId};

use super::{
    Harness, LawViolation,
    rows::{commit, key, number, put, record, remove, set},
    same,
};
use crate::Store;

const ROWS: u64 = 23;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    a_whole_kind_is_walked(&*harness.open()).await?;
    a_prefix_bounds_the_walk_of_any_kind(&*harness.open()).await?;
    entries_are_those_of_one_lane(&*harness.open()).await
}

async fn a_whole_kind_is_walked(store: &dyn Store) -> Result<(), LawViolation> {
    for kind in Kind::ALL {
        let writes: Vec<_> = (0..ROWS).rev().map(|number| put(key(kind, number), None, record(kind, number))).collect();
        commit(store, set(1 + kind as u64, writes)).await?;
        commit(store, set(100 + kind as u64, [remove(key(kind, 7), Some(1 + kind as u64))])).await?;
    }
    for kind in Kind::ALL {
        let wanted: Vec<u64> = (0..ROWS).filter(|number| *number != 7).collect();
        for limit in [1, 5, 100] {
            let found: Vec<u64> = walk(store, kind, &[], None, limit).await?.iter().map(number).collect();
            same(&format!("{kind:?} in pages of {limit}"), found, wanted.clone())?;
        }
        let past = store.scan(kind, Some(key(kind, ROWS)), 5).await?;
        same("a page past the last row", past.len(), 0)?;
        let page = store.scan(kind, Some(key(kind, 6)), 1).await?;
        let found = page.first().map(|(key, row)| (*key, row.revision.0, row.record.clone()));
        same("the row that comes with it", found, Some((key(kind, 8), 1 + kind as u64, record(kind, 8))))?;
    }
    Ok(())
}

// Ids of every shape around the prefixes: all zeros and all ones, and neighbours that differ in the last byte alone.
async fn a_prefix_bounds_the_walk_of_any_kind(store: &dyn Store) -> Result<(), LawViolation> {
    let id = |begin: &[u8], rest: u8| {
        let mut id = [rest; 32];
        id[..begin.len()].copy_from_slice(begin);
        id
    };
    let mut ids = vec![id(&[], 0), id(&[0], 1), id(&[6], 0xff), id(&[7], 0), id(&[7], 1), id(&[7, 0, 0], 0xff)];
    ids.extend([id(&[7, 8], 0), id(&[7, 8], 9), id(&[7; 31], 7), id(&[7; 31], 8), id(&[7], 0xff), id(&[8], 0)]);
    ids.extend([id(&[0xff; 31], 0xfe), id(&[], 0xff)]);
    ids.sort_unstable();
    for kind in Kind::ALL {
        let writes: Vec<_> = ids.iter().map(|id| put(RowKey { kind, id: *id }, None, record(kind, 1))).collect();
        commit(store, set(1 + kind as u64, writes)).await?;
    }
    let full = ids[4];
    let mut prefixes: Vec<&[u8]> = vec![&[], &[0], &[7], &[7, 0], &[7, 8], &[7, 9], &[0xff], &[0xff; 31]];
    prefixes.extend([&full[..], &ids[0], &[0xff; 32]]);
    for kind in Kind::ALL {
        let neighbour = |step: i16| Kind::ALL.into_iter().find(|other| *other as i16 == kind as i16 + step);
        for prefix in &prefixes {
            let own = |after: Option<[u8; 32]>| -> Vec<[u8; 32]> {
                let own = ids.iter().filter(|id| id.starts_with(prefix) && after.is_none_or(|after| **id > after));
                own.copied().collect()
            };
            let what = |after| format!("{kind:?} rows under {prefix:?} after {after:?}");
            for after in [None].into_iter().chain(ids.iter().copied().map(Some)) {
                let key = after.map(|id| RowKey { kind, id });
                for limit in [2, 100] {
                    let found: Vec<_> = walk(store, kind, prefix, key, limit).await?.iter().map(|key| key.id).collect();
                    same(&what(after), found, own(after))?;
                }
            }
            // Keys are ordered by kind first.
            for (other, wanted) in [(neighbour(-1), own(None)), (neighbour(1), Vec::new())] {
                let Some(other) = other else { continue };
                let after = Some(RowKey { kind: other, id: [7; 32] });
                let found: Vec<_> = walk(store, kind, prefix, after, 100).await?.iter().map(|key| key.id).collect();
                same(&format!("{kind:?} rows under {prefix:?} after one of {other:?}"), found, wanted)?;
            }
        }
        let longer = store.range(kind, &[7; 33], None, 5).await?;
        same("rows under what is longer than an id", longer.len(), 0)?;
    }
    Ok(())
}

async fn entries_are_those_of_one_lane(store: &dyn Store) -> Result<(), LawViolation> {
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
        let own = lane(0xfd);
        let found = store.range(Kind::Entry, &own.0, Some(RowKey::entry(own, after)), limit).await?;
        let found: Vec<_> = found.iter().map(|(key, row)| (*key, row.record.clone())).collect();
        let wanted: Vec<_> = wanted.iter().map(|seq| (RowKey::entry(own, *seq), record(Kind::Entry, 1))).collect();
        same(&format!("{limit} entries after {after}"), found, wanted)?;
    }
    Ok(())
}

async fn walk(
    store: &dyn Store,
    kind: Kind,
    prefix: &[u8],
    mut after: Option<RowKey>,
    limit: usize,
) -> Result<Vec<RowKey>, LawViolation> {
    let mut keys = Vec::new();
    loop {
        let page = store.range(kind, prefix, after, limit).await?;
        let Some((last, _)) = page.last() else { return Ok(keys) };
        same("the size of a page is within its limit", page.len() <= limit, true)?;
        after = Some(*last);
        keys.extend(page.iter().map(|(key, _)| *key));
    }
}
