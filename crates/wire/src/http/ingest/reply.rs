//! Verdicts, items and quarantines to bytes. The answers to requests are written here while they are decided, and sealed as
//! they are.
//! Never asks the library anything. Called by the kernel, through the request, and by the routes beside it.

use bytes::Bytes;
use fencepost_kernel::{
    item::{
        Accepted, ChangeVerdict, Item, ItemFault, ItemVersion, Missing, QuarantineId, Quarantined, Replaced, Submit,
    },
    job::{Job, JobProgress, JobState, LineResult, LineVerdict, Results},
    json,
};

use super::request::DryRun;
use crate::http::{
    query::array,
    reply::{Object, quoted},
};

/// The answer to a list of items.
pub(super) fn item_results(submit: &Submit, verdicts: &[ChangeVerdict]) -> Bytes {
    write_item_results(Object::new(), submit, verdicts, DryRun::No)
}

/// The same, where nothing was changed.
pub(super) fn dry_run_item_results(submit: &Submit, verdicts: &[ChangeVerdict]) -> Bytes {
    write_item_results(Object::new().value("dry_run", true), submit, verdicts, DryRun::Yes)
}

fn write_item_results(answer: Object, submit: &Submit, verdicts: &[ChangeVerdict], dry_run: DryRun) -> Bytes {
    let results = submit.changes.iter().zip(verdicts).map(|(change, verdict)| {
        let result = Object::new();
        let result = match change.source_id() {
            Some(source_id) => result.text("source_id", source_id),
            None => result.raw("source_id", b"null"),
        };
        with_verdict(result, verdict, dry_run).end()
    });
    let results = array(results);
    let count = |status: &str| verdicts.iter().filter(|verdict| verdict.status() == status).count();
    let summary = Object::new()
        .value("accepted", count("ACCEPTED"))
        .value("replay", count("REPLAY"))
        .value("quarantined", count("QUARANTINED"))
        .value("rejected", count("REJECTED"));
    answer.raw("results", &results).raw("summary", &summary.end()).end().into()
}

/// The answer to a request about one item: a delete, a cancel or a release.
pub(super) fn single_result(submit: &Submit, verdicts: &[ChangeVerdict]) -> Bytes {
    write_single_result(Object::new(), submit, verdicts, DryRun::No)
}

/// The same, where nothing was changed.
pub(super) fn dry_run_single_result(submit: &Submit, verdicts: &[ChangeVerdict]) -> Bytes {
    write_single_result(Object::new().value("dry_run", true), submit, verdicts, DryRun::Yes)
}

fn write_single_result(answer: Object, submit: &Submit, verdicts: &[ChangeVerdict], dry_run: DryRun) -> Bytes {
    let source_id = submit.changes.first().and_then(|change| change.source_id()).unwrap_or_default();
    let result = answer.text("source_id", source_id);
    verdicts.iter().fold(result, |result, verdict| with_verdict(result, verdict, dry_run)).end().into()
}

fn with_verdict(result: Object, verdict: &ChangeVerdict, dry_run: DryRun) -> Object {
    let result = result.text("status", verdict.status());
    match verdict {
        ChangeVerdict::Accepted { item, reactivated } => {
            let result = result.text("internal_id", &item.internal());
            if *reactivated { result.value("reactivated", true) } else { result }
        }
        ChangeVerdict::Replay { item, differs } => {
            let result = result.text("internal_id", &item.internal());
            if *differs { result.text("warning", DIFFERS) } else { result }
        }
        // A dry run opens no quarantine: the id would name one that never comes to be.
        ChangeVerdict::Quarantined { unresolved, .. } if dry_run == DryRun::Yes => with_unresolved(result, unresolved),
        ChangeVerdict::Quarantined { quarantine, unresolved } | ChangeVerdict::Resent { quarantine, unresolved } => {
            with_unresolved(result.text("quarantine_id", &quarantine.to_string()), unresolved)
        }
        ChangeVerdict::Rejected(faults) => result.raw("reasons", &array(faults.iter().map(fault))),
        ChangeVerdict::Retired { item, replay, .. } => {
            result.text("internal_id", &item.internal()).value("replay", replay)
        }
        ChangeVerdict::AlreadyResolved { quarantine } => {
            result.text("quarantine_id", &quarantine.to_string()).value("replay", true)
        }
    }
}

