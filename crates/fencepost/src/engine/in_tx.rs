//! The engine within a transaction of the caller's own: the claim, the effect and the seal stand or fall together.
//! Never commits that transaction. A refusal that must last even where it is rolled back is committed by itself.
//! Called by the library's `claim_in`, `seal_in` and `publish_in`.

use std::collections::HashMap;

use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Rows, decide,
    law::{RowLock, row_lock},
    merge::Merge,
    row::CommitId,
};
use fencepost_store::{Verdict, WriteSet, contract::Loaded, postgres::in_tx::Attempt};
use tokio_postgres::Transaction;

use super::{
    Engine, Error,
    batch::{OVERFLOW, TOO_MANY_WRITERS},
    rows::{LoadedRows, Source, load},
};

/// The holder's name in rows that a caller's transaction wrote: no node holds such a claim.
pub(crate) const IN_TRANSACTION: &str = "transaction";

/// How often a command is decided again because a row that was not there came into being meanwhile.
const ROUNDS_MAX: usize = 8;

/// How one round ended.
enum Round {
    /// The decision is written.
    Decided(Reply),
    /// A row that was not there has come into being, or one that was only read has moved.
    Overtaken,
    /// Nothing is written yet. The reply is true once the mark is committed, and must not go with the caller's transaction.
    Refused { reply: Box<Reply>, mark: WriteSet, now: Millis },
}

impl Engine {
    /// The reply to one command, decided and written in the caller's transaction. It counts when that commits; a doubt that it
    /// tells of, and the refusal of a holder, count at once. After an error the transaction must be rolled back.
    pub async fn ask_in(&self, tx: &mut Transaction<'_>, command: &Command) -> Result<Reply, Error> {
        for _ in 0..ROUNDS_MAX {
            let mut rows = TransactionRows { attempt: Attempt::new(tx, IN_TRANSACTION), command: Some(command) };
            match self.round_in(&mut rows, command).await? {
                Round::Decided(reply) => {
                    rows.attempt.keep().await?;
                    return Ok(reply);
                }
                Round::Overtaken => rows.attempt.undo().await?,
                Round::Refused { reply, mark, now } => {
                    rows.attempt.undo().await?;
                    match self.store().commit(&[mark], now).await?.as_slice() {
                        [verdict] if verdict.applied() => return Ok(*reply),
                        [Verdict::Held] => {
                            return Err(Error::Unavailable("another transaction holds the key".to_owned()));
                        }
                        _ => {}
                    }
                }
            }
        }
        Err(Error::Unavailable(TOO_MANY_WRITERS.to_owned()))
    }

    async fn round_in(&self, rows: &mut TransactionRows<'_>, command: &Command) -> Result<Round, Error> {
        let mut loaded = load(rows, &[command], LoadedRows::default()).await?;
        let moment = rows.attempt.moment().await?;
        let decision = decide(command, &loaded, moment.now);
        if decision.only_answers() {
            return Ok(Round::Decided(decision.reply));
        }
        let mut set = WriteSet { id: self.shared.next_id(), writes: decision.writes, also: decision.also };
        if decision.reply.outlives_rollback() {
            return Ok(Round::Refused { reply: decision.reply.into(), mark: set, now: moment.now });
        }
        hold_absent(&mut set, &loaded, command);
        let unmoved = read_before_locks(&loaded, command);
        rows.command = None;
        loaded.fill(rows, Attempt::named_by(&set).collect()).await?;
        match rows.attempt.apply(set, &loaded, &moment, &unmoved).await? {
            Verdict::Overflow => Err(Error::Unavailable(OVERFLOW.to_owned())),
            verdict if verdict.applied() => Ok(Round::Decided(match verdict.positions().next() {
                Some(seq) => decision.reply.with_position(seq),
                None => decision.reply,
            })),
            _ => Ok(Round::Overtaken),
        }
    }
}

/// The rows of the transaction.
struct TransactionRows<'t> {
    attempt: Attempt<'t>,
    /// Says which rows are locked when they are read; without it, all are.
    command: Option<&'t Command>,
}

impl Source for TransactionRows<'_> {
    async fn read(&mut self, keys: &[RowKey]) -> Result<Vec<Loaded>, fencepost_store::Error> {
        let on_read = |key: &RowKey| self.command.is_none_or(|command| row_lock(command, key) == RowLock::OnRead);
        let (lock, read): (Vec<RowKey>, Vec<RowKey>) = keys.iter().partition(|key| on_read(key));
        let found: HashMap<_, _> = self.attempt.load(&read, &lock).await?.into_iter().collect();
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }
}

// A row that is not there cannot be locked when it is read. A decision over its absence holds the key when it writes,
// so that no other transaction makes the row before this one ends; under a snapshot, PostgreSQL fails the transaction
// if one has.
fn hold_absent(set: &mut WriteSet, loaded: &LoadedRows, command: &Command) {
    let named = |key: &RowKey| {
        set.writes.iter().any(|write| write.key == *key)
            || set.also.held.iter().any(|(held, _)| held == key)
            || set.also.merges.iter().any(|merge| Merge::key(merge) == *key)
            || set.also.drops.contains(key)
    };
    let absent = loaded.rows.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| *key);
    let absent: Vec<_> =
        absent.filter(|key| row_lock(command, key) != RowLock::Never && !named(key)).map(|key| (key, None)).collect();
    set.also.held.extend(absent);
}

fn read_before_locks(loaded: &LoadedRows, command: &Command) -> Vec<(RowKey, CommitId)> {
    let keys = loaded.rows.keys().filter(|key| row_lock(command, key) == RowLock::AfterWrites);
    keys.filter_map(|key| Some((*key, loaded.row(key)?.revision))).collect()
}
