//! Judges lanes: every publication ends acknowledged, dead or still in its lane, and events leave a lane in order.
//! Never judges events after a failover that was declared to lose acknowledged ones. Called by `auditor`.

mod letters;
mod order;
mod places;
mod polls;
mod told;

use std::{collections::BTreeMap, fmt};

use super::{Violation, over_at};
use crate::history::{
    History,
    lanes::{LaneAnswer, LaneAsk, LaneLeft, LaneOp, LaneOutcome, LetterLeft, Said, Sending},
};

pub(super) fn judge(history: &History) -> Vec<Violation> {
    let ledger = Ledger::new(history);
    let mut found = Vec::new();
    places::judge(&ledger, &mut found);
    told::judge(&ledger, &mut found);
    polls::judge(&ledger, &mut found);
    for lane in ledger.lanes.values() {
        order::judge(&ledger, lane, &mut found);
        letters::judge(&ledger, lane, &mut found);
    }
    found
}

/// Everything that is known of lanes, up to the first declared loss.
struct Ledger<'h> {
    history: &'h History,
    ops: Vec<Asked<'h>>,
    lanes: BTreeMap<&'h str, Lane<'h>>,
    /// The lanes at the end; none after a declared loss, or where the last run could not start.
    left: Option<&'h BTreeMap<String, LaneLeft>>,
}

/// A request with its number.
#[derive(Clone, Copy)]
struct Asked<'h> {
    id: usize,
    op: &'h LaneOp,
    /// From this line on it can have no effect any more.
    over: usize,
}

/// One lane.
struct Lane<'h> {
    name: &'h str,
    ops: Vec<Asked<'h>>,
    sendings: Vec<(usize, &'h Sending)>,
    left: Option<&'h LaneLeft>,
}

impl<'h> Ledger<'h> {
    fn new(history: &'h History) -> Self {
        let lost_from = history.losses.first().map_or(usize::MAX, |loss| loss.to_line);
        let over = |op: &LaneOp| over_at(&history.run_ends, op.run, op.closed, op.outcome == LaneOutcome::Maybe);
        let ops = history.lanes.ops.iter().enumerate().filter(|(_, op)| op.invoked.line < lost_from);
        let ops: Vec<Asked<'h>> = ops.map(|(id, op)| Asked { id, op, over: over(op) }).collect();
        let left = history.lanes.left.as_ref().filter(|_| history.losses.is_empty());
        let mut lanes: BTreeMap<&'h str, Lane<'h>> = BTreeMap::new();
        fn lane<'a, 'h>(lanes: &'a mut BTreeMap<&'h str, Lane<'h>>, name: &'h str) -> &'a mut Lane<'h> {
            lanes.entry(name).or_insert(Lane { name, ops: Vec::new(), sendings: Vec::new(), left: None })
        }
        for asked in ops.iter().filter(|asked| !asked.op.lane.is_empty()) {
            lane(&mut lanes, &asked.op.lane).ops.push(*asked);
        }
        let sendings = history.lanes.sendings.iter().enumerate();
        for (place, sending) in sendings.filter(|(_, sending)| sending.began.line < lost_from) {
            lane(&mut lanes, &sending.lane).sendings.push((place, sending));
        }
        for (name, known) in left.into_iter().flatten() {
            lane(&mut lanes, name).left = Some(known);
        }
        Self { history, ops, lanes, left }
    }

    /// Publications that were answered with a place, with the event's id.
    fn published(&self) -> impl Iterator<Item = (Asked<'h>, &'h str, &'h str, u64)> {
        self.ops.iter().filter_map(|asked| match (&asked.op.ask, asked.op.answer()) {
            (LaneAsk::Publish { id, .. }, Some(LaneAnswer::Published { lane, seq, .. })) => {
                Some((*asked, id.as_str(), lane.as_str(), *seq))
            }
            _ => None,
        })
    }

    /// Whether the node of an attempt could not know of a line: it was declared to read an old primary, since before that line.
    fn unaware(&self, sending: &Sending, line: usize) -> bool {
        self.history.old_reads.iter().any(|reads| {
            reads.node == sending.node
                && reads.from_line < line
                && (reads.from_line..=reads.to_line).contains(&sending.began.line)
        })
    }

    fn left(&self, lane: &str) -> Option<&'h LaneLeft> {
        self.left?.get(lane)
    }
}

impl<'h> Asked<'h> {
    fn report(&self, rule: &'static str, what: impl fmt::Display) -> Violation {
        Violation {
            rule,
            what: format!("{} L{} ({:?} -> {}): {what}", self.op.lane, self.id, self.op.ask, self.op.outcome),
        }
    }

    /// Whether it may have done what it asked for.
    fn perhaps_done(&self) -> bool {
        match &self.op.outcome {
            LaneOutcome::Maybe => true,
            LaneOutcome::NotApplied => false,
            LaneOutcome::Answered(answer) => !matches!(answer, LaneAnswer::Refused(_)),
        }
    }

    /// Whether it says that it is done.
    fn done(&self) -> bool {
        matches!(self.op.answer(), Some(LaneAnswer::Done { .. }))
    }
}

fn report(rule: &'static str, place: usize, sending: &Sending, what: impl fmt::Display) -> Violation {
    let Sending { lane, seq, id, .. } = sending;
    Violation { rule, what: format!("S{place} {lane} {seq} {id}: {what}") }
}

/// Whether a receiver's word that it has the event had arrived before a line.
fn acknowledged_before(sending: &Sending, line: usize) -> bool {
    sending.said == Some(Said::Yes) && sending.ended.is_some_and(|ended| ended.line < line)
}

/// Whether a node sent an event once more after its death, of which it did not know: it was declared to read an old primary.
fn sent_after_death(ledger: &Ledger<'_>, sending: &Sending) -> bool {
    let mut deaths = ledger.history.lanes.deaths.iter().filter(|death| death.id == sending.id);
    match deaths.next_back() {
        Some(death) => sending.began.line > death.told.line && ledger.unaware(sending, death.told.line),
        // A node that has died may not have told of it.
        None => ledger.unaware(sending, usize::MAX),
    }
}

/// Whether a position ended as a dead letter at some time.
fn died(ledger: &Ledger<'_>, lane: &str, seq: u64) -> bool {
    let own = ledger.left(lane).is_some_and(|left| left.letters.contains_key(&seq));
    own || redriven(ledger).any(|(_, letter)| letter.home == lane && letter.redriven_to != Some(seq))
}

/// Every letter at the end, with the place of its first death.
fn redriven<'h>(ledger: &Ledger<'h>) -> impl Iterator<Item = ((&'h str, u64), &'h LetterLeft)> {
    let letters = |(name, left): (&'h String, &'h LaneLeft)| {
        left.letters.iter().map(|(seq, letter)| ((name.as_str(), *seq), letter))
    };
    ledger.left.into_iter().flatten().flat_map(letters)
}
