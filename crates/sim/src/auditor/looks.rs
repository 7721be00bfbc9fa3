//! Judges lists and explanations: they show a state that the key was in at some moment between question and answer.
//! Never takes what they show for final: they only look, and write nothing. Called by `auditor`.

use super::{Entry, File, Violation, before, claims, closed_at, perhaps_done};
use crate::history::{Ask, ObservedAnswer, RequestOutcome};

pub(super) fn judge(file: &File<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in file.entries.iter().filter(|entry| entry.op.ask == Ask::Look) {
        // Whether a lease explains the shown state is judged with all other leases.
        let allowed = match entry.op.answer() {
            Some(ObservedAnswer::Seen { phase, token }) => match *phase {
                "sealed" => given(file, *entry, *token) && outcome(file, *entry, *token, true),
                "released" => given(file, *entry, *token) && outcome(file, *entry, *token, false),
                _ => given(file, *entry, *token) && !file.rules.hold && lapsed(file, *entry, *token),
            },
            Some(ObservedAnswer::InDoubt { since }) => file.rules.may_hold && *since <= closed_at(entry.op),
            Some(ObservedAnswer::Absent) => absent(file, *entry),
            _ => true,
        };
        if !allowed {
            found.push(file.report("shown-state", *entry, "it never was like that"));
        }
    }
    found
}

fn hidden_claim(file: &File<'_>, entry: Entry<'_>) -> bool {
    file.perhaps_before(entry)
        .any(|other| matches!(other.op.ask, Ask::Claim { .. }) && other.op.outcome == RequestOutcome::Maybe)
}

fn given(file: &File<'_>, entry: Entry<'_>, token: u64) -> bool {
    let known = file.grants.iter().find(|grant| grant.token == token);
    known.map_or_else(
        || hidden_claim(file, entry),
        |grant| !file.grants.iter().any(|newer| newer.token > grant.token && before(file.history, newer.by, entry)),
    )
}

fn outcome(file: &File<'_>, entry: Entry<'_>, token: u64, sealed: bool) -> bool {
    file.perhaps_before(entry).any(|other| {
        perhaps_done(other.op)
            && match &other.op.ask {
                Ask::Seal { token: own, .. } => sealed && *own == token,
                Ask::Release { token: own } => !sealed && *own == token,
                Ask::Resolve { sealed: found, .. } => found.is_some() == sealed,
                _ => false,
            }
    })
}

fn lapsed(file: &File<'_>, entry: Entry<'_>, token: u64) -> bool {
    let known = file.grants.iter().find(|grant| grant.token == token);
    known.is_none_or(|grant| claims::lease_end_seen(file, grant, entry) <= closed_at(entry.op))
}

// Nothing is known of a key only before its first claim and after its time is over. A claim that another followed has no time of
// its own any more: by a clock that is behind, the one that followed may be over sooner.
fn absent(file: &File<'_>, entry: Entry<'_>) -> bool {
    let followed = |token: u64| file.perhaps_before(entry).filter_map(super::grant).any(|other| other.token > token);
    !file.grants.iter().filter(|grant| !followed(grant.token)).any(|grant| {
        let forgotten = claims::lease_end_seen(file, grant, entry).saturating_add(file.rules.retain_ms);
        before(file.history, grant.by, entry)
            && (file.rules.hold || closed_at(entry.op) < forgotten)
            && claims::given_up_min(file, grant, entry).is_none_or(|at| closed_at(entry.op) < at + file.rules.retain_ms)
            && claims::receipt_end_min(file, grant, entry).is_none_or(|end| closed_at(entry.op) < end)
    })
}
