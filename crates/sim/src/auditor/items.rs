//! Judges items: one outcome a request, a request and its items together, versions that never go down, and quarantines that
//! end when what was missing is there.
//! Never judges requests after a failover that was declared to lose acknowledged ones. Called by `auditor`.

mod answers;
mod lives;
mod reads;
mod stays;
mod verdicts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{Violation, over_at};
use crate::history::{
    History,
    items::{
        ItemAnswer, ItemAsk, ItemOp, ItemOutcome, ItemVerdict, ItemsLeft, SentItem, VerdictLine, VersionForm,
        read_lines,
    },
};
use lives::Life;

pub(super) fn judge(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let book = Book::new(history, &mut found);
    answers::judge(&book, &mut found);
    reads::judge(&book, &mut found);
    if let Some(left) = book.left {
        verdicts::judge(&book, &mut found);
        stays::judge(&book, left, &mut found);
    }
    found
}

/// Everything that is known of items, up to the first declared loss.
struct Book<'h> {
    asked: Vec<Asked<'h>>,
    /// Requests that had their effect, as far as the items at the end tell.
    done: Vec<Done<'h>>,
    /// Every content, by its tag, with the partner that sent it.
    sent: BTreeMap<u64, (&'static str, &'h SentItem)>,
    /// Every item that was ever accepted; none where the end is not known.
    lives: BTreeMap<&'h str, Life<'h>>,
    left: Option<&'h ItemsLeft>,
    auto_release: &'h BTreeSet<&'static str>,
    /// Where requests for a change under one id stand in the list of all.
    by_key: BTreeMap<String, Vec<usize>>,
    /// Where lines about an item stand: the request, and the place in its answer.
    by_name: BTreeMap<String, Vec<(usize, usize)>>,
}

/// A request with its number, once for each time that it was sent.
#[derive(Clone, Copy)]
struct Asked<'h> {
    number: usize,
    op: &'h ItemOp,
    /// It can have had no effect before this line.
    from: usize,
    /// And none after this one.
    over: usize,
    /// None where a later loss may have undone it, too.
    answer: Option<&'h ItemAnswer>,
}

/// A request that had its effect, once, at some moment between two lines.
struct Done<'h> {
    key: &'h str,
    tenant: &'static str,
    ask: &'h ItemAsk,
    lines: Vec<VerdictLine>,
    from: usize,
    to: usize,
}

impl<'h> Book<'h> {
    fn new(history: &'h History, found: &mut Vec<Violation>) -> Self {
        let items = &history.items;
        let lost_from = history.losses.first().map_or(usize::MAX, |loss| loss.to_line);
        let all = items.ops.iter().enumerate().filter(|(_, op)| op.invoked.line < lost_from);
        let asked: Vec<Asked<'h>> = all.map(|(number, op)| Asked::new(history, number, op)).collect();
        let mut sent = BTreeMap::new();
        for one in &asked {
            if let ItemAsk::Send(list) | ItemAsk::Try(list) = &one.op.ask {
                sent.extend(list.iter().map(|item| (item.tag, (one.op.tenant, item))));
            }
        }
        let left = items.left.as_ref().filter(|_| history.losses.is_empty());
        let mut by_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, one) in asked.iter().enumerate().filter(|(_, one)| one.op.changes()) {
            by_key.entry(one.op.key()).or_default().push(at);
        }
        let (done, lives, by_name) = Default::default();
        let mut book = Self { asked, done, sent, lives, left, auto_release: &items.auto_release, by_key, by_name };
        if let Some(left) = left {
            book.done = book.done(left, found);
            for (at, done) in book.done.iter().enumerate() {
                for (place, line) in done.lines.iter().enumerate() {
                    let name = full_name(done.tenant, &line.name);
                    book.by_name.entry(name).or_default().push((at, place));
                }
            }
            book.lives = lives::lives(&book, left, found);
        }
        book
    }

    // The answers that are kept say what had an effect, also where no sender heard.
    fn done(&self, left: &'h ItemsLeft, found: &mut Vec<Violation>) -> Vec<Done<'h>> {
        let mut done = Vec::new();
        for (key, text) in &left.answers {
            let lines = read_lines(text);
            let same = self.changing(key).filter(|asked| asked.perhaps_done() && fits(&asked.op.ask, &lines));
            let same: Vec<&Asked<'h>> = same.filter(|asked| self.released_after_sent(asked, &lines)).collect();
            let Some(first) = same.iter().min_by_key(|asked| asked.from) else {
                let rule = if self.changing(key).next().is_some() { "torn-request" } else { "dry-run" };
                found.push(Violation { rule, what: format!("{key} was never asked for: {text:?}") });
                continue;
            };
            let told = same.iter().filter(|asked| asked.told().is_some()).map(|asked| asked.over).min();
            let to = told.or_else(|| same.iter().map(|asked| asked.over).max()).unwrap_or(usize::MAX);
            done.push(Done { key, tenant: first.op.tenant, ask: &first.op.ask, lines, from: first.from, to });
        }
        done
    }

    // The id of a release that came to nothing may be used for sending the very item: its answer is not the release's.
    fn released_after_sent(&self, asked: &Asked<'h>, lines: &[VerdictLine]) -> bool {
        let sent_before = |tag: u64| {
            let mut sendings = self.asked.iter().filter(|sending| sending.from <= asked.over);
            sendings.any(
                |sending| matches!(&sending.op.ask, ItemAsk::Send(items) if items.iter().any(|item| item.tag == tag)),
            )
        };
        !matches!(asked.op.ask, ItemAsk::Release { .. }) || lines.iter().filter_map(|line| line.tag).all(sent_before)
    }

    /// Requests for a change under one id.
    fn changing(&self, key: &str) -> impl Iterator<Item = &Asked<'h>> {
        self.by_key.get(key).into_iter().flatten().map(|at| &self.asked[*at])
    }

    /// The lines of requests about an item, with their places.
    fn lines(&self, name: &str) -> impl Iterator<Item = (&Done<'h>, usize, &VerdictLine)> {
        let places = self.by_name.get(name).into_iter().flatten();
        places.map(|(at, place)| (&self.done[*at], *place, &self.done[*at].lines[*place]))
    }

    /// The lines that put an item into quarantine, with the number of the stay.
    fn quarantines(&self, name: &str) -> impl Iterator<Item = (&Done<'h>, &VerdictLine, u64)> {
        self.lines(name).filter_map(|(done, _, line)| match (&done.ask, &line.verdict) {
            (ItemAsk::Send(_), ItemVerdict::Quarantined { number, .. }) => Some((done, line, *number)),
            _ => None,
        })
    }

    fn version_of(&self, tag: Option<u64>) -> Option<(VersionForm, u64)> {
        let version = self.sent.get(&tag?)?.1.version?;
        Some((version.form, version.rank))
    }
}

