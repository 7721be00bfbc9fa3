//! Moves a whole store: to another one, to a file, and back from a file.
//! Never holds more than a page of rows in memory, nor changes a row, but for the claims and lanes that a restore ends.
//! Called by `fencepost copy`, `backup` and `restore`, and by the server's `/admin/backup`.

mod backup;
mod copy;
mod file;
mod fill;
mod keys;
mod lanes;
mod restore;
mod rows;

use std::{fmt, io};

use fencepost_kernel::{RowKey, fence::FenceKey, key::Kind, row};

pub use backup::Backup;
pub use copy::{Copied, copy};
pub use file::{Contents, Header, verify};
pub use keys::KeysNeeded;
pub use restore::{Restored, restore};

use crate::clock::Clock;

/// The shortest time between two reports of progress.
const TOLD_EVERY_MS: u64 = 500;

/// Why a move did not happen or did not end. Rows that were written stay; the same move goes on from there.
#[derive(Debug)]
pub enum Error {
    /// One of the stores does not answer, or has stopped.
    Store(fencepost_store::Error),
    /// The file cannot be read or written.
    File(io::Error),
    /// The file is not a whole backup, and why.
    Damaged(String),
    /// The target holds this many rows that the source does not.
    NotEmpty(u64),
    /// Source and target hold different rows under one key.
    Differs(RowKey),
    /// A row that was written is not in the target.
    Lost(RowKey),
    /// The target did not take the time floor, without which an old token could be given again.
    NoFloor,
    /// The system gives no random numbers, from which the ids of writes are made.
    NoChance,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |key: &RowKey| format!("{} {}", key.kind.spec().names.0, FenceKey(key.id));
        match self {
            Self::Store(error) => write!(f, "{error}"),
            Self::File(error) => write!(f, "{error}"),
            Self::Damaged(why) => write!(f, "not a whole backup: {why}"),
            Self::NotEmpty(rows) => write!(
                f,
                "the target is not empty: {rows} of its rows are not in the source. Give an empty store, \
                 or the target of the same move that was interrupted"
            ),
            Self::Differs(key) => write!(
                f,
                "source and target differ in {}: one of them was written to meanwhile, or the target holds another \
                 store's rows. Stop what writes, and give an empty target",
                row(key)
            ),
            Self::Lost(key) => {
                write!(f, "{} was written but is not in the target: somebody else removes rows there", row(key))
            }
            Self::NoFloor => f.write_str("the target did not take the time floor; do not serve it"),
            Self::NoChance => f.write_str("the system gives no random numbers"),
        }
    }
}

impl std::error::Error for Error {}

impl From<fencepost_store::Error> for Error {
    fn from(error: fencepost_store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        // A file that ends too early is a damaged backup, not a failure of the system.
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it ends too early".to_owned()),
            _ => Self::File(error),
        }
    }
}

/// How many rows there are of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowCounts([u64; row::BACKUP_KINDS]);

impl RowCounts {
    /// The rows of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        kind.spec().backup_place.map_or(0, |place| self.0[usize::from(place)])
    }

    /// All rows.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, kind: Kind) {
        if let Some(place) = kind.spec().backup_place {
            self.0[usize::from(place)] += 1;
        }
    }
}

impl fmt::Display for RowCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = row::BACKUP.iter().zip(self.0).filter(|(_, count)| *count > 0).map(|(kind, count)| {
            let (one, several) = kind.spec().names;
            format!("{count} {}", if count == 1 { one } else { several })
        });
        let parts: Vec<_> = some.collect();
        f.write_str(if parts.is_empty() { "no rows" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// The progress of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The step under way, in a few words.
    pub step: &'static str,
    /// Rows that this step is done with.
    pub rows: u64,
    /// Rows per second since the step began.
    pub rows_per_s: u64,
}

/// Reports progress, but not too often.
struct Meter<'t> {
    clock: &'t dyn Clock,
    told: &'t mut dyn FnMut(Progress),
    step: &'static str,
    rows: u64,
    begun_ms: u64,
    told_ms: u64,
}

impl<'t> Meter<'t> {
    fn new(clock: &'t dyn Clock, told: &'t mut dyn FnMut(Progress)) -> Self {
        let now_ms = clock.monotonic_ms();
        Self { clock, told, step: "", rows: 0, begun_ms: now_ms, told_ms: now_ms }
    }

    fn begin(&mut self, step: &'static str) {
        (self.step, self.rows, self.begun_ms) = (step, 0, self.clock.monotonic_ms());
    }

    fn pass(&mut self, rows: usize) {
        self.rows += rows as u64;
        let now_ms = self.clock.monotonic_ms();
        if now_ms - self.told_ms >= TOLD_EVERY_MS {
            self.told_ms = now_ms;
            let rows_per_s = self.rows * 1_000 / (now_ms - self.begun_ms).max(1);
            (self.told)(Progress { step: self.step, rows: self.rows, rows_per_s });
        }
    }
}
