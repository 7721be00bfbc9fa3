//! The one entrance: the rows that a command needs, and its decision over them.
//! Forwards to the capability that a command belongs to, and knows none of them from inside.
//! Called from the commit loop, and over a synced snapshot for answers that write nothing.

use crate::{
    audit::{self, Subject},
    dispatch, fence, item, job,
    key::{RowKey, Tenant},
    lane,
    merge::Merge,
    row::{CommitId, Rows, Write, write},
    time::Millis,
};

/// One request for a decision.
// Nearly every command is about a fence: a box would cost an allocation on each and save nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Command {
    Fence(fence::Command),
    Lane(lane::Command),
    Dispatch(dispatch::Command),
    /// Of an operator, to be recorded.
    Audit(audit::Command),
    Item(item::Command),
    Job(job::Command),
    /// Drops a row whose time is over.
    Sweep(RowKey),
}

/// A reply to a caller. A refusal is a reply, not an error.
#[derive(Clone, Debug)]
pub enum Reply {
    Fence(fence::Reply),
    Lane(lane::Reply),
    Dispatch(dispatch::Reply),
    Item(item::Reply),
    Job(job::Reply),
    /// Housekeeping; nobody listens.
    Done,
}

/// Conditions and changes that are committed with a set of writes, or refused with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Also {
    /// Rows that must still be as they were read, and are left alone.
    pub held: Vec<(RowKey, Option<CommitId>)>,
    /// Computed by the store at commit, in this order.
    pub merges: Vec<Merge>,
    /// Rows to remove, at any revision.
    pub drops: Vec<RowKey>,
    /// Lanes whose driver must look at them once this is durable, also where the caller is gone by then. Not for the store.
    pub lanes_changed: Vec<lane::LaneId>,
}

impl Also {
    /// Whether there is nothing for the store.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.merges.is_empty() && self.drops.is_empty()
    }

    /// The entries among the merges, in their order.
    pub fn appends(&self) -> impl Iterator<Item = &lane::Append> {
        self.merges.iter().filter_map(|merge| match merge {
            Merge::Append(append) => Some(append),
            Merge::Add { .. } => None,
        })
    }
}

/// The result of a command: first the writes, and only then the reply.
#[derive(Clone, Debug)]
pub struct Decision {
    /// All or nothing.
    pub writes: Vec<Write>,
    /// And this with them.
    pub also: Also,
    /// For the caller, once the writes are durable.
    pub reply: Reply,
}

impl Decision {
    pub(crate) fn reply(reply: impl Into<Reply>) -> Self {
        Self::new(Vec::new(), reply)
    }

    pub(crate) fn new(writes: Vec<Write>, reply: impl Into<Reply>) -> Self {
        Self { writes, also: Also::default(), reply: reply.into() }
    }

    /// Whether it changes nothing: then it needs no commit.
    pub fn only_answers(&self) -> bool {
        self.writes.is_empty() && self.also.drops.is_empty()
    }
}

/// The rows a command looks at before anything is known.
pub fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Fence(command) => fence::footprint(command, add),
        Command::Lane(command) => lane::footprint(command, add),
        Command::Dispatch(command) => dispatch::footprint(command, add),
        Command::Audit(command) => audit::footprint(command, add),
        Command::Item(command) => item::footprint(command, add),
        Command::Job(command) => job::footprint(command, add),
        Command::Sweep(key) => add(*key),
    }
}

/// The rows that only loaded ones can name, such as the version head that a seal moves. Ask again with the rows that
/// were found: those may name more.
pub fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Fence(command) => fence::follow(command, rows, add),
        Command::Lane(command) => lane::follow(command, rows, add),
        Command::Dispatch(command) => dispatch::follow(command, rows, add),
        Command::Audit(command) => audit::follow(command, rows, add),
        Command::Item(command) => item::follow(command, rows, add),
        Command::Job(command) => job::follow(command, rows, add),
        Command::Sweep(_) => {}
    }
}

/// When a row that a command looks at is locked, where it is decided within a transaction that also writes other things. The lock
/// lasts until that transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowLock {
    /// It is not locked. A write of it is compared all the same.
    Never,
    /// As it is read: it cannot move any more.
    OnRead,
    /// Once all is written: it must not have moved since it was read, before anything was locked.
    AfterWrites,
}

/// When a row that a command looks at is locked within a transaction.
pub fn row_lock(command: &Command, key: &RowKey) -> RowLock {
    match command {
        Command::Fence(command) => fence::row_lock(command, key),
        Command::Dispatch(command) => dispatch::row_lock(command, key),
        Command::Audit(audit::Command::Act(act)) => row_lock(&act.command, key),
        Command::Lane(_)
        | Command::Item(_)
        | Command::Job(_)
        | Command::Audit(audit::Command::Note(_))
        | Command::Sweep(_) => RowLock::OnRead,
    }
}

/// Decides a command at `now`, over the rows of its footprint.
pub fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Fence(command) => fence::decide(command, rows, now),
        Command::Lane(command) => lane::decide(command, rows, now),
        Command::Dispatch(command) => dispatch::decide(command, rows, now),
        Command::Audit(command) => audit::decide(command, rows, now),
        Command::Item(command) => item::decide(command, rows, now),
        Command::Job(command) => job::decide(command, rows, now),
        Command::Sweep(key) => sweep(*key, rows, now),
    }
}

