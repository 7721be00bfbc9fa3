//! The contract's law on due rows: those of one kind come earliest first, once, and only while the row says so.
//! Never asks for rows beyond the limit: the caller goes on from where it stopped.

use fencepost_kernel::{Millis, RowKey, key::Kind};

use super::{
    Harness, LawViolation,
    rows::{self, NOW, commit, key, put, record, remove, set},
    same,
};
use crate::Store;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    for kind in Kind::ALL {
        match rows::due(kind, 1, NOW) {
            Some(_) => due_rows_come_in_order(&*harness.open(), kind).await?,
            None => rows_that_are_never_due_do_not_come(&*harness.open(), kind).await?,
        }
    }
    kinds_are_due_apart(&*harness.open()).await
}

async fn due_rows_come_in_order(store: &dyn Store, kind: Kind) -> Result<(), LawViolation> {
    let at = |offset| NOW.plus(offset);
    let row = |number| key(kind, number);
    let numbers = |numbers: &[u64]| -> Vec<RowKey> { numbers.iter().map(|number| key(kind, *number)).collect() };
    let due_record = |number, offset| rows::due(kind, number, at(offset)).unwrap_or(record(kind, number));
    let due = async |until, after, limit| due(store, kind, until, after, limit).await;
    let what = |what: &str| format!("{what} of {kind:?}");
    // Key order and due order differ; two are due at the same moment.
    let dues = [(1, 40), (2, 30), (3, 20), (4, 20), (5, 10)];
    let writes = dues.map(|(number, offset)| put(row(number), None, due_record(number, offset)));
    commit(store, set(1, writes)).await?;
    commit(store, set(2, [put(row(6), None, record(kind, 6))])).await?;

    same(&what("what is due in time"), due(at(30), None, 10).await?, numbers(&[5, 3, 4, 2]))?;
    same(&what("what is due before anything"), due(at(9), None, 10).await?, numbers(&[]))?;
    // A record that `rows::due` does not date is due later than all others, or never.
    let mut all = numbers(&[5, 3, 4, 2, 1]);
    all.extend(record(kind, 6).due_at().map(|_| row(6)));
    same(&what("what is due at the end of time"), due(Millis(u64::MAX), None, 10).await?, all)?;
    same(&what("the first page"), due(at(40), None, 2).await?, numbers(&[5, 3]))?;
    let after = Some((at(20), row(3)));
    same(&what("the next page"), due(at(40), after, 2).await?, numbers(&[4, 2]))?;
    same(&what("a page past what is due"), due(at(10), after, 2).await?, numbers(&[]))?;

    // A row that is renewed, settled or removed leaves its old place.
    commit(store, set(3, [put(row(5), Some(1), due_record(5, 35))])).await?;
    commit(store, set(4, [put(row(3), Some(1), record(kind, 3))])).await?;
    commit(store, set(5, [remove(row(4), Some(1))])).await?;
    same(&what("what is due after changes"), due(at(40), None, 10).await?, numbers(&[2, 5, 1]))?;
    let rows = store.due(kind, at(35), None, 10).await?;
    let found = rows.last().map(|(_, row)| (row.revision.0, row.record.clone()));
    same(&what("the row that comes with it"), found, Some((3, due_record(5, 35))))
}

async fn rows_that_are_never_due_do_not_come(store: &dyn Store, kind: Kind) -> Result<(), LawViolation> {
    commit(store, set(1, [put(key(kind, 1), None, record(kind, 1))])).await?;
    let found = due(store, kind, Millis(u64::MAX), None, 10).await?;
    same(&format!("what is due of {kind:?}"), found, Vec::new())
}

// All kinds share ids and due times here: a query for one kind must return all rows of that kind, and no others.
async fn kinds_are_due_apart(store: &dyn Store) -> Result<(), LawViolation> {
    let records = |kind, number, at| rows::due(kind, number, at).map(|record| (kind, number, at, record));
    let mut wanted: Vec<(Kind, Millis, RowKey)> = Vec::new();
    for (id, number) in (1..).zip(0..12) {
        for (step, kind) in (0..).zip(Kind::ALL) {
            let Some((kind, number, at, record)) = records(kind, number, NOW.plus(number % 4 + step % 2)) else {
                continue;
            };
            commit(store, set(id * 100 + kind as u64, [put(key(kind, number), None, record)])).await?;
            wanted.push((kind, at, key(kind, number)));
        }
    }
    wanted.sort_unstable();
    for kind in Kind::ALL {
        for until in [NOW, NOW.plus(2), Millis(u64::MAX)] {
            let own = wanted.iter().filter(|(of, at, _)| *of == kind && *at <= until);
            let own: Vec<(Millis, RowKey)> = own.map(|(_, at, key)| (*at, *key)).collect();
            let (mut found, mut after) = (Vec::new(), None);
            // In pages, each from where the last one ended.
            for _ in 0..=own.len() {
                let page = store.due(kind, until, after, 5).await?;
                found.extend(page.iter().filter_map(|(key, row)| Some((row.record.due_at()?, *key))));
                after = found.last().copied();
                if page.len() < 5 {
                    break;
                }
            }
            same(&format!("what is due of {kind:?} among others"), found, own)?;
        }
    }
    Ok(())
}

async fn due(
    store: &dyn Store,
    kind: Kind,
    until: Millis,
    after: Option<(Millis, RowKey)>,
    limit: usize,
) -> Result<Vec<RowKey>, LawViolation> {
    Ok(store.due(kind, until, after, limit).await?.into_iter().map(|(key, _)| key).collect())
}
