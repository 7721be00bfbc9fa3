//! The audit: a row for each act of an operator, written in the commit of the act itself.
//! Never decides an act, and never records one that changed nothing: the capability that the act is about decides it.
//! Called only from `law`.

mod command;
mod entry;

use std::sync::Arc;

pub use self::{
    command::{AuditCommand, Command, Note, Operator},
    entry::{AuditEntry, Subject},
};
use crate::{
    key::{Kind, RowKey},
    law::{self, Decision},
    row::{self, Ids, KindSpec, Needs, OnDrop, Rows, Write},
    time::Millis,
};

/// The row of the audit in the table of kinds. The audit is read by time and kept for years: a store that keeps fences only
/// has none.
pub(crate) const KINDS: &[KindSpec] = &[KindSpec {
    kind: Kind::Audit,
    names: ("audit entry", "audit entries"),
    swept: true,
    backup_place: Some(11),
    cached: false,
    needs: Needs::Lanes,
    ids: Ids::Ranges,
    merged: false,
    on_drop: OnDrop::Lock,
    since_format: 5,
}];

/// A row that belongs to the audit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// See [`AuditEntry`].
    Entry(Arc<AuditEntry>),
}

impl From<AuditEntry> for row::Record {
    fn from(entry: AuditEntry) -> Self {
        Self::Audit(Record::Entry(entry.into()))
    }
}

impl Record {
    pub(crate) fn expires_at(&self) -> Option<Millis> {
        let Self::Entry(entry) = self;
        Some(entry.expires)
    }

    pub(crate) fn latest_at(&self) -> Millis {
        let Self::Entry(entry) = self;
        entry.at
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        let Self::Entry(entry) = self;
        entry.weight_bytes()
    }
}

impl row::Record {
    /// The entry of the audit, where it is one.
    pub fn as_audit_entry(&self) -> Option<&Arc<AuditEntry>> {
        if let Self::Audit(Record::Entry(found)) = self { Some(found) } else { None }
    }
}

// The row of the entry is not in the footprint: its address is new, and the commit compares that it is absent.
pub(crate) fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Act(act) => law::footprint(&act.command, add),
        Command::Note(_) => {}
    }
}

pub(crate) fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Act(act) => law::follow(&act.command, rows, add),
        Command::Note(_) => {}
    }
}

/// INVARIANT audited-act: the entry stands or falls with what the act changes. A refusal has none, nor has a repeat that changes
/// nothing.
pub(crate) fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Act(act) => {
            let mut decision = law::decide(&act.command, rows, now);
            if !decision.only_answers() && !decision.reply.is_refusal() {
                let subject = law::subject(&act.command, rows);
                let outcome = decision.reply.decision();
                decision.writes.push(entry(&act.operator, act.id, subject, outcome, now));
            }
            decision
        }
        Command::Note(note) => {
            let written = entry(&note.operator, note.id, note.subject.clone(), note.outcome, now);
            Decision::new(vec![written], law::Reply::Done)
        }
    }
}

fn entry(operator: &Operator, id: u64, subject: Subject, outcome: &str, now: Millis) -> Write {
    let entry = AuditEntry {
        at: now,
        by: operator.by.to_string(),
        op: operator.op.to_string(),
        outcome: outcome.to_owned(),
        subject,
        trace: operator.trace,
        expires: now.plus(operator.retain_ms),
    };
    Write { key: RowKey::audit(now, id), expect: None, put: Some(entry.into()) }
}
