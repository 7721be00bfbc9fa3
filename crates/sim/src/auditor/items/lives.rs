//! The life of each item as its history tells it at the end, and which request each step belongs to: every accepted item is
//! there once, nothing is there that no answer names, and versions only rise.

use std::collections::{BTreeMap, BTreeSet};

use super::{Book, Done, full_name};
use crate::{
    auditor::Violation,
    history::items::{Acceptance, ItemAsk, ItemVerdict, ItemsLeft, ShownItem},
};

/// An item that was accepted at some time.
pub(super) struct Life<'h> {
    pub(super) item: &'h ShownItem,
    /// Acceptances and retirements in their order.
    pub(super) events: Vec<Event<'h>>,
}

/// A step in the life of an item, at some moment between two lines.
pub(super) struct Event<'h> {
    pub(super) accepted: &'h Acceptance,
    /// Whether it makes the item count; otherwise it counts no more.
    pub(super) active: bool,
    pub(super) lo: usize,
    pub(super) hi: usize,
    /// The request whose commit it was, and the place in it; none where an item was released.
    pub(super) by: Option<(&'h str, usize)>,
}

pub(super) fn lives<'h>(
    book: &Book<'h>,
    left: &'h ItemsLeft,
    found: &mut Vec<Violation>,
) -> BTreeMap<&'h str, Life<'h>> {
    let done: BTreeMap<&'h str, usize> = book.done.iter().enumerate().map(|(at, done)| (done.key, at)).collect();
    let mut reader = Reader { book, done, used: BTreeSet::new(), stays: BTreeSet::new(), found };
    let mut lives = BTreeMap::new();
    for (name, item) in &left.items {
        let mut life = Life { item, events: reader.events(name, item) };
        in_order(book, name, &mut life, reader.found);
        lives.insert(name.as_str(), life);
    }
    reader.unused();
    for doubled in &left.doubled {
        reader.report("item-history", format!("{doubled} is there twice"));
    }
    lives
}

struct Reader<'b, 'h> {
    book: &'b Book<'h>,
    done: BTreeMap<&'h str, usize>,
    /// Lines of answers that a step belongs to.
    used: BTreeSet<(usize, usize)>,
    /// Stays that ended with a release.
    stays: BTreeSet<(String, u64)>,
    found: &'b mut Vec<Violation>,
}

