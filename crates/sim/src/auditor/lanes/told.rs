//! A cancellation's answer about its event agrees with the receivers at some moment between question and answer.

use super::{Asked, Ledger, acknowledged_before, sent_after_death};
use crate::{
    auditor::Violation,
    history::lanes::{LaneAnswer, LaneAsk, Said, Sending},
};

pub(super) fn judge(ledger: &Ledger<'_>, found: &mut Vec<Violation>) {
    for asked in &ledger.ops {
        let (
            LaneAsk::Publish { cancels: Some(original), .. },
            Some(LaneAnswer::Published { original: Some(told), replay: false, .. }),
        ) = (&asked.op.ask, asked.op.answer())
        else {
            continue;
        };
        if !true_once(ledger, *asked, original, told) {
            found.push(asked.report("cancelled", format_args!("{original} was not {told}")));
        }
    }
}

fn true_once(ledger: &Ledger<'_>, asked: Asked<'_>, original: &str, told: &str) -> bool {
    let (from, to) = (asked.op.invoked.line, asked.over);
    let sendings = || {
        let all = ledger.lanes.values().flat_map(|lane| &lane.sendings).map(|(_, sending)| *sending);
        all.filter(|sending| sending.id == original)
    };
    let pages = || {
        ledger.ops.iter().filter(|other| match other.op.answer() {
            Some(LaneAnswer::Page(page)) => page.iter().any(|(_, id)| id == original),
            _ => false,
        })
    };
    let settled_before = |line: usize| {
        let (lane, seq) =
            ledger.published().find(|(_, id, ..)| *id == original).map(|(_, _, lane, seq)| (lane, seq))?;
        let next = ledger.lanes.get(lane)?.sendings.iter().find(|(_, sending)| sending.seq > seq)?;
        Some(next.1.began.line < line)
    };
    match told {
        "undelivered" => sendings().all(|sending| sending.began.line > from) && pages().all(|page| page.over > from),
        // No later event of its lane had been sent at the question.
        "in_flight" => settled_before(from) != Some(true) || ledger.lanes.values().any(|lane| redrives(lane, original)),
        "delivered" => {
            sendings().any(|sending| acknowledged_before(sending, to)) || pages().any(|page| page.op.invoked.line < to)
        }
        // Its last attempt was not taken; or a person had skipped it while that was under way: then the person has the last word.
        "dead" => {
            let known = sendings().filter(|sending| sending.began.line < to && !sent_after_death(ledger, sending));
            let last = known.max_by_key(|sending| sending.began.line);
            let taken = last.filter(|sending| sending.said == Some(Said::Yes));
            taken.is_none_or(|sending| skipped(ledger, sending, to)) || ledger.left.is_none()
        }
        _ => false,
    }
}

// Whether a person may have given up the position of an attempt before a line.
fn skipped(ledger: &Ledger<'_>, sending: &Sending, line: usize) -> bool {
    let Some(lane) = ledger.lanes.get(sending.lane.as_str()) else { return false };
    let skips = |asked: &&Asked<'_>| asked.op.ask == LaneAsk::Skip { seq: sending.seq };
    lane.ops.iter().filter(skips).any(|asked| asked.perhaps_done() && asked.op.invoked.line < line)
}

fn redrives(lane: &super::Lane<'_>, original: &str) -> bool {
    lane.ops.iter().any(|asked| matches!(&asked.op.ask, LaneAsk::Redrive { id, .. } if id == original))
}
