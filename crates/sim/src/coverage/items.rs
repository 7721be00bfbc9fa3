//! Counts what happened to items. Never judges.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{
    History,
    items::{ItemAnswer, ItemAsk, ItemOutcome, ItemVerdict, VerdictLine, read_lines},
};

/// Everything about items that must have happened somewhere in a set of seeds.
pub const EXPECTED: [&str; 38] = [
    "arrival_followed_up",
    "arrival_followed_up_by_two",
    "auto_released",
    "auto_released_in_a_chain",
    "came_back_after_deletion",
    "crash_before_follow_up",
    "foreign_release_refused",
    "item_accepted",
    "item_already_deleted",
    "item_already_resolved",
    "item_deleted",
    "item_history_read",
    "item_malformed",
    "item_mixed_versions",
    "item_moved",
    "item_not_there",
    "item_op_not_applied",
    "item_op_unknown",
    "item_quarantined",
    "item_replay",
    "item_replay_differs",
    "item_tried",
    "item_unknown_read",
    "item_withdrawn",
    "older_accepted_beside_quarantine",
    "quarantine_accepted",
    "quarantine_released",
    "quarantine_replaced",
    "quarantine_withdrawn",
    "release_in_vain",
    "released_by_hand",
    "request_answered_without_a_listener",
    "request_conflict",
    "request_replayed",
    "request_replayed_by_another_node",
    "unversioned_overwrite",
    "item_refers_to_itself",
    "world_with_items",
];

pub(super) fn count(history: &History, add: &mut impl FnMut(&str)) {
    let items = &history.items;
    let mut answered: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for op in &items.ops {
        let answer = match &op.outcome {
            ItemOutcome::Answered(answer) => answer,
            ItemOutcome::NotApplied => {
                add("item_op_not_applied");
                continue;
            }
            ItemOutcome::Maybe => {
                add("item_op_unknown");
                continue;
            }
        };
        match (&op.ask, answer) {
            (_, ItemAnswer::Told { replay: true, .. }) => {
                add("request_replayed");
                if answered.get(&op.key()).is_some_and(|first| first.0 == op.run && first.1 != op.node) {
                    add("request_replayed_by_another_node");
                }
            }
            (ask, ItemAnswer::Told { text, .. }) => {
                answered.insert(op.key(), (op.run, op.node));
                read_lines(text).iter().for_each(|line| verdict(ask, line, add));
            }
            (_, ItemAnswer::Tried(_)) => add("item_tried"),
            (_, ItemAnswer::Conflict) => add("request_conflict"),
            (ItemAsk::Release { foreign: true, .. }, ItemAnswer::Refused(_)) => add("foreign_release_refused"),
            (ItemAsk::Delete { .. }, ItemAnswer::Refused("no_such_item")) => add("item_not_there"),
            (_, ItemAnswer::Refused(_)) => add("item_refused"),
            (_, ItemAnswer::Shown(shown)) => {
                add(if shown.is_some() { "item_history_read" } else { "item_unknown_read" });
            }
        }
    }
    at_the_end(history, &answered, add);
}

fn verdict(ask: &ItemAsk, line: &VerdictLine, add: &mut impl FnMut(&str)) {
    let by_hand = matches!(ask, ItemAsk::Release { .. });
    match &line.verdict {
        ItemVerdict::Accepted => add(if by_hand { "released_by_hand" } else { "item_accepted" }),
        ItemVerdict::Replay { differs } => add(if *differs { "item_replay_differs" } else { "item_replay" }),
        ItemVerdict::Quarantined { .. } => {
            add(if by_hand { "release_in_vain" } else { "item_quarantined" });
        }
        ItemVerdict::Rejected if refers_to_itself(ask, &line.name) => add("item_refers_to_itself"),
        ItemVerdict::Rejected => add(if line.tag.is_some() { "item_mixed_versions" } else { "item_malformed" }),
        ItemVerdict::Retired { withdrawn: true, .. } => add("item_withdrawn"),
        ItemVerdict::Retired { replay, .. } => add(if *replay { "item_already_deleted" } else { "item_deleted" }),
        ItemVerdict::AlreadyResolved => add("item_already_resolved"),
    }
}

fn refers_to_itself(ask: &ItemAsk, name: &str) -> bool {
    let (ItemAsk::Send(items) | ItemAsk::Try(items)) = ask else { return false };
    items.iter().any(|item| item.name == name && item.refs.iter().any(|other| other == name))
}

fn at_the_end(history: &History, answered: &BTreeMap<String, (usize, usize)>, add: &mut impl FnMut(&str)) {
    let Some(left) = &history.items.left else { return };
    left.answers
        .keys()
        .filter(|key| !answered.contains_key(*key))
        .for_each(|_| add("request_answered_without_a_listener"));
    for how in left.stays.values().filter_map(|stay| stay.resolved) {
        add(&format!("quarantine_{}", how.to_lowercase()));
    }
    // The items that each stay waited for, by the tag of its content; and what was released by hand.
    let (mut waited, mut by_hand) = (BTreeMap::new(), BTreeSet::new());
    let mut numbers: BTreeMap<(String, u64), BTreeSet<u64>> = BTreeMap::new();
    for (key, text) in &left.answers {
        let tenant = key.split('/').next().unwrap_or_default();
        for line in read_lines(text) {
            let (name, Some(tag)) = (format!("{tenant}/{}", line.name), line.tag) else { continue };
            match line.verdict {
                ItemVerdict::Quarantined { number, missing } => {
                    let missing: Vec<String> = missing.iter().map(|missing| format!("{tenant}/{missing}")).collect();
                    waited.insert((name.clone(), tag, key.clone()), missing);
                    numbers.entry((name, number)).or_default().insert(tag);
                }
                ItemVerdict::Accepted => {
                    by_hand.insert((name, tag));
                }
                _ => {}
            }
        }
    }
    numbers.values().filter(|tags| tags.len() > 1).for_each(|_| add("quarantine_replaced"));
    let mut by_itself: BTreeMap<&str, &Vec<String>> = BTreeMap::new();
    for (name, item) in &left.items {
        let tenant = name.split('/').next().unwrap_or_default();
        let mut before = None;
        for version in item.versions.values() {
            let tag = version.tag.unwrap_or_default();
            let missing = waited.get(&(name.clone(), tag, format!("{tenant}/{}", version.id)));
            if let Some(missing) = missing.filter(|_| !by_hand.contains(&(name.clone(), tag))) {
                add("auto_released");
                by_itself.insert(name, missing);
            }
            if let Some((_, true)) = before {
                add("came_back_after_deletion");
            }
            if version.version.is_none() && before.is_some_and(|(versioned, _)| versioned) {
                add("unversioned_overwrite");
            }
            before = Some((version.version.is_some(), version.retired.is_some()));
        }
        if left.open.contains_key(name) {
            add("older_accepted_beside_quarantine");
        }
    }
    for missing in by_itself.values().flat_map(|missing| missing.iter()) {
        if by_itself.contains_key(missing.as_str()) {
            add("auto_released_in_a_chain");
        }
    }
}
