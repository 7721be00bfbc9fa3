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
    merge::{Merge, Merged},
};
use tokio_postgres::Transaction;

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

/// How often a command is decided again because a row that was not there came into being meanwhile.
const ROUNDS_MAX: usize = 8;
/// How often rows may name more rows.
const FOLLOWS_MAX: usize = 4;

// The database's time, never before what was ever committed; and the row format that everybody reads. What a fence says is
// only worth something if it lasts: the transaction is made as durable as one of ours.
const MOMENT: &str = "SELECT greatest(clock_timestamp(), (SELECT max(floor) FROM fencepost_nodes)),
    (SELECT format FROM fencepost_meta),
    CASE WHEN current_setting('synchronous_commit', true) IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', true) END,
    current_setting('transaction_isolation', true)";

/// The levels at which a row that was read is compared, or fails the transaction, before it is written. PostgreSQL has no
/// others; a database that speaks its protocol may.
const ISOLATIONS: [&str; 4] = ["read uncommitted", "read committed", "repeatable read", "serializable"];

/// What a round has done from its second row on can be undone alone: a round that is given up leaves no lock behind which
/// others could wait for in another order.
const BEGIN: &str = "SAVEPOINT fencepost_ask";
const KEEP: &str = "RELEASE fencepost_ask";
const UNDO: &str = "ROLLBACK TO fencepost_ask";

/// When a row is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Never,
    /// As it is read, in key order, fences before others; it cannot move any more.
    Read,
    /// Once all is written; it must not have moved by then. It is read before anything is locked.
    Written,
}

#[derive(Default)]
struct World {
    rows: BTreeMap<RowKey, Arc<Row>>,
    /// What was asked for, whether it was there or not.
    asked: BTreeSet<RowKey>,
    begun: bool,
}

impl Rows for World {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key).map(Arc::as_ref)
    }
}

impl World {
    /// Reads those rows that were not asked for yet, and locks them where `held` says so; whether there were any.
    async fn take(
        &mut self,
        run: Run<'_>,
        keys: impl IntoIterator<Item = RowKey>,
        held: impl Fn(&RowKey) -> Held,
    ) -> Result<bool, Error> {
        let new = keys.into_iter().filter(|key| self.asked.insert(*key));
        let (locked, seen): (Vec<RowKey>, Vec<RowKey>) = new.partition(|key| held(key) == Held::Read);
        if seen.is_empty() && locked.is_empty() {
            return Ok(false);
        }
        let begin = (!self.begun && self.asked.len() > 1).then_some(BEGIN);
        self.begun |= begin.is_some();
        self.rows.extend(rows::take(run, begin, &seen, &locked, codec::VERSION).await?);
        Ok(true)
    }

