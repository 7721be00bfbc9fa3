//! Copies every row of one store into another, and then holds each side against the other.
//! Never writes to the source, and never over a row of the target. Called by `fencepost copy`.

use std::sync::Arc;

use fencepost_kernel::{Millis, row};
use fencepost_store::Store;

use super::{
    Error, Meter, Progress, RowCounts,
    fill::{compare, fill},
    rows::Scan,
};
use crate::clock::Clock;

/// The result of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The rows that both stores hold now.
    pub rows: RowCounts,
    /// How many of them an earlier, interrupted copy had written.
    pub already: u64,
    /// Rows that were left out, since their time is over.
    pub expired: u64,
    /// Rows that the target keeps but cannot serve: version and repetition heads where a write may touch one row only, and
    /// all of lanes where it keeps none.
    pub unserved: u64,
    /// The target's time floor: no token below it will be given.
    pub floor: Millis,
}

/// Copies `from` into `to`, which must be empty or the target of the same copy, interrupted. Nothing may write to
/// either meanwhile; where something does, the comparison at the end finds it.
pub async fn copy(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    clock: &dyn Clock,
    told: &mut dyn FnMut(Progress),
) -> Result<Copied, Error> {
    let mut meter = Meter::new(clock, told);
    let floor = from.time_floor().await?;
    // Only the source's durable time makes a row expire. A store may have dropped missing rows by another clock.
    let now = || Millis(clock.wall_ms()).max(floor).max(to.now().unwrap_or_default());
    meter.begin("looking at the target");
    let held = compare(&mut Scan::new(to), &**from, now(), &mut meter).await?;
    if held.missing > 0 {
        return Err(Error::NotEmpty(held.missing));
    }
    meter.begin("copying");
    let filled = fill(&mut Scan::new(from), &**to, floor, &mut meter).await?;
    meter.begin("comparing");
    let compared = compare(&mut Scan::new(from), &**to, now(), &mut meter).await?;
    if let Some(key) = compared.missing_first {
        return Err(Error::Lost(key));
    }
    meter.begin("comparing back");
    let back = compare(&mut Scan::new(to), &**from, now(), &mut meter).await?;
    if back.missing > 0 {
        return Err(Error::NotEmpty(back.missing));
    }
    let rows = compared.same;
    let promises = to.promises();
    let unserved = row::BACKUP.iter().filter(|kind| !promises.keeps(**kind)).map(|kind| rows.of(*kind)).sum();
    Ok(Copied { rows, already: filled.already, expired: filled.expired, unserved, floor: filled.floor })
}
