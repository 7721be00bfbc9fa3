//! Judges a history: reads requests and replies, and names the broken promises.
//! Never calls the kernel, the store or the engine: it knows the promises, not how they are kept.
//! A lost reply or an unknown outcome counts as perhaps done, so a verdict is always certain.

mod acts;
mod bodies;
mod claims;
mod doubts;
mod items;
mod lanes;
mod leases;
mod lists;
mod looks;
mod receipts;
mod sequence;

use std::{collections::BTreeMap, fmt};

use crate::history::{
    Apart, Ask, History, HistoryStamp, ObservedAnswer, OldReads, Op, RequestOutcome, Rules, lanes::LaneOutcome,
};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise, in two words.
    pub rule: &'static str,
    /// The finding, with the numbers of the requests.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Every broken promise of a history.
pub fn judge(history: &History) -> Vec<Violation> {
    let history = &aging(allowing(forgiving(history)));
    let mut by_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut forgotten: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (id, op) in history.ops.iter().enumerate() {
        let keys = if acts::is_forgotten_scope(&op.base) { &mut forgotten } else { &mut by_key };
        keys.entry(op.key()).or_default().push(id);
    }
    let forgotten: Vec<File<'_>> = forgotten.iter().map(|(key, ids)| File::new(history, key, ids)).collect();
    let files: BTreeMap<&str, File<'_>> =
        by_key.iter().map(|(key, ids)| (key.as_str(), File::new(history, key, ids))).collect();
    let mut found = Vec::new();
    if history.counts.contains_key("damaged") {
        found.push(Violation { rule: "atomic", what: "a recovered store was damaged".to_owned() });
    }
    for file in files.values() {
        found.extend(claims::judge(file));
        found.extend(leases::judge(file));
        found.extend(receipts::judge(file));
        found.extend(bodies::judge(file));
        found.extend(looks::judge(file));
    }
    found.extend(acts::judge(history, &forgotten));
    found.extend(doubts::judge(&files));
    found.extend(lists::judge(history, &files));
    found.extend(sequence::judge(history, &files));
    found.extend(lanes::judge(history));
    found.extend(items::judge(history));
    found
}

// An answer that a later loss may undo is no evidence: it is perhaps done, and can have no effect later.
fn forgiving(history: &History) -> History {
    let mut history = history.clone();
    for loss in history.losses.clone() {
        for op in history.asked_mut().filter(|op| op.invoked.line < loss.to_line) {
            let Some(closed) = op.closed.filter(|closed| closed.line > loss.from_line) else { continue };
            if matches!(op.outcome, RequestOutcome::Answered(_)) {
                (op.outcome, op.lost_at) = (RequestOutcome::Maybe, Some(closed.line.max(loss.to_line)));
            }
        }
        for op in history.lanes.ops.iter_mut().filter(|op| op.invoked.line < loss.to_line) {
            if op.closed.is_some_and(|closed| closed.line > loss.from_line) && op.answer().is_some() {
                op.outcome = LaneOutcome::Maybe;
            }
        }
    }
    history
}

// A request that was under way while clocks were declared to be apart may have been judged by one that was behind: nothing of it
// is dated before that.
fn allowing(mut history: History) -> History {
    let (apart, run_ends) = (history.apart.clone(), history.run_ends.clone());
    for op in history.asked_mut() {
        let over = over_by(&run_ends, op);
        let during = |apart: &&Apart| apart.from_line <= over && op.invoked.line <= apart.to_line;
        op.skew_ms += apart.iter().filter(during).map(|apart| apart.ms).max().unwrap_or_default();
        op.invoked.at = op.invoked.at.saturating_sub(op.skew_ms);
    }
    history
}

// A node that was declared to read from an old primary answers from rows as old as the failover.
fn aging(mut history: History) -> History {
    let (old_reads, run_ends) = (history.old_reads.clone(), history.run_ends.clone());
    for op in history.asked_mut() {
        let over = over_by(&run_ends, op);
        let during = |reads: &&OldReads| {
            reads.node == (op.run, op.node) && reads.from_line <= over && op.invoked.line <= reads.to_line
        };
        let from_line = old_reads.iter().filter(during).map(|reads| reads.from_line).min();
        op.reads_old = from_line.is_some();
        op.invoked.line = op.invoked.line.min(from_line.unwrap_or(usize::MAX));
    }
    for op in &mut history.lanes.ops {
        let over = over_at(&run_ends, op.run, op.closed, op.outcome == LaneOutcome::Maybe);
        let during = |reads: &&OldReads| {
            reads.node == (op.run, op.node) && reads.from_line <= over && op.invoked.line <= reads.to_line
        };
        let from_line = old_reads.iter().filter(during).map(|reads| reads.from_line).min();
        op.invoked.line = op.invoked.line.min(from_line.unwrap_or(usize::MAX));
    }
    history
}

/// How far the clocks that two requests were judged by may have been apart.
fn skew_ms(first: Entry<'_>, second: Entry<'_>) -> u64 {
    first.op.skew_ms.max(second.op.skew_ms)
}

/// A request with its number.
#[derive(Clone, Copy)]
struct Entry<'h> {
    id: usize,
    op: &'h Op,
}

/// Everything about one key.
struct File<'h> {
    history: &'h History,
    key: String,
    rules: &'h Rules,
    entries: Vec<Entry<'h>>,
    grants: Vec<Grant<'h>>,
}

