//! Jobs: lists of items that are too long for one request. An upload is kept in chunks while it arrives, becomes a job in the
//! commit that answers its request, and is decided in the background.
//! Never holds more of an upload than one chunk. Called by the wire and by users of the library.

mod run;
mod split;

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Tenant,
    fence::{ClaimFence, HolderTrace, Source, body::Body},
    job::{self, Cancel, Chunk, Clear, Enqueue, Job, JobId, JobProgress, JobState, Results, UploadPart},
    key::Kind,
};
use tokio::runtime::Handle;

pub use self::{
    run::{JobFigures, run},
    split::{NoItemList, Splitter, UploadForm, UploadedItem},
};
use super::Ingest;
use crate::engine::Error;

/// A chunk is full at so many bytes, or with one item that has more.
const CHUNK_BYTES: usize = 256 << 10;
/// And at so many items: they are decided in one commit.
const CHUNK_LINES: u64 = 1_000;
/// How long an upload may pause before it is given up, in milliseconds.
const UPLOAD_PATIENCE_MS: u64 = 120_000;
/// A job that takes longer loses the items that it has not come to, and its first results before it is forgotten itself, in
/// milliseconds.
const JOB_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// How many chunks are dropped in one commit.
const CLEARED_AT_ONCE: u64 = 64;
/// The bit in an item's length that says that the rest of it was left out.
const CUT: u32 = 1 << 31;

/// The request that a job is made for.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The partner.
    pub tenant: Tenant,
    /// The identity of the credential.
    pub by: Arc<str>,
    /// The partner's id of the request: the same id is the same job. Empty for a dry run.
    pub correlation_id: Arc<str>,
    /// The collection of its items.
    pub collection: Arc<str>,
    /// Whether the job only says what would become of the items.
    pub dry_run: bool,
}

/// The part of a request that is known once its upload is over.
#[derive(Clone, Debug)]
pub struct JobClaim {
    /// The part of the request that is compared when the same id comes again.
    pub compared: Body,
    /// The trace of the request, where it has one.
    pub trace: Option<HolderTrace>,
}

/// Items that are arriving. Dropped before its end, it leaves nothing behind: where the process ends too, the background work of
/// some node clears it away.
pub struct Upload {
    ingest: Ingest,
    request: JobRequest,
    job: JobId,
    /// The items of the chunk that is not full yet.
    content: Vec<u8>,
    first_line: u64,
    lines: u64,
    is_over: bool,
}

impl Ingest {
    /// Begins an upload.
    pub async fn upload(&self, request: JobRequest) -> Result<Upload, Error> {
        let random = getrandom::u64().map_err(|error| Error::Unavailable(format!("no randomness: {error}")))?;
        let id = JobId::new(&request.tenant, self.engine.now(), random);
        let JobRequest { tenant, by, correlation_id, collection, dry_run } = request.clone();
        let job = Job {
            id,
            tenant,
            by,
            correlation_id,
            collection,
            dry_run,
            state: JobState::Uploading,
            chunks: 0,
            first_chunk: 0,
            lines: 0,
            bytes: 0,
            progress: JobProgress::default(),
            created: Millis(0),
            ended: None,
            due: None,
            expires: None,
        };
        let upload = job::BeginUpload { job, patience_ms: UPLOAD_PATIENCE_MS };
        self.engine.ask(Command::from(job::Command::Upload(upload.into()))).await?;
        let ingest = self.clone();
        Ok(Upload { ingest, request, job: id, content: Vec::new(), first_line: 0, lines: 0, is_over: false })
    }

    /// How many bytes a tenant keeps in uploads and jobs that have not ended.
    pub async fn kept_upload_bytes(&self, tenant: &Tenant) -> Result<u64, Error> {
        let (mut bytes, mut after) = (0, None);
        loop {
            let jobs = self.jobs(tenant, after, PAGE).await?;
            let own = jobs.iter().filter(|job| job.tenant == *tenant);
            // Chunks are about as large as one another.
            bytes += own.map(|job| job.bytes / job.chunks.max(1) * (job.chunks - job.first_chunk)).sum::<u64>();
            match jobs.last().filter(|_| jobs.len() == PAGE) {
                Some(last) => after = Some(last.id),
                None => return Ok(bytes),
            }
        }
    }

    /// The jobs of a tenant, the newest first, uploads among them.
    pub async fn jobs(&self, tenant: &Tenant, after: Option<JobId>, limit: usize) -> Result<Vec<Arc<Job>>, Error> {
        let prefix = JobId::tenant_prefix(tenant);
        let found = self.engine.range(Kind::Job, &prefix, after.map(RowKey::job), limit).await?;
        Ok(found.into_iter().filter_map(|(_, row)| row.record.as_job().cloned()).collect())
    }

