//! Uploads that become jobs, and the jobs: their progress, their results, their end.
//! Never holds an upload: it goes into the store as it arrives. Called through the table of routes.

use std::sync::Arc;

use axum::response::Response;
use fencepost::{
    ingest::{
        Ingest,
        jobs::{JobClaim, JobRequest, NoItemList, Splitter, Upload, UploadForm, UploadedItem},
    },
    policy::collections::{Collection, Group},
};
use fencepost_kernel::{
    Reply, Tenant,
    fence::body::Body,
    job::{self, Job, JobId, JobState},
    json::JsonNode,
    key::Kind,
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use super::{
    collection, ingest,
    items::{ok_response, respond},
    malformed,
    reply::{self, LineStatus},
    request::{self, DryRun, Mode},
    tenant,
};
use crate::{
    http::{
        call::{BodyStream, Call},
        fences::{self, Told},
        query::{self, Query},
        reply::Answer,
    },
    problem::{Code, Problem},
};

const NEXT_CURSOR: HeaderName = HeaderName::from_static("fencepost-next-cursor");

/// How many rows of results one request reads: the rest is behind the cursor.
const RESULT_ROWS_MAX: usize = 64;
/// How many of them are read at once.
const RESULT_ROWS: usize = 8;
/// A page with more bytes than this is given out as it is.
const PAGE_BYTES: usize = 4 << 20;
/// How often the room for an upload is looked at while it arrives.
const CHECKED_BYTES: u64 = 16 << 20;
/// How many jobs are read at once.
const JOBS: usize = 100;
/// How many jobs one request looks at.
const JOBS_MAX: usize = 10_000;

/// `POST /wms-ingest/v1/master/{collection}?mode=bulk`
pub(super) async fn master(call: &Call, body: &mut BodyStream) -> Result<Response, Problem> {
    bulk(call, body, Group::Master).await
}

/// `POST /wms-ingest/v1/documents/{collection}?mode=bulk`
pub(super) async fn documents(call: &Call, body: &mut BodyStream) -> Result<Response, Problem> {
    bulk(call, body, Group::Documents).await
}

/// `POST /wms-ingest/v1/inventory/{collection}?mode=bulk`
pub(super) async fn inventory(call: &Call, body: &mut BodyStream) -> Result<Response, Problem> {
    bulk(call, body, Group::Inventory).await
}

/// Whether the head of a request asks for a job.
pub(super) fn asks_for_job(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "mode=bulk"))
}

async fn bulk(call: &Call, body: &mut BodyStream, group: Group) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let query = Query::of(call)?;
    let dry_run = DryRun::of(&query)?;
    let form = upload_form(call)?;
    // Its body is compared once it has arrived.
    let request = request::of_items(call, &query, dry_run, Body::opaque(&[]))?;
    let known = dry_run == DryRun::No && ingest.knows(&request).await?;
    if known {
        let mut received = Received::new(form);
        while let Some(piece) = body.chunk().await? {
            received.hash(&piece);
            if received.bytes > ingest.rules().settings.upload_bytes_max {
                return Err(too_large());
            }
        }
        let request = request::of_items(call, &query, dry_run, received.body())?;
        return match ingest.reply_to_known(&request).await? {
            Some(reply) => respond(call, &ingest, &request, None, &reply),
            None => Err(forgotten_meanwhile()),
        };
    }
    let collection = collection(call, &ingest, group)?;
    let Mode::Bulk = Mode::of(&query, group)? else { return Err(malformed("`mode` must be bulk")) };
    let upload = begin(call, &ingest, collection, (&request, dry_run)).await?;
    let (upload, received) = receive(call, &ingest, body, upload, form).await?;
    let request = request::of_items(call, &query, dry_run, received.body())?;
    let claim = JobClaim { compared: request.compared.clone(), trace: request.trace };
    let reply = upload.finish(claim, reply::queued_job).await?;
    respond_to_upload(call, &ingest, &request, collection, &reply)
}

fn forgotten_meanwhile() -> Problem {
    let detail = "the id was forgotten while the body arrived; send the request again";
    Problem::new(Code::StoreUnavailable, detail).retry_after(1)
}

fn upload_form(call: &Call) -> Result<UploadForm, Problem> {
    let kind = call.parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_lines = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with(b"application/x-ndjson"));
    match kind {
        _ if is_lines => Ok(UploadForm::Lines),
        Some(_) if !call.says_json() => {
            Err(Problem::new(Code::NotJson, "send the body as application/json or application/x-ndjson"))
        }
        Some(_) | None => Ok(UploadForm::Json),
    }
}

async fn begin(
    call: &Call,
    ingest: &Ingest,
    collection: &Arc<Collection>,
    (request, dry_run): (&fencepost::ingest::IngestRequest, DryRun),
) -> Result<Upload, Problem> {
    if !call.engine().keeps(Kind::Job) {
        let detail = "a node of an older release shares the store and knows no jobs; ask again once it is gone";
        return Err(Problem::new(Code::StoreUnavailable, detail).retry_after(60));
    }
    let request = JobRequest {
        tenant: request.tenant.clone(),
        by: request.by.clone(),
        correlation_id: request.correlation_id.clone(),
        collection: collection.name.clone(),
        dry_run: dry_run == DryRun::Yes,
    };
    check_room(ingest, &request.tenant).await?;
    Ok(ingest.upload(request).await?)
}

