//! Dead letters: none of an event that was acknowledged, none before its horizon, and none sent again once it was cancelled.

use super::{Lane, Ledger, sent_after_death};
use crate::{
    auditor::Violation,
    history::lanes::{LaneAnswer, LaneAsk, LetterLeft, Said},
};

/// An event is tried for so long.
const HORIZON_MS: u64 = 24 * 3_600_000;
/// How far the clocks of nodes may have been apart when it was tried first.
const APART_MS: u64 = 120_000;

pub(super) fn judge(ledger: &Ledger<'_>, lane: &Lane<'_>, found: &mut Vec<Violation>) {
    for (seq, letter) in lane.left.iter().flat_map(|left| &left.letters) {
        ended_once(ledger, lane, *seq, letter, found);
    }
    horizon(ledger, lane, found);
    for asked in &lane.ops {
        let (LaneAsk::Redrive { id, .. }, Some(LaneAnswer::Done { replay: false })) =
            (&asked.op.ask, asked.op.answer())
        else {
            continue;
        };
        let cancelled = ledger.ops.iter().find(|other| {
            matches!(&other.op.ask, LaneAsk::Publish { cancels: Some(original), .. } if original == id)
                && matches!(other.op.answer(), Some(LaneAnswer::Published { .. }))
                && other.over < asked.op.invoked.line
        });
        if let Some(cancelled) = cancelled {
            found.push(asked.report("redrive-cancelled", format_args!("L{} had cancelled it", cancelled.id)));
        }
    }
}

fn dead(letter: &LetterLeft) -> bool {
    letter.redriven_to.is_none() && letter.reason != "skipped"
}

fn ended_once(ledger: &Ledger<'_>, lane: &Lane<'_>, seq: u64, letter: &LetterLeft, found: &mut Vec<Violation>) {
    let sendings = ledger.lanes.values().flat_map(|lane| &lane.sendings);
    let of_it = sendings.filter(|(_, sending)| sending.id == letter.id && !sent_after_death(ledger, sending));
    let last = of_it.max_by_key(|(place, _)| *place);
    if let Some((place, sending)) = last.filter(|(_, sending)| dead(letter) && sending.said == Some(Said::Yes)) {
        let what = format!("{} {seq} {} is dead, and S{place} was acknowledged: {sending:?}", lane.name, letter.id);
        found.push(Violation { rule: "one-end", what });
    }
}

fn horizon(ledger: &Ledger<'_>, lane: &Lane<'_>, found: &mut Vec<Violation>) {
    let lost_from = ledger.history.losses.first().map_or(usize::MAX, |loss| loss.to_line);
    let deaths = ledger.history.lanes.deaths.iter();
    for death in
        deaths.filter(|death| death.lane == lane.name && death.reason == "horizon" && death.told.line < lost_from)
    {
        // It counts anew once a person has sent it again.
        let redrives = lane.ops.iter().filter(|asked| {
            matches!(&asked.op.ask, LaneAsk::Redrive { id, .. } if *id == death.id)
                && asked.perhaps_done()
                && asked.op.invoked.line < death.told.line
        });
        let since = redrives.map(|asked| asked.op.invoked.line).max().unwrap_or_default();
        let sendings = ledger.lanes.values().flat_map(|lane| &lane.sendings);
        let first = sendings
            .filter(|(_, sending)| sending.id == death.id && sending.began.line > since)
            .min_by_key(|(place, _)| *place);
        if first.is_none_or(|(_, first)| death.told.at + APART_MS < first.began.at + HORIZON_MS) {
            let what = format!("{} {} {} died; tried first: {first:?}", lane.name, death.seq, death.id);
            found.push(Violation { rule: "early-death", what });
        }
    }
}
