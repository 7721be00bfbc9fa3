//! The stored forms of the rows about jobs: job, chunk and results. They came with format 7. The times that a store reads without
//! the rest come first: when a row expires, and when it is due.
//! Never reads an item's content. Called only by the codec.

use bytes::Bytes;
use fencepost_kernel::{
    Millis, Tenant,
    item::ItemFault,
    job::{Chunk, Job, JobFailure, JobId, JobProgress, JobState, LineResult, LineVerdict, Results},
};

use super::{
    item::{put_missing, take_missing, take_shared},
    pack,
    wire::{Damage, Reader, put_since, put_str, put_uint},
};

// Of a job.
const EXPIRES: u8 = 1;
const DUE: u8 = 2;
const ENDED: u8 = 4;
const DRY_RUN: u8 = 8;
// Of a chunk.
const PACKED: u8 = 1;

pub(super) fn put_job(out: &mut Vec<u8>, job: &Job) {
    let Job {
        id,
        tenant,
        by,
        correlation_id,
        collection,
        dry_run,
        state,
        chunks,
        first_chunk,
        lines,
        bytes,
        progress,
        created,
        ended,
        due,
        expires,
    } = job;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let times = [(expires, EXPIRES), (due, DUE), (ended, ENDED)];
    out.push(times.iter().fold(flag(*dry_run, DRY_RUN), |flags, (time, bit)| flags | flag(time.is_some(), *bit)));
    put_uint(out, created.0);
    for time in times.iter().filter_map(|(time, _)| **time) {
        put_since(out, created.0, time.0);
    }
    out.extend_from_slice(&id.0);
    [tenant.as_str(), by, correlation_id, collection].into_iter().for_each(|text| put_str(out, text));
    let JobProgress { accepted, replay, quarantined, rejected } = *progress;
    [*chunks, *first_chunk, *lines, *bytes, accepted, replay, quarantined, rejected]
        .into_iter()
        .for_each(|number| put_uint(out, number));
    out.push(match state {
        JobState::Uploading => 0,
        JobState::Queued => 1,
        JobState::Running => 2,
        JobState::Completed => 3,
        JobState::Cancelled => 4,
        JobState::Failed(_) => 5,
    });
    if let JobState::Failed(JobFailure { code, message }) = state {
        put_str(out, code);
        put_str(out, message);
    }
}

/// The times of a job: when it was made, when its row expires, when it is due, and when it ended.
struct Times {
    flags: u8,
    created: Millis,
    expires: Option<Millis>,
    due: Option<Millis>,
    ended: Option<Millis>,
}

fn take_times(reader: &mut Reader<'_>) -> Result<Times, Damage> {
    let flags = reader.flags(EXPIRES | DUE | ENDED | DRY_RUN)?;
    let created = reader.uint()?;
    let mut time = |bit| (flags & bit != 0).then(|| reader.since(created).map(Millis)).transpose();
    let (expires, due, ended) = (time(EXPIRES)?, time(DUE)?, time(ENDED)?);
    Ok(Times { flags, created: Millis(created), expires, due, ended })
}

/// When the row of a job expires and when it is due, from its first few bytes.
pub(super) fn take_job_head(reader: &mut Reader<'_>) -> Result<(Option<Millis>, Option<Millis>), Damage> {
    let Times { expires, due, .. } = take_times(reader)?;
    Ok((expires, due))
}

pub(super) fn take_job(reader: &mut Reader<'_>) -> Result<Job, Damage> {
    let Times { flags, created, expires, due, ended } = take_times(reader)?;
    let id = JobId(reader.array()?);
    let tenant = Tenant::new(reader.str()?);
    let (by, correlation_id, collection) = (take_shared(reader)?, take_shared(reader)?, take_shared(reader)?);
    let (chunks, first_chunk, lines, bytes) = (reader.uint()?, reader.uint()?, reader.uint()?, reader.uint()?);
    let (accepted, replay, quarantined, rejected) = (reader.uint()?, reader.uint()?, reader.uint()?, reader.uint()?);
    let progress = JobProgress { accepted, replay, quarantined, rejected };
    let state = match reader.byte()? {
        0 => JobState::Uploading,
        1 => JobState::Queued,
        2 => JobState::Running,
        3 => JobState::Completed,
        4 => JobState::Cancelled,
        5 => JobState::Failed(JobFailure { code: reader.string()?, message: reader.string()? }),
        _ => return Err(Damage("the state of a job is unknown")),
    };
    let dry_run = flags & DRY_RUN != 0;
    Ok(Job {
        id,
        tenant,
        by,
        correlation_id,
        collection,
        dry_run,
        state,
        chunks,
        first_chunk,
        lines,
        bytes,
        progress,
        created,
        ended,
        due,
        expires,
    })
}

