//! Judges receipts: one per key for its retention, byte for byte, for every caller and across every crash.
//! Never accepts a receipt that was not sealed, or one past its time. Called by `auditor`.

use super::{Entry, File, Violation, before, closed_at, perhaps_before, perhaps_done, shown};
use crate::history::{Ask, ObservedAnswer};

/// A receipt that a caller got.
struct Fact<'h> {
    by: Entry<'h>,
    token: Option<u64>,
    effect: &'h str,
    receipt: &'h str,
    /// It was sealed no earlier than the first and no later than the second.
    at: (u64, u64),
    /// It expires no earlier than this.
    expires_min: u64,
    /// How far behind the clock may have been that dated it.
    skew_ms: u64,
}

pub(super) fn judge(file: &File<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let facts: Vec<Fact<'_>> = file.entries.iter().filter_map(|entry| fact(file, *entry)).collect();
    for fact in &facts {
        honest(file, fact, &mut found);
        for other in &facts {
            one_receipt(file, fact, other, &mut found);
        }
        for grant in &file.grants {
            if fact.token.is_some_and(|token| token < grant.token)
                && fact.at.1 <= grant.at
                && grant.at + if grant.attempt == 1 { 0 } else { fact.skew_ms.max(grant.by.op.skew_ms) }
                    < fact.expires_min
            {
                let what = format_args!("#{} was told of a receipt until {}", fact.by.id, fact.expires_min);
                found.push(file.report("retention", grant.by, what));
            }
        }
        for entry in &file.entries {
            if before(file.history, fact.by, *entry) && closed_at(entry.op) < fact.expires_min {
                lasting(file, fact, *entry, &mut found);
            }
        }
    }
    for entry in &file.entries {
        seal_conflict(file, *entry, &mut found);
        named(file, *entry, &mut found);
    }
    found
}

// A duplicate is told with the dates that it was sealed with.
fn fact<'h>(file: &File<'h>, by: Entry<'h>) -> Option<Fact<'h>> {
    let mut fact = told(file, by)?;
    let same = |entry: &&Entry<'_>| match &entry.op.ask {
        Ask::Seal { effect, receipt, .. } | Ask::Resolve { sealed: Some((effect, receipt)), .. } => {
            effect == fact.effect && receipt == fact.receipt
        }
        _ => false,
    };
    let skews = file.entries.iter().filter(same).map(|entry| entry.op.skew_ms);
    fact.skew_ms = skews.fold(by.op.skew_ms, u64::max);
    Some(fact)
}

fn told<'h>(file: &File<'h>, by: Entry<'h>) -> Option<Fact<'h>> {
    let skew_ms = by.op.skew_ms;
    match (&by.op.ask, by.op.answer()?) {
        (Ask::Seal { token, effect, receipt }, ObservedAnswer::Sealed { at, expires, .. }) => {
            Some(Fact { by, token: Some(*token), effect, receipt, at: (*at, *at), expires_min: *expires, skew_ms })
        }
        (Ask::Claim { .. }, ObservedAnswer::Duplicate { token, effect, receipt, at, expires, .. }) => {
            Some(Fact { by, token: Some(*token), effect, receipt, at: (*at, *at), expires_min: *expires, skew_ms })
        }
        (Ask::Resolve { token, sealed: Some((effect, receipt)) }, ObservedAnswer::Resolved { replay: false }) => {
            let at = (by.op.invoked.at, closed_at(by.op));
            Some(Fact { by, token: *token, effect, receipt, at, expires_min: at.0 + file.rules.retain_ms, skew_ms })
        }
        _ => None,
    }
}

fn honest(file: &File<'_>, fact: &Fact<'_>, found: &mut Vec<Violation>) {
    let op = fact.by.op;
    // Where its claim was dated by a clock that was ahead, a receipt lasts until that date is past, so that no token comes again.
    let apart_ms = file.history.apart.iter().map(|apart| apart.ms + file.history.skew_ms).max().unwrap_or_default();
    let retained = |retain_ms: &u64| {
        let least = fact.at.0 + retain_ms;
        (least..=least + apart_ms).contains(&fact.expires_min)
    };
    if fact.at.0 == fact.at.1 && !file.rules.retains_ms.iter().any(retained) {
        found.push(file.report("retention", fact.by, "it does not expire one retention after its seal"));
    }
    if fact.at.0 > closed_at(op) {
        found.push(file.report("store-time", fact.by, "it was sealed after it was told of"));
    }
    match op.answer() {
        Some(ObservedAnswer::Sealed { replay: false, .. }) if fact.at.0 < op.invoked.at => {
            found.push(file.report("store-time", fact.by, "it was sealed before it was asked"));
        }
        Some(ObservedAnswer::Sealed { replay: true, .. } | ObservedAnswer::Duplicate { .. }) => {
            if fact.expires_min <= op.invoked.at {
                found.push(file.report("retention", fact.by, "the receipt had expired"));
            }
            let origin = file.entries.iter().any(|entry| {
                let written = match &entry.op.ask {
                    Ask::Seal { token, effect, receipt } => {
                        fact.token == Some(*token) && effect == fact.effect && receipt == fact.receipt
                    }
                    Ask::Resolve { sealed: Some((effect, receipt)), .. } => {
                        effect == fact.effect && receipt == fact.receipt
                    }
                    _ => false,
                };
                written
                    && perhaps_done(entry.op)
                    && perhaps_before(file.history, *entry, fact.by)
                    && fact.at.0 >= entry.op.invoked.at
            });
            if !origin {
                found.push(file.report("one-receipt", fact.by, "nobody sealed this"));
            }
        }
        _ => {}
    }
}