/// A `new` that a caller got.
#[derive(Clone, Copy)]
struct Grant<'h> {
    by: Entry<'h>,
    token: u64,
    attempt: u32,
    first_seen: u64,
    /// When it was decided, as follows from its lease.
    at: u64,
    lease_expires: u64,
    recovering: Option<(u64, u64)>,
}

impl<'h> File<'h> {
    fn new(history: &'h History, key: &str, ids: &[usize]) -> Self {
        let entries: Vec<Entry<'h>> = ids.iter().map(|id| Entry { id: *id, op: &history.ops[*id] }).collect();
        let grants = entries.iter().filter_map(|entry| grant(*entry)).collect();
        let rules = rules(history, key);
        Self { history, key: key.to_owned(), rules, entries, grants }
    }

    fn report(&self, rule: &'static str, by: Entry<'_>, what: impl fmt::Display) -> Violation {
        let answer = &by.op.outcome;
        Violation { rule, what: format!("{} #{} ({} -> {answer}): {what}", self.key, by.id, by.op.ask) }
    }

    /// Requests of this key that may have had their effect before `later` had its.
    fn perhaps_before(&self, later: Entry<'h>) -> impl Iterator<Item = Entry<'h>> {
        let history = self.history;
        self.entries.iter().copied().filter(move |entry| perhaps_before(history, *entry, later))
    }
}

fn grant(by: Entry<'_>) -> Option<Grant<'_>> {
    match (&by.op.ask, by.op.answer()?) {
        (
            Ask::Claim { lease_ms, .. },
            ObservedAnswer::New { token, attempt, first_seen, lease_expires, recovering },
        ) => Some(Grant {
            by,
            token: *token,
            attempt: *attempt,
            first_seen: *first_seen,
            at: lease_expires.saturating_sub(*lease_ms),
            lease_expires: *lease_expires,
            recovering: *recovering,
        }),
        _ => None,
    }
}

fn rules<'h>(history: &'h History, key: &str) -> &'h Rules {
    let scope = key.split('/').nth(1).unwrap_or_default();
    &history.rules[scope]
}

/// The line from which on a request can no longer have an effect.
fn over(history: &History, op: &Op) -> usize {
    over_by(&history.run_ends, op)
}

fn over_by(run_ends: &[usize], op: &Op) -> usize {
    if let Some(line) = op.lost_at {
        return line;
    }
    over_at(run_ends, op.run, op.closed, op.outcome == RequestOutcome::Maybe)
}

fn over_at(run_ends: &[usize], run: usize, closed: Option<HistoryStamp>, unknown: bool) -> usize {
    match closed {
        Some(closed) if !unknown => closed.line,
        _ => run_ends.get(run).copied().unwrap_or(usize::MAX),
    }
}

/// Whether the one was over before the other began; within a batch, whether it stood first. Where nodes share a store,
/// or a row expires and is dropped before its commit, a batch is not one commit: only requests for one key keep their
/// order, and not where they were answered from an old primary.
fn before(history: &History, first: Entry<'_>, second: Entry<'_>) -> bool {
    if first.op.group == second.op.group {
        let ordered = !history.parted_runs.contains(&first.op.run) || first.op.key() == second.op.key();
        return ordered && first.op.place < second.op.place && !second.op.reads_old;
    }
    over(history, first.op) < second.op.invoked.line
}

/// Whether the one may have had its effect before the other had its.
fn perhaps_before(history: &History, first: Entry<'_>, second: Entry<'_>) -> bool {
    first.id != second.id
        && first.op.outcome != RequestOutcome::NotApplied
        && !before(history, second, first)
        && first.op.invoked.line < over(history, second.op)
}

/// The store time at which a request was closed; the end of time where it never was.
fn closed_at(op: &Op) -> u64 {
    op.closed.map_or(u64::MAX, |stamp| stamp.at)
}

/// Whether a request may have been applied: its answer says so, or its outcome is unknown.
fn perhaps_done(op: &Op) -> bool {
    match &op.outcome {
        RequestOutcome::Maybe => true,
        RequestOutcome::NotApplied => false,
        RequestOutcome::Answered(answer) => matches!(
            (&op.ask, answer),
            (Ask::Claim { .. }, ObservedAnswer::New { .. })
                | (Ask::Seal { .. }, ObservedAnswer::Sealed { .. })
                | (Ask::Renew { .. }, ObservedAnswer::Renewed { .. })
                | (Ask::Release { .. }, ObservedAnswer::Released { .. })
                | (Ask::Resolve { .. }, ObservedAnswer::Resolved { .. })
                | (Ask::Forget { .. }, ObservedAnswer::Forgotten { exists: true, .. })
        ),
    }
}

/// The token that a request is about.
fn named(ask: &Ask) -> Option<u64> {
    match ask {
        Ask::Resolve { token, .. } => *token,
        _ => shown(ask),
    }
}

/// The token that a holder shows.
fn shown(ask: &Ask) -> Option<u64> {
    match ask {
        Ask::Seal { token, .. } | Ask::Renew { token, .. } | Ask::Release { token } => Some(*token),
        Ask::Claim { .. } | Ask::Resolve { .. } | Ask::Forget { .. } | Ask::Alias { .. } | Ask::Look => None,
    }
}
