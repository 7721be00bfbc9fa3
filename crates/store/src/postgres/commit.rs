//! Commits write sets: in one statement where each is a single row of its own, in a transaction where they hang together.
//! Never says that something moved while an earlier try of it may still be under way.
//! Called by the store, one commit at a time.

use std::{
    collections::{BTreeSet, HashSet},
    time::{Duration, Instant},
};

use fencepost_kernel::{Millis, RowKey, Write, command::CommitId, key::Kind};
use futures::future::join;

use super::{
    columns::{Columns, Keys, Put},
    fault::{self, Contention, Failed},
    link::{LOCK_WAIT, Run, Session},
    rows::{self, Hold},
    sql,
    stamp::Stamp,
    write::{touched, write},
};
use crate::{
    Error, Verdict, WriteSet,
    judge::judge,
    shared_clock::SharedClock,
    weight::{ROW_BYTES, weight},
};

/// How often a commit that lost against others is tried again before it is taken apart, and each part of it then.
const TRIES_MAX: usize = 3;
/// How long a commit that somebody is in the way of is taken apart; what is left then is told to come back.
const APART_MAX: Duration = Duration::from_secs(1);
/// About how many bytes of rows one transaction carries; more are several transactions.
const BYTES_MAX: usize = 16 << 20;

/// So many sets at least are worth a second connection.
const SHARED_MIN: usize = 128;

/// What a commit needs beside its sets.
pub(super) struct Committer<'a> {
    pub(super) session: &'a Session,
    pub(super) node: &'a str,
    pub(super) format: u8,
    pub(super) clock: &'a SharedClock,
    /// The time that must be durable with it, unless another connection sees to that.
    pub(super) floor: Option<Millis>,
    /// Ids whose fate an earlier try left open: that try may still be running somewhere.
    pub(super) perhaps: &'a HashSet<CommitId>,
}

/// One try.
enum Tried {
    Done(Vec<Verdict>),
    /// Rolled back, since others were in the way.
    Undone(Contention),
}

