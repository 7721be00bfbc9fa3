//! Where events are: one place each, no two in one place, and none that was acknowledged to its publisher is gone.

use std::collections::BTreeMap;

use super::{Ledger, died, redriven};
use crate::{
    auditor::Violation,
    history::lanes::{LaneAnswer, LaneLeft, Said},
};

pub(super) fn judge(ledger: &Ledger<'_>, found: &mut Vec<Violation>) {
    one_publication(ledger, found);
    one_event_a_place(ledger, found);
    let Some(left) = ledger.left else { return };
    for (asked, id, lane, seq) in ledger.published() {
        if !accounted_for(ledger, lane, seq, id) {
            found.push(asked.report("lost-append", "it was neither acknowledged, nor is it dead, nor in its lane"));
        }
    }
    for ((lane, seq), letter) in redriven(ledger) {
        if let Some(again) = letter.redriven_to
            && !accounted_for(ledger, &letter.home, again, &letter.id)
        {
            let what = format!("{} at {lane} {seq} was sent again to {} {again}, and is gone", letter.id, letter.home);
            found.push(Violation { rule: "lost-redrive", what });
        }
    }
    for (name, lane) in left {
        whole(ledger, name, lane, found);
    }
}

// A publication has one place, however often it is asked for.
fn one_publication(ledger: &Ledger<'_>, found: &mut Vec<Violation>) {
    let (mut places, mut new) = (BTreeMap::new(), BTreeMap::new());
    for (asked, id, lane, seq) in ledger.published() {
        let (first, known) = *places.entry(id).or_insert((asked.id, (lane, seq)));
        if known != (lane, seq) {
            found.push(asked.report("one-publication", format_args!("L{first} was told of {known:?}")));
        }
        if matches!(asked.op.answer(), Some(LaneAnswer::Published { replay: false, .. }))
            && let Some(first) = new.insert(id, asked.id)
        {
            found.push(asked.report("one-publication", format_args!("L{first} had published it")));
        }
    }
}

// Everyone who speaks of a place means the same event.
fn one_event_a_place<'h>(ledger: &Ledger<'h>, found: &mut Vec<Violation>) {
    let mut events: BTreeMap<(&'h str, u64), &'h str> = BTreeMap::new();
    let mut see = |lane: &'h str, seq: u64, id: &'h str, from: &dyn Fn() -> String| {
        let known = *events.entry((lane, seq)).or_insert(id);
        if known != id {
            let what = format!("{lane} {seq} is {known}, and {id} for {}", from());
            found.push(Violation { rule: "one-position", what });
        }
    };
    for (asked, id, lane, seq) in ledger.published() {
        see(lane, seq, id, &|| format!("L{}", asked.id));
    }
    for lane in ledger.lanes.values() {
        for (place, sending) in &lane.sendings {
            see(lane.name, sending.seq, &sending.id, &|| format!("S{place}"));
        }
        for asked in &lane.ops {
            let Some(LaneAnswer::Page(page)) = asked.op.answer() else { continue };
            page.iter().for_each(|(seq, id)| see(lane.name, *seq, id, &|| format!("L{}", asked.id)));
        }
        for (seq, id) in lane.left.iter().flat_map(|left| &left.entries) {
            see(lane.name, *seq, id, &|| "the lane at the end".to_owned());
        }
    }
    for ((lane, seq), letter) in redriven(ledger) {
        see(lane, seq, &letter.id, &|| "a dead letter".to_owned());
    }
}

// Acknowledged, dead, or still in the lane.
fn accounted_for(ledger: &Ledger<'_>, lane: &str, seq: u64, id: &str) -> bool {
    let Some(left) = ledger.left(lane) else { return false };
    if seq > left.settled {
        return left.entries.get(&seq).is_some_and(|entry| entry == id);
    }
    left.letters.get(&seq).is_some_and(|letter| letter.id == id)
        || received(ledger, lane, seq)
        || died(ledger, lane, seq)
}

// Whether its receiver has said yes, or was served it.
fn received(ledger: &Ledger<'_>, lane: &str, seq: u64) -> bool {
    let Some(lane) = ledger.lanes.get(lane) else { return false };
    let mut sendings = lane.sendings.iter();
    let mut pages = lane.ops.iter().filter_map(|asked| match asked.op.answer() {
        Some(LaneAnswer::Page(page)) => Some(page),
        _ => None,
    });
    sendings.any(|(_, sending)| sending.seq == seq && sending.said == Some(Said::Yes))
        || pages.any(|page| page.iter().any(|(served, _)| *served == seq))
}

// Unsettled events are all there, without a gap, and none stays that could leave.
fn whole(ledger: &Ledger<'_>, name: &str, lane: &LaneLeft, found: &mut Vec<Violation>) {
    let LaneLeft { settled, tail, .. } = *lane;
    let mut report = |rule, what: String| found.push(Violation { rule, what: format!("{name}: {what}") });
    if settled > tail {
        report("gap", format!("{settled} are settled of {tail}"));
    }
    if let Some(missing) = (settled + 1..=tail).find(|seq| !lane.entries.contains_key(seq)) {
        report("gap", format!("{missing} is missing of {} to {tail}", settled + 1));
    }
    if let Some((beyond, _)) = lane.entries.iter().find(|(seq, _)| **seq > tail) {
        report("gap", format!("{beyond} is there, and {tail} is the last"));
    }
    if let Some(seq) = (1..=settled).find(|seq| !received(ledger, name, *seq) && !died(ledger, name, *seq)) {
        report("gap", format!("{seq} is settled, and was neither received nor is it dead"));
    }
    if ledger.history.lanes.drained && !lane.polled && !lane.stands && !lane.retrying && settled < tail {
        report("stuck-lane", format!("only {settled} of {tail} have left, and nothing keeps it"));
    }
}