pub(super) fn put_chunk(out: &mut Vec<u8>, Chunk { job, first_line, lines, content, expires }: &Chunk) {
    put_uint(out, expires.0);
    let packed = pack::pack(content);
    out.push(if packed.is_some() { PACKED } else { 0 });
    out.extend_from_slice(&job.0);
    put_uint(out, *first_line);
    put_uint(out, *lines);
    pack::put(out, content, packed.as_deref());
}

/// When a chunk or results are dropped, from the first few bytes.
pub(super) fn take_expiry(reader: &mut Reader<'_>) -> Result<Millis, Damage> {
    reader.uint().map(Millis)
}

pub(super) fn take_chunk(reader: &mut Reader<'_>, whole: &Bytes) -> Result<Chunk, Damage> {
    let expires = take_expiry(reader)?;
    let packed = reader.flags(PACKED)? == PACKED;
    let (job, first_line, lines) = (JobId(reader.array()?), reader.uint()?, reader.uint()?);
    Ok(Chunk { job, first_line, lines, content: pack::take(reader, whole, packed)?, expires })
}

// Of a line.
const NAMED: u8 = 1;
const WITH_ITEM: u8 = 2;
const MARKED: u8 = 4;
const VERDICT_BITS: u8 = 3;

pub(super) fn put_results(out: &mut Vec<u8>, results: &Results) {
    let Results { tenant, collection, first_line, lines, expires } = results;
    put_uint(out, expires.0);
    put_str(out, tenant.as_str());
    put_str(out, collection);
    put_uint(out, *first_line);
    put_uint(out, lines.len() as u64);
    for LineResult { source_id, verdict, item } in lines {
        let (number, marked) = match verdict {
            LineVerdict::Accepted { reactivated } => (0, *reactivated),
            LineVerdict::Replay { differs } => (1, *differs),
            LineVerdict::Quarantined { .. } => (2, false),
            LineVerdict::Rejected(_) => (3, false),
        };
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(source_id.is_some(), NAMED) | flag(item.is_some(), WITH_ITEM) | flag(marked, MARKED);
        out.push(number << VERDICT_BITS | flags);
        source_id.iter().for_each(|source_id| put_str(out, source_id));
        match verdict {
            LineVerdict::Quarantined { number, unresolved } => {
                put_uint(out, *number);
                put_uint(out, unresolved.len() as u64);
                unresolved.iter().for_each(|missing| put_missing(out, missing));
            }
            LineVerdict::Rejected(faults) => {
                put_uint(out, faults.len() as u64);
                for ItemFault { pointer, message } in faults {
                    put_str(out, pointer);
                    put_str(out, message);
                }
            }
            LineVerdict::Accepted { .. } | LineVerdict::Replay { .. } => {}
        }
        item.iter().for_each(|item| super::wire::put_bytes(out, item));
    }
}

pub(super) fn take_results(reader: &mut Reader<'_>, whole: &Bytes) -> Result<Results, Damage> {
    let expires = take_expiry(reader)?;
    let (tenant, collection) = (Tenant::new(reader.str()?), take_shared(reader)?);
    let first_line = reader.uint()?;
    let lines = (0..reader.count()?).map(|_| take_line(reader, whole)).collect::<Result<_, _>>()?;
    Ok(Results { tenant, collection, first_line, lines, expires })
}

fn take_line(reader: &mut Reader<'_>, whole: &Bytes) -> Result<LineResult, Damage> {
    let flags = reader.flags(NAMED | WITH_ITEM | MARKED | 3 << VERDICT_BITS)?;
    let source_id = (flags & NAMED != 0).then(|| reader.string()).transpose()?;
    let marked = flags & MARKED != 0;
    let verdict = match flags >> VERDICT_BITS {
        0 => LineVerdict::Accepted { reactivated: marked },
        1 => LineVerdict::Replay { differs: marked },
        2 => {
            let number = reader.uint()?;
            let unresolved = (0..reader.count()?).map(|_| take_missing(reader)).collect::<Result<_, _>>()?;
            LineVerdict::Quarantined { number, unresolved }
        }
        _ => LineVerdict::Rejected(
            (0..reader.count()?)
                .map(|_| Ok(ItemFault { pointer: reader.string()?, message: reader.string()? }))
                .collect::<Result<_, _>>()?,
        ),
    };
    let item = (flags & WITH_ITEM != 0).then(|| reader.shared(whole)).transpose()?;
    Ok(LineResult { source_id, verdict, item })
}
