//! Acts of operators: each one that was acknowledged is in the audit once, nothing else is, and an outcome that was given up is
//! never answered again. Never assumes where an entry is kept. Called by `auditor`.

use super::{Entry, File, Violation, before, closed_at, perhaps_before, perhaps_done};
use crate::history::{Ask, AuditRead, History, ObservedAnswer, Op, RequestOutcome};

/// Keys that are forgotten are judged here alone: the other promises do not know of it.
pub(super) fn is_forgotten_scope(key: &str) -> bool {
    key.split('/').nth(1) == Some("GONE")
}

pub(super) fn judge(history: &History, files: &[File<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files {
        for entry in &file.entries {
            answered_from_before(file, *entry, &mut found);
            forgotten_by_nobody(file, *entry, &mut found);
        }
    }
    for read in &history.audits {
        audited(history, read, &mut found);
    }
    found
}

// Once it is acknowledged that the outcome under a token was given up, nobody hears of it, and its holder says nothing more.
fn answered_from_before(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    for gone in &file.entries {
        let (Ask::Forget { token }, Some(ObservedAnswer::Forgotten { exists: true, .. })) =
            (&gone.op.ask, gone.op.answer())
        else {
            continue;
        };
        let from_before = match (&entry.op.ask, entry.op.answer()) {
            (Ask::Claim { .. }, Some(ObservedAnswer::Duplicate { token: told, .. })) => told == token,
            (Ask::Claim { .. }, Some(ObservedAnswer::New { token: given, .. })) => given <= token,
            (Ask::Seal { token: own, .. }, Some(ObservedAnswer::Sealed { .. })) => own == token,
            _ => false,
        };
        if from_before && before(file.history, *gone, entry) {
            found.push(file.report("forgotten-answer", entry, format_args!("#{} gave {token} up", gone.id)));
        }
    }
}

// A sealed outcome stays until an operator may have given it up.
fn forgotten_by_nobody(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let (Ask::Seal { token, .. }, Some(ObservedAnswer::Sealed { .. })) = (&entry.op.ask, entry.op.answer()) else {
        return;
    };
    for later in file.entries.iter().filter(|later| before(file.history, entry, **later)) {
        let is_new =
            matches!((&later.op.ask, later.op.answer()), (Ask::Claim { .. }, Some(ObservedAnswer::New { .. })));
        let given_up = file.entries.iter().any(|other| {
            other.op.ask == (Ask::Forget { token: *token })
                && perhaps_done(other.op)
                && perhaps_before(file.history, *other, *later)
        });
        if is_new && !given_up {
            found.push(file.report("forgotten-answer", *later, format_args!("#{} was never given up", entry.id)));
        }
    }
}

fn audited(history: &History, read: &AuditRead, found: &mut Vec<Violation>) {
    if read.op.outcome == RequestOutcome::Maybe {
        return;
    }
    let asked = Entry { id: usize::MAX, op: &read.op };
    for (id, op) in history.ops.iter().enumerate() {
        let lines = read.lines.iter().filter(|line| line.request == Some(id));
        let (count, acted) = (lines.clone().count(), acted(op));
        let mut report = |what: String| found.push(Violation { rule: "audited-act", what });
        if acted == Some(true) && count != 1 && before(history, Entry { id, op }, asked) {
            report(format!("#{id} ({}) was acknowledged and has {count} entries", op.ask));
        }
        if count > usize::from(acted != Some(false)) {
            report(format!("#{id} ({} -> {}) has {count} entries", op.ask, op.outcome));
        }
        let mut subject = op.base.split('/');
        let (tenant, scope) = (subject.next(), subject.next().unwrap_or_default());
        for line in lines {
            let is_told = line.tenant.as_deref() == tenant && line.on.split('/').next() == Some(scope);
            let is_dated = (op.invoked.at..=closed_at(op)).contains(&line.at) || op.outcome == RequestOutcome::Maybe;
            if !is_told || !is_dated {
                report(format!("the entry of #{id} is about {:?} {} at {}", line.tenant, line.on, line.at));
            }
        }
    }
    if let Some(line) = read.lines.iter().find(|line| line.request.is_none_or(|id| id >= history.ops.len())) {
        found.push(Violation { rule: "audited-act", what: format!("nobody asked for {line:?}") });
    }
}

// Whether an operator's request changed something; none where nobody knows.
fn acted(op: &Op) -> Option<bool> {
    match (&op.ask, &op.outcome) {
        (Ask::Resolve { .. } | Ask::Forget { .. }, RequestOutcome::Maybe) => None,
        (_, RequestOutcome::Answered(answer)) => Some(matches!(
            answer,
            ObservedAnswer::Resolved { replay: false } | ObservedAnswer::Forgotten { replay: false, .. }
        )),
        _ => Some(false),
    }
}
