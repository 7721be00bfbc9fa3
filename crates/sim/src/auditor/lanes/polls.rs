//! Pages of polled lanes: in order, without a gap, with all that was acknowledged to its publisher, and nothing that is settled.

use super::{Asked, Lane, Ledger};
use crate::{
    auditor::Violation,
    history::lanes::{LaneAnswer, LaneAsk},
};

pub(super) fn judge(ledger: &Ledger<'_>, found: &mut Vec<Violation>) {
    for lane in ledger.lanes.values() {
        for asked in &lane.ops {
            match (&asked.op.ask, asked.op.answer()) {
                (LaneAsk::Poll { after, limit }, Some(LaneAnswer::Page(page))) => {
                    judge_page(ledger, lane, *asked, (*after, *limit), page, found);
                }
                (LaneAsk::Ack { upto }, Some(LaneAnswer::Refused("ahead"))) => {
                    let known = ledger.published().find(|(published, _, name, seq)| {
                        *name == lane.name && seq >= upto && published.over < asked.op.invoked.line
                    });
                    if let Some((published, ..)) = known {
                        found.push(asked.report("poll-ack", format_args!("L{} is as far", published.id)));
                    }
                }
                (LaneAsk::Ack { upto }, Some(LaneAnswer::Done { .. })) => {
                    if lane.left.is_some_and(|left| *upto > left.tail) {
                        found.push(asked.report("poll-ack", "the lane never was as long"));
                    }
                    if lane.left.is_some_and(|left| *upto > left.settled) {
                        found.push(asked.report("poll-ack", "it is not settled at the end"));
                    }
                }
                _ => {}
            }
        }
    }
}

// The furthest position that may have been settled by then.
fn perhaps_settled(lane: &Lane<'_>, line: usize) -> u64 {
    let before = lane.ops.iter().filter(|asked| asked.perhaps_done() && asked.op.invoked.line < line);
    let settled = before.filter_map(|asked| match asked.op.ask {
        LaneAsk::Ack { upto } => Some(upto),
        LaneAsk::Skip { seq } => Some(seq),
        _ => None,
    });
    settled.max().unwrap_or_default()
}

fn perhaps_paused(lane: &Lane<'_>, page: Asked<'_>) -> bool {
    let mut pauses = lane
        .ops
        .iter()
        .filter(|asked| asked.op.ask == LaneAsk::Pause && asked.perhaps_done() && asked.op.invoked.line < page.over);
    pauses.any(|pause| {
        !lane.ops.iter().any(|asked| {
            asked.op.ask == LaneAsk::Resume
                && asked.done()
                && asked.op.invoked.line > pause.over
                && asked.over < page.op.invoked.line
        })
    })
}

fn judge_page(
    ledger: &Ledger<'_>,
    lane: &Lane<'_>,
    asked: Asked<'_>,
    (after, limit): (u64, usize),
    page: &[(u64, String)],
    found: &mut Vec<Violation>,
) {
    let settled = perhaps_settled(lane, asked.over);
    let mut before = after;
    for (seq, id) in page {
        if *seq <= before {
            found.push(asked.report("poll-order", format_args!("{id} at {seq} after {before}")));
        }
        if let Some(gap) = (before + 1..*seq).find(|gap| *gap > settled || before > after) {
            found.push(asked.report("gap", format_args!("{gap} was left out")));
        }
        before = before.max(*seq);
    }
    let acked = lane.ops.iter().find(|ack| {
        matches!(ack.op.ask, LaneAsk::Ack { upto } if page.iter().any(|(seq, _)| *seq <= upto))
            && ack.done()
            && ack.over < asked.op.invoked.line
    });
    if let Some(ack) = acked {
        found.push(asked.report("acked-again", format_args!("L{} had acknowledged some of it", ack.id)));
    }
    if page.len() < limit && !(page.is_empty() && perhaps_paused(lane, asked)) {
        let unseen = ledger.published().find(|(published, _, name, seq)| {
            *name == lane.name && *seq > before.max(settled) && published.over < asked.op.invoked.line
        });
        if let Some((published, id, _, seq)) = unseen {
            let what = format_args!("L{} was told that {id} is at {seq}", published.id);
            found.push(asked.report("poll-blind", what));
        }
    }
}
