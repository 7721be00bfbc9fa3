//! Writes the history while the world runs: one line an event, stamped with the store time that ought to be.
//! Never decides anything. Called by every simulated part.

mod items;
mod lanes;

use std::{
    collections::BTreeSet,
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    clock::Clocks,
    history::{
        Apart, Ask, AuditLine, AuditRead, History, HistoryStamp, List, Lookup, Loss, ObservedAnswer, OldReads, Op,
        OutsideEffect, RequestOutcome, key_name,
    },
};

pub(crate) struct Recorder {
    clocks: Arc<Clocks>,
    history: Mutex<History>,
}

/// One request that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) base: String,
    pub(crate) seq: Option<u64>,
    pub(crate) ask: Ask,
}

impl Recorder {
    pub(crate) fn new(clocks: Arc<Clocks>, history: History) -> Self {
        Self { clocks, history: Mutex::new(history) }
    }

    /// A line for the reader.
    pub(crate) fn note(&self, text: impl Display) {
        self.line(&mut self.lock(), text);
    }

    /// A line, counted under a name.
    pub(crate) fn count(&self, name: &str, text: impl Display) {
        let mut history = self.lock();
        self.line(&mut history, format_args!("{name}: {text}"));
        add(&mut history, name);
    }

    /// A count without a line: for what happens too often to read.
    pub(crate) fn tally(&self, name: &str) {
        add(&mut self.lock(), name);
    }

    /// Requests handed to a node of a run together; the place of the first in the list of all.
    pub(crate) fn invoke(&self, caller: &str, (run, node): (usize, usize), asked: &[Asked]) -> usize {
        let mut history = self.lock();
        let first = history.ops.len();
        for (place, one) in asked.iter().enumerate() {
            let id = first + place;
            let key = key_name(&one.base, one.seq);
            let invoked = self.line(&mut history, format_args!("{caller}@{run}.{node} #{id} {key} {}", one.ask));
            let skew_ms = history.skew_ms;
            history.ops.push(Op {
                run,
                node,
                group: first,
                place,
                base: one.base.clone(),
                seq: one.seq,
                ask: one.ask.clone(),
                invoked,
                closed: None,
                outcome: RequestOutcome::Maybe,
                lost_at: None,
                skew_ms,
                reads_old: false,
            });
        }
        first
    }

    /// Records the outcome of a request.
    pub(crate) fn close(&self, id: usize, outcome: RequestOutcome) {
        let mut history = self.lock();
        let key = history.ops[id].key();
        let stamp = self.line(&mut history, format_args!("  #{id} {key} -> {outcome}"));
        let op = &mut history.ops[id];
        op.closed = Some(stamp);
        op.outcome = outcome;
    }

    /// Records the state that a read of a key showed, which began at an earlier moment.
    pub(crate) fn looked(
        &self,
        (run, node): (usize, usize),
        invoked: HistoryStamp,
        asked: &Asked,
        shown: ObservedAnswer,
    ) {
        let mut history = self.lock();
        let (group, key) = (history.ops.len(), key_name(&asked.base, asked.seq));
        let closed = self.line(&mut history, format_args!("  #{group} {key} looks like {shown:?}"));
        let skew_ms = history.skew_ms;
        history.ops.push(Op {
            run,
            node,
            group,
            place: 0,
            base: asked.base.clone(),
            seq: asked.seq,
            ask: asked.ask.clone(),
            invoked,
            closed: Some(closed),
            outcome: RequestOutcome::Answered(shown),
            lost_at: None,
            skew_ms,
            reads_old: false,
        });
    }

    /// A list of doubts that was asked for at an earlier moment.
    pub(crate) fn listed(&self, node: (usize, usize), invoked: HistoryStamp, shown: BTreeSet<String>, full: bool) {
        let mut history = self.lock();
        let closed = self.line(&mut history, format_args!("  the list of doubts, full: {full}: {shown:?}"));
        let op = look(&history, node, invoked, closed);
        history.lists.push(List { op, shown, full });
    }

    /// Records the result of a lookup by name, which began at an earlier moment.
    pub(crate) fn named(
        &self,
        node: (usize, usize),
        invoked: HistoryStamp,
        (tenant, name): (&str, &str),
        shown: Option<(String, String)>,
    ) {
        let mut history = self.lock();
        let closed = self.line(&mut history, format_args!("  {tenant}/{name} leads to {shown:?}"));
        let op = look(&history, node, invoked, closed);
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        history.lookups.push(Lookup { op, tenant, name, shown });
    }

