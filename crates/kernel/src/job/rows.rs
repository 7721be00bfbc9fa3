//! The rows about jobs.
//! Never decides: `decide` does.

use std::sync::Arc;

use bytes::Bytes;

use super::JobId;
use crate::{
    item::{ChangeVerdict, ItemFault, ItemId, Missing, QuarantineId},
    key::Tenant,
    time::Millis,
};

/// A list of items that is decided in steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    pub id: JobId,
    pub tenant: Tenant,
    /// The identity of the credential.
    pub by: Arc<str>,
    /// The request's correlation id; empty for a dry run.
    pub correlation_id: Arc<str>,
    pub collection: Arc<str>,
    /// Whether it only says what would become of the items.
    pub dry_run: bool,
    pub state: JobState,
    /// How many chunks were uploaded.
    pub chunks: u64,
    /// The first chunk that is still kept. Those before it are decided, and dropped.
    pub first_chunk: u64,
    /// How many items were uploaded, and in how many bytes.
    pub lines: u64,
    pub bytes: u64,
    pub progress: JobProgress,
    /// When the upload began.
    pub created: Millis,
    pub ended: Option<Millis>,
    /// When a node takes it up, unless another one has moved it on by then; none once nothing is left to do.
    pub due: Option<Millis>,
    /// When the row is dropped; none before the job has ended.
    pub expires: Option<Millis>,
}

/// Where a job stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Its items are arriving. It is no job yet: no request was answered with it.
    Uploading,
    Queued,
    Running,
    Completed,
    Cancelled,
    Failed(JobFailure),
}

impl JobState {
    /// The word for it on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Uploading => "UPLOADING",
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::Failed(_) => "FAILED",
        }
    }

    /// Whether items of it may still be decided.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

/// Why a job could not go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobFailure {
    /// The code of a problem.
    pub code: String,
    pub message: String,
}

/// The items that are decided, by their verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobProgress {
    pub accepted: u64,
    pub replay: u64,
    pub quarantined: u64,
    pub rejected: u64,
}

impl JobProgress {
    /// How many items are decided.
    pub fn done(&self) -> u64 {
        self.accepted + self.replay + self.quarantined + self.rejected
    }

    pub(super) fn count(&mut self, verdict: &LineVerdict) {
        match verdict {
            LineVerdict::Accepted { .. } => self.accepted += 1,
            LineVerdict::Replay { .. } => self.replay += 1,
            LineVerdict::Quarantined { .. } => self.quarantined += 1,
            LineVerdict::Rejected(_) => self.rejected += 1,
        }
    }
}

impl Job {
    /// Whether its items are still arriving.
    pub fn is_upload(&self) -> bool {
        self.state == JobState::Uploading
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        let failure = if let JobState::Failed(failure) = &self.state { failure.message.len() } else { 0 };
        self.correlation_id.len() + self.collection.len() + failure
    }
}

/// Items of a job as they were uploaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub job: JobId,
    /// The number of its first item within the job, from 0.
    pub first_line: u64,
    /// How many items it holds.
    pub lines: u64,
    /// Each item with its length before it.
    pub content: Bytes,
    /// When it is dropped, even if its job has not come to it.
    pub expires: Millis,
}

/// The outcomes of items of a job that were decided together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Results {
    pub tenant: Tenant,
    pub collection: Arc<str>,
    /// The number of the first item within the job, from 0.
    pub first_line: u64,
    pub lines: Vec<LineResult>,
    pub expires: Millis,
}

impl Results {
    pub(crate) fn weight_bytes(&self) -> usize {
        let of_line = |line: &LineResult| line.item.as_ref().map_or(0, Bytes::len) + 64;
        self.lines.iter().map(of_line).sum()
    }
}

/// The outcome of one item of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineResult {
    /// The sender's id of the item, where it has one.
    pub source_id: Option<String>,
    pub verdict: LineVerdict,
    /// The item as it was sent, where it was not taken.
    pub item: Option<Bytes>,
}

/// The verdict about one item of a job: that of a change, without what the item's name says already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineVerdict {
    Accepted { reactivated: bool },
    Replay { differs: bool },
    Quarantined { number: u64, unresolved: Vec<Missing> },
    Rejected(Vec<ItemFault>),
}

impl From<&ChangeVerdict> for LineVerdict {
    fn from(verdict: &ChangeVerdict) -> Self {
        match verdict {
            ChangeVerdict::Accepted { reactivated, .. } => Self::Accepted { reactivated: *reactivated },
            ChangeVerdict::Replay { differs, .. } => Self::Replay { differs: *differs },
            ChangeVerdict::Quarantined { quarantine, unresolved }
            | ChangeVerdict::Resent { quarantine, unresolved } => {
                Self::Quarantined { number: quarantine.number, unresolved: unresolved.clone() }
            }
            ChangeVerdict::Rejected(faults) => Self::Rejected(faults.clone()),
            // A job brings items, and neither retires nor releases one.
            ChangeVerdict::Retired { .. } | ChangeVerdict::AlreadyResolved { .. } => Self::Replay { differs: false },
        }
    }
}

impl LineResult {
    /// The verdict as a request would have got it, for an item of these results.
    pub fn change_verdict(&self, results: &Results) -> ChangeVerdict {
        let name = self.source_id.as_deref().unwrap_or_default();
        let item = ItemId::new(&results.tenant, &results.collection, name);
        match &self.verdict {
            LineVerdict::Accepted { reactivated } => ChangeVerdict::Accepted { item, reactivated: *reactivated },
            LineVerdict::Replay { differs } => ChangeVerdict::Replay { item, differs: *differs },
            LineVerdict::Quarantined { number, unresolved } => {
                let quarantine = QuarantineId { item, number: *number };
                ChangeVerdict::Quarantined { quarantine, unresolved: unresolved.clone() }
            }
            LineVerdict::Rejected(faults) => ChangeVerdict::Rejected(faults.clone()),
        }
    }
}
