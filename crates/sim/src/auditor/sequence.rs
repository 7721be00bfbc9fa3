//! Judges order across keys: versions of one source, and deliberate repetitions of one effect.
//! Never orders two requests that overlapped: only an acknowledgement that came before a question binds its answer.
//! Called by `auditor`.

use std::collections::BTreeMap;

use super::{Entry, File, Grant, Violation, before, claims, closed_at, perhaps_before, perhaps_done};
use crate::history::{Ask, History, ObservedAnswer, RequestOutcome, TEXTS, key_name};

pub(super) fn judge(history: &History, files: &BTreeMap<&str, File<'_>>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files.values() {
        for entry in &file.entries {
            match entry.op.seq {
                Some(seq) => repetition(files, file, *entry, seq, &mut found),
                None => version(history, files, file, *entry, &mut found),
            }
        }
    }
    found
}

fn version_of<'h>(entry: &Entry<'h>) -> Option<(&'h str, i64)> {
    match &entry.op.ask {
        Ask::Claim { version: Some((source, version)), .. } => Some((source, *version)),
        _ => None,
    }
}

/// The version that a claim counts as: its own, or the one that an earlier claim of the same life is known to have brought.
fn version_in_force<'h>(file: &File<'h>, entry: &Entry<'h>) -> Option<(&'h str, i64)> {
    let inherited = || file.grants.iter().find(|grant| grant.by.id == entry.id).and_then(|grant| brought(file, grant));
    version_of(entry).or_else(inherited)
}

/// The version of the fence under a grant, where its own claim or an earlier one of the same life brought it.
fn brought<'h>(file: &File<'h>, grant: &Grant<'h>) -> Option<(&'h str, i64)> {
    let earlier = |other: &&Grant<'h>| other.first_seen == grant.first_seen && other.token <= grant.token;
    file.grants.iter().filter(earlier).find_map(|other| version_of(&other.by))
}

/// Whether an answer says for certain that a version of this key is sealed. A key whose every claim carries a version cannot
/// be sealed without one; of any other the claim that was sealed must have brought it.
fn tells_sealed_version(file: &File<'_>, by: &Entry<'_>) -> bool {
    let token = match (&by.op.ask, by.op.answer()) {
        (Ask::Seal { token, .. }, Some(ObservedAnswer::Sealed { .. })) => Some(*token),
        (_, Some(ObservedAnswer::Duplicate { token, .. })) => Some(*token),
        (Ask::Resolve { sealed: Some(_), token, .. }, Some(ObservedAnswer::Resolved { replay: false })) => *token,
        _ => return false,
    };
    let claims = || file.entries.iter().filter(|entry| matches!(entry.op.ask, Ask::Claim { .. }));
    claims().all(|claim| version_of(claim).is_some())
        || file.grants.iter().any(|grant| Some(grant.token) == token && brought(file, grant).is_some())
}

// Nothing runs below a version that was acknowledged as sealed, and nothing is refused as stale without one.
fn version(
    history: &History,
    files: &BTreeMap<&str, File<'_>>,
    file: &File<'_>,
    entry: Entry<'_>,
    found: &mut Vec<Violation>,
) {
    let Some(answer) = entry.op.answer() else { return };
    let refused = matches!(answer, ObservedAnswer::Stale { .. } | ObservedAnswer::Incomparable { .. });
    // A refused claim without a version was an attempt at the version of one before it.
    let earlier = || file.perhaps_before(entry).find_map(|claim| version_of(&claim));
    let in_force = version_in_force(file, &entry).or_else(|| if refused { earlier() } else { None });
    let Some((source, version)) = in_force else {
        if refused {
            found.push(file.report("version-order", entry, "no claim of this key carried a version"));
        }
        return;
    };
    let floor = match answer {
        ObservedAnswer::New { .. } => version,
        ObservedAnswer::Stale { last } | ObservedAnswer::Incomparable { last } => *last,
        _ => return,
    };
    let comparable = |other: i64| (other < TEXTS) == (version < TEXTS);
    let mut explained = false;
    for other in files.values() {
        let Some((_, sealed)) = other.entries.iter().find_map(version_of).filter(|(of, _)| *of == source) else {
            continue;
        };
        if matches!(answer, ObservedAnswer::New { .. } | ObservedAnswer::Stale { .. })
            && comparable(sealed)
            && sealed > floor
            && other.entries.iter().any(|by| tells_sealed_version(other, by) && before(history, *by, entry))
        {
            found.push(file.report("version-order", entry, format_args!("{} was sealed before", other.key)));
        }
        explained |= sealed == floor
            && other.entries.iter().any(|by| {
                matches!(by.op.ask, Ask::Seal { .. } | Ask::Resolve { sealed: Some(_), .. })
                    && perhaps_done(by.op)
                    && perhaps_before(history, *by, entry)
            });
    }
    let out_of_order = match answer {
        ObservedAnswer::Stale { .. } => comparable(floor) && floor > version,
        ObservedAnswer::Incomparable { .. } => !comparable(floor),
        _ => return,
    };
    if !out_of_order || !explained {
        found.push(file.report("version-order", entry, "no seal explains why it is out of order"));
    }
}