fn one_receipt(file: &File<'_>, fact: &Fact<'_>, other: &Fact<'_>, found: &mut Vec<Violation>) {
    let skew_ms = fact.skew_ms.max(other.skew_ms);
    let together =
        fact.by.id < other.by.id && fact.at.1 + skew_ms < other.expires_min && other.at.1 + skew_ms < fact.expires_min;
    let same_time = fact.at.0 <= other.at.1 && other.at.0 <= fact.at.1;
    if together && (fact.effect != other.effect || fact.receipt != other.receipt || !same_time) {
        found.push(file.report("one-receipt", other.by, format_args!("#{} was told of another", fact.by.id)));
    }
}

// Once a caller has got a receipt, everybody gets it until it expires.
fn lasting(file: &File<'_>, fact: &Fact<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let Some(answer) = entry.op.answer() else { return };
    let lasts = match &entry.op.ask {
        Ask::Claim { body, .. } => match answer {
            ObservedAnswer::Duplicate { effect, receipt, .. } => effect == fact.effect && receipt == fact.receipt,
            ObservedAnswer::Conflict { .. } => body.is_some(),
            _ => false,
        },
        Ask::Seal { token, effect, receipt } if fact.token == Some(*token) => {
            if effect == fact.effect && receipt == fact.receipt {
                matches!(answer, ObservedAnswer::Sealed { replay: true, .. })
            } else {
                *answer == ObservedAnswer::SealConflict
            }
        }
        Ask::Seal { .. } if fact.token.is_none() => !matches!(answer, ObservedAnswer::Sealed { replay: false, .. }),
        Ask::Seal { .. } | Ask::Renew { .. } | Ask::Release { .. } => {
            matches!(answer, ObservedAnswer::FencedOff { .. })
        }
        Ask::Resolve { .. } => !matches!(answer, ObservedAnswer::Resolved { replay: false }),
        Ask::Alias { .. } => {
            matches!(answer, ObservedAnswer::Aliased { effect, receipt } if effect == fact.effect && receipt == fact.receipt)
        }
        Ask::Forget { .. } => true,
        Ask::Look => matches!(answer, ObservedAnswer::Seen { phase: "sealed", .. }),
    };
    if !lasts {
        let what = format_args!("#{} was told of a receipt until {}", fact.by.id, fact.expires_min);
        found.push(file.report("lost-receipt", entry, what));
    }
}

// A name is given to nothing but a sealed effect.
fn named(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let Some(ObservedAnswer::Aliased { effect, receipt }) = entry.op.answer() else { return };
    let sealed = file.perhaps_before(entry).any(|other| {
        perhaps_done(other.op)
            && match &other.op.ask {
                Ask::Seal { effect: own, receipt: body, .. } => own == effect && body == receipt,
                Ask::Resolve { sealed: Some((own, body)), .. } => own == effect && body == receipt,
                _ => false,
            }
    });
    if !sealed {
        found.push(file.report("one-receipt", entry, "nobody sealed what it names"));
    }
}

// A holder is told that it contradicts itself only where it, or an operator for it, sealed something else before.
fn seal_conflict(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let Some(ObservedAnswer::SealConflict) = entry.op.answer() else { return };
    let said_else = file.perhaps_before(entry).any(|other| {
        perhaps_done(other.op)
            && match &other.op.ask {
                Ask::Seal { .. } => shown(&other.op.ask) == shown(&entry.op.ask) && other.op.ask != entry.op.ask,
                Ask::Resolve { sealed, .. } => sealed.is_some(),
                _ => false,
            }
    });
    if !said_else {
        found.push(file.report("seal-conflict", entry, "this token sealed nothing else"));
    }
}
