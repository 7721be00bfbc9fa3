//! A scan walks one kind in key order, page by page, and misses nothing.
//! Never mixes kinds: neighbours in the address space belong to others.

use fencepost_kernel::key::Kind;

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