    /// A job of a tenant; none where it has no such job, or where it is over for so long that it is forgotten.
    pub async fn job(&self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, Error> {
        let row = self.engine.load(&[RowKey::job(id)]).await?.pop().flatten();
        let job = row.and_then(|row| row.record.as_job().cloned());
        Ok(job.filter(|job| self.shows(job, tenant)))
    }

    /// Whether a tenant may see a job.
    pub fn shows(&self, job: &Job, tenant: &Tenant) -> bool {
        let now = self.engine.now();
        job.tenant == *tenant && !job.is_upload() && job.expires.is_none_or(|expires| expires > now)
    }

    /// Results of a job in the order of its items: some that hold the line `from` or come after it; none where there are none.
    pub async fn job_results(&self, id: JobId, from: u64, limit: usize) -> Result<Vec<Arc<Results>>, Error> {
        // Those before may hold the line, and say how many they hold only in the row.
        let mut after = from.checked_sub(CHUNK_LINES).map(|before| RowKey::job_results(id, before));
        loop {
            let found = self.engine.range(Kind::JobResults, &id.0, after, limit).await?;
            let Some((last, _)) = found.last() else { return Ok(Vec::new()) };
            after = Some(*last);
            let results = found.into_iter().filter_map(|(_, row)| row.record.as_results().cloned());
            let results: Vec<_> =
                results.filter(|results| results.first_line + results.lines.len() as u64 > from).collect();
            if !results.is_empty() {
                return Ok(results);
            }
        }
    }

    /// Ends a job before its last item: what is decided stays. The reply is the job as it is then, or that there is none.
    pub async fn cancel_job(&self, id: JobId) -> Result<Reply, Error> {
        let cancel = Cancel { job: id, retain_ms: self.rules.settings.job_retain_ms };
        let reply = self.engine.ask(Command::from(job::Command::Cancel(cancel))).await;
        self.signals.queued.notify_one();
        reply
    }

    async fn enqueue(
        &self,
        request: &JobRequest,
        job: JobId,
        JobClaim { compared, trace }: JobClaim,
        answer: fn(&Job) -> Bytes,
    ) -> Result<Reply, Error> {
        let claim = match request.dry_run {
            true => None,
            false => {
                let target = self.target(&request.tenant, &request.correlation_id)?;
                let source = Some(Source { kind: "ingest".to_owned(), id: request.collection.to_string() });
                let body = Some(compared);
                Some(ClaimFence { target, body, version: None, source, lease_ms: 1, trace }.into())
            }
        };
        let enqueue = Enqueue { job, claim, retain_ms: self.rules.settings.job_retain_ms, answer };
        let reply = self.engine.ask(Command::from(job::Command::Enqueue(enqueue.into()))).await;
        self.signals.queued.notify_one();
        reply
    }
}

/// How many jobs are read at once.
const PAGE: usize = 100;

impl Upload {
    /// Adds an item.
    pub async fn add(&mut self, item: UploadedItem<'_>) -> Result<(), Error> {
        if !self.content.is_empty()
            && (self.content.len() + item.bytes.len() > CHUNK_BYTES || self.lines == CHUNK_LINES)
        {
            self.write_chunk().await?;
        }
        let cut = if item.is_whole { 0 } else { CUT };
        self.content.extend_from_slice(&(item.bytes.len() as u32 | cut).to_be_bytes());
        self.content.extend_from_slice(item.bytes);
        self.lines += 1;
        Ok(())
    }

    async fn write_chunk(&mut self) -> Result<(), Error> {
        let content = std::mem::take(&mut self.content).into();
        let expires = self.ingest.engine.now().plus(self.ingest.rules.settings.job_retain_ms + JOB_MS_MAX);
        let chunk = Chunk { job: self.job, first_line: self.first_line, lines: self.lines, content, expires };
        (self.first_line, self.lines) = (self.first_line + self.lines, 0);
        let part = UploadPart { chunk, patience_ms: UPLOAD_PATIENCE_MS };
        let reply = self.ingest.engine.ask(Command::from(job::Command::Part(part.into()))).await?;
        if !matches!(reply, Reply::Job(job::Reply::Job(_))) {
            return Err(Error::Unavailable("the upload has paused for too long and was given up".to_owned()));
        }
        Ok(())
    }

    /// Makes a job of the items, or says what became of the request before; the upload is then dropped.
    pub async fn finish(mut self, claim: JobClaim, answer: fn(&Job) -> Bytes) -> Result<Reply, Error> {
        if self.lines > 0 {
            self.write_chunk().await?;
        }
        let reply = self.ingest.enqueue(&self.request, self.job, claim, answer).await?;
        self.is_over = matches!(reply, Reply::Job(job::Reply::Queued { .. }));
        Ok(reply)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(runtime) = Handle::try_current().ok().filter(|_| !self.is_over) else { return };
        let (ingest, job) = (self.ingest.clone(), self.job);
        runtime.spawn(async move {
            let clear = Clear { job, given_up: true, chunks_max: CLEARED_AT_ONCE };
            let _ = ingest.engine.ask(Command::from(job::Command::Clear(clear))).await;
            ingest.signals.queued.notify_one();
        });
    }
}