// Refuses a tenant whose uploads, this one among them, are too large together.
async fn check_room(ingest: &Ingest, tenant: &Tenant) -> Result<(), Problem> {
    match ingest.kept_upload_bytes(tenant).await? > ingest.rules().settings.upload_bytes_max {
        true => Err(too_large()),
        false => Ok(()),
    }
}

fn too_large() -> Problem {
    let detail = "the uploads of this partner that are not decided yet have more bytes than \
                  `ingest.upload_bytes_max` allows; wait for its jobs to end, or send less at a time";
    Problem::new(Code::TooLarge, detail)
}

/// An upload as far as it has arrived.
struct Received {
    splitter: Splitter,
    digest: Sha256,
    bytes: u64,
}

impl Received {
    fn new(form: UploadForm) -> Self {
        Self { splitter: Splitter::new(form), digest: Sha256::new(), bytes: 0 }
    }

    fn hash(&mut self, piece: &[u8]) {
        self.digest.update(piece);
        self.bytes += piece.len() as u64;
    }

    fn body(&self) -> Body {
        Body { digest: self.digest.clone().finalize().into(), size: self.bytes, kept: None }
    }
}

// Takes the whole body into the upload. Whatever goes wrong, the upload is dropped, and nothing of it stays.
async fn receive(
    call: &Call,
    ingest: &Ingest,
    body: &mut BodyStream,
    mut upload: Upload,
    form: UploadForm,
) -> Result<(Upload, Received), Problem> {
    let mut received = Received::new(form);
    let (own, mut checked) = (tenant(call)?, 0);
    while let Some(piece) = body.chunk().await? {
        received.hash(&piece);
        if received.bytes > ingest.rules().settings.upload_bytes_max {
            return Err(too_large());
        }
        if received.bytes > checked + CHECKED_BYTES.min(ingest.rules().settings.upload_bytes_max / 8) {
            checked = received.bytes;
            check_room(ingest, &own).await?;
        }
        let mut piece = &piece[..];
        while let Some(item) = received.splitter.next(&mut piece).map_err(|wrong| no_list(&wrong))? {
            upload.add(item).await?;
        }
    }
    if let Some(item) = received.splitter.end().map_err(|wrong| no_list(&wrong))? {
        upload.add(item).await?;
    }
    let named = received.splitter.partner();
    if named.is_some_and(|named| serde_json::from_slice::<String>(named).ok().as_deref() != Some(own.as_str())) {
        let detail = format!("`partner_id` must be {own}, this credential's partner");
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok((upload, received))
}

fn no_list(wrong: &NoItemList) -> Problem {
    malformed(format!("{} (after {} bytes)", wrong.message, wrong.at))
}

/// Makes a job of items that came in a request of mode=upsert and are too many for one commit.
pub(super) async fn of_items(
    call: &Call,
    ingest: &Ingest,
    collection: &Arc<Collection>,
    (request, dry_run): (&fencepost::ingest::IngestRequest, DryRun),
    items: &[JsonNode<'_>],
) -> Result<Response, Problem> {
    if dry_run == DryRun::No
        && ingest.knows(request).await?
        && let Some(reply) = ingest.reply_to_known(request).await?
    {
        return respond(call, ingest, request, None, &reply);
    }
    let mut upload = begin(call, ingest, collection, (request, dry_run)).await?;
    for item in items {
        upload.add(UploadedItem { bytes: item.raw.as_bytes(), is_whole: true }).await?;
    }
    let claim = JobClaim { compared: request.compared.clone(), trace: request.trace };
    let reply = upload.finish(claim, reply::queued_job).await?;
    respond_to_upload(call, ingest, request, collection, &reply)
}

fn respond_to_upload(
    call: &Call,
    ingest: &Ingest,
    request: &fencepost::ingest::IngestRequest,
    collection: &Arc<Collection>,
    reply: &Reply,
) -> Result<Response, Problem> {
    let Reply::Job(of_job) = reply else { return respond(call, ingest, request, Some(&collection.name), reply) };
    let job::Reply::Queued { answer, expires, .. } = of_job else {
        let detail = "the upload was given up before its end: its parts came too slowly; send the request again";
        return Err(Problem::new(Code::Timeout, detail));
    };
    if expires.is_some() {
        let target = ingest.target(&request.tenant, &request.correlation_id)?;
        let source = Some(("ingest", &*collection.name));
        fences::record(call, &target, reply, &Told { op: "ingest", effect_id: None, source });
    }
    let answer = Answer { status: StatusCode::ACCEPTED, expires: *expires, ..Answer::ok(answer.to_vec()) };
    Ok(answer.response())
}

/// Whether the outcome of a request was a job.
pub(super) fn is_job(effect_id: &str) -> bool {
    effect_id.split_once(':').is_some_and(|(id, _)| JobId::parse(id).is_some())
}

/// `GET /wms-ingest/v1/jobs`
pub(super) async fn list(call: &Call) -> Result<Response, Problem> {
    let (ingest, tenant, query) = (ingest(call)?, tenant(call)?, Query::of(call)?);
    let status = query.one("status")?;
    const STATUSES: [&str; 5] = ["QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"];
    if let Some(unknown) = status.filter(|status| !STATUSES.contains(status)) {
        return Err(malformed(format!("`status` must be one of {}, not {unknown:?}", STATUSES.join(", "))));
    }
    let limit = query.limit()?;
    let mut after = query.cursor(JobId::parse)?;
    let (mut found, mut seen) = (Vec::new(), 0);
    loop {
        let page = ingest.jobs(&tenant, after, JOBS).await?;
        let is_last = page.len() < JOBS;
        for job in page {
            if found.len() == limit || seen == JOBS_MAX {
                return Ok(query::page(found, after.map(|after| after.to_string())).response());
            }
            (seen, after) = (seen + 1, Some(job.id));
            if ingest.shows(&job, &tenant) && status.is_none_or(|status| status == job.state.name()) {
                found.push(reply::job(&job));
            }
        }
        if is_last {
            return Ok(query::page(found, None).response());
        }
    }
}

/// `GET /wms-ingest/v1/jobs/{job_id}`
pub(super) async fn read(call: &Call) -> Result<Response, Problem> {
    let (_, job) = job_of(call).await?;
    Ok(ok_response(reply::job(&job)))
}

/// `POST /wms-ingest/v1/jobs/{job_id}/cancel`
pub(super) async fn cancel(call: &Call) -> Result<Response, Problem> {
    let (ingest, job) = job_of(call).await?;
    if DryRun::of(&Query::of(call)?)? == DryRun::Yes {
        return Err(malformed("the end of a job cannot be tried: leave `dry_run` out"));
    }
    let Reply::Job(job::Reply::Job(job)) = ingest.cancel_job(job.id).await? else { return Err(unknown()) };
    match job.state {
        JobState::Cancelled => Ok(ok_response(reply::job(&job))),
        _ => Err(Problem::new(Code::JobEnded, format!("the job has ended: it is {}", job.state.name()))),
    }
}

async fn job_of(call: &Call) -> Result<(Ingest, Arc<Job>), Problem> {
    let (ingest, tenant) = (ingest(call)?, tenant(call)?);
    let id = JobId::parse(&call.path_value("job_id")?).ok_or_else(unknown)?;
    let job = ingest.job(&tenant, id).await?.ok_or_else(unknown)?;
    Ok((ingest, job))
}

fn unknown() -> Problem {
    let detail = "no job of this id is known; list those that are with GET /wms-ingest/v1/jobs";
    Problem::new(Code::UnknownJob, detail)
}

/// `GET /wms-ingest/v1/jobs/{job_id}/results`
pub(super) async fn results(call: &Call) -> Result<Response, Problem> {
    let (ingest, job) = job_of(call).await?;
    let query = Query::of(call)?;
    let statuses = query.one("status")?.map(LineStatus::list).transpose().map_err(malformed)?;
    let with_item = match query.one("include")? {
        None => false,
        Some("item") => true,
        Some(other) => return Err(malformed(format!("`include` must be item, not {other:?}"))),
    };
    let limit = query.limit()?;
    // The cursor is how many items were looked at.
    let mut next: u64 = query.cursor(|text| text.parse().ok())?.unwrap_or_default();
    let (mut out, mut lines, mut rows, mut is_over) = (Vec::new(), 0, 0, false);
    'pages: loop {
        let page = ingest.job_results(job.id, next, RESULT_ROWS).await?;
        if page.is_empty() {
            is_over = !job.state.is_open();
            break;
        }
        for results in page.iter().filter(|results| results.tenant == job.tenant) {
            // Results before may have been dropped.
            next = next.max(results.first_line);
            let skipped = usize::try_from(next.saturating_sub(results.first_line)).unwrap_or(usize::MAX);
            for line in results.lines.iter().skip(skipped) {
                if lines == limit || out.len() > PAGE_BYTES {
                    break 'pages;
                }
                next += 1;
                if statuses.as_ref().is_none_or(|statuses| statuses.contains(&LineStatus::of(line))) {
                    out.extend(reply::line(results, line, next, (job.dry_run, with_item)));
                    out.push(b'\n');
                    lines += 1;
                }
            }
            rows += 1;
            if rows == RESULT_ROWS_MAX {
                break 'pages;
            }
        }
    }
    call.room_for(out.len())?;
    let mut response = ok_response(out);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    // A job that goes on will have more.
    if !is_over && (next < job.progress.done() || job.state.is_open()) {
        headers.insert(NEXT_CURSOR, next.to_string().parse().expect("digits"));
    }
    Ok(response)
}
