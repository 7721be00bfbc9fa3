//! Commits write sets: in one statement where each is a put of one row of its own, else in a transaction.
//! Never reports a set as moved while an earlier try of it may still be running on the server.
//! Called by the store: single statements may be pipelined; any other commit runs alone.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fencepost_kernel::{
    Millis, RowKey, Write,
    key::Kind,
    merge::Merge,
    row::ROW_BYTES,
    row::{CommitId, Record},
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

/// How many times a commit that lost against other transactions is tried before it is split, and then each part of it.
const TRIES_MAX: usize = 3;
/// How long a blocked commit is split into ever smaller parts; sets that are left then are answered [`Verdict::Held`].
const HALVING_MAX: Duration = Duration::from_secs(1);
/// How long the server may still run a statement that no caller waits for; its own timeout ends it long before.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// About how many bytes of rows one transaction carries; larger commits take several transactions.
const BYTES_MAX: usize = 16 << 20;

/// Everything a commit needs besides its sets.
pub(super) struct Committer<'a> {
    pub(super) session: &'a Session,
    pub(super) node: &'a str,
    pub(super) format: u8,
    pub(super) clock: &'a SharedClock,
    pub(super) unknown_outcomes: &'a UnknownOutcomes,
}

/// Sets whose outcome is unknown: when each was tried, and on which server, where it may still be running.
#[derive(Default)]
pub(super) struct UnknownOutcomes(Mutex<HashMap<CommitId, (Instant, Option<Lineage>)>>);

impl UnknownOutcomes {
    /// Records that the outcome of these sets is unknown.
    pub(super) fn leave_open(&self, sets: &[WriteSet], at: Option<Lineage>) {
        let mut open = self.open();
        open.extend(sets.iter().map(|set| (set.id, (Instant::now(), at))));
    }

    /// Whether any of these was tried on a server that the one at `at` has replaced.
    pub(super) fn replaced(&self, sets: &[WriteSet], at: Option<Lineage>) -> bool {
        let open = self.open();
        !open.is_empty() && sets.iter().any(|set| replaced(&open, set, at))
    }

    /// The sets, changed so that those tried on a replaced server can only be found and never applied. Rows of that try
    /// are here by now or never will be; and the old server, over whose rows it was decided, may have been behind.
    pub(super) fn found_or_moved(&self, sets: &[WriteSet], at: Option<Lineage>) -> Vec<WriteSet> {
        let (open, mut sets) = (self.open(), sets.to_vec());
        for set in sets.iter_mut().filter(|set| replaced(&open, set, at)) {
            // Only a row with the set's own id meets this expectation, and such a row proves that the set was applied.
            set.also.held.extend(set.writes.first().map(|write| (write.key, Some(set.id))));
        }
        sets
    }

