//! Reads rows, ranges of rows, due rows and entries of a lane; and a preview of a command's reply.
//! Never writes. Called by `dispatch` and `ingest`.

use std::sync::Arc;

use fencepost_kernel::{Command, LaneId, Millis, Reply, Row, RowKey, decide, key::Kind, lane::Entry};

use super::{
    Engine, Error, Loaded,
    rows::{LoadedRows, load},
};

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

    /// Rows of one kind that are due now, the earliest first, starting after one with its due time.
    pub(crate) async fn due(
        &self,
        kind: Kind,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
        self.due_by(kind, self.now(), after, limit).await
    }

    /// The same for rows that are due by some time.
    pub(crate) async fn due_by(
        &self,
        kind: Kind,
        by: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
        self.within_patience(self.shared.store.due(kind, by, after, limit)).await
    }

    /// The reply that a command would get now. Nothing is written; a repeat is counted.
    pub(crate) async fn preview(&self, command: &Command) -> Result<Reply, Error> {
        let patience = self.shared.limits.patience;
        let loaded = tokio::time::timeout(patience, load(&mut &*self.shared, &[command], LoadedRows::default())).await;
        let loaded = loaded.map_err(|_| Error::Unavailable("the store does not answer".to_owned()))??;
        let now = self.now();
        let reply = decide(command, &loaded, now).reply;
        if let Some(target) = command.target() {
            self.shared.note(target.key, &reply, now);
        }
        Ok(reply)
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
        let entry = |(key, row): (RowKey, Arc<Row>)| Some((key.place().1, row.record.as_entry()?.clone()));
        Ok(found.into_iter().filter_map(entry).collect())
    }
}