impl Committer<'_> {
    /// One verdict a set. What is too large for one transaction is several, in order.
    pub(super) async fn commit(&self, sets: &[WriteSet]) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::with_capacity(sets.len());
        let mut rest = sets;
        loop {
            let (part, later) = rest.split_at(fitting(rest));
            match self.together(part).await {
                Ok(told) => verdicts.extend(told),
                Err(error) => return Err(after(&verdicts, error)),
            }
            if later.is_empty() {
                return Ok(verdicts);
            }
            rest = later;
        }
    }

    // All sets in one transaction. Where others keep getting in the way, in smaller ones; nobody waits for long again.
    async fn together(&self, sets: &[WriteSet]) -> Result<Vec<Verdict>, Error> {
        if let Some(verdicts) = self.tries(sets).await? {
            return Ok(verdicts);
        }
        let hurry = self.session.say("SET lock_timeout = '25ms'").await;
        hurry.map_err(|error| fault::of_read(&error))?;
        let outcome = self.apart(sets, Instant::now() + APART_MAX).await;
        if self.session.say(LOCK_WAIT).await.is_err() {
            self.session.spoil();
        }
        outcome
    }

    // Each half in a transaction of its own: who is in nobody's way goes through, and the few others are soon found.
    async fn apart(&self, sets: &[WriteSet], until: Instant) -> Result<Vec<Verdict>, Error> {
        if sets.len() == 1 || Instant::now() > until {
            return sets.iter().map(|set| self.in_the_way(set)).collect();
        }
        let (half, rest) = sets.split_at(sets.len() / 2);
        let mut verdicts = Vec::with_capacity(sets.len());
        for part in [half, rest] {
            let told = match self.tries(part).await {
                Ok(None) => Box::pin(self.apart(part, until)).await,
                Ok(Some(told)) => Ok(told),
                Err(error) => Err(error),
            };
            verdicts.extend(told.map_err(|error| after(&verdicts, error))?);
        }
        Ok(verdicts)
    }

    fn in_the_way(&self, set: &WriteSet) -> Result<Verdict, Error> {
        // Who is in the way may be an earlier try of this very set, which can still succeed.
        if self.perhaps.contains(&set.id) {
            return Err(Error::Unknown("a row is held by another transaction, perhaps by our own".to_owned()));
        }
        Ok(Verdict::Held)
    }

    // No verdicts where others were in the way each time.
    async fn tries(&self, sets: &[WriteSet]) -> Result<Option<Vec<Verdict>>, Error> {
        for _ in 0..TRIES_MAX {
            match self.attempt(sets).await? {
                Tried::Done(verdicts) => return Ok(Some(verdicts)),
                Tried::Undone(Contention::Lost) => {}
                Tried::Undone(Contention::Blocked) => break,
            }
        }
        Ok(None)
    }

    async fn attempt(&self, sets: &[WriteSet]) -> Result<Tried, Error> {
        match lone_puts(sets) {
            Some(puts) => self.at_once(sets, Columns::new(puts, self.format)).await,
            None => self.in_transaction(sets).await,
        }
    }

    // One statement is one transaction and one round trip.
    async fn at_once(&self, sets: &[WriteSet], columns: Columns<'_>) -> Result<Tried, Error> {
        let (node, floor) = (self.node, self.floor.map(Stamp));
        let (sql, params) = match (columns.has_fences(), &floor) {
            (true, Some(floor)) => (sql::COMMIT_FENCES, columns.fences(&[&node, floor])),
            (true, None) => (sql::WRITE_FENCES, columns.fences(&[&node])),
            (false, Some(floor)) => (sql::COMMIT_ROWS, columns.rows(&[&node, floor])),
            (false, None) => (sql::WRITE_ROWS, columns.rows(&[&node])),
        };
        let written = self.session.query(sql, &params).await;
        let written = match written {
            Ok(written) => written,
            Err(error) => return self.failed(error.into(), Failed::of_commit),
        };
        if let Some(row) = written.last() {
            self.clock.heard(row.get::<_, Stamp>(2).0);
        }
        let applied: BTreeSet<RowKey> = written.iter().map(rows::key).collect::<Result<_, _>>()?;
        let keys = || sets.iter().flat_map(|set| &set.writes).map(|write| &write.key);
        let missed: Keys = keys().filter(|key| !applied.contains(key)).collect();
        // A row that carries the set's own id was written by an earlier try of it. What was written now is durable, so
        // an error here no longer means that nothing happened.
        let found = rows::known(Run::Ours(self.session), &missed, Hold::No).await;
        let found = found.map_err(|failed| after(&[Verdict::Applied], failed.of_nothing()))?;
        let verdict = |set: &WriteSet| {
            let own =
                |key: &RowKey| applied.contains(key) || found.get(key).is_some_and(|known| known.revision == set.id);
            if set.writes.iter().all(|write| own(&write.key)) { Verdict::Applied } else { Verdict::Moved }
        };
        Ok(Tried::Done(sets.iter().map(verdict).collect()))
    }

    async fn in_transaction(&self, sets: &[WriteSet]) -> Result<Tried, Error> {
        let verdicts = match self.prepare(sets).await {
            Ok(Some(verdicts)) => verdicts,
            outcome => {
                // Leaves no transaction open behind it.
                if self.session.say("ROLLBACK").await.is_err() {
                    self.session.spoil();
                }
                // A server that was never told to commit has not.
                return match outcome {
                    Err(failed) => self.failed(failed, Failed::of_nothing),
                    Ok(_) => Ok(Tried::Undone(Contention::Lost)),
                };
            }
        };
        match self.session.say("COMMIT").await {
            Ok(()) => Ok(Tried::Done(verdicts)),
            Err(error) => self.failed(error.into(), Failed::of_commit),
        }
    }

    // Everything but the commit; no verdicts where a row came into being under our hands.
    async fn prepare(&self, sets: &[WriteSet]) -> Result<Option<Vec<Verdict>>, Failed> {
        let keys: BTreeSet<RowKey> = sets.iter().flat_map(touched).collect();
        let keys: Keys = keys.iter().collect();
        let run = Run::Ours(self.session);
        let (begun, found) = join(self.session.say("BEGIN"), rows::known(run, &keys, Hold::Yes)).await;
        begun?;
        let found = found?;
        let judged = judge(sets, |key| Ok(found.get(key).copied()))?;
        let whole = write(run, sets, &judged, self.node, self.format, self.floor).await?;
        Ok(whole.then_some(judged.verdicts))
    }

    fn failed(&self, failed: Failed, outcome: impl FnOnce(Failed) -> Error) -> Result<Tried, Error> {
        // A standby that was taken for the primary: the next connection may find the right one.
        if failed.read_only() {
            self.session.spoil();
        }
        match failed.contention() {
            Some(contention) => Ok(Tried::Undone(contention)),
            None => Err(outcome(failed)),
        }
    }
}