    /// The audit that was asked for at an earlier moment.
    pub(crate) fn audited(&self, node: (usize, usize), invoked: HistoryStamp, lines: Vec<AuditLine>) {
        let mut history = self.lock();
        let closed = self.line(&mut history, format_args!("  the audit: {lines:?}"));
        let op = look(&history, node, invoked, closed);
        history.audits.push(AuditRead { op, lines });
        add(&mut history, "audit_read");
    }

    /// The present moment, with a line of its own.
    pub(crate) fn moment(&self, text: impl Display) -> HistoryStamp {
        self.line(&mut self.lock(), text)
    }

    /// A failover lost what was acknowledged since a line.
    pub(crate) fn lost_since(&self, from_line: usize) {
        let mut history = self.lock();
        let to_line =
            self.line(&mut history, format_args!("failover: what was acknowledged since {from_line} is gone")).line;
        history.losses.push(Loss { from_line, to_line });
        add(&mut history, "failover_lost_acknowledged");
    }

    /// A node reads from the old primary from here on; where in the list of those it stands.
    pub(crate) fn old_reads_begin(&self, node: (usize, usize)) -> usize {
        let mut history = self.lock();
        let text = format_args!("node {}.{} still reads from the old primary", node.0, node.1);
        let from_line = self.line(&mut history, text).line;
        history.old_reads.push(OldReads { node, from_line, to_line: usize::MAX });
        history.old_reads.len() - 1
    }

    /// It reads from the new one.
    pub(crate) fn old_reads_end(&self, place: usize) {
        let mut history = self.lock();
        let (run, node) = history.old_reads[place].node;
        history.old_reads[place].to_line =
            self.line(&mut history, format_args!("node {run}.{node} reads from the new primary")).line;
    }

    /// From here on the clocks of nodes may be this far apart, beside what they always may.
    pub(crate) fn apart(&self, ms: u64) {
        let mut history = self.lock();
        let from_line =
            self.line(&mut history, format_args!("the clocks of nodes are up to {ms} ms apart from here on")).line;
        if let Some(last) = history.apart.last_mut() {
            last.to_line = last.to_line.min(from_line);
        }
        if ms > 0 {
            history.apart.push(Apart { from_line, to_line: usize::MAX, ms });
        }
    }

    /// An entry in the ledger of the outside world.
    pub(crate) fn effect(&self, caller: &str, key: &str, token: u64) {
        let mut history = self.lock();
        let done = self.line(&mut history, format_args!("{caller} effect of {key} under {token}"));
        history.effects.push(OutsideEffect { key: key.to_owned(), token, done });
    }

    /// Whether the outside world has seen an effect of a key under a token.
    pub(crate) fn has_effect(&self, key: &str, token: u64) -> bool {
        self.lock().effects.iter().any(|effect| effect.key == key && effect.token == token)
    }

    /// Every key that was ever asked about.
    pub(crate) fn keys(&self) -> BTreeSet<(String, Option<u64>)> {
        self.lock().ops.iter().map(|op| (op.base.clone(), op.seq)).collect()
    }

    /// In the present run, a batch is not always one commit.
    pub(crate) fn batches_part(&self) {
        let mut history = self.lock();
        let run = history.run_ends.len();
        history.parted_runs.insert(run);
    }

    /// A run of the store is over: nothing sent to it can happen any more.
    pub(crate) fn end_run(&self, text: impl Display) {
        let mut history = self.lock();
        let stamp = self.line(&mut history, text);
        history.run_ends.push(stamp.line);
        if let Some(last) = history.apart.last_mut() {
            last.to_line = last.to_line.min(stamp.line);
        }
    }

    pub(crate) fn take(&self) -> History {
        std::mem::take(&mut *self.lock())
    }

    fn line(&self, history: &mut History, text: impl Display) -> HistoryStamp {
        let at = self.clocks.store_ms();
        let line = history.lines.len();
        let text = history.with_text.then(|| format!("{line:05} +{:06} t={at} {text}", self.clocks.elapsed_ms()));
        history.lines.push(text.unwrap_or_default());
        HistoryStamp { line, at }
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// A question about no key.
fn look(history: &History, (run, node): (usize, usize), invoked: HistoryStamp, closed: HistoryStamp) -> Op {
    Op {
        run,
        node,
        group: usize::MAX,
        place: 0,
        base: String::new(),
        seq: None,
        ask: Ask::Look,
        invoked,
        closed: Some(closed),
        outcome: RequestOutcome::Answered(ObservedAnswer::Other("looked".to_owned())),
        lost_at: None,
        skew_ms: history.skew_ms,
        reads_old: false,
    }
}

fn add(history: &mut History, name: &str) {
    *history.counts.entry(name.to_owned()).or_default() += 1;
}
