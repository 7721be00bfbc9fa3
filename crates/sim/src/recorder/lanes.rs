//! Writes what happens to lanes into the history. Never decides anything. Called by the callers and receivers of lanes.

use std::collections::BTreeMap;

use super::{Recorder, add};
use crate::history::{
    HistoryStamp,
    lanes::{DeathNotice, LaneAsk, LaneLeft, LaneOp, LaneOutcome, Said, Sending},
};

impl Recorder {
    /// A request about a lane, handed to a node; its place in the list of all.
    pub(crate) fn lane_asked(&self, caller: &str, (run, node): (usize, usize), lane: &str, ask: LaneAsk) -> usize {
        let mut history = self.lock();
        let id = history.lanes.ops.len();
        let invoked = self.line(&mut history, format_args!("{caller}@{run}.{node} L{id} {lane} {ask:?}"));
        let outcome = LaneOutcome::Maybe;
        history.lanes.ops.push(LaneOp { run, node, lane: lane.to_owned(), ask, invoked, closed: None, outcome });
        id
    }

    /// The outcome of one.
    pub(crate) fn lane_answered(&self, id: usize, outcome: LaneOutcome) {
        let mut history = self.lock();
        let stamp = self.line(&mut history, format_args!("  L{id} -> {outcome}"));
        let op = &mut history.lanes.ops[id];
        (op.closed, op.outcome) = (Some(stamp), outcome);
    }

    /// An attempt leaves; its place in the list of all. The moment is filled in here.
    pub(crate) fn sending(&self, mut sending: Sending) -> usize {
        let mut history = self.lock();
        let Sending { node, lane, seq, id, redrive, .. } = &sending;
        let again = if *redrive { " redriven" } else { "" };
        let place = history.lanes.sendings.len();
        let text = format!("{}.{} sends S{place} {lane} {seq} {id}{again}", node.0, node.1);
        sending.began = self.line(&mut history, text);
        history.lanes.sendings.push(sending);
        place
    }

    /// A receiver has decided about it.
    pub(crate) fn received(&self, place: usize, said: Said) {
        let mut history = self.lock();
        let stamp = self.line(&mut history, format_args!("  S{place} -> {said:?}"));
        let sending = &mut history.lanes.sendings[place];
        (sending.ended, sending.said) = (Some(stamp), Some(said));
    }

    /// A node tells of a dead letter.
    pub(crate) fn died(&self, lane: &str, seq: u64, id: &str, reason: &'static str) {
        let mut history = self.lock();
        let told = self.line(&mut history, format_args!("dead letter {lane} {seq} {id}: {reason}"));
        history.lanes.deaths.push(DeathNotice { lane: lane.to_owned(), seq, id: id.to_owned(), reason, told });
        add(&mut history, "event_died");
    }

    /// A node is no more, alone of all of its run.
    pub(crate) fn node_ends(&self, node: (usize, usize)) {
        let mut history = self.lock();
        let line = history.lines.len();
        history.lanes.node_ends.insert(node, line);
    }

    /// A node of this run is held for a while: others may take its lanes.
    pub(crate) fn node_pauses(&self, run: usize) {
        self.lock().lanes.paused_runs.insert(run);
    }

    /// The lanes at the end.
    pub(crate) fn lanes_left(&self, left: BTreeMap<String, LaneLeft>, drained: bool) -> HistoryStamp {
        let mut history = self.lock();
        let stamp = self.line(&mut history, format_args!("lanes at the end, drained: {drained}"));
        for (name, lane) in &left {
            self.line(&mut history, format_args!("  {name} {lane:?}"));
        }
        (history.lanes.left, history.lanes.drained) = (Some(left), drained);
        stamp
    }
}
