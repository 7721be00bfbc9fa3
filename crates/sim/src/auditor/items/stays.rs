//! Stays in quarantine: one open one an item, none lost, none that a higher version has overtaken, and none that goes on once
//! all that it waits for is there.

use super::{Book, Done, full_name};
use crate::{
    auditor::Violation,
    history::items::{ItemAsk, ItemVerdict, ItemsLeft, StayLeft},
};

pub(super) fn judge(book: &Book<'_>, left: &ItemsLeft, found: &mut Vec<Violation>) {
    for name in &left.arrivals {
        found.push(Violation { rule: "missed-arrival", what: format!("that {name} arrived was not followed up") });
    }
    for name in book.by_name.keys() {
        numbers(book, name, found);
        none_lost(book, left, name, found);
    }
    for (name, stay) in &left.stays {
        let mut report = |rule, what: String| found.push(Violation { rule, what: format!("{name} {stay:?}: {what}") });
        let open = stay.resolved.is_none().then_some(stay.number);
        if open != left.open.get(name).copied() {
            report("one-quarantine", format!("the item has {:?} open", left.open.get(name)));
        }
        if stay.resolved.is_none() {
            if let Some(why) = wrong_content(book, name, stay) {
                report("quarantine-order", why);
            }
            if overtaken(book, name, stay) {
                report("one-quarantine", "its version is not above the accepted one".to_owned());
            }
            if missed(book, name, stay) {
                report("missed-arrival", "all that it refers to is there".to_owned());
            }
        }
    }
    waiting(left, found);
}

// A later stay has a higher number, and another one begins only when the one before it ended.
fn numbers(book: &Book<'_>, name: &str, found: &mut Vec<Violation>) {
    for (first, _, number) in book.quarantines(name) {
        for (second, line, next) in book.quarantines(name).filter(|(second, ..)| first.to < second.from) {
            if next < number {
                found.push(second.report("one-quarantine", line, format_args!("{} had {number}", first.key)));
            } else if next > number && !may_end(book, name, first, second.to) {
                found.push(second.report("one-quarantine", line, format_args!("{number} of {} is open", first.key)));
            }
        }
    }
}

// Whether something may have ended a stay between a request and a line.
fn may_end(book: &Book<'_>, name: &str, since: &Done<'_>, until: usize) -> bool {
    let accepted = book.lives.get(name).is_some_and(|life| {
        life.events.iter().any(|event| event.active && event.hi >= since.from && event.lo <= until)
    });
    let mut withdrawn = book.lines(name).filter(|(done, _, line)| {
        let ends = match done.ask {
            ItemAsk::Delete { .. } => matches!(line.verdict, ItemVerdict::Retired { .. }),
            ItemAsk::Release { .. } => matches!(line.verdict, ItemVerdict::Replay { .. }),
            _ => false,
        };
        ends && done.to >= since.from && done.from <= until
    });
    accepted || withdrawn.next().is_some()
}

fn none_lost(book: &Book<'_>, left: &ItemsLeft, name: &str, found: &mut Vec<Violation>) {
    let stay = left.stays.get(name);
    for (done, line, number) in book.quarantines(name) {
        let is_open = stay.is_some_and(|stay| stay.number == number && stay.resolved.is_none());
        if stay.is_some_and(|stay| stay.number < number) || !(is_open || may_end(book, name, done, usize::MAX)) {
            found.push(done.report("lost-quarantine", line, format_args!("{stay:?} is left of it")));
        }
    }
    let ended = |line: &ItemVerdict| *line == ItemVerdict::AlreadyResolved;
    for (done, _, line) in book.lines(name).filter(|(.., line)| ended(&line.verdict)) {
        let ItemAsk::Release { number, .. } = done.ask else { continue };
        if stay.is_some_and(|stay| stay.number == *number && stay.resolved.is_none()) {
            found.push(done.report("lost-quarantine", line, "the stay is open"));
        }
    }
}

// It is what an answer says, and the highest of the versions in that stay.
fn wrong_content(book: &Book<'_>, name: &str, stay: &StayLeft) -> Option<String> {
    let mut versions = Vec::new();
    let mut is_told = false;
    for (done, line, _) in book.quarantines(name).filter(|(.., number)| *number == stay.number) {
        versions.push(book.version_of(line.tag));
        is_told |= line.tag == stay.tag && done.key == full_name(done.tenant, &stay.id);
    }
    if !is_told {
        return Some("no answer says so".to_owned());
    }
    let ranks: Option<Vec<u64>> = versions.iter().map(|version| version.map(|(_, rank)| rank)).collect();
    let highest = ranks?.into_iter().max()?;
    let own = book.version_of(stay.tag)?.1;
    (own < highest).then(|| format!("{highest} was in that stay, too"))
}

fn overtaken(book: &Book<'_>, name: &str, stay: &StayLeft) -> bool {
    let Some(own) = book.version_of(stay.tag) else { return false };
    let events = book.lives.get(name).map_or(&[][..], |life| &life.events);
    events
        .iter()
        .filter(|event| event.active)
        .filter_map(|event| book.version_of(event.accepted.tag))
        .any(|accepted| accepted.0 == own.0 && accepted.1 >= own.1)
}

// INVARIANT no-missed-arrival: where items are released by themselves, none waits for what is there.
fn missed(book: &Book<'_>, name: &str, stay: &StayLeft) -> bool {
    let Some((tenant, item)) = stay.tag.and_then(|tag| book.sent.get(&tag)) else { return false };
    let is_active = |missing: &String| {
        let life = book.lives.get(full_name(tenant, missing).as_str());
        life.and_then(|life| life.events.last()).is_some_and(|last| last.active)
    };
    book.auto_release.contains(tenant) && name.starts_with(tenant) && item.refs.iter().all(is_active)
}

// A missing item has a row for each item that waits for it, and no other.
fn waiting(left: &ItemsLeft, found: &mut Vec<Violation>) {
    let open = left.stays.iter().filter(|(_, stay)| stay.resolved.is_none());
    let expected = open.flat_map(|(name, stay)| stay.missing.iter().map(|missing| (missing.clone(), name.clone())));
    let expected = expected.collect();
    for (missing, name) in left.waiting.symmetric_difference(&expected) {
        let known = left.waiting.contains(&(missing.clone(), name.clone()));
        found.push(Violation { rule: "waiting", what: format!("{name} waits for {missing}, known there: {known}") });
    }
}
