//! The commands about jobs, and their replies.
//! Made by `fencepost::ingest`; `decide` decides them.

use std::sync::Arc;

use bytes::Bytes;

use super::{Chunk, Job, JobFailure, JobId};
use crate::{
    fence::{self, Target},
    item::Submit,
    time::Millis,
};

/// One command about a job.
#[derive(Clone, Debug)]
pub enum Command {
    /// Begins an upload.
    Upload(Box<BeginUpload>),
    /// Adds a chunk to an upload.
    Part(Box<UploadPart>),
    /// Makes a job of an upload, in one commit with the answer to the request that asks for it.
    Enqueue(Box<Enqueue>),
    /// Decides the next items of a job.
    Step(Box<Step>),
    /// Ends a job before its last item.
    Cancel(Cancel),
    /// Ends a job that cannot go on.
    Fail(Box<Fail>),
    /// Drops chunks that nobody needs any more: those of a job that has ended, or of an upload that has stopped.
    Clear(Clear),
}

/// See [`Command::Upload`].
#[derive(Clone, Debug)]
pub struct BeginUpload {
    /// In state [`super::JobState::Uploading`].
    pub job: Job,
    /// How long the upload may pause, in milliseconds.
    pub patience_ms: u64,
}

/// See [`Command::Part`].
#[derive(Clone, Debug)]
pub struct UploadPart {
    pub chunk: Chunk,
    pub patience_ms: u64,
}

/// See [`Command::Enqueue`].
#[derive(Clone, Debug)]
pub struct Enqueue {
    pub job: JobId,
    /// The claim of the request's fence; none for a dry run.
    pub claim: Option<Box<fence::ClaimFence>>,
    /// As for a step: a job without items has ended at once.
    pub retain_ms: u64,
    /// Writes the answer that is sealed with the job and sent to every repeat.
    pub answer: fn(&Job) -> Bytes,
}

/// See [`Command::Step`].
#[derive(Clone, Debug)]
pub struct Step {
    pub job: JobId,
    /// How many items of the job must be decided already: another node may have gone on meanwhile.
    pub done: u64,
    /// The items. It has no claim: the job's request has been answered.
    pub submit: Submit,
    /// Each of them as it was sent.
    pub items: Vec<Bytes>,
    /// The chunk that ends with them, where one does.
    pub ends_chunk: Option<u64>,
    /// How long a node has to decide the next ones before another node goes on, in milliseconds.
    pub lease_ms: u64,
    /// How long the job can be read once it has ended, in milliseconds.
    pub retain_ms: u64,
    /// How long these results can be read, in milliseconds: longer than the job.
    pub results_retain_ms: u64,
}

/// See [`Command::Cancel`].
#[derive(Clone, Copy, Debug)]
pub struct Cancel {
    pub job: JobId,
    pub retain_ms: u64,
}

/// See [`Command::Fail`].
#[derive(Clone, Debug)]
pub struct Fail {
    pub job: JobId,
    /// As for a step.
    pub done: u64,
    pub failure: JobFailure,
    pub retain_ms: u64,
}

/// See [`Command::Clear`].
#[derive(Clone, Copy, Debug)]
pub struct Clear {
    pub job: JobId,
    /// Whether its sender has given the upload up; else it must have paused for too long.
    pub given_up: bool,
    /// How many chunks at most.
    pub chunks_max: u64,
}

/// The reply to a command about jobs.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The job as it is now.
    Job(Arc<Job>),
    /// It is a job now. The answer is the one that repeats get.
    Queued { job: Arc<Job>, answer: Bytes, expires: Option<Millis> },
    /// There is no such job, or its upload was given up: nothing was changed.
    NoSuchJob,
    /// Another node has decided these items, or the job has ended: nothing was changed.
    Moved,
}

impl Reply {
    /// The word for this reply in logs, metrics and answers.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::Job(_) => "done",
            Self::Queued { .. } => "new",
            Self::NoSuchJob => "no_such_job",
            Self::Moved => "moved",
        }
    }
}

impl Command {
    pub(super) fn job(&self) -> JobId {
        match self {
            Self::Upload(upload) => upload.job.id,
            Self::Part(part) => part.chunk.job,
            Self::Enqueue(enqueue) => enqueue.job,
            Self::Step(step) => step.job,
            Self::Cancel(cancel) => cancel.job,
            Self::Fail(fail) => fail.job,
            Self::Clear(clear) => clear.job,
        }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Part(part) => part.chunk.content.len(),
            Self::Step(step) => step.submit.weight_bytes(),
            Self::Upload(_) | Self::Enqueue(_) | Self::Cancel(_) | Self::Fail(_) | Self::Clear(_) => 0,
        }
    }

    /// The fence of the request.
    pub fn target(&self) -> Option<&Target> {
        if let Self::Enqueue(enqueue) = self { enqueue.claim.as_ref().map(|claim| &claim.target) } else { None }
    }
}