const DIFFERS: &str =
    "this version was accepted with other content, which stands; send a change under a higher version";

fn fault(fault: &ItemFault) -> Vec<u8> {
    Object::new().text("pointer", &fault.pointer).text("message", &fault.message).end()
}

// Why an item waits: in a sentence, in the word for the first of the reasons, and as a list.
fn with_unresolved(result: Object, unresolved: &[Missing]) -> Object {
    let first = unresolved.first().map_or("", |missing| &missing.reason);
    let names = unresolved
        .iter()
        .take(NAMED_MAX)
        .map(|missing| format!("{} {}", missing.collection, quoted(&missing.source_id)));
    let names: Vec<String> = names.collect();
    let more = if unresolved.len() > NAMED_MAX { " and others" } else { "" };
    let reason = format!("waits for {}{more}", names.join(", "));
    result.text("reason", &reason).text("reason_code", first).raw("unresolved", &array(unresolved.iter().map(missing)))
}

/// How many missing items a sentence names.
const NAMED_MAX: usize = 3;

fn missing(missing: &Missing) -> Vec<u8> {
    Object::new()
        .text("entity_kind", &missing.collection)
        .text("source_id", &missing.source_id)
        .text("reason_code", &missing.reason)
        .end()
}

fn with_version(object: Object, version: Option<&ItemVersion>) -> Object {
    with_named_version(object, "source_version", version)
}

fn with_named_version(object: Object, name: &'static str, version: Option<&ItemVersion>) -> Object {
    match version {
        None => object.raw(name, b"null"),
        Some(ItemVersion::Integer(number)) => object.raw(name, number.to_string().as_bytes()),
        Some(ItemVersion::Time(text) | ItemVersion::Dotted(text) | ItemVersion::Text(text)) => object.text(name, text),
    }
}

/// The answer to an operator who asks that a version does not count any more.
pub(super) fn version_forgotten(source_id: &str, highest: Option<&ItemVersion>, replay: bool) -> Vec<u8> {
    let answer = Object::new().text("source_id", source_id);
    with_named_version(answer, "highest_version", highest).value("replay", replay).end()
}

/// An item with its present version; none before one is accepted.
pub(super) fn item(item: &Item) -> Option<Vec<u8>> {
    let current = item.current.as_ref()?;
    let row = with_version(Object::new().text("source_id", &item.source_id), current.version.as_ref());
    let row = row.text("internal_id", &item.id().internal());
    let row = with_status(row, current);
    Some(with_sent(row, current).raw("item", &current.content).end())
}

/// One accepted version, in a history.
pub(super) fn version(number: u64, accepted: &Accepted, replaced: Option<&Replaced>) -> Vec<u8> {
    let row = with_version(Object::new(), accepted.version.as_ref()).value("number", number);
    let row = with_sent(row, accepted);
    let row = match &accepted.retired {
        None => row,
        Some(retired) => row
            .text("retired_as", retired.cause.status())
            .time("retired_at", retired.from.at)
            .text("retired_by", &retired.from.by)
            .text("retired_correlation_id", &retired.from.correlation_id),
    };
    let row = replaced.iter().fold(row, |row, replaced| row.time("replaced_at", replaced.replaced_at));
    row.raw("item", &accepted.content).end()
}

fn with_status(row: Object, current: &Accepted) -> Object {
    match &current.retired {
        None => row.text("status", "ACTIVE"),
        Some(retired) => row.text("status", retired.cause.status()).time("retired_at", retired.from.at),
    }
}

fn with_sent(row: Object, accepted: &Accepted) -> Object {
    let from = &accepted.from;
    row.time("accepted_at", from.at).text("by", &from.by).text("correlation_id", &from.correlation_id)
}

