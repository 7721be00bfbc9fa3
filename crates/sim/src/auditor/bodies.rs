//! Same key, other body: refused until the key is free, and never refused without a reason.
//! Never compares bodies itself: the history names them. Called by `auditor`.

use super::{Entry, File, Grant, Violation, claims, perhaps_done};
use crate::history::{Ask, ObservedAnswer};

pub(super) fn judge(file: &File<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in &file.entries {
        let (Ask::Claim { body, .. }, Some(answer)) = (&entry.op.ask, entry.op.answer()) else { continue };
        match answer {
            ObservedAnswer::Conflict { first, second } => conflict(file, *entry, first, second, &mut found),
            ObservedAnswer::New { token, .. } => {
                let grant = file.grants.iter().find(|grant| grant.token == *token);
                let stands =
                    grant.and_then(|grant| before_it(file, grant).filter(|earlier| !free(file, earlier, grant)));
                let differs = stands.and_then(|earlier| differs(standing(file, earlier), body.as_deref()));
                if differs == Some(true) && !file.rules.replays_other_body {
                    found.push(file.report("other-body", *entry, "another body was let in"));
                }
            }
            ObservedAnswer::Duplicate { token, body_differs, .. } => {
                match differs(standing_under(file, *token), body.as_deref()) {
                    Some(true) if !file.rules.replays_other_body => {
                        found.push(file.report("other-body", *entry, "another body got the receipt"));
                    }
                    Some(differs) if differs != *body_differs => {
                        found.push(file.report("other-body", *entry, "it is told wrongly whether its body differs"));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found
}

// None where the standing body is unknown.
fn differs(standing: Option<Standing<'_>>, body: Option<&str>) -> Option<bool> {
    standing.map(|Standing(first)| first.zip(body).is_some_and(|(first, body)| first != body))
}

fn standing_under<'h>(file: &File<'h>, token: u64) -> Option<Standing<'h>> {
    standing(file, file.grants.iter().find(|grant| grant.token == token)?)
}

/// The body that stands under a claim, if there is one.
#[derive(Clone, Copy)]
struct Standing<'h>(Option<&'h str>);

// The first body stands from attempt to attempt; a release frees the key of it, unless an earlier holder lapsed and may
// have had its effect.
fn standing<'h>(file: &File<'h>, grant: &Grant<'h>) -> Option<Standing<'h>> {
    let Ask::Claim { body, .. } = &grant.by.op.ask else { return None };
    let own = Standing(body.as_deref());
    if grant.attempt == 1 {
        return Some(own);
    }
    let earlier = before_it(file, grant)?;
    match free(file, earlier, grant) {
        true => released(file, earlier).then_some(own),
        false => standing(file, earlier).map(|Standing(first)| Standing(first.or(own.0))),
    }
}

// Whether the next claim found the key without a body that stands.
fn free(file: &File<'_>, earlier: &Grant<'_>, next: &Grant<'_>) -> bool {
    next.recovering.is_none() && claims::given_up_min(file, earlier, next.by).is_some()
}

fn before_it<'f, 'h>(file: &'f File<'h>, grant: &Grant<'h>) -> Option<&'f Grant<'h>> {
    file.grants.iter().find(|earlier| earlier.first_seen == grant.first_seen && earlier.attempt + 1 == grant.attempt)
}

fn released(file: &File<'_>, grant: &Grant<'_>) -> bool {
    file.entries.iter().any(|entry| {
        entry.op.ask == (Ask::Release { token: grant.token })
            && matches!(entry.op.answer(), Some(ObservedAnswer::Released { .. }))
    })
}

fn conflict(file: &File<'_>, entry: Entry<'_>, first: &str, second: &str, found: &mut Vec<Violation>) {
    let Ask::Claim { body, .. } = &entry.op.ask else { return };
    let claimed = |other: Entry<'_>| {
        perhaps_done(other.op) && matches!(&other.op.ask, Ask::Claim { body: Some(name), .. } if name == first)
    };
    if body.as_deref() != Some(second) || first == second || !file.perhaps_before(entry).any(claimed) {
        found.push(file.report("false-conflict", entry, "no earlier claim had that other body"));
    }
    if file.rules.replays_other_body {
        found.push(file.report("false-conflict", entry, "this scope lets another body pass"));
    }
}
