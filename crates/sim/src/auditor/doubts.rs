//! Judges final answers: a doubt ends with an outcome or a person's word, a refusal of a holder never ends, and the
//! first repetition of an effect does not run beside it. Never judges by dates where the order of lines decides. Called
//! by `auditor`.

use std::collections::BTreeMap;

use super::{Entry, File, Violation, before, claims, closed_at, leases, perhaps_before, perhaps_done, shown};
use crate::history::{Ask, ObservedAnswer, RequestOutcome, key_name};

pub(super) fn judge(files: &BTreeMap<&str, File<'_>>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files.values() {
        let first = files.get(key_name(&file.key, Some(1)).as_str());
        let base = file.key.strip_suffix("#1").and_then(|base| files.get(base));
        let told = told(file, base, first);
        for by in &told {
            for later in file.entries.iter().filter(|later| before(file.history, *by, **later)) {
                told_doubt(file, base, *by, *later, &mut found);
            }
            for later in first.iter().flat_map(|first| &first.entries) {
                if before(file.history, *by, *later) && shows_base(first, *later) && !ended(file, *by, *later) {
                    found.push(file.report("told-doubt", *later, format_args!("#{} was told of a doubt", by.id)));
                }
            }
        }
        for entry in &file.entries {
            final_refusal(file, *entry, &mut found);
            resolution(file, *entry, &mut found);
            current(file, *entry, &mut found);
        }
        for first in first.iter().flat_map(|first| &first.grants) {
            beside_base(file, first, &mut found);
        }
    }
    found
}

// Everyone who was told that the key is in doubt: also by asking for its first repetition.
pub(super) fn told<'h>(file: &File<'h>, base: Option<&File<'h>>, first: Option<&File<'h>>) -> Vec<Entry<'h>> {
    let doubt = |entry: &&Entry<'h>| {
        !matches!(entry.op.ask, Ask::Look) && matches!(entry.op.answer(), Some(ObservedAnswer::InDoubt { .. }))
    };
    // The first repetition is told of its own doubt and of that of the effect itself: only what is certain counts.
    let own = |entry: &Entry<'h>| !base.is_some_and(|base| explained_by(base, *entry));
    let mut told: Vec<Entry<'h>> = file.entries.iter().filter(doubt).copied().filter(own).collect();
    if let Some(first) = first {
        told.extend(first.entries.iter().filter(doubt).filter(|entry| !explained_by(first, **entry)));
    }
    told
}

fn explained_by(file: &File<'_>, entry: Entry<'_>) -> bool {
    let (Some(ObservedAnswer::InDoubt { since: end }) | Some(ObservedAnswer::InFlight { lease_expires: end })) =
        entry.op.answer()
    else {
        return false;
    };
    leases::reasons(file.history, &file.entries, entry, *end).next().is_some()
}

// Whether an answer about the first repetition shows the effect itself alive.
fn shows_base(first: Option<&File<'_>>, entry: Entry<'_>) -> bool {
    match entry.op.answer() {
        Some(ObservedAnswer::New { .. }) => true,
        Some(ObservedAnswer::InFlight { .. }) => first.is_some_and(|first| !explained_by(first, entry)),
        _ => false,
    }
}

// Whether an outcome or a person's word may have come between.
pub(super) fn ended<'h>(file: &File<'h>, told: Entry<'h>, later: Entry<'h>) -> bool {
    file.entries.iter().any(|other| {
        matches!(other.op.ask, Ask::Seal { .. } | Ask::Release { .. } | Ask::Resolve { .. })
            && perhaps_done(other.op)
            && !before(file.history, *other, told)
            && perhaps_before(file.history, *other, later)
    })
}

fn told_doubt(file: &File<'_>, base: Option<&File<'_>>, told: Entry<'_>, later: Entry<'_>, found: &mut Vec<Violation>) {
    let alive = match later.op.answer() {
        Some(ObservedAnswer::InFlight { .. }) => !base.is_some_and(|base| explained_by(base, later)),
        Some(ObservedAnswer::Renewed { .. } | ObservedAnswer::New { .. }) => true,
        // The same word again is answered as a repeat; that there is no doubt is not true.
        Some(ObservedAnswer::NotInDoubt) => match later.op.ask {
            Ask::Resolve { token: None, .. } => true,
            // Named by its token, it is about that attempt alone.
            Ask::Resolve { token, .. } => token.is_some() && latest(file, later) == token,
            _ => false,
        },
        _ => false,
    };
    if alive && !ended(file, told, later) {
        found.push(file.report("told-doubt", later, format_args!("#{} was told of a doubt", told.id)));
    }
}

// The latest attempt that a request may have met, where that is certain.
fn latest(file: &File<'_>, entry: Entry<'_>) -> Option<u64> {
    let mut claims = file.perhaps_before(entry).filter(|other| matches!(other.op.ask, Ask::Claim { .. }));
    let hidden = claims.any(|other| other.op.outcome == RequestOutcome::Maybe);
    let met = file.grants.iter().filter(|grant| perhaps_before(file.history, grant.by, entry));
    met.map(|grant| grant.token).max().filter(|_| !hidden)
}