    /// Forgets these sets: their outcome is known.
    pub(super) fn settle(&self, sets: &[WriteSet]) {
        let mut open = self.open();
        if !open.is_empty() {
            for set in sets {
                open.remove(&set.id);
            }
            // Forgets those that no caller has tried again.
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

/// Which rows a transaction looks at and locks before it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    AtAll,
    /// All but those that are put as new: an absent row cannot be locked, and one that is there stops the insert.
    PassNew,
}

/// The result of one try.
pub(super) enum Tried {
    Done(Vec<Verdict>),
    /// Rolled back because of other transactions.
    Undone(Contention),
}

impl Committer<'_> {
    /// One verdict per set. Sets that are too large for one transaction take several, in order. `before` is why a first
    /// try failed, or [`Contention::Lost`] where there was none.
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

    // Commits all sets in one transaction; where others keep blocking it, in smaller ones, with a short lock timeout.
    async fn together(&self, sets: &[WriteSet], now: Millis, before: Contention) -> Result<Vec<Verdict>, Error> {
        if before == Contention::Lost
            && let Some(verdicts) = self.tries(sets, now).await?
        {
            return Ok(verdicts);
        }
        let hurry = self.session.say("SET lock_timeout = '25ms'").await;
        hurry.map_err(|error| fault::of_read(&error))?;
        let outcome = self.commit_by_halves(sets, now, Instant::now() + HALVING_MAX).await;
        if self.session.say(LOCK_WAIT).await.is_err() {
            self.session.spoil();
        }
        outcome
    }

    // Commits each half in a transaction of its own: unblocked sets go through, and the few others are soon found.
    async fn commit_by_halves(&self, sets: &[WriteSet], now: Millis, until: Instant) -> Result<Vec<Verdict>, Error> {
        if sets.len() == 1 || Instant::now() > until {
            return sets.iter().map(|set| self.blocked_verdict(set)).collect();
        }
        let (half, rest) = sets.split_at(sets.len() / 2);
        let mut verdicts = Vec::with_capacity(sets.len());
        for part in [half, rest] {
            let told = match self.tries(part, now).await {
                Ok(None) => Box::pin(self.commit_by_halves(part, now, until)).await,
                Ok(Some(told)) => Ok(told),
                Err(error) => Err(error),
            };
            verdicts.extend(told.map_err(|error| after(&verdicts, error))?);
        }
        Ok(verdicts)
    }

    fn blocked_verdict(&self, set: &WriteSet) -> Result<Verdict, Error> {
        // The blocking transaction may be an earlier try of this very set, which can still succeed.
        if self.unknown_outcomes.open().contains_key(&set.id) {
            return Err(Error::Unknown("a row is held by another transaction, perhaps by our own".to_owned()));
        }
        Ok(Verdict::Held)
    }

    // No verdicts where other transactions undid every try.
    async fn tries(&self, sets: &[WriteSet], now: Millis) -> Result<Option<Vec<Verdict>>, Error> {
        let mut look = Look::PassNew;
        for _ in 0..TRIES_MAX {
            match self.attempt(sets, now, look).await? {
                Tried::Done(verdicts) => return Ok(Some(verdicts)),
                Tried::Undone(Contention::Lost) => look = Look::AtAll,
                Tried::Undone(Contention::Blocked) => break,
            }
        }
        Ok(None)
    }

    async fn attempt(&self, sets: &[WriteSet], now: Millis, look: Look) -> Result<Tried, Error> {
        match lone_puts(sets) {
            Some(puts) => self.at_once(sets, puts, now).await,
            None => self.in_transaction(sets, now, look).await,
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
        // A row with the set's own id was written by an earlier try of the set. This statement is durable already, so
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

    async fn in_transaction(&self, sets: &[WriteSet], now: Millis, look: Look) -> Result<Tried, Error> {
        let verdicts = match self.prepare(sets, now, look).await {
            Ok(Some(verdicts)) => verdicts,
            outcome => {
                // No transaction may stay open on this connection.
                if self.session.say("ROLLBACK").await.is_err() {
                    self.session.spoil();
                }
                // The server was never asked to commit, so it has not.
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

    // Does everything but the commit; no verdicts where a row that was absent has appeared meanwhile, or where rows that were
    // not looked at may change a verdict: they may be there, and prove that an earlier try has applied a set.
    async fn prepare(&self, sets: &[WriteSet], now: Millis, look: Look) -> Result<Option<Vec<Verdict>>, Failed> {
        let mut keys: BTreeSet<RowKey> = sets.iter().flat_map(touched).collect();
        let (passed, hold) = match look {
            Look::AtAll => (HashSet::new(), Hold::Yes),
            Look::PassNew => {
                let Added { new, only } = added(sets);
                (new, if only { Hold::Shared } else { Hold::Yes })
            }
        };
        keys.retain(|key| !passed.contains(key));
        let keys: Keys = keys.iter().collect();
        let run = Run::Ours(self.session);
        let (begun, found) = join(self.session.say("BEGIN"), rows::known(run, &keys, hold)).await;
        begun?;
        let found = found?;
        let judged = judge(sets, |key| Ok(found.get(key).copied()))?;
        if !passed.is_empty() && !judged.verdicts.iter().all(Verdict::applied) {
            return Ok(None);
        }
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

// Once one set is durable, the whole is no longer "not applied".
fn after(done: &[Verdict], error: Error) -> Error {
    match error {
        Error::NotApplied(why) if done.iter().any(|verdict| verdict.applied()) => Error::Unknown(why),
        error => error,
    }
}

/// The rows that some sets put over nothing and name in no other way.
struct Added {
    new: HashSet<RowKey>,
    /// Whether the sets do nothing else, but for holding other rows.
    only: bool,
}

fn added(sets: &[WriteSet]) -> Added {
    let is_new = |write: &&Write| write.expect.is_none() && write.put.is_some();
    let writes = || sets.iter().flat_map(|set| &set.writes);
    let mut new: HashSet<RowKey> = writes().filter(is_new).map(|write| write.key).collect();
    for write in writes().filter(|write| !is_new(write)) {
        new.remove(&write.key);
    }
    for also in sets.iter().map(|set| &set.also) {
        let held = also.held.iter().map(|(key, _)| *key);
        for key in held.chain(also.merges.iter().map(Merge::key)).chain(also.drops.iter().copied()) {
            new.remove(&key);
        }
    }
    let only = writes().all(|write| new.contains(&write.key))
        && sets.iter().all(|set| set.also.merges.is_empty() && set.also.drops.is_empty());
    Added { new, only }
}

/// The puts of sets that have one put each, all of different rows in one table; none for any other sets.
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
