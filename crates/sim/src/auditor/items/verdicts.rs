//! Each verdict was true at some moment between question and answer: of the item's own version, and of what it refers to.

use std::collections::BTreeSet;

use super::{Book, full_name, lives::Event};
use crate::{
    auditor::Violation,
    history::items::{ItemAnswer, ItemAsk, ItemVerdict, SentItem},
};

pub(super) fn judge(book: &Book<'_>, found: &mut Vec<Violation>) {
    for done in &book.done {
        for (place, line) in done.lines.iter().enumerate() {
            let moment =
                Moment { book, tenant: done.tenant, from: done.from, to: done.to, me: Some((done.key, place)) };
            let wrong = match (done.item(place), &done.ask) {
                (Some(item), _) => moment.sent(item, &line.verdict, &BTreeSet::new()),
                (None, ItemAsk::Delete { name }) => moment.deleted(name, &line.verdict),
                _ => None,
            };
            if let Some((rule, what)) = wrong {
                found.push(done.report(rule, line, what));
            }
        }
    }
    for asked in &book.asked {
        let moment = Moment { book, tenant: asked.op.tenant, from: asked.from, to: asked.over, me: None };
        match (&asked.op.ask, asked.answer) {
            (ItemAsk::Try(items), Some(ItemAnswer::Tried(lines))) => {
                // Those before it in the list count, although they are nowhere.
                let mut assumed = BTreeSet::new();
                for (place, (item, line)) in items.iter().zip(lines).enumerate() {
                    let mut before = items[..place].iter().zip(lines);
                    let mixed = before.any(|(other, line)| {
                        other.name == item.name
                            && matches!(line.verdict, ItemVerdict::Quarantined { .. })
                            && other.version.zip(item.version).is_some_and(|(other, own)| other.form != own.form)
                    });
                    let is_told = mixed && line.verdict == ItemVerdict::Rejected;
                    if let Some((rule, what)) = moment.sent(item, &line.verdict, &assumed).filter(|_| !is_told) {
                        found.push(asked.report(rule, what));
                    }
                    if line.verdict == ItemVerdict::Accepted {
                        assumed.insert(item.name.as_str());
                    }
                }
            }
            (ItemAsk::Delete { name }, Some(ItemAnswer::Refused("no_such_item")))
                if moment.certainly_accepted(name) =>
            {
                found.push(asked.report("lost-item", "it had been accepted"));
            }
            _ => {}
        }
    }
    released(book, found);
}

// An item that left quarantine had all that it refers to.
fn released(book: &Book<'_>, found: &mut Vec<Violation>) {
    for (name, life) in &book.lives {
        for event in life.events.iter().filter(|event| event.active && event.by.is_none()) {
            let Some((tenant, item)) = event.accepted.tag.and_then(|tag| book.sent.get(&tag)) else { continue };
            let moment = Moment { book, tenant, from: event.lo, to: event.hi, me: None };
            if !moment.any(&item.refs, |_| true) {
                let what = format!("{name} was released as {:?} without {:?}", event.accepted, item.refs);
                found.push(Violation { rule: "unresolved-accepted", what });
            }
        }
    }
}

/// Some moment between two lines, as a request saw it.
struct Moment<'b, 'h> {
    book: &'b Book<'h>,
    tenant: &'b str,
    from: usize,
    to: usize,
    /// The request, and the place in it.
    me: Option<(&'h str, usize)>,
}

impl<'h> Moment<'_, 'h> {
    fn events(&self, name: &str) -> &[Event<'h>] {
        self.book.lives.get(full_name(self.tenant, name).as_str()).map_or(&[], |life| &life.events)
    }

    /// How many steps of an item's life may have been over between two lines.
    fn counts(&self, events: &[Event<'h>], from: usize, to: usize) -> impl Iterator<Item = usize> {
        let own = |event: &Event<'h>| match (event.by, self.me) {
            (Some((by, place)), Some((me, mine))) if by == me => Some(place < mine),
            _ => None,
        };
        let possible = |count: &usize| {
            let (before, after) = events.split_at(*count);
            before.last().is_none_or(|last| last.lo <= to)
                && after.first().is_none_or(|next| next.hi >= from)
                && before.iter().all(|event| own(event) != Some(false))
                && after.iter().all(|event| own(event) != Some(true))
        };
        (0..=events.len()).filter(possible).collect::<Vec<_>>().into_iter()
    }

