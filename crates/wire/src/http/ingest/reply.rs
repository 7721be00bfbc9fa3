//! Verdicts, items and quarantines to bytes. The answers to requests are written here while they are decided, and sealed as
//! they are.
//! Never asks the library anything. Called by the kernel, through the request, and by the routes beside it.

use bytes::Bytes;
use fencepost_kernel::item::{
    Accepted, Item, ItemFault, ItemVersion, Missing, QuarantineId, Quarantined, Replaced, Submit, Verdict,
};

use crate::http::{
    query::array,
    reply::{Object, quoted},
};

/// The answer to a list of items.
pub(super) fn items(submit: &Submit, verdicts: &[Verdict]) -> Bytes {
    listed(Object::new(), submit, verdicts)
}

/// The same, where nothing was changed.
pub(super) fn trial_items(submit: &Submit, verdicts: &[Verdict]) -> Bytes {
    listed(Object::new().value("dry_run", true), submit, verdicts)
}

fn listed(answer: Object, submit: &Submit, verdicts: &[Verdict]) -> Bytes {
    let results = submit.changes.iter().zip(verdicts).map(|(change, verdict)| {
        let result = Object::new();
        let result = match change.source_id() {
            Some(source_id) => result.text("source_id", source_id),
            None => result.raw("source_id", b"null"),
        };
        told(result, verdict).end()
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
pub(super) fn one(submit: &Submit, verdicts: &[Verdict]) -> Bytes {
    alone(Object::new(), submit, verdicts)
}

/// The same, where nothing was changed.
pub(super) fn trial_one(submit: &Submit, verdicts: &[Verdict]) -> Bytes {
    alone(Object::new().value("dry_run", true), submit, verdicts)
}

fn alone(answer: Object, submit: &Submit, verdicts: &[Verdict]) -> Bytes {
    let source_id = submit.changes.first().and_then(|change| change.source_id()).unwrap_or_default();
    verdicts.iter().fold(answer.text("source_id", source_id), told).end().into()
}

fn told(result: Object, verdict: &Verdict) -> Object {
    let result = result.text("status", verdict.status());
    match verdict {
        Verdict::Accepted { item, reactivated } => {
            let result = result.text("internal_id", &item.internal());
            if *reactivated { result.value("reactivated", true) } else { result }
        }
        Verdict::Replay { item, differs } => {
            let result = result.text("internal_id", &item.internal());
            if *differs { result.text("warning", DIFFERS) } else { result }
        }
        Verdict::Quarantined { quarantine, unresolved } => {
            waiting(result.text("quarantine_id", &quarantine.to_string()), unresolved)
        }
        Verdict::Rejected(faults) => result.raw("reasons", &array(faults.iter().map(fault))),
        Verdict::Retired { item, replay, .. } => result.text("internal_id", &item.internal()).value("replay", replay),
        Verdict::AlreadyResolved { quarantine } => {
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
fn waiting(result: Object, unresolved: &[Missing]) -> Object {
    let first = unresolved.first().map_or("", |missing| &missing.reason);
    let named = unresolved
        .iter()
        .take(NAMED_MAX)
        .map(|missing| format!("{} {}", missing.collection, quoted(&missing.source_id)));
    let named: Vec<String> = named.collect();
    let more = if unresolved.len() > NAMED_MAX { " and others" } else { "" };
    let reason = format!("waits for {}{more}", named.join(", "));
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

fn versioned(object: Object, version: Option<&ItemVersion>) -> Object {
    match version {
        None => object.raw("source_version", b"null"),
        Some(ItemVersion::Integer(number)) => object.raw("source_version", number.to_string().as_bytes()),
        Some(ItemVersion::Time(text) | ItemVersion::Dotted(text) | ItemVersion::Text(text)) => {
            object.text("source_version", text)
        }
    }
}

/// An item with its present version; none before one is accepted.
pub(super) fn item(item: &Item) -> Option<Vec<u8>> {
    let current = item.current.as_ref()?;
    let told = versioned(Object::new().text("source_id", &item.source_id), current.version.as_ref());
    let told = told.text("internal_id", &item.id().internal());
    let told = retired_or_active(told, current);
    Some(sent(told, current).raw("item", &current.content).end())
}

/// One accepted version, in a history.
pub(super) fn version(number: u64, accepted: &Accepted, replaced: Option<&Replaced>) -> Vec<u8> {
    let told = versioned(Object::new(), accepted.version.as_ref()).value("number", number);
    let told = sent(told, accepted);
    let told = match &accepted.retired {
        None => told,
        Some(retired) => told
            .text("retired_as", retired.cause.status())
            .time("retired_at", retired.from.at)
            .text("retired_by", &retired.from.by)
            .text("retired_correlation_id", &retired.from.correlation_id),
    };
    let told = replaced.iter().fold(told, |told, replaced| told.time("replaced_at", replaced.replaced_at));
    told.raw("item", &accepted.content).end()
}

fn retired_or_active(told: Object, current: &Accepted) -> Object {
    match &current.retired {
        None => told.text("status", "ACTIVE"),
        Some(retired) => told.text("status", retired.cause.status()).time("retired_at", retired.from.at),
    }
}

fn sent(told: Object, accepted: &Accepted) -> Object {
    let from = &accepted.from;
    told.time("accepted_at", from.at).text("by", &from.by).text("correlation_id", &from.correlation_id)
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
    let told = Object::new().text("quarantine_id", &id.to_string()).text("collection", collection);
    let told = versioned(told.text("source_id", source_id), version.as_ref());
    let told = told.text("status", if resolved.is_none() { "OPEN" } else { "RESOLVED" });
    let told = waiting(told, unresolved)
        .time("opened_at", *opened)
        .time("sent_at", from.at)
        .text("by", &from.by)
        .text("correlation_id", &from.correlation_id);
    let told = match resolved {
        None => told,
        Some(resolved) => told
            .text("resolution", resolved.how.name())
            .time("resolved_at", resolved.from.at)
            .text("resolved_by", &resolved.from.by)
            .text("resolved_correlation_id", &resolved.from.correlation_id),
    };
    told.raw("item", content).end()
}
