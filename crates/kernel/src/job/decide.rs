//! Decides how a job moves on: each of its items once, whichever node asks.
//! Never looks at a row that its footprint does not name. Called only from `job`.

use std::sync::Arc;

use super::{
    BeginUpload, Cancel, Clear, Command, Enqueue, Fail, Job, JobState, LineResult, LineVerdict, Record, Reply, Results,
    Step, UploadPart, job_of,
};
use crate::{
    fence::{self, Receipt, seal_claimed},
    item,
    key::RowKey,
    law::{self, Decision},
    row::{Rows, Write, write},
    time::Millis,
};

pub(crate) fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Upload(upload) => begin(upload, rows, now),
        Command::Part(part) => add(part, rows, now),
        Command::Enqueue(command) => enqueue(command, rows, now),
        Command::Step(command) => step(command, rows, now),
        Command::Cancel(command) => cancel(command, rows, now),
        Command::Fail(command) => fail(command, rows, now),
        Command::Clear(command) => clear(command, rows, now),
    }
}

fn begin(upload: &BeginUpload, rows: &impl Rows, now: Millis) -> Decision {
    let job = Job { created: now, due: Some(now.plus(upload.patience_ms)), ..upload.job.clone() };
    moved_on(rows, job)
}

fn add(part: &UploadPart, rows: &impl Rows, now: Millis) -> Decision {
    let chunk = &part.chunk;
    let uploading = job_of(rows, chunk.job).filter(|job| job.is_upload() && job.first_chunk == 0);
    let Some(job) = uploading.filter(|job| job.lines == chunk.first_line) else { return nothing(Reply::NoSuchJob) };
    let next = Job {
        chunks: job.chunks + 1,
        lines: job.lines + chunk.lines,
        bytes: job.bytes + chunk.content.len() as u64,
        due: Some(now.plus(part.patience_ms)),
        ..Job::clone(job)
    };
    let key = RowKey::job_chunk(chunk.job, job.chunks);
    let mut decision = moved_on(rows, next);
    decision.writes.push(Write { key, expect: None, put: Some(Record::Chunk(chunk.clone().into()).into()) });
    decision
}

fn enqueue(enqueue: &Enqueue, rows: &impl Rows, now: Millis) -> Decision {
    let claimed = enqueue.claim.as_ref().map(|claim| (claim, fence::claim(claim, rows, now)));
    if let Some((_, claimed)) = &claimed
        && !matches!(claimed.reply, law::Reply::Fence(fence::Reply::New(_)))
    {
        return claimed.clone();
    }
    let uploading = job_of(rows, enqueue.job).filter(|job| job.is_upload() && job.first_chunk == 0);
    let Some(job) = uploading else { return nothing(Reply::NoSuchJob) };
    let job = Arc::new(match job.lines {
        0 => ended(Job::clone(job), JobState::Completed, enqueue.retain_ms, now),
        _ => Job { state: JobState::Queued, due: Some(now), ..Job::clone(job) },
    });
    let answer = (enqueue.answer)(&job);
    let mut decision = claimed.as_ref().map_or_else(|| nothing(Reply::Moved), |(_, claimed)| claimed.clone());
    let expires = claimed.map(|(claim, _)| {
        let effect_id = format!("{}: {} items of {}", job.id, job.lines, job.collection);
        seal_claimed(&mut decision, Receipt { effect_id, body: answer.clone() }, claim.target.scope.retain_ms, now)
    });
    decision.writes.push(put(rows, job.clone()));
    decision.reply = Reply::Queued { job, answer, expires }.into();
    decision
}

