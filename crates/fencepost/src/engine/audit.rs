//! Requests of operators: what one changes is recorded in the commit of the change, and the records are read back.
//! Never decides what counts as an act: the kernel records what changed something. Called by the wire.

use std::sync::Arc;

use fencepost_kernel::{
    Command, RowKey,
    audit::{self, AuditCommand, AuditEntry, Note, Operator, Subject},
    key::Kind,
};

use super::{Engine, Error, One};

impl Engine {
    /// The same engine for one request of an operator: every command that changes something leaves an entry in the audit.
    /// Nothing is recorded where the audit cannot be kept: see [`Engine::keeps`].
    pub fn on_behalf_of(&self, operator: Operator) -> Self {
        Self { operator: Some(operator.into()), ..self.clone() }
    }

    /// Whether rows of this kind may be written now: the store can keep them, and every process that shares it reads them.
    pub fn keeps(&self, kind: Kind) -> bool {
        self.promises().keeps(kind) && kind.spec().since_format <= self.shared.store.format()
    }

    /// Records an act of the operator on something that is not in the store.
    pub async fn note(&self, subject: Subject, outcome: &'static str) -> Result<(), Error> {
        let Some(operator) = self.recorded().cloned() else { return Ok(()) };
        let note = Note { subject, outcome, operator, id: self.shared.next_id().0 };
        self.submit([audit::Command::Note(note.into()).into()].into()).await.map(drop)
    }

    /// Entries of the audit that are still kept, the newest first, with their addresses. Pass the last one to read on.
    pub async fn audit(&self, after: Option<RowKey>, limit: usize) -> Result<Vec<(RowKey, Arc<AuditEntry>)>, Error> {
        let found = self.range(Kind::Audit, RowKey::audit_prefix(), after, limit).await?;
        Ok(found.into_iter().filter_map(|(key, row)| Some((key, row.record.as_audit_entry()?.clone()))).collect())
    }

    fn recorded(&self) -> Option<&Arc<Operator>> {
        self.operator.as_ref().filter(|_| self.keeps(Kind::Audit))
    }

    pub(super) fn audited(&self, command: One) -> One {
        match self.recorded() {
            Some(operator) => self.act(operator, &command).into(),
            None => command,
        }
    }

    pub(super) fn audited_all(&self, commands: Arc<[Command]>) -> Arc<[Command]> {
        match self.recorded() {
            Some(operator) => commands.iter().map(|command| self.act(operator, command)).collect(),
            None => commands,
        }
    }

    fn act(&self, operator: &Arc<Operator>, command: &Command) -> Command {
        let (command, operator) = (command.clone().into(), operator.clone());
        audit::Command::Act(AuditCommand { command, operator, id: self.shared.next_id().0 }).into()
    }
}
