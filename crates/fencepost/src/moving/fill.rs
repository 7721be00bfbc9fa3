//! Writes rows into a store that does not have them yet, and compares rows with those a store has.
//! Never overwrites: a row that is there already must be the same.
//! Called by `copy` and `restore`.

use fencepost_kernel::{Millis, Write, row::CommitId};
use fencepost_store::{Found, Store, Verdict, WriteSet};

use super::{
    Error, Meter, RowCounts,
    rows::{Pages, is_over},
};

/// The result of [`fill`].
#[derive(Default)]
pub(super) struct Filled {
    /// Rows that were there already, with the same content.
    pub(super) already: u64,
    /// Rows that were left out, since they have expired.
    pub(super) expired: u64,
    /// The time floor that the target has now.
    pub(super) floor: Millis,
}

/// Writes every row that has not expired at `floor`, and raises the target's time floor to that and past all rows.
pub(super) async fn fill(
    from: &mut impl Pages,
    to: &dyn Store,
    floor: Millis,
    meter: &mut Meter<'_>,
) -> Result<Filled, Error> {
    let mut filled = Filled { floor, ..Filled::default() };
    let mut id = getrandom::u64().map_err(|_| Error::NoChance)?;
    loop {
        let page = from.page().await?;
        if page.is_empty() {
            break;
        }
        let rows = page.len();
        let live: Found = page.into_iter().filter(|(_, row)| !is_over(&row.record, floor)).collect();
        filled.expired += (rows - live.len()) as u64;
        filled.floor = live.iter().map(|(_, row)| row.record.latest_at()).fold(filled.floor, Millis::max);
        let sets: Vec<_> = live
            .iter()
            .map(|(key, row)| {
                id = id.wrapping_add(1);
                let write = Write { key: *key, expect: None, put: Some(row.record.clone()) };
                WriteSet::new(CommitId(id), vec![write])
            })
            .collect();
        let verdicts = to.commit(&sets, filled.floor).await?;
        let moved = live.into_iter().zip(verdicts).filter(|(_, verdict)| *verdict != Verdict::Applied);
        let there: Found = moved.map(|(row, _)| row).collect();
        if !there.is_empty() {
            let mut found = Compared::default();
            found.compare(&there, to, filled.floor).await?;
            if let Some(key) = found.missing_first {
                return Err(Error::Differs(key));
            }
            filled.already += found.same.total();
        }
        meter.pass(rows);
    }
    to.commit(&[], filled.floor).await?;
    if to.time_floor().await? < filled.floor {
        return Err(Error::NoFloor);
    }
    Ok(filled)
}

/// The result of comparing rows with another store.
#[derive(Default)]
pub(super) struct Compared {
    /// Rows that both have, with the same content.
    pub(super) same: RowCounts,
    /// Rows that the other does not have, since they have expired.
    pub(super) expired: u64,
    /// Rows that the other should have and does not.
    pub(super) missing: u64,
    pub(super) missing_first: Option<fencepost_kernel::RowKey>,
}

impl Compared {
    /// Compares rows with those of a store. A row that has expired at `now` may be missing; one that differs never may.
    async fn compare(&mut self, page: &Found, other: &dyn Store, now: Millis) -> Result<(), Error> {
        let keys: Vec<_> = page.iter().map(|(key, _)| *key).collect();
        for ((key, row), loaded) in page.iter().zip(other.load(&keys).await?) {
            match loaded {
                Some(found) if found.record == row.record => self.same.add(key.kind),
                Some(_) => return Err(Error::Differs(*key)),
                None if is_over(&row.record, now) => self.expired += 1,
                None => {
                    self.missing += 1;
                    self.missing_first.get_or_insert(*key);
                }
            }
        }
        Ok(())
    }
}

/// Compares every row with those of a store.
pub(super) async fn compare(
    rows: &mut impl Pages,
    other: &dyn Store,
    now: Millis,
    meter: &mut Meter<'_>,
) -> Result<Compared, Error> {
    let mut compared = Compared::default();
    loop {
        let page = rows.page().await?;
        if page.is_empty() {
            return Ok(compared);
        }
        compared.compare(&page, other, now).await?;
        meter.pass(page.len());
    }
}