/// A stay in quarantine.
pub(super) fn quarantine(quarantined: &Quarantined) -> Vec<u8> {
    let Quarantined {
        tenant: _,
        collection,
        source_id,
        number: _,
        version,
        content,
        from,
        opened,
        unresolved,
        resolved,
    } = quarantined;
    let id: QuarantineId = quarantined.id();
    let row = Object::new().text("quarantine_id", &id.to_string()).text("collection", collection);
    let row = with_version(row.text("source_id", source_id), version.as_ref());
    let row = row.text("status", if resolved.is_none() { "OPEN" } else { "RESOLVED" });
    let row = with_unresolved(row, unresolved)
        .time("opened_at", *opened)
        .time("sent_at", from.at)
        .text("by", &from.by)
        .text("correlation_id", &from.correlation_id);
    let row = match resolved {
        None => row,
        Some(resolved) => row
            .text("resolution", resolved.how.name())
            .time("resolved_at", resolved.from.at)
            .text("resolved_by", &resolved.from.by)
            .text("resolved_correlation_id", &resolved.from.correlation_id),
    };
    row.raw("item", content).end()
}

/// The answer to the upload of a job.
pub(super) fn queued_job(job: &Job) -> Bytes {
    let answer = Object::new().text("job_id", &job.id.to_string());
    let answer =
        answer.text("status_url", &format!("/wms-ingest/v1/jobs/{}", job.id)).value("accepted_items", job.lines);
    if job.dry_run { answer.value("dry_run", true) } else { answer }.end().into()
}

/// A job with its progress.
pub(super) fn job(job: &Job) -> Vec<u8> {
    let JobProgress { accepted, replay, quarantined, rejected } = job.progress;
    let progress = Object::new().value("done", job.progress.done()).value("total", job.lines);
    let summary = Object::new()
        .value("accepted", accepted)
        .value("replay", replay)
        .value("quarantined", quarantined)
        .value("rejected", rejected);
    let shown = Object::new()
        .text("job_id", &job.id.to_string())
        .text("status", job.state.name())
        .text("mode", "bulk")
        .text("collection", &job.collection)
        .raw("progress", &progress.end())
        .raw("summary", &summary.end());
    let shown = if job.dry_run { shown.value("dry_run", true) } else { shown };
    let shown = match &job.state {
        JobState::Failed(failure) => {
            shown.raw("error", &Object::new().text("code", &failure.code).text("detail", &failure.message).end())
        }
        _ => shown,
    };
    let shown = shown.text("by", &job.by).text("correlation_id", &job.correlation_id).time("created_at", job.created);
    job.ended.iter().fold(shown, |shown, ended| shown.time("ended_at", *ended)).end()
}

/// The verdicts that results can be filtered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineStatus {
    Accepted,
    Replay,
    Quarantined,
    Rejected,
}

impl LineStatus {
    pub(super) fn of(line: &LineResult) -> Self {
        match line.verdict {
            LineVerdict::Accepted { .. } => Self::Accepted,
            LineVerdict::Replay { .. } => Self::Replay,
            LineVerdict::Quarantined { .. } => Self::Quarantined,
            LineVerdict::Rejected(_) => Self::Rejected,
        }
    }

    /// Reads a list with commas.
    pub(super) fn list(text: &str) -> Result<Vec<Self>, String> {
        let read = |word: &str| match word.trim() {
            "ACCEPTED" => Ok(Self::Accepted),
            "REPLAY" => Ok(Self::Replay),
            "QUARANTINED" => Ok(Self::Quarantined),
            "REJECTED" => Ok(Self::Rejected),
            other => Err(format!("`status` must be of ACCEPTED, REPLAY, QUARANTINED and REJECTED, not {other:?}")),
        };
        text.split(',').map(read).collect()
    }
}

/// One line of a job's results. `number` is the item's number in the upload, from 1.
pub(super) fn line(results: &Results, line: &LineResult, number: u64, (dry_run, with_item): (bool, bool)) -> Vec<u8> {
    let shown = Object::new().value("line", number);
    let shown = match &line.source_id {
        Some(source_id) => shown.text("source_id", source_id),
        None => shown.raw("source_id", b"null"),
    };
    let dry_run = if dry_run { DryRun::Yes } else { DryRun::No };
    let shown = with_verdict(shown, &line.change_verdict(results), dry_run);
    match line.item.as_ref().filter(|_| with_item) {
        None => shown.end(),
        // Each result is one line, also where the item was sent in several.
        Some(item) => match json::parse(item) {
            Ok(node) if item.contains(&b'\n') || item.contains(&b'\r') => {
                shown.raw("item", &json::canonical(&node)).end()
            }
            Ok(_) => shown.raw("item", item).end(),
            Err(_) => shown.text("item", &String::from_utf8_lossy(item)).end(),
        },
    }
}
