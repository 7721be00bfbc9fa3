//! The commands that leave an entry in the audit.
//! Made by the engine, for a request of an operator; `audit` decides them.

use std::sync::Arc;

use super::Subject;
use crate::{fence::HolderTrace, law};

/// One command of an operator.
#[derive(Clone, Debug)]
pub enum Command {
    /// A command that is recorded if it changes something.
    Act(AuditCommand),
    /// An act on something that is not in the store.
    Note(Box<Note>),
}

/// See [`Command::Act`].
#[derive(Clone, Debug)]
pub struct AuditCommand {
    pub command: Box<law::Command>,
    /// The operator who asks for it.
    pub operator: Arc<Operator>,
    /// Distinguishes entries of one millisecond. Never used for another entry.
    pub id: u64,
}

/// See [`Command::Note`].
#[derive(Clone, Debug)]
pub struct Note {
    /// The thing that the act is about.
    pub subject: Subject,
    /// The result of the act, as one word.
    pub outcome: &'static str,
    pub operator: Arc<Operator>,
    /// Distinguishes entries of one millisecond. Never used for another entry.
    pub id: u64,
}

/// The sender of an operator's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The identity of the credential.
    pub by: Arc<str>,
    /// The operation, such as `pauseLane`.
    pub op: Arc<str>,
    /// The trace of the request, where it has one.
    pub trace: Option<HolderTrace>,
    /// How long the entry is kept, in milliseconds.
    pub retain_ms: u64,
}
