//! Asks the kernel within a transaction of the user's own: the claim, the effect and the seal stand or fall together.
//! Never commits and never rolls back: what was decided is true once the user's transaction is.
//! Called by the library; the transaction's connection must have Fencepost's tables on its search path.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fencepost_kernel::{
    Command, Reply, Row, RowKey, Rows,
    command::CommitId,
    decide,
    decide::{follow, footprint},
    key::Kind,
};
use futures::future::join;
use tokio_postgres::Transaction;

use super::{
    fault::{self, Failed},
    link::Run,
    nodes,
    rows::{self, Hold},
    stamp::Stamp,
    write::{touched, write},
};
use crate::{
    Error, Verdict, WriteSet, codec,
    judge::{Judged, Known, judge},
};

/// How often a command is decided again because a row that was not there came into being meanwhile.
const ROUNDS_MAX: usize = 8;
/// How often rows may name more rows.
const FOLLOWS_MAX: usize = 4;

// The database's time, never before what was ever committed; and the row format that everybody reads. What a fence says is
// only worth something if it lasts: the transaction is made as durable as one of ours.
const MOMENT: &str = "SELECT greatest(clock_timestamp(), (SELECT max(floor) FROM fencepost_nodes)),
    (SELECT format FROM fencepost_meta),
    CASE WHEN current_setting('synchronous_commit', true) IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', true) END";

#[derive(Default)]
struct World {
    rows: BTreeMap<RowKey, Arc<Row>>,
    /// What was asked for, whether it was there or not.
    asked: BTreeSet<RowKey>,
}

impl Rows for World {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key).map(Arc::as_ref)
    }
}

impl World {
    /// Reads those rows that were not asked for yet, and locks them in key order where `hold` says so; whether there were any.
    async fn take(
        &mut self,
        run: Run<'_>,
        keys: impl IntoIterator<Item = RowKey>,
        hold: impl Fn(&RowKey) -> Hold,
    ) -> Result<bool, Error> {
        let new = keys.into_iter().filter(|key| self.asked.insert(*key));
        let (locked, seen): (Vec<RowKey>, Vec<RowKey>) = new.partition(|key| hold(key) == Hold::Yes);
        for (keys, hold) in [(&seen, Hold::No), (&locked, Hold::Yes)] {
            if !keys.is_empty() {
                self.rows.extend(rows::take(run, keys, hold, codec::VERSION).await?);
            }
        }
        Ok(!seen.is_empty() || !locked.is_empty())
    }
}

/// Decides `command` over rows that are locked until the transaction ends, as far as need be, and writes what follows. The reply must not
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
        let mut world = take(run, command).await?;
        let moment = tx.query_one(MOMENT, &[]).await.map_err(|error| fault::of_read(&error))?;
        let format = nodes::readable(moment.get(1), codec::VERSION)?;
        let decision = decide(command, &world, moment.get::<_, Stamp>(0).0);
        if decision.only_answers() {
            return Ok(decision.reply);
        }
        let sets = [WriteSet { id: ids(), writes: decision.writes, also: decision.also }];
        world.take(run, sets.iter().flat_map(touched), |_| Hold::Yes).await?;
        let judged = judge(&sets, |key| Ok(world.row(key).map(Known::of)))?;
        if write_whole(tx, &sets, &judged, node, format).await.map_err(Failed::of_nothing)? {
            return Ok(match judged.verdicts.as_slice() {
                [Verdict::Appended(seq)] => decision.reply.placed(*seq),
                _ => decision.reply,
            });
        }
    }
    Err(Error::NotApplied("too many writers on one key".to_owned()))
}

// A row that was not there is not locked: where it is there by now, the others must not be written either.
async fn write_whole(
    tx: &Transaction<'_>,
    sets: &[WriteSet],
    judged: &Judged<'_>,
    node: &str,
    format: u8,
) -> Result<bool, Failed> {
    let writing = write(Run::Theirs(tx.client()), sets, judged, node, format, None);
    if judged.changes.len() == 1 && sets.iter().all(|set| set.also.is_empty()) {
        return writing.await;
    }
    let (begun, whole) = join(tx.batch_execute("SAVEPOINT fencepost_ask"), writing).await;
    begun?;
    let whole = whole?;
    tx.batch_execute(if whole { "RELEASE fencepost_ask" } else { "ROLLBACK TO fencepost_ask" }).await?;
    Ok(whole)
}

// Whoever is sent events of a lane acknowledges them by writing its row, and must not wait for the user: who only publishes
// looks at it, and a write of it is compared all the same. What is told of an event that is cancelled is true only while
// its lane stands still.
fn hold(command: &Command, key: &RowKey) -> Hold {
    match command {
        Command::Publish(publish) if publish.cancels.is_none() && key.kind == Kind::Lane => Hold::No,
        _ => Hold::Yes,
    }
}

// The rows of the command's footprint, and then those that only they can name.
async fn take(run: Run<'_>, command: &Command) -> Result<World, Error> {
    let mut keys = Vec::new();
    footprint(command, &mut |key| keys.push(key));
    let mut world = World::default();
    for _ in 0..=FOLLOWS_MAX {
        if !world.take(run, keys.drain(..), |key| hold(command, key)).await? {
            break;
        }
        follow(command, &world, &mut |key| keys.push(key));
    }
    Ok(world)
}