/// INVARIANT one-verdict-a-line: the items, their results and the job's progress are one commit, and it stands only while just as
/// many items of the job are decided as when it was asked for.
fn step(step: &Step, rows: &impl Rows, now: Millis) -> Decision {
    let open = job_of(rows, step.job).filter(|job| job.state.is_open() && job.progress.done() == step.done);
    let Some(job) = open else { return nothing(Reply::Moved) };
    let mut decision = item::decision_of(&step.submit, rows, now);
    let law::Reply::Item(item::Reply::Submitted { verdicts, .. }) = &decision.reply else {
        return nothing(Reply::Moved);
    };
    let verdicts: Vec<LineVerdict> = verdicts.iter().map(LineVerdict::from).collect();
    if job.dry_run {
        decision = nothing(Reply::Moved);
    }
    let mut next = Job {
        state: JobState::Running,
        due: Some(now.plus(step.lease_ms)),
        first_chunk: step.ends_chunk.map_or(job.first_chunk, |chunk| chunk + 1),
        ..Job::clone(job)
    };
    verdicts.iter().for_each(|verdict| next.progress.count(verdict));
    if next.progress.done() >= next.lines {
        next = ended(next, JobState::Completed, step.retain_ms, now);
    }
    let lines = step.submit.changes.iter().zip(&step.items).zip(verdicts).map(|((change, item), verdict)| {
        let taken = matches!(verdict, LineVerdict::Accepted { .. } | LineVerdict::Replay { .. });
        let item = (!taken).then(|| item.clone());
        LineResult { source_id: change.source_id().map(str::to_owned), verdict, item }
    });
    let results = Results {
        tenant: job.tenant.clone(),
        collection: job.collection.clone(),
        first_line: step.done,
        lines: lines.collect(),
        expires: now.plus(step.results_retain_ms),
    };
    let key = RowKey::job_results(step.job, step.done);
    decision.writes.push(write(rows, key, Some(Record::Results(results.into()).into())));
    decision.also.drops.extend(step.ends_chunk.map(|chunk| RowKey::job_chunk(step.job, chunk)));
    let next = Arc::new(next);
    decision.writes.push(put(rows, next.clone()));
    decision.reply = Reply::Job(next).into();
    decision
}

fn cancel(cancel: &Cancel, rows: &impl Rows, now: Millis) -> Decision {
    let Some(job) = job_of(rows, cancel.job).filter(|job| !job.is_upload()) else { return nothing(Reply::NoSuchJob) };
    if !job.state.is_open() {
        return nothing(Reply::Job(job.clone()));
    }
    moved_on(rows, ended(Job::clone(job), JobState::Cancelled, cancel.retain_ms, now))
}

fn fail(fail: &Fail, rows: &impl Rows, now: Millis) -> Decision {
    let open = job_of(rows, fail.job).filter(|job| job.state.is_open() && job.progress.done() == fail.done);
    let Some(job) = open else { return nothing(Reply::Moved) };
    moved_on(rows, ended(Job::clone(job), JobState::Failed(fail.failure.clone()), fail.retain_ms, now))
}

// The chunks that are left are dropped step by step; then nothing is due any more.
fn ended(job: Job, state: JobState, retain_ms: u64, now: Millis) -> Job {
    let due = (job.first_chunk < job.chunks).then_some(now);
    Job { state, ended: Some(now), due, expires: Some(now.plus(retain_ms)), ..job }
}

fn clear(clear: &Clear, rows: &impl Rows, now: Millis) -> Decision {
    let Some(job) = job_of(rows, clear.job) else { return nothing(Reply::NoSuchJob) };
    let stopped = clear.given_up || job.first_chunk > 0 || job.due.is_none_or(|due| due <= now);
    if job.state.is_open() || (job.is_upload() && !stopped) {
        return nothing(Reply::Moved);
    }
    let end = job.chunks.min(job.first_chunk + clear.chunks_max);
    let drops = (job.first_chunk..end).map(|chunk| RowKey::job_chunk(clear.job, chunk));
    let is_last = end == job.chunks;
    let next = Arc::new(Job { first_chunk: end, due: if is_last { None } else { Some(now) }, ..Job::clone(job) });
    let mut decision = nothing(Reply::Job(next.clone()));
    decision.also.drops.extend(drops);
    decision.writes.push(match job.is_upload() && is_last {
        true => write(rows, RowKey::job(clear.job), None),
        false => put(rows, next),
    });
    decision
}

fn moved_on(rows: &impl Rows, job: Job) -> Decision {
    let job = Arc::new(job);
    Decision::new(vec![put(rows, job.clone())], Reply::Job(job))
}

fn put(rows: &impl Rows, job: Arc<Job>) -> Write {
    write(rows, RowKey::job(job.id), Some(Record::Job(job).into()))
}

fn nothing(reply: Reply) -> Decision {
    Decision::reply(reply)
}