/// The thing that a command is about, for the audit.
pub(crate) fn subject(command: &Command, rows: &impl Rows) -> Subject {
    match command {
        Command::Fence(command) => command.subject(),
        Command::Lane(command) => lane::subject(command, rows),
        Command::Dispatch(command) => dispatch::subject(command, rows),
        Command::Item(command) => item::subject(command),
        Command::Job(command) => job::subject(command, rows),
        Command::Audit(audit::Command::Act(act)) => subject(&act.command, rows),
        Command::Audit(audit::Command::Note(note)) => note.subject.clone(),
        Command::Sweep(_) => Subject::default(),
    }
}

fn sweep(key: RowKey, rows: &impl Rows, now: Millis) -> Decision {
    let over = rows.row(&key).is_some_and(|row| row.record.expires_at().is_some_and(|expires| expires <= now));
    let writes = if over { vec![write(rows, key, None)] } else { Vec::new() };
    Decision::new(writes, Reply::Done)
}

impl Command {
    /// The bytes of a command whose number a client chose, roughly.
    pub fn weight_bytes(&self) -> usize {
        match self {
            Self::Fence(command) => command.weight_bytes(),
            Self::Lane(command) => command.weight_bytes(),
            Self::Dispatch(command) => command.weight_bytes(),
            Self::Item(command) => command.weight_bytes(),
            Self::Job(command) => command.weight_bytes(),
            Self::Audit(audit::Command::Act(act)) => act.command.weight_bytes(),
            Self::Audit(audit::Command::Note(_)) | Self::Sweep(_) => 0,
        }
    }

    /// Whose fence the command is about; none for housekeeping.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.target().map(|target| &target.tenant)
    }

    /// The fence that the command is about; none for housekeeping.
    pub fn target(&self) -> Option<&fence::Target> {
        match self {
            Self::Fence(command) => command.target(),
            Self::Dispatch(command) => command.target(),
            Self::Item(command) => command.target(),
            Self::Job(command) => command.target(),
            Self::Audit(audit::Command::Act(act)) => act.command.target(),
            Self::Lane(_) | Self::Audit(audit::Command::Note(_)) | Self::Sweep(_) => None,
        }
    }
}

impl Reply {
    /// The word for the decision, in logs, metrics and answers.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::Fence(reply) => reply.decision(),
            Self::Lane(reply) => reply.decision(),
            Self::Dispatch(reply) => reply.decision(),
            Self::Item(reply) => reply.decision(),
            Self::Job(reply) => reply.decision(),
            Self::Done => "done",
        }
    }

    /// Whether the reply refuses, whatever is written with it.
    pub(crate) fn is_refusal(&self) -> bool {
        self.outlives_rollback()
    }

    /// Whether the writes of the reply must last even where the caller's transaction is rolled back: a caller that is
    /// refused rolls back.
    pub fn outlives_rollback(&self) -> bool {
        match self {
            Self::Fence(reply) => reply.outlives_rollback(),
            Self::Lane(_) | Self::Dispatch(_) | Self::Item(_) | Self::Job(_) | Self::Done => false,
        }
    }

    /// The same reply with the position that the store has given.
    pub fn with_position(self, seq: u64) -> Self {
        match self {
            Self::Dispatch(reply) => Self::Dispatch(reply.with_position(seq)),
            Self::Fence(_) | Self::Lane(_) | Self::Item(_) | Self::Job(_) | Self::Done => self,
        }
    }
}

impl From<fence::Command> for Command {
    fn from(command: fence::Command) -> Self {
        Self::Fence(command)
    }
}

impl From<lane::Command> for Command {
    fn from(command: lane::Command) -> Self {
        Self::Lane(command)
    }
}

impl From<dispatch::Command> for Command {
    fn from(command: dispatch::Command) -> Self {
        Self::Dispatch(command)
    }
}

impl From<audit::Command> for Command {
    fn from(command: audit::Command) -> Self {
        Self::Audit(command)
    }
}

impl From<fence::Reply> for Reply {
    fn from(reply: fence::Reply) -> Self {
        Self::Fence(reply)
    }
}

impl From<lane::Reply> for Reply {
    fn from(reply: lane::Reply) -> Self {
        Self::Lane(reply)
    }
}

impl From<dispatch::Reply> for Reply {
    fn from(reply: dispatch::Reply) -> Self {
        Self::Dispatch(reply)
    }
}

impl From<item::Command> for Command {
    fn from(command: item::Command) -> Self {
        Self::Item(command)
    }
}

impl From<item::Reply> for Reply {
    fn from(reply: item::Reply) -> Self {
        Self::Item(reply)
    }
}

impl From<job::Command> for Command {
    fn from(command: job::Command) -> Self {
        Self::Job(command)
    }
}

impl From<job::Reply> for Reply {
    fn from(reply: job::Reply) -> Self {
        Self::Job(reply)
    }
}
