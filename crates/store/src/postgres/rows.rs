//! Decodes the rows of answers (kind, id, then the columns asked for) into addresses, revisions and records.
//! Never takes a damaged row for a good one: that stops the store.
//! Called wherever rows are read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use fencepost_kernel::{Row, RowKey, key::Kind, row::CommitId};

use futures::future::join;
use tokio_postgres::error::Error as ServerError;

use super::{
    columns::{Keys, Param},
    fault::{self, Failed},
    link::Run,
    sql,
    stamp::Stamp,
};
use crate::{Error, codec, judge::Known, shared_clock::SharedClock};

/// The address in the first two columns.
pub(super) fn key(row: &tokio_postgres::Row) -> Result<RowKey, Error> {
    let kind = u8::try_from(row.get::<_, i16>(0)).ok().and_then(Kind::from_u8);
    let id = row.get::<_, &[u8]>(1).try_into().ok();
    let (Some(kind), Some(id)) = (kind, id) else {
        return Err(Error::Broken("a row of the database has an address that Fencepost never gave it".to_owned()));
    };
    Ok(RowKey { kind, id })
}

/// The record behind stored bytes.
pub(super) fn record(key: &RowKey, bytes: &[u8], format_max: u8) -> Result<Arc<Row>, Error> {
    match codec::decode_up_to(format_max, key, &Bytes::copy_from_slice(bytes)) {
        Ok(row) => Ok(Arc::new(row)),
        Err(damage) => Err(damaged(key, damage)),
    }
}

fn damaged(key: &RowKey, damage: codec::Damage) -> Error {
    let id = fencepost_kernel::FenceKey(key.id);
    Error::Broken(format!("the {:?} row {id} cannot be read: {damage}", key.kind))
}

/// Decodes rows with the record in the third column, where there is one, and the server's time in the fourth.
pub(super) fn records(
    rows: &[tokio_postgres::Row],
    format_max: u8,
    clock: &SharedClock,
) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
    if let Some(row) = rows.last() {
        clock.heard(row.get::<_, Stamp>(3).0);
    }
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(bytes) = row.get::<_, Option<&[u8]>>(2) {
            let key = key(row)?;
            found.push((key, record(&key, bytes, format_max)?));
        }
    }
    Ok(found)
}

/// Whether rows are locked when they are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// They are read as they are at this moment.
    No,
    /// They are locked: no other transaction may change them until this one ends.
    Yes,
    /// The same, but others may lock them in this way, too. Only for rows that this transaction leaves alone: two that share a row
    /// and then both change it would wait for one another.
    Shared,
}

/// The state of those rows that exist. Reads fences first, then the others, each in key order. The figures that merges
/// go on from come only with a lock.
pub(super) async fn known(run: Run<'_>, keys: &Keys, hold: Hold) -> Result<BTreeMap<RowKey, Known>, Failed> {
    let (fences, rows) = match hold {
        Hold::No => (sql::LOOK_FENCES, sql::LOOK_ROWS),
        Hold::Yes => (sql::LOCK_FENCES, sql::LOCK_ROWS),
        Hold::Shared => (sql::SHARE_FENCES, sql::SHARE_ROWS),
    };
    let found = both(run, keys, fences, rows).await?;
    let read = |row: &tokio_postgres::Row| {
        let key = key(row)?;
        let merged: Option<&[u8]> = if row.len() > 3 { row.get(3) } else { None };
        let head = merged.map(|bytes| codec::head(&key, bytes)).transpose().map_err(|damage| damaged(&key, damage))?;
        let revision = CommitId(row.get::<_, i64>(2) as u64);
        Ok((key, Known { revision, due: head.and_then(|head| head.due), figure: head.map_or(0, |head| head.figure) }))
    };
    found.iter().map(read).collect()
}

/// Whole rows in one round trip: first those read without a lock, then those that are locked. `begin` goes before all.
pub(super) async fn take(
    run: Run<'_>,
    begin: Option<&'static str>,
    seen: &[RowKey],
    locked: &[RowKey],
    format_max: u8,
) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
    let (seen, locked): (Keys, Keys) = (seen.iter().collect(), locked.iter().collect());
    let mut steps: Vec<(&'static str, Vec<Param<'_>>)> = begin.map(|sql| (sql, Vec::new())).into_iter().collect();
    for (keys, fences, rows) in [(&seen, sql::SEE_FENCES, sql::SEE_ROWS), (&locked, sql::TAKE_FENCES, sql::TAKE_ROWS)] {
        if !keys.fences.is_empty() {
            steps.push((fences, vec![&keys.fences]));
        }
        if !keys.ids.is_empty() {
            steps.push((rows, vec![&keys.ids, &keys.kinds]));
        }
    }
    let found = run.all(&steps).await.map_err(|error| fault::of_read(&error))?;
    let read = |row: &tokio_postgres::Row| {
        let key = key(row)?;
        Ok((key, record(&key, row.get(2), format_max)?))
    };
    found.iter().flatten().map(read).collect()
}

// Sent one after the other without waiting; the server answers in that order.
async fn both(
    run: Run<'_>,
    keys: &Keys,
    fences: &'static str,
    rows: &'static str,
) -> Result<Vec<tokio_postgres::Row>, ServerError> {
    let of_fences =
        async { if keys.fences.is_empty() { Ok(Vec::new()) } else { run.query(fences, &[&keys.fences]).await } };
    let of_rows =
        async { if keys.ids.is_empty() { Ok(Vec::new()) } else { run.query(rows, &[&keys.ids, &keys.kinds]).await } };
    let (of_fences, of_rows) = join(of_fences, of_rows).await;
    let mut found = of_fences?;
    found.extend(of_rows?);
    Ok(found)
}
