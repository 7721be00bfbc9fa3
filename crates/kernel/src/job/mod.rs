//! Jobs: lists of items that are too long for one request. They are kept in chunks, and decided chunk by chunk.
//! Never decides an item: `item` does. Never reads a chunk's content: `fencepost::ingest` does.
//! Called only from `law`.

mod command;
mod decide;
mod id;
mod rows;

use std::sync::Arc;

pub use self::{
    command::{BeginUpload, Cancel, Clear, Command, Enqueue, Fail, Reply, Step, UploadPart},
    id::JobId,
    rows::{Chunk, Job, JobFailure, JobProgress, JobState, LineResult, LineVerdict, Results},
};
use crate::{
    audit::Subject,
    item,
    key::{Kind, RowKey},
    row::{self, Ids, KindSpec, Needs, OnDrop, Rows},
    time::Millis,
};
pub(crate) use decide::decide;

/// In a backup chunks come before their job, so that a job which runs meanwhile finds those that it has not decided yet; and its
/// results come last, so that none is missing. Items that are decided again after a restore change once.
pub(crate) const KINDS: &[KindSpec] = &[
    spec(Kind::JobChunk, ("chunk of a job", "chunks of jobs"), 17, OnDrop::Blind),
    spec(Kind::Job, ("job", "jobs"), 18, OnDrop::Lock),
    spec(Kind::JobResults, ("results of a job", "results of jobs"), 19, OnDrop::Lock),
];

const fn spec(kind: Kind, names: (&'static str, &'static str), backup_place: u8, on_drop: OnDrop) -> KindSpec {
    KindSpec {
        kind,
        names,
        swept: true,
        backup_place: Some(backup_place),
        cached: false,
        needs: Needs::Lanes,
        ids: Ids::Ranges,
        merged: false,
        on_drop,
        since_format: 7,
    }
}

/// A row that belongs to a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Job(Arc<Job>),
    Chunk(Arc<Chunk>),
    Results(Arc<Results>),
}

impl From<Record> for row::Record {
    fn from(record: Record) -> Self {
        Self::Job(record)
    }
}

impl Record {
    pub(crate) fn expires_at(&self) -> Option<Millis> {
        match self {
            Self::Job(job) => job.expires,
            Self::Chunk(chunk) => Some(chunk.expires),
            Self::Results(results) => Some(results.expires),
        }
    }

    pub(crate) fn due_at(&self) -> Option<Millis> {
        if let Self::Job(job) = self { job.due } else { None }
    }

    pub(crate) fn latest_at(&self) -> Millis {
        match self {
            Self::Job(job) => job.ended.unwrap_or(job.created),
            Self::Chunk(_) | Self::Results(_) => Millis(0),
        }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Job(job) => job.weight_bytes(),
            Self::Chunk(chunk) => chunk.content.len(),
            Self::Results(results) => results.weight_bytes(),
        }
    }
}

impl row::Record {
    /// The job, where it is one.
    pub fn as_job(&self) -> Option<&Arc<Job>> {
        if let Self::Job(Record::Job(found)) = self { Some(found) } else { None }
    }

    /// The chunk of a job, where it is one.
    pub fn as_chunk(&self) -> Option<&Arc<Chunk>> {
        if let Self::Job(Record::Chunk(found)) = self { Some(found) } else { None }
    }

    /// Results of a job, where they are that.
    pub fn as_results(&self) -> Option<&Arc<Results>> {
        if let Self::Job(Record::Results(found)) = self { Some(found) } else { None }
    }
}

pub(crate) fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    add(RowKey::job(command.job()));
    match command {
        Command::Enqueue(enqueue) => {
            if let Some(claim) = &enqueue.claim {
                add(RowKey::fence(claim.target.key));
            }
        }
        Command::Step(step) => {
            add(RowKey::job_results(step.job, step.done));
            item::footprint_of(&step.submit, add);
        }
        Command::Upload(_) | Command::Part(_) | Command::Cancel(_) | Command::Fail(_) | Command::Clear(_) => {}
    }
}

pub(crate) fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    if let Command::Step(step) = command {
        item::follow_of(&step.submit, rows, add);
    }
}

/// The thing that a command is about, for the audit.
pub(crate) fn subject(command: &Command, rows: &impl Rows) -> Subject {
    let job = job_of(rows, command.job());
    Subject { tenant: job.map(|job| job.tenant.clone()), on: command.job().to_string(), why: None }
}

fn job_of(rows: &impl Rows, job: JobId) -> Option<&Arc<Job>> {
    rows.row(&RowKey::job(job))?.record.as_job()
}