impl<'h> Reader<'_, 'h> {
    fn report(&mut self, rule: &'static str, what: String) {
        self.found.push(Violation { rule, what });
    }

    fn events(&mut self, name: &'h str, item: &'h ShownItem) -> Vec<Event<'h>> {
        let missing: Vec<u64> = (1..=item.seq).filter(|number| !item.versions.contains_key(number)).collect();
        let beyond = item.versions.keys().any(|number| *number == 0 || *number > item.seq);
        if !missing.is_empty() || beyond {
            let there: Vec<&u64> = item.versions.keys().collect();
            self.report("item-history", format!("{name} has {} versions, and {there:?} are there", item.seq));
        }
        let mut events = Vec::new();
        for accepted in item.versions.values() {
            self.intact(name, accepted);
            events.extend(self.accepted(name, accepted));
            if let Some(id) = &accepted.retired {
                events.extend(self.retired(name, accepted, id));
            }
        }
        events
    }

    // The bytes and the version are those that its own partner sent.
    fn intact(&mut self, name: &str, accepted: &Acceptance) {
        let Some((tenant, sent)) = accepted.tag.and_then(|tag| self.book.sent.get(&tag)) else {
            return self.report("tenant", format!("{name} has {accepted:?}, which nobody sent"));
        };
        if full_name(tenant, &sent.name) != name {
            return self.report("tenant", format!("{name} has what {tenant} sent as {}", sent.name));
        }
        if sent.content != accepted.content || sent.version != accepted.version {
            self.report("intact-item", format!("{name} was sent as {sent:?} and is kept as {accepted:?}"));
        }
    }

    fn request(&self, name: &str, id: &str) -> Option<(usize, &Done<'h>)> {
        let tenant = name.split('/').next().unwrap_or_default();
        let at = *self.done.get(full_name(tenant, id).as_str())?;
        Some((at, &self.book.done[at]))
    }

    fn accepted(&mut self, name: &'h str, accepted: &'h Acceptance) -> Option<Event<'h>> {
        let Some((at, done)) = self.request(name, &accepted.id) else {
            self.report("torn-request", format!("{name} has {accepted:?}, whose request has no answer"));
            return None;
        };
        let lines = done.lines.iter().enumerate();
        let mut same = lines.filter(|(_, line)| full_name(done.tenant, &line.name) == name && line.tag == accepted.tag);
        let direct = same
            .clone()
            .find(|(place, line)| line.verdict == ItemVerdict::Accepted && !self.used.contains(&(at, *place)));
        let (key, from, to) = (done.key, done.from, done.to);
        if let Some((place, _)) = direct {
            self.used.insert((at, place));
            let (lo, hi, by) = (from, to, Some((key, place)));
            return Some(Event { accepted, active: true, lo, hi, by });
        }
        let stay = same.find_map(|(_, line)| match line.verdict {
            ItemVerdict::Quarantined { number, .. } => Some(number),
            _ => None,
        });
        let Some(number) = stay else {
            self.report("torn-request", format!("{name} has {accepted:?}, and its answer does not say so"));
            return None;
        };
        if !self.stays.insert((name.to_owned(), number)) {
            self.report("released-twice", format!("{name} left the stay {number} again as {accepted:?}"));
        }
        let released = self.released_by(name, accepted);
        let (lo, hi) = released.map_or((from, usize::MAX), |(lo, hi)| (lo.max(from), hi));
        Some(Event { accepted, active: true, lo, hi, by: None })
    }

    // The request that released it, where no other step may belong to that.
    fn released_by(&mut self, name: &str, accepted: &Acceptance) -> Option<(usize, usize)> {
        let by_hand: Vec<(usize, usize)> = self
            .book
            .lines(name)
            .filter(|(done, _, line)| {
                matches!(done.ask, ItemAsk::Release { .. })
                    && line.tag == accepted.tag
                    && line.verdict == ItemVerdict::Accepted
            })
            .map(|(done, ..)| (done.from, done.to))
            .collect();
        let by_itself = self.book.auto_release.iter().any(|tenant| name.split('/').next() == Some(tenant));
        if by_hand.is_empty() && !by_itself {
            self.report("false-release", format!("nobody released {name}: {accepted:?}"));
        }
        let others = self.book.quarantines(name).filter(|(_, line, _)| line.tag == accepted.tag);
        let stays: BTreeSet<u64> = others.map(|(.., number)| number).collect();
        match by_hand[..] {
            [one] if stays.len() == 1 => Some(one),
            _ => None,
        }
    }

    fn retired(&mut self, name: &str, accepted: &'h Acceptance, id: &str) -> Option<Event<'h>> {
        let told = self.request(name, id).filter(|(_, done)| {
            matches!(&done.ask, ItemAsk::Delete { name: own } if full_name(done.tenant, own) == name)
                && matches!(done.lines[0].verdict, ItemVerdict::Retired { replay: false, withdrawn: false })
        });
        let Some((at, done)) = told else {
            self.report("torn-request", format!("{name} was retired by {id}, whose answer does not say so"));
            return None;
        };
        let (lo, hi, by) = (done.from, done.to, Some((done.key, 0)));
        self.used.insert((at, 0));
        Some(Event { accepted, active: false, lo, hi, by })
    }

    // Every acceptance that an answer names is there, and every deletion was one or found one.
    fn unused(&mut self) {
        for (at, done) in self.book.done.iter().enumerate() {
            let unused = done.lines.iter().enumerate().filter(|(place, _)| !self.used.contains(&(at, *place)));
            for (_, line) in unused {
                let name = full_name(done.tenant, &line.name);
                let is_there = match (&done.ask, &line.verdict) {
                    (ItemAsk::Send(_), ItemVerdict::Accepted) => false,
                    (ItemAsk::Release { .. }, ItemVerdict::Accepted) => {
                        self.stays.iter().any(|(released, _)| *released == name)
                    }
                    (ItemAsk::Delete { .. }, ItemVerdict::Retired { withdrawn: false, .. }) => {
                        let left = self.book.left.and_then(|left| left.items.get(&name));
                        left.is_some_and(|item| item.versions.values().any(|version| version.retired.is_some()))
                    }
                    _ => true,
                };
                if !is_there {
                    self.found.push(done.report("lost-item", line, "it is not in the item's history"));
                }
            }
        }
    }
}

// Versions rise, and the order of steps agrees with the order of requests.
fn in_order(book: &Book<'_>, name: &str, life: &mut Life<'_>, found: &mut Vec<Violation>) {
    let mut highest = None;
    for event in life.events.iter().filter(|event| event.active) {
        let Some(version) = book.version_of(event.accepted.tag) else { continue };
        if highest.is_some_and(|(form, rank)| form != version.0 || rank >= version.1) {
            let what = format!("{name} has {:?} after {highest:?}", event.accepted);
            found.push(Violation { rule: "item-order", what });
        }
        highest = Some(version);
    }
    let events = &mut life.events;
    for at in 1..events.len() {
        events[at].lo = events[at].lo.max(events[at - 1].lo);
    }
    for at in (1..events.len()).rev() {
        events[at - 1].hi = events[at - 1].hi.min(events[at].hi);
    }
    for event in events.iter_mut().filter(|event| event.lo > event.hi) {
        let what = format!("{name} has {:?} at another place than its requests have", event.accepted);
        found.push(Violation { rule: "item-time", what });
        event.hi = event.lo;
    }
}
