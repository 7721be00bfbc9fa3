//! Writes a store out as a backup file, piece by piece, while it is being served.
//! Never holds more than a page, and never stops a write: the file says between which moments its rows are.
//! Called by `fencepost backup` on a store, and by the server on its own.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::Millis;
use fencepost_store::{Store, codec};
use sha2::{Digest, Sha256};

use super::{
    Error, RowCounts,
    file::{Header, put_row, trailer},
    rows::{Pages, Scan, is_over},
};
use crate::{
    Fencepost,
    clock::{Clock, StoreTime},
    engine,
};

/// A backup that is being written. Keeps the store open until it is dropped.
pub struct Backup {
    header: Header,
    scan: Scan,
    now: Box<dyn Fn() -> Millis + Send>,
    digest: Sha256,
    counts: RowCounts,
    next: Next,
}

enum Next {
    Header,
    Rows,
    Nothing,
}

impl Backup {
    /// Begins the backup of a store that no engine serves in this process.
    pub async fn of(store: &Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let floor = store.time_floor().await?;
        let time = StoreTime::new(clock.clone(), store.clone(), floor);
        Ok(Self::begin(store, floor, Millis(clock.wall_ms()), Box::new(move || time.now())))
    }

    fn begin(store: &Arc<dyn Store>, floor: Millis, wall: Millis, now: Box<dyn Fn() -> Millis + Send>) -> Self {
        let header = Header {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            row_format: codec::VERSION,
            store: store.promises().because,
            started_at: now(),
            wall,
            time_floor: floor,
        };
        let (digest, counts) = (Sha256::new(), RowCounts::default());
        Self { header, scan: Scan::new(store), now, digest, counts, next: Next::Header }
    }

    /// How many rows have been handed out.
    pub fn rows(&self) -> RowCounts {
        self.counts
    }

    /// The next bytes of the file; none at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mut piece = match self.next {
            Next::Header => {
                self.next = Next::Rows;
                self.header.bytes()
            }
            Next::Rows => self.page().await?,
            Next::Nothing => return Ok(None),
        };
        self.digest.update(&piece);
        if let Next::Nothing = self.next {
            piece.extend_from_slice(&self.digest.finalize_reset());
        }
        Ok(Some(piece.into()))
    }

    async fn page(&mut self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        while out.is_empty() {
            let page = self.scan.page().await?;
            if page.is_empty() {
                self.next = Next::Nothing;
                return Ok(trailer((self.now)(), &self.counts));
            }
            for (key, row) in page.iter().filter(|(_, row)| !is_over(&row.record, self.header.time_floor)) {
                put_row(&mut out, key, row);
                self.counts.add(key.kind);
            }
        }
        Ok(out)
    }
}

impl Fencepost {
    /// Begins a backup of the store that is being served; claims and seals go on meanwhile.
    pub async fn backup(&self) -> Result<Backup, engine::Error> {
        let engine = self.engine();
        engine.ready().await?;
        let floor = engine.store().time_floor().await?;
        let started_at = engine.now();
        let wall = engine.wall();
        // A backup must not keep the commit loop of a closed engine alive.
        let weak = engine.downgrade();
        let now = move || weak.upgrade().map_or(started_at, |engine| engine.now());
        Ok(Backup::begin(engine.store(), floor, wall, Box::new(now)))
    }
}
