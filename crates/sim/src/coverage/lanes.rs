//! Counts what happened to lanes. Never judges.

use std::collections::BTreeMap;

use crate::history::{
    History,
    lanes::{LaneAnswer, LaneAsk, LaneOutcome, Said},
};

/// Everything about lanes that must have happened somewhere in a set of seeds.
pub const EXPECTED: [&str; 43] = [
    "ack_refused",
    "cancelled_dead",
    "cancelled_delivered",
    "cancelled_in_flight",
    "cancelled_undelivered",
    "crash_among_days",
    "days",
    "dead_horizon",
    "dead_skipped",
    "dead_too_large",
    "event_conflict",
    "event_died",
    "event_published",
    "event_republished",
    "event_unknown",
    "lane_passed_on",
    "lane_paused",
    "lane_resumed",
    "lane_skipped",
    "letter_discarded",
    "letter_redriven",
    "letter_redriven_in_place",
    "page_acked",
    "page_empty",
    "page_served",
    "page_waited_for",
    "redrive_refused",
    "sent_again_after_crash",
    "sent_away",
    "sent_for_good",
    "sent_gone",
    "sent_later",
    "sent_never",
    "sent_redriven",
    "sent_unheard",
    "told_of_long_failure",
    "told_of_receivers_pause",
    "lane_op_unknown",
    "lane_op_not_applied",
    "lane_drained",
    "skip_refused",
    "unsent_original",
    "user_published",
];

pub(super) fn count(history: &History, add: &mut impl FnMut(&str)) {
    let lanes = &history.lanes;
    for op in &lanes.ops {
        let answer = match &op.outcome {
            LaneOutcome::Answered(answer) => answer,
            LaneOutcome::NotApplied => {
                add("lane_op_not_applied");
                continue;
            }
            LaneOutcome::Maybe => {
                add(if matches!(op.ask, LaneAsk::Publish { .. }) { "event_unknown" } else { "lane_op_unknown" });
                continue;
            }
        };
        match (&op.ask, answer) {
            (LaneAsk::Publish { .. }, LaneAnswer::Published { original, replay, .. }) => {
                add(if *replay { "event_republished" } else { "event_published" });
                if let Some(original) = original.filter(|_| !replay) {
                    add(&format!("cancelled_{original}"));
                }
            }
            (LaneAsk::Publish { .. }, LaneAnswer::Refused("conflict")) => add("event_conflict"),
            (LaneAsk::Publish { .. }, LaneAnswer::Refused("unknown_original")) => add("unsent_original"),
            (LaneAsk::Pause, LaneAnswer::Done { replay: false }) => add("lane_paused"),
            (LaneAsk::Resume, LaneAnswer::Done { replay: false }) => add("lane_resumed"),
            (LaneAsk::Skip { .. }, LaneAnswer::Done { replay: false }) => add("lane_skipped"),
            (LaneAsk::Skip { .. }, LaneAnswer::Refused(_)) => add("skip_refused"),
            (LaneAsk::Redrive { .. }, LaneAnswer::Done { replay: false }) => add("letter_redriven"),
            (LaneAsk::Redrive { .. }, LaneAnswer::Refused("letter_cancelled")) => add("redrive_refused"),
            (LaneAsk::Discard { .. }, LaneAnswer::Done { replay: false }) => add("letter_discarded"),
            (LaneAsk::Ack { .. }, LaneAnswer::Done { replay: false }) => add("page_acked"),
            (LaneAsk::Ack { .. }, LaneAnswer::Refused("ahead")) => add("ack_refused"),
            (LaneAsk::Poll { .. }, LaneAnswer::Page(page)) => {
                add(if page.is_empty() { "page_empty" } else { "page_served" });
                if op.closed.is_some_and(|closed| closed.at > op.invoked.at + 50) && !page.is_empty() {
                    add("page_waited_for");
                }
            }
            _ => {}
        }
    }
    let mut last: BTreeMap<(&str, u64), &crate::history::lanes::Sending> = BTreeMap::new();
    let mut by: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for sending in &lanes.sendings {
        match sending.said {
            Some(Said::Yes) => add("sent_for_good"),
            Some(Said::YesUnheard) => add("sent_unheard"),
            Some(Said::Later { .. }) => add("sent_later"),
            Some(Said::Away) => add("sent_away"),
            Some(Said::Gone) => add("sent_gone"),
            Some(Said::Never) => add("sent_never"),
            None => add("sent_into_the_void"),
        }
        if sending.redrive {
            add("sent_redriven");
        }
        let before = last.insert((&sending.lane, sending.seq), sending);
        if before.is_some_and(|before| before.said == Some(Said::Yes) && before.node != sending.node) {
            add("sent_again_after_crash");
        }
        let node = by.insert(&sending.lane, sending.node);
        if node.is_some_and(|node| node.0 == sending.node.0 && node != sending.node) {
            add("lane_passed_on");
        }
    }
    for left in lanes.left.iter().flatten().map(|(_, left)| left) {
        for (seq, letter) in &left.letters {
            add(&format!("dead_{}", letter.reason));
            if letter.redriven_to == Some(*seq) {
                add("letter_redriven_in_place");
            }
        }
        if left.settled == left.tail && !left.polled {
            add("lane_drained");
        }
    }
}
