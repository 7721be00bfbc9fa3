//! Judges answers about no single key: the list of doubts shows every doubt that was reported before, and a name leads
//! to the effect that was last put under it. Never takes a full page for a whole list. Called by `auditor`.

use std::collections::BTreeMap;

use super::{Entry, File, Violation, before, doubts, perhaps_before, perhaps_done};
use crate::history::{Ask, History, List, Lookup, ObservedAnswer, Op, RequestOutcome, key_name};

pub(super) fn judge(history: &History, files: &BTreeMap<&str, File<'_>>) -> Vec<Violation> {
    let mut found = Vec::new();
    for list in history.lists.iter().filter(|list| !list.full && list.op.outcome != RequestOutcome::Maybe) {
        for file in files.values().filter(|file| !list.shown.contains(&file.key)) {
            missing(files, file, list, &mut found);
        }
    }
    for lookup in history.lookups.iter().filter(|lookup| lookup.op.outcome != RequestOutcome::Maybe) {
        found.extend(misled(history, files, lookup));
    }
    found
}

// Asked after everything else, in the order of requests: it is none of them.
fn question(op: &Op) -> Entry<'_> {
    Entry { id: usize::MAX, op }
}

// A doubt that was told of before the list was asked for, and that nothing can have ended since.
fn missing(files: &BTreeMap<&str, File<'_>>, file: &File<'_>, list: &List, found: &mut Vec<Violation>) {
    let first = files.get(key_name(&file.key, Some(1)).as_str());
    let base = file.key.strip_suffix("#1").and_then(|base| files.get(base));
    let asked = question(&list.op);
    for by in doubts::told(file, base, first) {
        let Some(ObservedAnswer::InDoubt { since }) = by.op.answer() else { continue };
        // The list goes by the clock of the node that was asked, which may be behind: its question is dated by that.
        let over = *since <= list.op.invoked.at;
        if over && before(file.history, by, asked) && !doubts::ended(file, by, asked) {
            let line = list.op.invoked.line;
            found.push(file.report("listed-doubt", by, format_args!("the list asked for at line {line} lacks it")));
        }
    }
}

// A name leads to the latest put that was acknowledged before it was asked for, or to one that may have come after that.
fn misled(history: &History, files: &BTreeMap<&str, File<'_>>, lookup: &Lookup) -> Option<Violation> {
    let asked = question(&lookup.op);
    let of_name = |op: &Op| {
        matches!(&op.ask, Ask::Alias { name } if *name == lookup.name)
            && op.base.split('/').next() == Some(lookup.tenant.as_str())
    };
    let puts: Vec<Entry<'_>> = history
        .ops
        .iter()
        .enumerate()
        .filter(|(_, op)| of_name(op))
        .map(|(id, op)| Entry { id, op })
        .filter(|put| perhaps_before(history, *put, asked))
        .collect();
    let acknowledged = |put: &Entry<'_>| matches!(put.op.answer(), Some(ObservedAnswer::Aliased { .. }));
    let known = || puts.iter().filter(|put| acknowledged(put) && before(history, **put, asked));
    let explained = match &lookup.shown {
        None => known().next().is_none(),
        Some((effect, receipt)) => puts.iter().any(|put| match (&put.op.outcome, put.op.answer()) {
            (_, Some(ObservedAnswer::Aliased { effect: own, receipt: body })) => {
                own == effect && body == receipt && !known().any(|later| before(history, *put, *later))
            }
            (RequestOutcome::Maybe, _) => sealed(files, put, effect, receipt),
            _ => false,
        }),
    };
    let (tenant, name, line) = (&lookup.tenant, &lookup.name, lookup.op.invoked.line);
    let what = || format!("{tenant}/{name} asked for at line {line} leads to {:?}", lookup.shown);
    (!explained).then(|| Violation { rule: "name", what: what() })
}

// Whether the key that was perhaps named may have been sealed so.
fn sealed(files: &BTreeMap<&str, File<'_>>, put: &Entry<'_>, effect: &str, receipt: &str) -> bool {
    files.get(put.op.key().as_str()).is_some_and(|file| {
        file.entries.iter().filter(|entry| perhaps_done(entry.op)).any(|entry| match &entry.op.ask {
            Ask::Seal { effect: own, receipt: body, .. } | Ask::Resolve { sealed: Some((own, body)), .. } => {
                own == effect && body == receipt
            }
            _ => false,
        })
    })
}
