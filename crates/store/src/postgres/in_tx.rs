//! Asks the kernel within a transaction of the user's own: the claim, the effect and the seal stand or fall together.
//! Never commits and never rolls back: what was decided is true once the user's transaction is.
//! Called by the library; the transaction's connection must have Fencepost's tables on its search path.

use std::{collections::BTreeMap, sync::Arc};

use fencepost_kernel::{
    Command, Reply, Row, RowKey, Rows,
    command::CommitId,
    decide,
    decide::{follow, footprint},
};
use tokio_postgres::Transaction;

use super::{
    fault::{self, Failed},
    link::Run,
    nodes, rows,
    stamp::Stamp,
    write::write,
};
use crate::{
    Error, WriteSet, codec,
    judge::{Change, Judged, Known, judge},
};

/// How often a command is decided again because a row that was not there came into being meanwhile.
const ROUNDS_MAX: usize = 8;

// The database's time, never before what was ever committed; and the row format that everybody reads. What a fence says is
// only worth something if it lasts: the transaction is made as durable as one of ours.
const MOMENT: &str = "SELECT greatest(clock_timestamp(), (SELECT max(floor) FROM fencepost_nodes)),
    (SELECT format FROM fencepost_meta),
    CASE WHEN current_setting('synchronous_commit', true) IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', true) END";

struct World(BTreeMap<RowKey, Arc<Row>>);

impl Rows for World {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.0.get(key).map(Arc::as_ref)
    }
}

/// Decides `command` over rows that are locked until the transaction ends, and writes what follows. The reply must not
/// leave before the transaction is committed; after an error the transaction must be rolled back. `node` is noted with
/// what was written. `ids` gives an id that was never used before.
pub async fn ask(
    tx: &Transaction<'_>,
    node: &str,
    command: &Command,
    mut ids: impl FnMut() -> CommitId,
) -> Result<Reply, Error> {
    let run = Run::Theirs(tx.client());
    for _ in 0..ROUNDS_MAX {
        let world = take(run, command).await?;
        let moment = tx.query_one(MOMENT, &[]).await.map_err(|error| fault::of_read(&error))?;
        let format = nodes::readable(moment.get(1), codec::VERSION)?;
        let decision = decide(command, &world, moment.get::<_, Stamp>(0).0);
        if decision.writes.is_empty() {
            return Ok(decision.reply);
        }
        let sets = [WriteSet { id: ids(), writes: decision.writes }];
        let known = |key: &RowKey| world.row(key).map(|row| Known { revision: row.revision, due: None });
        let Judged { changes, .. } = judge(&sets, |key| Ok(known(key)))?;
        if write_whole(tx, &changes, node, format).await.map_err(Failed::of_nothing)? {
            return Ok(decision.reply);
        }
    }
    Err(Error::NotApplied("too many writers on one key".to_owned()))
}

// A row that was not there is not locked: where it is there by now, the others must not be written either.
async fn write_whole(tx: &Transaction<'_>, changes: &[Change<'_>], node: &str, format: u8) -> Result<bool, Failed> {
    let run = Run::Theirs(tx.client());
    if changes.len() == 1 {
        return write(run, changes, node, format).await;
    }
    tx.batch_execute("SAVEPOINT fencepost_ask").await?;
    let whole = write(run, changes, node, format).await?;
    tx.batch_execute(if whole { "RELEASE fencepost_ask" } else { "ROLLBACK TO fencepost_ask" }).await?;
    Ok(whole)
}

// The rows of the command's footprint, locked in key order, and then the one that only they can name.
async fn take(run: Run<'_>, command: &Command) -> Result<World, Error> {
    let mut keys = Vec::new();
    footprint(command, &mut |key| keys.push(key));
    let mut world = World(rows::take(run, &keys, codec::VERSION).await?.into_iter().collect());
    if let Some(key) = follow(command, &world)
        && !keys.contains(&key)
    {
        world.0.extend(rows::take(run, &[key], codec::VERSION).await?);
    }
    Ok(world)
}