    /// Whether each of some items may have been there, or not been there, all at one moment.
    fn any(&self, names: &[String], is_there: impl Fn(&str) -> bool) -> bool {
        let begins = names.iter().flat_map(|name| self.events(name)).map(|event| event.lo);
        let begins = begins.filter(|lo| (self.from..=self.to).contains(lo));
        std::iter::once(self.from).chain(begins).any(|at| {
            names.iter().all(|name| {
                let events = self.events(name);
                self.counts(events, at, at).any(|count| {
                    let active = count.checked_sub(1).is_some_and(|last| events[last].active);
                    active == is_there(name)
                })
            })
        })
    }

    fn certainly_accepted(&self, name: &str) -> bool {
        self.events(name).first().is_some_and(|first| first.hi < self.from)
    }

    fn sent(
        &self,
        item: &SentItem,
        verdict: &ItemVerdict,
        assumed: &BTreeSet<&str>,
    ) -> Option<(&'static str, &'static str)> {
        if item.malformed {
            let is_rejected = *verdict == ItemVerdict::Rejected;
            return (!is_rejected).then_some(("malformed", "it lacks what its collection asks for"));
        }
        if !assumed.contains(item.name.as_str()) && !self.by_version(item, verdict) {
            let rule = if matches!(verdict, ItemVerdict::Replay { .. }) { "false-replay" } else { "item-order" };
            return Some((rule, "its version asks for another verdict"));
        }
        let refs: Vec<String> = item.refs.iter().filter(|name| !assumed.contains(name.as_str())).cloned().collect();
        match verdict {
            ItemVerdict::Accepted => (!self.any(&refs, |_| true))
                .then_some(("unresolved-accepted", "what it refers to was never there at one moment")),
            ItemVerdict::Quarantined { missing, .. } => {
                let true_once = !missing.is_empty()
                    && missing.iter().all(|name| refs.contains(name))
                    && self.any(&refs, |name| !missing.iter().any(|missing| missing == name));
                (!true_once).then_some(("false-quarantine", "just these were never missing at one moment"))
            }
            _ => None,
        }
    }

    // Whether a verdict follows from the versions at some moment.
    fn by_version(&self, item: &SentItem, verdict: &ItemVerdict) -> bool {
        let events = self.events(&item.name);
        let own = item.version.map(|version| (version.form, version.rank));
        let by_accepted = |count: usize| {
            let accepted = || events[..count].iter().rev().filter(|event| event.active);
            let highest = accepted().find_map(|event| self.book.version_of(event.accepted.tag));
            let ((form, rank), (highest_form, highest_rank)) = own.zip(highest)?;
            if form != highest_form {
                return Some(ItemVerdict::Rejected);
            }
            let present = accepted().next();
            let differs = present.is_some_and(|present| {
                self.book.version_of(present.accepted.tag) == own && present.accepted.content != item.content
            });
            (rank <= highest_rank).then_some(ItemVerdict::Replay { differs })
        };
        let expected: Vec<Option<ItemVerdict>> = self.counts(events, self.from, self.to).map(by_accepted).collect();
        match verdict {
            ItemVerdict::Replay { .. } => expected.contains(&Some(verdict.clone())),
            ItemVerdict::Rejected => expected.contains(&Some(ItemVerdict::Rejected)) || self.mixed_with_stay(item),
            _ => expected.contains(&None),
        }
    }

    // Whether a version of another form may have been in quarantine.
    fn mixed_with_stay(&self, item: &SentItem) -> bool {
        let name = full_name(self.tenant, &item.name);
        let mut stays = self.book.quarantines(&name).filter(|(done, ..)| done.from <= self.to);
        stays.any(|(_, line, _)| {
            let kept = self.book.version_of(line.tag);
            kept.zip(item.version).is_some_and(|((form, _), version)| form != version.form)
        })
    }

    fn deleted(&self, name: &str, verdict: &ItemVerdict) -> Option<(&'static str, &'static str)> {
        let retired = || self.events(name).iter().any(|event| !event.active && event.lo <= self.to);
        match verdict {
            ItemVerdict::Retired { withdrawn: true, .. } if self.certainly_accepted(name) => {
                Some(("lost-item", "it had been accepted"))
            }
            ItemVerdict::Retired { withdrawn: false, .. } if !retired() => {
                Some(("lost-item", "nothing of it ever ended"))
            }
            _ => None,
        }
    }
}
