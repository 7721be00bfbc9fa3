//! Reads for whoever drives or shows lanes: rows, ranges of rows, entries of a lane.
//! Never writes. Called by `dispatch`.

use std::sync::Arc;

use fencepost_kernel::{LaneId, Millis, Row, RowKey, fence::Record, key::Kind, lane::Entry};

use super::{Engine, Error, Loaded};

impl Engine {
    /// This node drives lanes from now on.
    pub(crate) async fn drive(&self) -> Result<(), Error> {
        self.within_patience(self.shared.store.drive()).await
    }

    /// The nodes that drive lanes, and when each was last seen.
    pub(crate) async fn alive(&self) -> Result<Vec<(String, Millis)>, Error> {
        self.within_patience(self.shared.store.alive()).await
    }

    /// This node drives nothing any more.
    pub(crate) async fn leave(&self) -> Result<(), Error> {
        self.within_patience(self.shared.store.leave()).await
    }

    /// Rows as they are now.
    pub(crate) async fn load(&self, keys: &[RowKey]) -> Result<Vec<Loaded>, Error> {
        self.within_patience(self.shared.store.load(keys)).await
    }

    /// Rows of one kind whose ids begin with a prefix, in key order, starting after one.
    pub(crate) async fn range(
        &self,
        kind: Kind,
        prefix: &[u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
        self.within_patience(self.shared.store.range(kind, prefix, after, limit)).await
    }

    /// Rows of one kind in key order, starting after one.
    pub(crate) async fn scan(
        &self,
        kind: Kind,
        after: Option<RowKey>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
        self.range(kind, &[], after, limit).await
    }

    /// Entries of a lane in order, starting after a position.
    pub(crate) async fn entries(
        &self,
        lane: LaneId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Entry>)>, Error> {
        let found = self.range(Kind::Entry, &lane.0, Some(RowKey::entry(lane, after)), limit).await?;
        let entry = |(key, row): (RowKey, Arc<Row>)| match &row.record {
            Record::Entry(entry) => Some((key.place().1, entry.clone())),
            _ => None,
        };
        Ok(found.into_iter().filter_map(entry).collect())
    }
}
