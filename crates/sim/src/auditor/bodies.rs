//! Same key, other body: refused for as long as the key is remembered, and never refused without a reason.
//! Never compares bodies itself: the history names them. Called by `auditor`.

use super::{Entry, File, Violation, perhaps_done};
use crate::history::{Answer, Ask};

pub(super) fn judge(file: &File<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in &file.entries {
        let (Ask::Claim { body, .. }, Some(answer)) = (&entry.op.ask, entry.op.answer()) else { continue };
        match answer {
            Answer::Conflict { first, second } => conflict(file, *entry, first, second, &mut found),
            Answer::New { first_seen, attempt, .. } if *attempt > 1 => {
                if differs(file, *first_seen, body.as_deref()) == Some(true) && !file.rules.replays_other_body {
                    found.push(file.report("other-body", *entry, "another body was let in"));
                }
            }
            Answer::Duplicate { first_seen, body_differs, .. } => match differs(file, *first_seen, body.as_deref()) {
                Some(true) if !file.rules.replays_other_body => {
                    found.push(file.report("other-body", *entry, "another body got the receipt"));
                }
                Some(differs) if differs != *body_differs => {
                    found.push(file.report("other-body", *entry, "it is told wrongly whether its body differs"));
                }
                _ => {}
            },
            _ => {}
        }
    }
    found
}

// Known only where somebody heard the `new` that began this life of the key, and it had a body.
fn differs(file: &File<'_>, first_seen: u64, body: Option<&str>) -> Option<bool> {
    let opener = file.grants.iter().find(|grant| grant.attempt == 1 && grant.first_seen == first_seen)?;
    let Ask::Claim { body: Some(first), .. } = &opener.by.op.ask else { return None };
    Some(body.is_some_and(|body| body != first))
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