// A holder that was refused is never let back in; told of a doubt, it may still report its outcome.
fn final_refusal(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let Some(token) = shown(&entry.op.ask) else { return };
    // After a declared loss the number of a grant whose answer was lost with it is given again, to another caller. And
    // an answer from an old primary may be older than the grant: then it refused no holder.
    if !file.grants.iter().any(|grant| grant.token == token && before(file.history, grant.by, entry)) {
        return;
    }
    let refused = match entry.op.answer() {
        Some(ObservedAnswer::FencedOff { .. }) => true,
        Some(ObservedAnswer::InDoubt { .. }) => false,
        _ => return,
    };
    for later in file.entries.iter().filter(|later| shown(&later.op.ask) == Some(token)) {
        let granted = match later.op.answer() {
            Some(ObservedAnswer::Renewed { .. }) => true,
            Some(ObservedAnswer::Sealed { replay: false, .. } | ObservedAnswer::Released { replay: false }) => refused,
            _ => false,
        };
        if granted && before(file.history, entry, *later) {
            found.push(file.report("final-refusal", *later, format_args!("#{} was refused", entry.id)));
        }
    }
}

// A person ends only what is a doubt: a claim under `hold` whose lease was over.
fn resolution(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    if let (Ask::Resolve { sealed, .. }, Some(ObservedAnswer::Resolved { replay: true })) =
        (&entry.op.ask, entry.op.answer())
        && !file.perhaps_before(entry).any(|other| {
            perhaps_done(other.op)
                && matches!(&other.op.ask, Ask::Resolve { sealed: said, .. } if said.is_some() == sealed.is_some())
        })
    {
        found.push(file.report("resolve-again", entry, "nobody said this before"));
    }
    let (Ask::Resolve { .. }, Some(ObservedAnswer::Resolved { replay: false })) = (&entry.op.ask, entry.op.answer())
    else {
        return;
    };
    let hidden = file
        .perhaps_before(entry)
        .any(|other| matches!(other.op.ask, Ask::Claim { .. }) && other.op.outcome == RequestOutcome::Maybe);
    let lapsed = file.grants.iter().any(|grant| {
        perhaps_before(file.history, grant.by, entry)
            && claims::lease_end_seen(file, grant, entry) <= closed_at(entry.op)
    });
    if !file.rules.may_hold || !(lapsed || hidden) {
        found.push(file.report("resolve", entry, "there was no doubt to resolve"));
    }
}

// The named holder held at some moment between question and answer; none is named only where none did.
fn current(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let Some(ObservedAnswer::FencedOff { current }) = entry.op.answer() else { return };
    let hidden = || {
        file.perhaps_before(entry)
            .any(|other| matches!(other.op.ask, Ask::Claim { .. }) && other.op.outcome == RequestOutcome::Maybe)
    };
    match current {
        Some(token) => {
            let given = file.grants.iter().find(|grant| grant.token == *token);
            let true_once = match given {
                Some(grant) => {
                    perhaps_before(file.history, grant.by, entry)
                        && !file.entries.iter().any(|other| {
                            before(file.history, *other, entry)
                                && match (&other.op.ask, other.op.answer()) {
                                    (Ask::Claim { .. }, Some(ObservedAnswer::New { token: newer, .. })) => {
                                        newer > token
                                    }
                                    (Ask::Seal { token: own, .. }, Some(ObservedAnswer::Sealed { .. }))
                                    | (Ask::Release { token: own }, Some(ObservedAnswer::Released { .. })) => {
                                        own == token
                                    }
                                    _ => false,
                                }
                        })
                }
                None => hidden(),
            };
            if !true_once || shown(&entry.op.ask) == Some(*token) {
                found.push(file.report("current-holder", entry, "this token did not hold the key then"));
            }
        }
        None => {
            let holder = file.grants.iter().find(|grant| {
                before(file.history, grant.by, entry)
                    && shown(&entry.op.ask) != Some(grant.token)
                    && !ended(file, grant.by, entry)
                    && (file.rules.hold
                        || closed_at(entry.op)
                            < claims::lease_end_seen(file, grant, entry).saturating_add(file.rules.retain_ms))
            });
            if let Some(holder) = holder {
                let what = format_args!("#{} held {}", holder.by.id, holder.token);
                found.push(file.report("current-holder", entry, what));
            }
        }
    }
}

// The first repetition follows the effect itself: it is never let in while that is pending or in doubt.
fn beside_base(base: &File<'_>, first: &super::Grant<'_>, found: &mut Vec<Violation>) {
    for grant in base.grants.iter().filter(|grant| before(base.history, grant.by, first.by)) {
        let lease_end = claims::lease_end_seen(base, grant, first.by);
        if (base.rules.hold || first.at < lease_end) && !ended(base, grant.by, first.by) {
            let what = format_args!("#{} holds the effect itself until {lease_end}", grant.by.id);
            found.push(base.report("again-base", first.by, what));
        }
    }
}
