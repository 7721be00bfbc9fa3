//! One outcome a request: every repeat gets the first answer, another body is refused, and a dry run leaves nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{Asked, Book, fits};
use crate::{
    auditor::Violation,
    history::items::{ItemAnswer, ItemAsk, ItemOutcome, read_lines},
};

pub(super) fn judge(book: &Book<'_>, found: &mut Vec<Violation>) {
    for key in book.by_key.keys() {
        let asked: Vec<Asked<'_>> = book.changing(key).copied().collect();
        one_answer(&asked, found);
        for one in &asked {
            refused(&asked, *one, found);
            kept(book, key, *one, found);
        }
    }
    dry_runs(book, found);
}

fn one_answer(asked: &[Asked<'_>], found: &mut Vec<Violation>) {
    let told: Vec<(Asked<'_>, bool, &str)> =
        asked.iter().filter_map(|one| one.told().map(|(replay, text)| (*one, replay, text))).collect();
    let mut new = told.iter().filter(|(_, replay, _)| !replay);
    if let (Some((first, ..)), Some((second, ..))) = (new.next(), new.next()) {
        found.push(second.report("one-answer", format_args!("I{} had its effect before", first.number)));
    }
    for (one, replay, text) in &told {
        if let Some((first, ..)) = told.first().filter(|(.., first)| first != text) {
            found.push(one.report("one-answer", format_args!("I{} was told otherwise", first.number)));
        }
        if !fits(&one.op.ask, &read_lines(text)) {
            found.push(one.report("one-answer", "it is the answer to something else"));
        }
        let mut others = asked.iter().filter(|other| {
            other.number != one.number && other.op.ask == one.op.ask && other.perhaps_done() && other.from <= one.over
        });
        if *replay && others.next().is_none() {
            found.push(one.report("one-answer", "it was not asked before"));
        }
    }
}

// A request is refused only for another one under its id.
fn refused(asked: &[Asked<'_>], one: Asked<'_>, found: &mut Vec<Violation>) {
    match (&one.op.ask, one.answer) {
        (_, Some(ItemAnswer::Conflict)) => {
            let other =
                |other: &&Asked<'_>| other.op.ask != one.op.ask && other.perhaps_done() && other.from <= one.over;
            let same = |other: &&Asked<'_>| other.op.ask == one.op.ask && other.told().is_some();
            if let Some(same) = asked.iter().find(same) {
                found.push(one.report("false-conflict", format_args!("I{} was told an outcome", same.number)));
            } else if !asked.iter().any(|known| other(&known)) {
                found.push(one.report("false-conflict", "no other request had this id"));
            }
        }
        (ItemAsk::Release { foreign: true, .. }, Some(answer))
            if *answer != ItemAnswer::Refused("unknown_quarantine") =>
        {
            found.push(one.report("tenant", "the stay is another partner's"));
        }
        _ => {}
    }
}

// An answer that was heard is the one that is kept.
fn kept(book: &Book<'_>, key: &str, one: Asked<'_>, found: &mut Vec<Violation>) {
    let (Some(left), Some((_, text))) = (book.left, one.told()) else { return };
    if one.over < left.line && left.answers.get(key).is_none_or(|kept| kept != text) {
        found.push(one.report("lost-answer", format_args!("{:?} is kept", left.answers.get(key))));
    }
}

// A dry run leaves nothing behind.
fn dry_runs(book: &Book<'_>, found: &mut Vec<Violation>) {
    let Some(left) = book.left else { return };
    let mut tags: BTreeMap<u64, bool> = BTreeMap::new();
    for asked in book.asked.iter().filter(|asked| asked.op.outcome != ItemOutcome::NotApplied) {
        let (items, tried) = match &asked.op.ask {
            ItemAsk::Send(items) => (items, false),
            ItemAsk::Try(items) => (items, true),
            _ => continue,
        };
        for item in items {
            *tags.entry(item.tag).or_insert(true) &= tried;
        }
    }
    let tried: BTreeSet<u64> = tags.into_iter().filter(|(_, tried)| *tried).map(|(tag, _)| tag).collect();
    let accepted = left.items.values().flat_map(|item| item.versions.values()).filter_map(|version| version.tag);
    let quarantined = left.stays.values().filter_map(|stay| stay.tag);
    for tag in accepted.chain(quarantined).filter(|tag| tried.contains(tag)) {
        found.push(Violation { rule: "dry-run", what: format!("#{tag} was only tried, and is there") });
    }
}
