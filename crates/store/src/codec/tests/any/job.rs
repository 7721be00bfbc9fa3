//! Any rows about jobs. Called only by the strategies beside it.

use fencepost_kernel::{
    Tenant,
    item::ItemFault,
    job::{Chunk, Job, JobFailure, JobId, JobProgress, JobState, LineResult, LineVerdict, Record as OfJob, Results},
    row::Record,
};
use proptest::{collection::vec, option, prelude::*};

use super::{
    bytes,
    item::{content, missing},
    text, time,
};

fn state() -> impl Strategy<Value = JobState> {
    prop_oneof![
        Just(JobState::Uploading),
        Just(JobState::Queued),
        Just(JobState::Running),
        Just(JobState::Completed),
        Just(JobState::Cancelled),
        (text(), text()).prop_map(|(code, message)| JobState::Failed(JobFailure { code, message })),
    ]
}

fn id() -> impl Strategy<Value = JobId> {
    any::<[u8; JobId::LEN]>().prop_map(JobId)
}

fn job() -> BoxedStrategy<OfJob> {
    let names = (text(), text(), text(), text());
    let numbers = any::<[u64; 8]>();
    let times = (time(), option::of(time()), option::of(time()), option::of(time()));
    (id(), names, any::<bool>(), state(), numbers, times)
        .prop_map(|(id, (tenant, by, correlation_id, collection), dry_run, state, numbers, times)| {
            let [chunks, first_chunk, lines, bytes, accepted, replay, quarantined, rejected] = numbers;
            let (created, ended, due, expires) = times;
            let progress = JobProgress { accepted, replay, quarantined, rejected };
            let (tenant, by) = (Tenant::new(tenant), by.into());
            let (correlation_id, collection) = (correlation_id.into(), collection.into());
            OfJob::Job(
                Job {
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
                }
                .into(),
            )
        })
        .boxed()
}

fn line() -> BoxedStrategy<LineResult> {
    let fault = (text(), text()).prop_map(|(pointer, message)| ItemFault { pointer, message });
    let verdict = prop_oneof![
        any::<bool>().prop_map(|reactivated| LineVerdict::Accepted { reactivated }),
        any::<bool>().prop_map(|differs| LineVerdict::Replay { differs }),
        (any::<u64>(), vec(missing(), 0..3))
            .prop_map(|(number, unresolved)| LineVerdict::Quarantined { number, unresolved }),
        vec(fault, 0..3).prop_map(LineVerdict::Rejected),
    ];
    (option::of(text()), verdict, option::of(bytes()))
        .prop_map(|(source_id, verdict, item)| LineResult { source_id, verdict, item })
        .boxed()
}

pub(super) fn record() -> BoxedStrategy<Record> {
    let of_job = prop_oneof![
        2 => job(),
        1 => (id(), any::<u64>(), any::<u64>(), content(), time()).prop_map(
            |(job, first_line, lines, content, expires)| {
                OfJob::Chunk(Chunk { job, first_line, lines, content, expires }.into())
            }
        ),
        2 => (text(), text(), any::<u64>(), vec(line(), 0..6), time()).prop_map(
            |(tenant, collection, first_line, lines, expires)| {
                let (tenant, collection) = (Tenant::new(tenant), collection.into());
                OfJob::Results(Results { tenant, collection, first_line, lines, expires }.into())
            }
        ),
    ];
    of_job.prop_map(Record::from).boxed()
}