// Repetition n+1 runs only when n is sealed; none runs again below the last; a gap is told of truly.
fn repetition(
    files: &BTreeMap<&str, File<'_>>,
    file: &File<'_>,
    entry: Entry<'_>,
    seq: u64,
    found: &mut Vec<Violation>,
) {
    let sibling = |seq: u64| files.get(key_name(&entry.op.base, Some(seq)).as_str());
    let (last_known, last_sealed) = last_known(files, entry);
    match entry.op.answer() {
        Some(ObservedAnswer::New { .. }) => {
            let earlier_sealed = seq == 1 || sibling(seq - 1).is_some_and(|file| sealed_perhaps(file, entry));
            if !earlier_sealed {
                found.push(file.report("again-gap", entry, "the one before was never sealed"));
            }
            if last_known > seq {
                found.push(file.report("again-order", entry, format_args!("{last_known} ran before")));
            }
        }
        Some(ObservedAnswer::Gap { last, sealed }) => {
            let claimed = *last == 0 || sibling(*last).is_some_and(|file| claimed_perhaps(file, entry));
            let next = seq == last + 1 && *sealed;
            if !claimed || next || *last < last_known || (*last == last_known && last_sealed && !sealed) {
                found.push(file.report("again-gap", entry, format_args!("the last known is {last_known}")));
            }
        }
        Some(ObservedAnswer::Stale { last }) => {
            let last = u64::try_from(*last).unwrap_or_default();
            if last < seq || last < last_known || !sibling(last).is_some_and(|file| claimed_perhaps(file, entry)) {
                found.push(file.report("again-order", entry, format_args!("the last known is {last_known}")));
            }
        }
        _ => {}
    }
}

fn sealed_perhaps<'h>(file: &File<'h>, entry: Entry<'h>) -> bool {
    file.perhaps_before(entry)
        .any(|by| perhaps_done(by.op) && matches!(by.op.ask, Ask::Seal { .. } | Ask::Resolve { sealed: Some(_), .. }))
}

fn claimed_perhaps<'h>(file: &File<'h>, entry: Entry<'h>) -> bool {
    file.perhaps_before(entry).any(|by| perhaps_done(by.op) && matches!(by.op.ask, Ask::Claim { .. }))
}

// The highest repetition that was surely claimed before and cannot be forgotten yet, and whether it was surely sealed.
fn last_known<'h>(files: &BTreeMap<&str, File<'h>>, entry: Entry<'h>) -> (u64, bool) {
    let siblings: Vec<&File<'h>> = files
        .values()
        .filter(|file| file.entries.iter().any(|by| by.op.base == entry.op.base && by.op.seq.is_some()))
        .collect();
    let grants = siblings.iter().flat_map(|file| file.grants.iter().map(move |grant| (*file, grant)));
    // The sequence is forgotten as a whole, one retention after the seal of its last repetition.
    let forgotten = |grant: &Grant<'h>| {
        siblings.iter().flat_map(|file| file.grants.iter().map(move |later| (file, later))).any(|(file, later)| {
            later.by.op.seq >= grant.by.op.seq
                && !before(file.history, later.by, grant.by)
                && claims::receipt_end_min(file, later, entry).is_some_and(|end| end <= closed_at(entry.op))
        }) || siblings.iter().any(|file| hidden_claim(file, grant, entry))
    };
    let remembered = grants.filter(|(file, grant)| before(file.history, grant.by, entry) && !forgotten(grant));
    let last = remembered.max_by_key(|(_, grant)| (grant.by.op.seq, grant.token));
    last.map_or((0, false), |(file, grant)| {
        let sealed = file.entries.iter().any(|by| {
            matches!((&by.op.ask, by.op.answer()), (Ask::Seal { token, .. }, Some(ObservedAnswer::Sealed { .. })) if *token == grant.token)
                && before(file.history, *by, entry)
        });
        (grant.by.op.seq.unwrap_or(0), sealed)
    })
}

// A claim may have been granted and sealed with both answers lost, and be forgotten since.
fn hidden_claim<'h>(file: &File<'h>, grant: &Grant<'h>, entry: Entry<'h>) -> bool {
    file.perhaps_before(entry).any(|by| {
        matches!(by.op.ask, Ask::Claim { .. })
            && by.op.outcome == RequestOutcome::Maybe
            && by.op.seq >= grant.by.op.seq
            && !before(file.history, by, grant.by)
    })
}
