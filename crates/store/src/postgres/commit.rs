//! Commits write sets: in one statement where each is a single row of its own, in a transaction where they hang together.
//! Never says that something moved while an earlier try of it may still be under way.
//! Called by the store: single statements one behind another, everything else one commit at a time.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fencepost_kernel::{
    Millis, RowKey, Write,
    command::CommitId,
    fence::{ROW_BYTES, Record},
    key::Kind,
};
use futures::future::join;

use super::{
    columns::{Columns, Keys, Put},
    fault::{self, Contention, Failed},
    link::{LOCK_WAIT, Lineage, Run, Session},
    rows::{self, Hold},
    sql,
    stamp::Stamp,
    write::{touched, write},
};
use crate::{Error, Verdict, WriteSet, judge::judge, shared_clock::SharedClock};

/// How often a commit that lost against others is tried again before it is taken apart, and each part of it then.
const TRIES_MAX: usize = 3;
/// How long a commit that somebody is in the way of is taken apart; what is left then is told to come back.
const APART_MAX: Duration = Duration::from_secs(1);
/// How long the server may still be at work on what nobody waits for any more; it gives up a statement long before.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// About how many bytes of rows one transaction carries; more are several transactions.
const BYTES_MAX: usize = 16 << 20;

/// What a commit needs beside its sets.
pub(super) struct Committer<'a> {
    pub(super) session: &'a Session,
    pub(super) node: &'a str,
    pub(super) format: u8,
    pub(super) clock: &'a SharedClock,
    pub(super) perhaps: &'a Perhaps,
}

/// Ids whose fate a try left open, when, and on which server: it may still be running there.
#[derive(Default)]
pub(super) struct Perhaps(Mutex<HashMap<CommitId, (Instant, Option<Lineage>)>>);

impl Perhaps {
    /// Nobody knows what became of these.
    pub(super) fn leave_open(&self, sets: &[WriteSet], at: Option<Lineage>) {
        let mut open = self.open();
        open.extend(sets.iter().map(|set| (set.id, (Instant::now(), at))));
    }

    /// Whether any of these was tried on a server that the one at `at` has replaced.
    pub(super) fn replaced(&self, sets: &[WriteSet], at: Option<Lineage>) -> bool {
        let open = self.open();
        !open.is_empty() && sets.iter().any(|set| replaced(&open, set, at))
    }

    /// The sets, where those that were tried on a server that has been replaced can only be found and never applied. What that
    /// try wrote is here by now or never will be; and it was decided over rows of the old server, which may have been behind.
    pub(super) fn found_or_moved(&self, sets: &[WriteSet], at: Option<Lineage>) -> Vec<WriteSet> {
        let (open, mut sets) = (self.open(), sets.to_vec());
        for set in sets.iter_mut().filter(|set| replaced(&open, set, at)) {
            // A row that carries the set's own id proves that it was applied. No other row holds this.
            set.also.held.extend(set.writes.first().map(|write| (write.key, Some(set.id))));
        }
        sets
    }

