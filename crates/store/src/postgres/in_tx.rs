//! The rows of this store within a transaction of the user's own: read, locked and written there.
//! Never decides anything. Never commits the transaction, and rolls back no more of it than one attempt.
//! Called by the library's engine; the transaction's connection must have Fencepost's tables on its search path.

use std::sync::Arc;

use fencepost_kernel::{Millis, Row, RowKey, Rows, row::CommitId};
use tokio_postgres::{Client, Transaction};

use super::{
    columns::Keys,
    fault::{self, Failed},
    link::Run,
    nodes,
    rows::{self, Hold},
    stamp::Stamp,
    write::{touched, write},
};
use crate::{
    Error, Verdict, WriteSet, codec,
    judge::{Known, judge},
};

// The database's time, never before any committed time; and the row format that every node reads. A fence is only worth
// something if it lasts: the transaction is made as durable as one of ours.
const MOMENT: &str = "SELECT greatest(clock_timestamp(), (SELECT max(floor) FROM fencepost_nodes)),
    (SELECT format FROM fencepost_meta),
    CASE WHEN current_setting('synchronous_commit', true) IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', true) END,
    current_setting('transaction_isolation', true)";

/// The levels at which a row that was read is compared, or fails the transaction, before it is written. PostgreSQL has no
/// others; a database that speaks its protocol may.
const ISOLATIONS: [&str; 4] = ["read uncommitted", "read committed", "repeatable read", "serializable"];

/// An attempt can be undone alone: one that is given up leaves no lock behind which others could wait for in another
/// order, nor one that our own commit would wait for.
const BEGIN: &str = "SAVEPOINT fencepost_ask";
const KEEP: &str = "RELEASE fencepost_ask";
const UNDO: &str = "ROLLBACK TO fencepost_ask";

/// One attempt at a command within a user's transaction. After an error the whole transaction must be rolled back.
pub struct Attempt<'t> {
    client: &'t Client,
    /// The holder's name in the written rows.
    node: &'t str,
    begun: bool,
}

/// When a decision is made, and in which row format it is written.
pub struct Moment {
    /// The database's time.
    pub now: Millis,
    format: u8,
}

impl<'t> Attempt<'t> {
    /// Begins with the first rows that are read.
    pub fn new(tx: &'t Transaction<'_>, node: &'t str) -> Self {
        Self { client: tx.client(), node, begun: false }
    }

    /// Those rows that exist, in one round trip: first the ones that are only read, then the ones that are locked until the
    /// transaction ends, fences before others and each in key order.
    pub async fn load(&mut self, read: &[RowKey], lock: &[RowKey]) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
        let begin = (!self.begun).then_some(BEGIN);
        self.begun = true;
        rows::take(self.run(), begin, read, lock, codec::VERSION).await
    }

    /// The present moment. Refused at an isolation level that cannot hold a decision made now.
    pub async fn moment(&self) -> Result<Moment, Error> {
        let row = self.client.query_one(MOMENT, &[]).await.map_err(|error| fault::of_read(&error))?;
        let format = nodes::readable(row.get(1), codec::VERSION)?;
        accepted(row.get(3))?;
        Ok(Moment { now: row.get::<_, Stamp>(0).0, format })
    }

    /// The rows that must have been loaded, with a lock where they were not before, to apply a set.
    pub fn named_by(set: &WriteSet) -> impl Iterator<Item = RowKey> {
        touched(set)
    }

    /// Writes a set that was decided over `rows`, then locks `unmoved`, which must be as they were read. `Moved` also
    /// where a row that was absent has come into being.
    pub async fn apply(
        &self,
        set: WriteSet,
        rows: &impl Rows,
        moment: &Moment,
        unmoved: &[(RowKey, CommitId)],
    ) -> Result<Verdict, Error> {
        let sets = [set];
        let mut judged = judge(&sets, |key| Ok(rows.row(key).map(Known::of)))?;
        let whole = write(self.run(), &sets, &judged, self.node, moment.format, None).await;
        if !whole.map_err(Failed::of_nothing)? {
            return Ok(Verdict::Moved);
        }
        let keys: Keys = unmoved.iter().map(|(key, _)| key).collect();
        let found = rows::known(self.run(), &keys, Hold::Yes).await.map_err(Failed::of_nothing)?;
        let is_unmoved = |(key, read): &(RowKey, CommitId)| found.get(key).is_some_and(|known| known.revision == *read);
        if unmoved.iter().all(is_unmoved) { Ok(judged.verdicts.remove(0)) } else { Ok(Verdict::Moved) }
    }

    /// Ends the attempt: its locks and writes last until the transaction ends, and are true once that is committed.
    pub async fn keep(self) -> Result<(), Error> {
        self.end(KEEP).await
    }

    /// Ends the attempt and undoes its writes.
    pub async fn undo(self) -> Result<(), Error> {
        self.end(UNDO).await
    }

    async fn end(self, sql: &str) -> Result<(), Error> {
        if self.begun { self.client.batch_execute(sql).await.map_err(|error| fault::of_read(&error)) } else { Ok(()) }
    }

    fn run(&self) -> Run<'t> {
        Run::Theirs(self.client)
    }
}

fn accepted(isolation: Option<&str>) -> Result<(), Error> {
    match isolation {
        Some(level) if !ISOLATIONS.contains(&level) => Err(Error::NotApplied(format!(
            "a transaction at isolation level \"{level}\" cannot hold what a claim was decided over: use read committed, \
             repeatable read or serializable"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolation_level_that_postgresql_does_not_have_is_refused_with_a_sentence() {
        for level in ISOLATIONS {
            assert!(accepted(Some(level)).is_ok(), "{level}");
        }
        let refused = accepted(Some("snapshot"));
        assert!(matches!(&refused, Err(Error::NotApplied(why)) if why.contains("\"snapshot\"")), "{refused:?}");
    }
}