/// What one connection commits, and what a second one commits meanwhile: a connection keeps one of the server's processors
/// busy. Nothing for the second where there is little to do, or where sets may hang together.
pub(super) fn shared(sets: &[WriteSet]) -> (&[WriteSet], &[WriteSet]) {
    let alone = sets.len() < SHARED_MIN || lone_puts(sets).is_none();
    sets.split_at(if alone { sets.len() } else { sets.len() / 2 })
}

/// The verdicts of two shares, as if they had been one. The first has the floor with it, unless all of it was held up.
pub(super) fn both(own: Result<Vec<Verdict>, Error>, rest: Result<Vec<Verdict>, Error>) -> Result<Vec<Verdict>, Error> {
    match (own, rest) {
        (Ok(own), Ok(rest)) if own.iter().all(|verdict| *verdict == Verdict::Held) => {
            Err(after(&rest, Error::NotApplied("rows are held by other transactions".to_owned())))
        }
        (Ok(own), Ok(rest)) => Ok([own, rest].concat()),
        (Ok(done), Err(error)) | (Err(error), Ok(done)) => Err(after(&done, error)),
        (Err(Error::NotApplied(_)), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

// Once something is durable, the whole is no longer "not applied".
fn after(done: &[Verdict], error: Error) -> Error {
    match error {
        Error::NotApplied(why) if done.iter().any(|verdict| verdict.applied()) => Error::Unknown(why),
        error => error,
    }
}

// Sets of one put each, no two of the same row, all in one table.
fn lone_puts(sets: &[WriteSet]) -> Option<Vec<Put<'_>>> {
    let mut keys = HashSet::with_capacity(sets.len());
    let mut puts: Vec<Put<'_>> = Vec::with_capacity(sets.len());
    for set in sets {
        let [Write { key, expect, put: Some(record) }] = set.writes.as_slice() else { return None };
        if !set.also.is_empty() {
            return None;
        }
        let fence = |key: &RowKey| key.kind == Kind::Fence;
        if !keys.insert(*key) || puts.first().is_some_and(|first| fence(&first.key) != fence(key)) {
            return None;
        }
        puts.push(Put { key: *key, expect: *expect, revision: set.id, record });
    }
    (!puts.is_empty()).then_some(puts)
}

// How many sets fit into one transaction: at least one, where there is any.
fn fitting(sets: &[WriteSet]) -> usize {
    let mut bytes = 0;
    let fits = |set: &&WriteSet| {
        let first = bytes == 0;
        let appended = set.also.append.as_ref().map_or(0, |append| ROW_BYTES + append.entry.body.len());
        let puts = set.writes.iter().filter_map(|write| write.put.as_ref());
        bytes += puts.map(weight).sum::<usize>() + appended + 1;
        first || bytes <= BYTES_MAX
    };
    sets.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::{
        Verdict::{Applied, Held, Moved},
        *,
    };

    #[test]
    fn two_shares_are_told_as_one_commit() {
        let undone = || Err(Error::NotApplied(String::new()));
        let unknown = || Err(Error::Unknown(String::new()));
        let broken = || Err(Error::Broken(String::new()));
        let told = |own, rest| format!("{:?}", both(own, rest));
        assert_eq!(told(Ok(vec![Applied, Moved]), Ok(vec![Held])), "Ok([Applied, Moved, Held])");
        assert_eq!(told(Ok(vec![Applied]), undone()), r#"Err(Unknown(""))"#, "some of it is durable");
        assert_eq!(told(undone(), Ok(vec![Moved, Applied])), r#"Err(Unknown(""))"#);
        assert_eq!(told(undone(), Ok(vec![Moved])), r#"Err(NotApplied(""))"#);
        assert_eq!(told(undone(), undone()), r#"Err(NotApplied(""))"#);
        assert_eq!(told(undone(), unknown()), r#"Err(Unknown(""))"#);
        assert_eq!(told(unknown(), undone()), r#"Err(Unknown(""))"#);
        assert_eq!(told(undone(), broken()), r#"Err(Broken(""))"#);
        let without_a_floor = told(Ok(vec![Held]), Ok(vec![Applied]));
        assert!(without_a_floor.starts_with("Err(Unknown("), "{without_a_floor}");
    }
}
