//! Fills an empty store from a backup file, raises its time past every token the lost store may have given, and ends
//! claims that were in flight and the right of any node to drive a lane.
//! Never writes before the whole file was found sound. Called by `fencepost restore`.

use std::{
    io::{BufReader, Read, Seek, SeekFrom},
    sync::Arc,
};

use fencepost_kernel::{
    Millis, Row,
    fence::{self, Fence, State, Token},
    row::Record,
};
use fencepost_store::{Found, Store};

use super::{
    Contents, Error, Meter, Progress, RowCounts,
    file::{Reader, verify},
    fill::{Compared, compare, fill},
    lanes::Lanes,
    rows::{Pages, Scan},
};
use crate::clock::Clock;

/// How many milliseconds past the latest known time the floor goes.
const MARGIN_MS: u64 = 1_000;

/// The result of a restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// The contents of the backup.
    pub contents: Contents,
    /// The rows that the store holds now.
    pub rows: RowCounts,
    /// How many of them an earlier, interrupted restore had written.
    pub already: u64,
    /// Rows that were left out, since they have expired.
    pub expired: u64,
    /// The store's time floor: every token it gives is above this, and so above all that were ever given.
    pub floor: Millis,
    /// The span of which the store knows nothing: effects that were sealed in it may run again.
    pub forgotten: (Millis, Millis),
}

/// Restores a backup into `to`, which must be empty or the target of the same restore, interrupted.
pub async fn restore<R: Read + Seek>(
    file: &mut R,
    to: &Arc<dyn Store>,
    clock: &dyn Clock,
    told: &mut dyn FnMut(Progress),
) -> Result<Restored, Error> {
    let contents = verify(BufReader::new(&mut *file))?;
    let lanes = Lanes::read(from_start(file)?)?;
    let mut meter = Meter::new(clock, told);
    let now = store_time(&contents, Millis(clock.wall_ms())).max(to.now().unwrap_or_default());
    let known = [contents.header.time_floor, contents.latest, contents.ended_at, to.time_floor().await?];
    let floor = known.into_iter().fold(now, Millis::max).plus(MARGIN_MS);

    meter.begin("looking at the target");
    let there = count(to, &mut meter).await?;
    // However often it is interrupted, every run writes the rows as the first one did.
    let first = if there > 0 { begun(file, &**to).await? } else { None };
    let ended = Ended { floor: first.unwrap_or(floor), at: contents.ended_at, lanes: &lanes };
    if there > 0 {
        let held = held(file, to, ended, floor, &mut meter).await?.same.total();
        if held < there {
            return Err(Error::NotEmpty(there - held));
        }
    }
    meter.begin("restoring");
    // The floor goes in with the first rows: an interrupted restore leaves no store with an old one.
    let filled = fill(&mut again(file, ended)?, &**to, floor, &mut meter).await?;
    meter.begin("comparing");
    let compared = held(file, to, ended, filled.floor, &mut meter).await?;
    if let Some(key) = compared.missing_first {
        return Err(Error::Lost(key));
    }
    let forgotten = (contents.header.started_at, now);
    let (already, expired) = (filled.already, filled.expired);
    Ok(Restored { contents, rows: compared.same, already, expired, floor: filled.floor, forgotten })
}

// The time of the lost store's clock now: where it was ahead of the wall clock, it still would be.
fn store_time(contents: &Contents, wall: Millis) -> Millis {
    wall.plus(contents.header.started_at.since(contents.header.wall))
}

async fn count(store: &Arc<dyn Store>, meter: &mut Meter<'_>) -> Result<u64, Error> {
    let (mut scan, mut rows) = (Scan::new(store), 0);
    loop {
        let page = scan.page().await?.len();
        if page == 0 {
            return Ok(rows);
        }
        rows += page as u64;
        meter.pass(page);
    }
}

// The floor of the first run of an interrupted restore of this file, as shown by the rows that it wrote; none where no
// row shows it. The target's own floor does not: every run raises that.
async fn begun<R: Read + Seek>(file: &mut R, to: &dyn Store) -> Result<Option<Millis>, Error> {
    let mut rows = from_start(file)?;
    loop {
        let page = rows.page().await?;
        if page.is_empty() {
            return Ok(None);
        }
        let is_pending =
            |record: &Record| record.as_fence().is_some_and(|fence| matches!(fence.state, State::Pending { .. }));
        let tell = |record: &Record| is_pending(record) || record.as_lane().is_some();
        let page: Found = page.into_iter().filter(|(_, row)| tell(&row.record)).collect();
        let keys: Vec<_> = page.iter().map(|(key, _)| *key).collect();
        for ((_, row), found) in page.iter().zip(to.load(&keys).await?) {
            let Some(found) = found else { continue };
            if let Some(fence) = found.record.as_fence() {
                return Ok(Some(Millis(fence.token.0)));
            }
            // An epoch that is higher by one shows no floor: the floor was below it.
            if let (Some(before), Some(lane)) = (row.record.as_lane(), found.record.as_lane())
                && lane.owner.epoch > before.owner.epoch + 1
            {
                return Ok(Some(Millis(lane.owner.epoch)));
            }
        }
    }
}

/// Restores claims as ended, under a token that no caller holds. Their holders may have acted since, or have been
/// followed by others.
#[derive(Clone, Copy)]
struct Ended<'l> {
    /// The token that no caller holds: every one that is given is above it.
    floor: Millis,
    at: Millis,
    lanes: &'l Lanes,
}

impl Ended<'_> {
    fn end(self, row: Arc<Row>) -> Arc<Row> {
        let Record::Fence(fence::Record::Fence(fence)) = &row.record else { return row };
        let State::Pending { lease_expires, on_lapse, forget_at, doubted_at, held_by } = &fence.state else {
            return row;
        };
        let state = State::Pending {
            lease_expires: (*lease_expires).min(self.at),
            on_lapse: *on_lapse,
            // The row is not forgotten before the clock has passed its token.
            forget_at: forget_at.map(|at| at.max(self.floor.plus(1))),
            doubted_at: *doubted_at,
            held_by: *held_by,
        };
        let fence = Fence { token: Token(self.floor.0), state, ..Fence::clone(fence) };
        Arc::new(Row { record: fence.into(), revision: row.revision })
    }
}

struct Rows<'l, R> {
    file: Reader<R>,
    ended: Ended<'l>,
}

impl<R: Read> Pages for Rows<'_, R> {
    async fn page(&mut self) -> Result<Found, Error> {
        loop {
            let page = self.file.page().await?;
            let is_over = page.is_empty();
            let Ended { lanes, floor, .. } = self.ended;
            let restored = |(key, row)| Some((key, lanes.restored(&key, self.ended.end(row), floor)?));
            let page: Found = page.into_iter().filter_map(restored).collect();
            if is_over || !page.is_empty() {
                return Ok(page);
            }
        }
    }
}

async fn held<R: Read + Seek>(
    file: &mut R,
    to: &Arc<dyn Store>,
    ended: Ended<'_>,
    now: Millis,
    meter: &mut Meter<'_>,
) -> Result<Compared, Error> {
    compare(&mut again(file, ended)?, &**to, now, meter).await
}

fn again<'f, 'l, R: Read + Seek>(file: &'f mut R, ended: Ended<'l>) -> Result<Rows<'l, BufReader<&'f mut R>>, Error> {
    Ok(Rows { file: from_start(file)?, ended })
}

fn from_start<R: Read + Seek>(file: &mut R) -> Result<Reader<BufReader<&mut R>>, Error> {
    file.seek(SeekFrom::Start(0))?;
    Reader::open(BufReader::new(file))
}