    /// Locks the rows that `held` says so of; whether none of them moved since it was read.
    async fn stands(&self, run: Run<'_>, held: impl Fn(&RowKey) -> Held) -> Result<bool, Failed> {
        let seen = || self.rows.iter().filter(|(key, _)| held(key) == Held::Written);
        let keys: Keys = seen().map(|(key, _)| key).collect();
        let found = rows::known(run, &keys, Hold::Yes).await?;
        Ok(seen().all(|(key, row)| found.get(key).is_some_and(|known| known.revision == row.revision)))
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
    for _ in 0..ROUNDS_MAX {
        let mut world = World::default();
        let reply = round(tx, &mut world, node, command, ids()).await?;
        if world.begun {
            let end = if reply.is_some() { KEEP } else { UNDO };
            tx.batch_execute(end).await.map_err(|error| fault::of_read(&error))?;
        }
        if let Some(reply) = reply {
            return Ok(reply);
        }
    }
    Err(Error::NotApplied("too many writers on one key".to_owned()))
}

// No reply where a row that was not there has come into being, or one that was only read has moved.
async fn round(
    tx: &Transaction<'_>,
    world: &mut World,
    node: &str,
    command: &Command,
    id: CommitId,
) -> Result<Option<Reply>, Error> {
    let run = Run::Theirs(tx.client());
    take(run, world, command).await?;
    let moment = tx.query_one(MOMENT, &[]).await.map_err(|error| fault::of_read(&error))?;
    let format = nodes::readable(moment.get(1), codec::VERSION)?;
    accepted(moment.get(3))?;
    let decision = decide(command, world, moment.get::<_, Stamp>(0).0);
    if decision.only_answers() {
        return Ok(Some(decision.reply));
    }
    let mut sets = [WriteSet { id, writes: decision.writes, also: decision.also }];
    hold_absent(&mut sets[0], world, |key| held(command, key));
    world.take(run, sets.iter().flat_map(touched), |_| Held::Read).await?;
    let judged = judge(&sets, |key| Ok(world.row(key).map(Known::of)))?;
    let whole = write(run, &sets, &judged, node, format, None).await.map_err(Failed::of_nothing)?;
    if !whole || !world.stands(run, |key| held(command, key)).await.map_err(Failed::of_nothing)? {
        return Ok(None);
    }
    match judged.verdicts.as_slice() {
        [Verdict::Merged(merged)] => Ok(Some(match merged.iter().find_map(position) {
            Some(seq) => decision.reply.placed(seq),
            None => decision.reply,
        })),
        [Verdict::Overflow] => Err(Error::NotApplied("a counter cannot take what would be added to it".to_owned())),
        _ => Ok(Some(decision.reply)),
    }
}

// What is not there cannot be locked when it is read. What was decided over its absence holds it with what is written, so that
// nobody makes it before this transaction ends; under a snapshot, PostgreSQL fails the transaction if somebody has.
fn hold_absent(set: &mut WriteSet, world: &World, held: impl Fn(&RowKey) -> Held) {
    let written = |key: &RowKey| set.writes.iter().any(|write| write.key == *key);
    let merged: Vec<RowKey> = set.also.merges.iter().map(Merge::key).collect();
    let absent = world.asked.iter().filter(|key| held(key) != Held::Never && world.row(key).is_none());
    let absent = absent.filter(|key| !written(key) && !merged.contains(key) && !holds(set, key)).copied();
    let absent: Vec<_> = absent.map(|key| (key, None)).collect();
    set.also.held.extend(absent);
}

fn position(merged: &Merged) -> Option<u64> {
    if let Merged::Position(seq) = merged { Some(*seq) } else { None }
}

fn holds(set: &WriteSet, key: &RowKey) -> bool {
    set.also.held.iter().any(|(held, _)| held == key) || set.also.drops.contains(key)
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

// A claim may have to wait for who makes the same fence, and a seal goes from its fence to the heads: so nobody holds a head
// while it waits for a fence. The base of a repetition is a fence as well, and is locked with it, in key order. What a claim
// finds beside those is as old or older: a write of it is compared, and a version head that it only judges by is locked last.
// Whoever is sent events of a lane acknowledges them by writing its row, and must not wait for the user: who only publishes
// looks at it, and a write of it is compared all the same. What is told of an event that is cancelled is true only while
// its lane stands still.
fn held(command: &Command, key: &RowKey) -> Held {
    match command {
        Command::Claim(_) if key.kind == Kind::Fence => Held::Read,
        Command::Claim(_) if key.kind == Kind::VersionHead => Held::Written,
        Command::Claim(_) => Held::Never,
        Command::Publish(publish) if publish.cancels.is_none() && key.kind == Kind::Lane => Held::Never,
        _ => Held::Read,
    }
}

// The rows of the command's footprint, and then those that only they can name.
async fn take(run: Run<'_>, world: &mut World, command: &Command) -> Result<(), Error> {
    let mut keys = Vec::new();
    footprint(command, &mut |key| keys.push(key));
    for _ in 0..=FOLLOWS_MAX {
        if !world.take(run, keys.drain(..), |key| held(command, key)).await? {
            break;
        }
        follow(command, world, &mut |key| keys.push(key));
    }
    Ok(())
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
