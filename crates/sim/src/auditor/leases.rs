//! Judges replies about another caller's claim: `in_flight` and `in_doubt` must be true of some claim at some moment
//! between question and answer. Never accepts an answer from before an acknowledged write. Called by `auditor`.

use super::{Entry, File, Violation, before, closed_at, perhaps_before, perhaps_done, skew_ms};
use crate::history::{Ask, History, ObservedAnswer, RequestOutcome};

/// A claim or renewal that would explain the end of a lease.
pub(super) struct Reason<'h> {
    by: Entry<'h>,
    token: Option<u64>,
    /// When it was decided.
    at: u64,
}

pub(super) fn judge(file: &File<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in &file.entries {
        match entry.op.answer() {
            Some(ObservedAnswer::InFlight { lease_expires }) => {
                if *lease_expires <= entry.op.invoked.at {
                    found.push(file.report("in-flight", *entry, "the lease was over before it asked"));
                }
                explained(file, *entry, *lease_expires, "in-flight", &mut found);
            }
            Some(ObservedAnswer::InDoubt { since }) => {
                if *since > closed_at(entry.op) {
                    found.push(file.report("in-doubt", *entry, "the doubt lies ahead"));
                }
                explained(file, *entry, *since, "in-doubt", &mut found);
            }
            _ => {}
        }
    }
    found
}

fn explained(file: &File<'_>, entry: Entry<'_>, end: u64, rule: &'static str, found: &mut Vec<Violation>) {
    // The first repetition of an effect is told of the effect's own claim.
    let of_base = (entry.op.seq == Some(1)).then(|| of_base(file.history, &entry.op.base));
    for entries in std::iter::once(&file.entries).chain(of_base.as_ref()) {
        if reasons(file.history, entries, entry, end).any(|reason| holds(file.history, entries, &reason, entry, end)) {
            return;
        }
    }
    found.push(file.report(rule, entry, format_args!("no claim explains {end}")));
}

fn of_base<'h>(history: &'h History, base: &str) -> Vec<Entry<'h>> {
    let ops = history.ops.iter().enumerate();
    ops.filter(|(_, op)| op.seq.is_none() && op.base == base).map(|(id, op)| Entry { id, op }).collect()
}

pub(super) fn reasons<'e, 'h>(
    history: &'h History,
    entries: &'e [Entry<'h>],
    entry: Entry<'h>,
    end: u64,
) -> impl Iterator<Item = Reason<'h>> + use<'e, 'h> {
    entries.iter().copied().filter_map(move |by| {
        if !perhaps_before(history, by, entry) || !perhaps_done(by.op) {
            return None;
        }
        let (Ask::Claim { lease_ms, .. } | Ask::Renew { lease_ms, .. }) = by.op.ask else { return None };
        let at = end.checked_sub(lease_ms)?;
        let token = match (&by.op.ask, by.op.answer()) {
            (_, Some(ObservedAnswer::New { token, lease_expires, .. })) if *lease_expires == end => Some(*token),
            (Ask::Renew { token, .. }, Some(ObservedAnswer::Renewed { lease_expires })) if *lease_expires == end => {
                Some(*token)
            }
            (_, Some(_)) => return None,
            (Ask::Renew { token, .. }, None) => Some(*token),
            (_, None) => None,
        };
        (at >= by.op.invoked.at).then_some(Reason { by, token, at })
    })
}

// A reason holds unless something acknowledged before the question, or before the lease's end, had already ended it.
fn holds(history: &History, entries: &[Entry<'_>], reason: &Reason<'_>, entry: Entry<'_>, end: u64) -> bool {
    // A list or an explanation only looks: nothing is final that it shows.
    let doubt = matches!(entry.op.answer(), Some(ObservedAnswer::InDoubt { .. })) && entry.op.ask != Ask::Look;
    !entries.iter().filter(|other| other.id != reason.by.id).any(|other| {
        let known = before(history, *other, entry);
        let own = |token: u64| reason.token.is_some_and(|held| held == token);
        match (&other.op.ask, other.op.answer()) {
            (Ask::Claim { lease_ms, .. }, Some(ObservedAnswer::New { lease_expires, .. })) => {
                known && lease_expires.saturating_sub(*lease_ms) > reason.at + skew_ms(reason.by, *other)
            }
            (Ask::Renew { token, lease_ms }, Some(ObservedAnswer::Renewed { lease_expires })) => {
                let at = lease_expires.saturating_sub(*lease_ms);
                // Where the holder got more of it there was no doubt before, and none can have been told of since.
                at > reason.at + skew_ms(reason.by, *other) && (known || (doubt && own(*token)))
            }
            (Ask::Release { token }, Some(ObservedAnswer::Released { .. })) => known && own(*token),
            (Ask::Seal { token, .. }, Some(ObservedAnswer::Sealed { .. })) => {
                own(*token) && (known || (doubt && closed_at(other.op) <= end))
            }
            (Ask::Resolve { .. }, Some(ObservedAnswer::Resolved { replay: false })) => {
                known && reason.by.op.outcome != RequestOutcome::Maybe && before(history, reason.by, *other)
            }
            _ => false,
        }
    })
}
