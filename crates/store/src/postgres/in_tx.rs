//! Asks the kernel within a transaction of the user's own: the claim, the effect and the seal stand or fall together.
//! Never commits and never rolls back: what was decided is true once the user's transaction is. But for a refusal that must
//! last whatever becomes of that transaction: it is committed by itself, through the node's own store.
//! Called by the library; the transaction's connection must have Fencepost's tables on its search path.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fencepost_kernel::{
    Command, Millis, Reply, Row, RowKey, Rows, decide, dispatch, fence,
    key::Kind,
    law::{follow, footprint},
    merge::{Merge, Merged},
    row::CommitId,
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
    Error, Store, Verdict, WriteSet, codec,
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

/// What a round has done can be undone alone: a round that is given up leaves no lock behind which others could wait for in
/// another order, nor one that our own commit would wait for.
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
        let begin = (!self.begun).then_some(BEGIN);
        self.begun = true;
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
/// what was written. `ids` gives an id that was never used before. `own` is a store on the same database: what a refusal
/// writes, so that it is final, is committed there.
pub async fn ask(
    tx: &Transaction<'_>,
    node: &str,
    own: &dyn Store,
    command: &Command,
    mut ids: impl FnMut() -> CommitId,
) -> Result<Reply, Error> {
    for _ in 0..ROUNDS_MAX {
        let mut world = World::default();
        let round = round(tx, &mut world, node, command, ids()).await?;
        if world.begun {
            let end = if matches!(round, Round::Decided(_)) { KEEP } else { UNDO };
            tx.batch_execute(end).await.map_err(|error| fault::of_read(&error))?;
        }
        match round {
            Round::Decided(reply) => return Ok(reply),
            Round::Overtaken => {}
            Round::Refused { reply, mark, now } => match own.commit(&[mark], now).await?.as_slice() {
                [verdict] if verdict.applied() => return Ok(*reply),
                [Verdict::Held] => return Err(Error::NotApplied("another transaction holds the key".to_owned())),
                _ => {}
            },
        }
    }
    Err(Error::NotApplied("too many writers on one key".to_owned()))
}

/// How one round ended.
enum Round {
    /// What was decided is written.
    Decided(Reply),
    /// A row that was not there has come into being, or one that was only read has moved.
    Overtaken,
    /// Nothing is written yet. The reply is true once the mark is committed, and must not go with the user's transaction: who is
    /// refused rolls back.
    Refused { reply: Box<Reply>, mark: WriteSet, now: Millis },
}

// INVARIANT told-doubt, final-refusal: what a refusal writes is there before anybody is told.
fn refuses(reply: &Reply) -> bool {
    matches!(reply, Reply::Fence(fence::Reply::InDoubt { .. } | fence::Reply::FencedOff { .. }))
}

async fn round(
    tx: &Transaction<'_>,
    world: &mut World,
    node: &str,
    command: &Command,
    id: CommitId,
) -> Result<Round, Error> {
    let run = Run::Theirs(tx.client());
    take(run, world, command).await?;
    let moment = tx.query_one(MOMENT, &[]).await.map_err(|error| fault::of_read(&error))?;
    let format = nodes::readable(moment.get(1), codec::VERSION)?;
    accepted(moment.get(3))?;
    let now = moment.get::<_, Stamp>(0).0;
    let decision = decide(command, world, now);
    if decision.only_answers() {
        return Ok(Round::Decided(decision.reply));
    }
    let mut sets = [WriteSet { id, writes: decision.writes, also: decision.also }];
    if refuses(&decision.reply) {
        let [mark] = sets;
        return Ok(Round::Refused { reply: decision.reply.into(), mark, now });
    }
    hold_absent(&mut sets[0], world, |key| held(command, key));
    world.take(run, sets.iter().flat_map(touched), |_| Held::Read).await?;
    let judged = judge(&sets, |key| Ok(world.row(key).map(Known::of)))?;
    let whole = write(run, &sets, &judged, node, format, None).await.map_err(Failed::of_nothing)?;
    if !whole || !world.stands(run, |key| held(command, key)).await.map_err(Failed::of_nothing)? {
        return Ok(Round::Overtaken);
    }
    let reply = match judged.verdicts.as_slice() {
        [Verdict::Merged(merged)] => match merged.iter().find_map(position) {
            Some(seq) => decision.reply.with_position(seq),
            None => decision.reply,
        },
        [Verdict::Overflow] => {
            return Err(Error::NotApplied("a counter cannot take what would be added to it".to_owned()));
        }
        _ => decision.reply,
    };
    Ok(Round::Decided(reply))
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
        Command::Fence(fence::Command::Claim(_)) if key.kind == Kind::Fence => Held::Read,
        Command::Fence(fence::Command::Claim(_)) if key.kind == Kind::VersionHead => Held::Written,
        Command::Fence(fence::Command::Claim(_)) => Held::Never,
        Command::Dispatch(dispatch::Command::Publish(publish))
            if publish.cancels.is_none() && key.kind == Kind::Lane =>
        {
            Held::Never
        }
        Command::Fence(_) | Command::Dispatch(_) | Command::Lane(_) | Command::Sweep(_) => Held::Read,
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