    /// It is known what became of these.
    pub(super) fn settle(&self, sets: &[WriteSet]) {
        let mut open = self.open();
        if !open.is_empty() {
            for set in sets {
                open.remove(&set.id);
            }
            // Nobody asked again.
            open.retain(|_, (since, _)| since.elapsed() < OPEN_MAX);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<CommitId, (Instant, Option<Lineage>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn replaced(open: &HashMap<CommitId, (Instant, Option<Lineage>)>, set: &WriteSet, at: Option<Lineage>) -> bool {
    open.get(&set.id).is_some_and(|(_, tried)| tried.is_some() && at.is_some() && *tried != at)
}

/// One try.
pub(super) enum Tried {
    Done(Vec<Verdict>),
    /// Rolled back, since others were in the way.
    Undone(Contention),
}

impl Committer<'_> {
    /// One verdict a set. What is too large for one transaction is several, in order. `before` is why a first try failed, if
    /// there was one.
    pub(super) async fn commit(
        &self,
        sets: &[WriteSet],
        now: Millis,
        before: Contention,
    ) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::with_capacity(sets.len());
        let mut rest = sets;
        loop {
            let (part, later) = rest.split_at(fitting(rest));
            match self.together(part, now, before).await {
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
    async fn together(&self, sets: &[WriteSet], now: Millis, before: Contention) -> Result<Vec<Verdict>, Error> {
        if before == Contention::Lost
            && let Some(verdicts) = self.tries(sets, now).await?
        {
            return Ok(verdicts);
        }
        let hurry = self.session.say("SET lock_timeout = '25ms'").await;
        hurry.map_err(|error| fault::of_read(&error))?;
        let outcome = self.apart(sets, now, Instant::now() + APART_MAX).await;
        if self.session.say(LOCK_WAIT).await.is_err() {
            self.session.spoil();
        }
        outcome
    }

    // Each half in a transaction of its own: who is in nobody's way goes through, and the few others are soon found.
    async fn apart(&self, sets: &[WriteSet], now: Millis, until: Instant) -> Result<Vec<Verdict>, Error> {
        if sets.len() == 1 || Instant::now() > until {
            return sets.iter().map(|set| self.in_the_way(set)).collect();
        }
        let (half, rest) = sets.split_at(sets.len() / 2);
        let mut verdicts = Vec::with_capacity(sets.len());
        for part in [half, rest] {
            let told = match self.tries(part, now).await {
                Ok(None) => Box::pin(self.apart(part, now, until)).await,
                Ok(Some(told)) => Ok(told),
                Err(error) => Err(error),
            };
            verdicts.extend(told.map_err(|error| after(&verdicts, error))?);
        }
        Ok(verdicts)
    }

    fn in_the_way(&self, set: &WriteSet) -> Result<Verdict, Error> {
        // Who is in the way may be an earlier try of this very set, which can still succeed.
        if self.perhaps.open().contains_key(&set.id) {
            return Err(Error::Unknown("a row is held by another transaction, perhaps by our own".to_owned()));
        }
        Ok(Verdict::Held)
    }

    // No verdicts where others were in the way each time.
    async fn tries(&self, sets: &[WriteSet], now: Millis) -> Result<Option<Vec<Verdict>>, Error> {
        for _ in 0..TRIES_MAX {
            match self.attempt(sets, now).await? {
                Tried::Done(verdicts) => return Ok(Some(verdicts)),
                Tried::Undone(Contention::Lost) => {}
                Tried::Undone(Contention::Blocked) => break,
            }
        }
        Ok(None)
    }

    async fn attempt(&self, sets: &[WriteSet], now: Millis) -> Result<Tried, Error> {
        match lone_puts(sets) {
            Some(puts) => self.at_once(sets, puts, now).await,
            None => self.in_transaction(sets, now).await,
        }
    }

    /// One statement is one transaction and one round trip.
    pub(super) async fn at_once(&self, sets: &[WriteSet], puts: Vec<Put<'_>>, now: Millis) -> Result<Tried, Error> {
        let (columns, node, now) = (Columns::new(puts, self.format), self.node, Stamp(now));
        let written = match columns.has_fences() {
            true => self.session.query(sql::COMMIT_FENCES, &columns.fences(&[&node, &now])).await,
            false => self.session.query(sql::COMMIT_ROWS, &columns.rows(&[&node, &now])).await,
        };
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

    async fn in_transaction(&self, sets: &[WriteSet], now: Millis) -> Result<Tried, Error> {
        let verdicts = match self.prepare(sets, now).await {
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
    async fn prepare(&self, sets: &[WriteSet], now: Millis) -> Result<Option<Vec<Verdict>>, Failed> {
        let keys: BTreeSet<RowKey> = sets.iter().flat_map(touched).collect();
        let keys: Keys = keys.iter().collect();
        let run = Run::Ours(self.session);
        let (begun, found) = join(self.session.say("BEGIN"), rows::known(run, &keys, Hold::Yes)).await;
        begun?;
        let found = found?;
        let judged = judge(sets, |key| Ok(found.get(key).copied()))?;
        let whole = write(run, sets, &judged, self.node, self.format, Some(now)).await?;
        Ok(whole.then_some(judged.verdicts))
    }

    fn failed(&self, failed: Failed, outcome: impl FnOnce(Failed) -> Error) -> Result<Tried, Error> {
        match failed.contention() {
            Some(contention) => Ok(Tried::Undone(contention)),
            None => Err(outcome(failed)),
        }
    }
}

// Once something is durable, the whole is no longer "not applied".
fn after(done: &[Verdict], error: Error) -> Error {
    match error {
        Error::NotApplied(why) if done.iter().any(|verdict| verdict.applied()) => Error::Unknown(why),
        error => error,
    }
}

/// Sets of one put each, no two of the same row, all in one table.
pub(super) fn lone_puts(sets: &[WriteSet]) -> Option<Vec<Put<'_>>> {
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

/// How many sets fit into one transaction: at least one, where there is any.
pub(super) fn fitting(sets: &[WriteSet]) -> usize {
    let mut bytes = 0;
    let fits = |set: &&WriteSet| {
        let first = bytes == 0;
        let merged = set.also.merges.len() * ROW_BYTES;
        let appended = set.also.appends().map(|append| append.entry.body.len()).sum::<usize>();
        let puts = set.writes.iter().filter_map(|write| write.put.as_ref());
        bytes += puts.map(Record::weight_bytes).sum::<usize>() + merged + appended + 1;
        first || bytes <= BYTES_MAX
    };
    sets.iter().take_while(fits).count()
}
