//! The order in which events leave a lane: the next one only once the one before it has ended, and never back.
//! Judged by the order of lines, as receivers saw it; by times only how long a failed event must wait.

use std::collections::HashMap;

use super::{Asked, Lane, Ledger, died, report};
use crate::{
    auditor::Violation,
    history::lanes::{LaneAsk, LaneOutcome, Said, Sending},
};

/// The shortest wait after a failure of the receiver.
const AGAIN_MS_MIN: u64 = 5_000;
/// The same after a failure of the transport.
const AWAY_MS_MIN: u64 = 1_000;
const DAY_MS: u64 = 24 * 3_600_000;

pub(super) fn judge(ledger: &Ledger<'_>, lane: &Lane<'_>, found: &mut Vec<Violation>) {
    in_order(ledger, lane, found);
    one_at_a_time(ledger, lane, found);
    pauses(ledger, lane, found);
    waits(lane, found);
}

fn in_order(ledger: &Ledger<'_>, lane: &Lane<'_>, found: &mut Vec<Violation>) {
    let (mut last, mut last_line) = (0, 0);
    // The first line in which each event was known to be received.
    let mut received: HashMap<u64, usize> = HashMap::new();
    for (_, sending) in &lane.sendings {
        if let (Some(Said::Yes), Some(ended)) = (sending.said, sending.ended) {
            let line = received.entry(sending.seq).or_insert(ended.line);
            *line = ended.line.min(*line);
        }
    }
    for (place, sending) in &lane.sendings {
        if !sending.intact {
            found.push(report("intact", *place, sending, "it arrived with other bytes"));
        }
        if sending.seq < last && !ledger.unaware(sending, last_line) {
            found.push(report("acked-again", *place, sending, format_args!("{last} had been sent")));
        }
        if sending.seq > last {
            (last, last_line) = (sending.seq, sending.began.line);
        }
        let ended = |seq: u64| received.get(&seq).is_some_and(|line| *line < sending.began.line);
        // A death is only certain to be known where all letters are.
        let gap = (1..sending.seq).find(|seq| !ended(*seq) && (lane.left.is_none() || !died(ledger, lane.name, *seq)));
        if let Some(gap) = gap.filter(|_| ledger.left.is_some()) {
            found.push(report("gap", *place, sending, format_args!("{gap} had not ended")));
        }
    }
}

// Where no node was held, a living one loses no lane.
fn one_at_a_time(ledger: &Ledger<'_>, lane: &Lane<'_>, found: &mut Vec<Violation>) {
    let lanes = &ledger.history.lanes;
    for (number, (place, later)) in lane.sendings.iter().enumerate() {
        let clash = lane.sendings[..number].iter().find(|(_, earlier)| {
            let overlaps = earlier.ended.is_none_or(|ended| ended.line > later.began.line);
            let dead = || lanes.node_ends.get(&earlier.node).is_some_and(|line| *line < later.began.line);
            let one_driver = || earlier.node == later.node || !lanes.paused_runs.contains(&later.node.0);
            overlaps && earlier.node.0 == later.node.0 && !dead() && one_driver()
        });
        if let Some((other, _)) = clash {
            found.push(report("one-at-a-time", *place, later, format_args!("S{other} is under way")));
        }
    }
}

// Once a pause is acknowledged, at most what a node had taken up by then still leaves. A node that was declared to read from an
// old primary does not know of a pause since the failover, until it reads from the new one.
fn pauses(ledger: &Ledger<'_>, lane: &Lane<'_>, found: &mut Vec<Violation>) {
    let resumes = || lane.ops.iter().filter(|asked| asked.op.ask == LaneAsk::Resume && asked.perhaps_done());
    for pause in lane.ops.iter().filter(|asked| asked.op.ask == LaneAsk::Pause && asked.done()) {
        let Some(closed) = pause.op.closed else { continue };
        let crosses = |resume: &Asked<'_>| resume.op.invoked.line < closed.line && resume.over > pause.op.invoked.line;
        if resumes().any(crosses) {
            continue;
        }
        let until = resumes().map(|resume| resume.op.invoked.line).filter(|line| *line > closed.line).min();
        let within = |line: usize| closed.line < line && until.is_none_or(|until| line < until);
        let aware = |sending: &Sending| !ledger.unaware(sending, closed.line);
        let sendings = lane.sendings.iter().filter(|(_, sending)| within(sending.began.line) && aware(sending));
        let during: Vec<&(usize, &Sending)> = sendings.collect();
        let second = during
            .iter()
            .enumerate()
            .find(|(number, (_, sending))| during[..*number].iter().any(|(_, earlier)| earlier.node == sending.node));
        if let Some((_, (place, sending))) = second {
            found.push(report("paused", *place, sending, format_args!("L{} had paused the lane", pause.id)));
        }
    }
}

// A node that has the store to itself waits after a failure, unless a person has acted on the lane.
fn waits(lane: &Lane<'_>, found: &mut Vec<Violation>) {
    for pair in lane.sendings.windows(2) {
        let [(_, first), (place, next)] = pair else { continue };
        let Some(ended) = first.ended else { continue };
        let wait_ms = match first.said {
            Some(Said::Later { wish_ms }) => wish_ms.max(AGAIN_MS_MIN),
            Some(Said::YesUnheard) => AGAIN_MS_MIN,
            Some(Said::Away) => AWAY_MS_MIN,
            _ => continue,
        };
        let began = lane.sendings.iter().find(|(_, sending)| sending.seq == next.seq).map(|(_, sending)| sending.began);
        let acted = lane.ops.iter().any(|asked| {
            !matches!(asked.op.ask, LaneAsk::Publish { .. })
                && asked.op.outcome != LaneOutcome::NotApplied
                && asked.op.invoked.line < next.began.line
                && asked.over > first.began.line
        });
        // The last attempt is at the horizon, however short the wait before it is.
        let last = began.is_some_and(|began| next.began.at >= began.at + DAY_MS);
        let same = first.node == next.node && first.seq == next.seq;
        if next.alone && same && !acted && !last && next.began.at < ended.at + wait_ms {
            let waited_ms = next.began.at - ended.at;
            found.push(report("too-soon", *place, next, format_args!("sent after {waited_ms} ms of {wait_ms}")));
        }
    }
}