impl<'h> Asked<'h> {
    fn new(history: &'h History, number: usize, op: &'h ItemOp) -> Self {
        let over = over_at(&history.run_ends, op.run, op.closed, op.outcome == ItemOutcome::Maybe);
        let lost = history
            .losses
            .iter()
            .any(|loss| op.invoked.line < loss.to_line && op.closed.is_some_and(|closed| closed.line > loss.from_line));
        let answer = match &op.outcome {
            ItemOutcome::Answered(answer) if !lost => Some(answer),
            _ => None,
        };
        // A node that was declared to read from an old primary answers from rows as old as the failover.
        let old = history.old_reads.iter().filter(|reads| {
            reads.node == (op.run, op.node) && reads.from_line <= over && op.invoked.line <= reads.to_line
        });
        let from = old.map(|reads| reads.from_line).min().unwrap_or(usize::MAX).min(op.invoked.line);
        Self { number, op, from, over, answer }
    }

    fn perhaps_done(&self) -> bool {
        match self.answer {
            Some(answer) => matches!(answer, ItemAnswer::Told { .. }),
            None => self.op.outcome != ItemOutcome::NotApplied,
        }
    }

    fn told(&self) -> Option<(bool, &'h str)> {
        match self.answer {
            Some(ItemAnswer::Told { replay, text }) => Some((*replay, text)),
            _ => None,
        }
    }

    fn report(&self, rule: &'static str, what: impl fmt::Display) -> Violation {
        let Self { number, op, .. } = self;
        Violation { rule, what: format!("{} I{number} ({} -> {}): {what}", op.key(), op.ask, op.outcome) }
    }
}

impl Done<'_> {
    fn report(&self, rule: &'static str, line: &VerdictLine, what: impl fmt::Display) -> Violation {
        Violation { rule, what: format!("{} {line:?} between {} and {}: {what}", self.key, self.from, self.to) }
    }

    /// The item as it was sent in a place.
    fn item(&self, place: usize) -> Option<&SentItem> {
        if let ItemAsk::Send(items) = self.ask { items.get(place) } else { None }
    }
}

fn full_name(tenant: &str, name: &str) -> String {
    format!("{tenant}/{name}")
}

/// Whether an answer is one to this question.
fn fits(ask: &ItemAsk, lines: &[VerdictLine]) -> bool {
    match ask {
        ItemAsk::Send(items) | ItemAsk::Try(items) => {
            items.len() == lines.len()
                && items.iter().zip(lines).all(|(item, line)| {
                    item.name == line.name && (line.tag == Some(item.tag) || item.malformed && line.tag.is_none())
                })
        }
        ItemAsk::Delete { name } => {
            matches!(lines, [line] if line.name == *name && matches!(line.verdict, ItemVerdict::Retired { .. }))
        }
        ItemAsk::Release { name, .. } => matches!(lines, [line] if line.name == *name && line.tag.is_some()),
        ItemAsk::Read { .. } => false,
    }
}
