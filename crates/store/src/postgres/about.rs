//! The text that the `about` column shows a person for a row that is not a fence.
//! Never the body of an effect and never a secret; never read back. Called where rows become columns.

use std::borrow::Cow;

use fencepost_kernel::{
    RowKey, Version, audit,
    dispatch::{self, Transport},
    fence,
    item::{self, Accepted, Arrival, Item, ItemVersion, Missing, Quarantined, Replaced, Waiting},
    job::{self, Job},
    lane::{self, AfterDead},
    merge::SCALE,
    row::Record,
};
use serde_json::{Value, json};

/// The readable side of a record.
pub(super) fn about(key: &RowKey, record: &Record) -> Value {
    match record {
        Record::Fence(fence::Record::Fence(_)) => Value::Null,
        Record::Fence(fence::Record::VersionHead(head)) => match &head.version {
            Version::Integer(number) => json!({ "what": "version", "version": number.to_string() }),
            Version::Text(text) => json!({ "what": "version", "version": readable(text) }),
        },
        Record::Fence(fence::Record::AgainHead(head)) => {
            json!({ "what": "again", "last": head.last, "sealed": head.sealed })
        }
        Record::Fence(fence::Record::Alias(alias)) => json!({
            "what": "alias", "tenant": readable(alias.tenant.as_str()), "name": readable(&alias.name),
            "scope": readable(&alias.scope), "target": &*alias.target.hex(),
            "effect_id": readable(&alias.receipt.effect_id),
        }),
        Record::Fence(fence::Record::Trace(trace)) => {
            json!({ "what": "trace", "replays": trace.replays, "conflicts": trace.conflicts, "body_mismatches": trace.body_mismatches })
        }
        Record::Dispatch(dispatch::Record::Transport(transport)) => json!({
            "what": "route", "planner": readable(transport.planner.as_str()), "warehouse": readable(&transport.warehouse),
            "executor": readable(&transport.executor), "transport": transport.transport.name(),
            "topic": match &transport.transport {
                Transport::Kafka { topic } => Some(readable(topic)),
                _ => None,
            },
            "blocks_after_dead": transport.after_dead == AfterDead::Block,
        }),
        Record::Lane(lane::Record::Lane(lane)) => json!({
            "what": "lane", "name": readable(&lane.name()), "owner": readable(&lane.owner.node),
            "epoch": lane.owner.epoch, "settled": lane.settled, "trimmed": lane.trimmed,
            "attempts": lane.trouble.as_ref().map_or(0, |trouble| trouble.attempts),
            "paused": lane.paused.is_some(), "blocked": lane.blocked,
        }),
        Record::Lane(lane::Record::Tail(tail)) => json!({ "what": "tail", "lane_id": lane_id(key), "last": tail.last }),
        Record::Lane(lane::Record::Entry(entry)) => json!({
            "what": "entry", "lane_id": lane_id(key), "seq": key.place().1,
            "correlation_id": readable(&entry.correlation_id), "kind": readable(&entry.kind),
            "warehouse": readable(&entry.subject), "bytes": entry.body.len(),
        }),
        Record::Lane(lane::Record::DeadLetter(letter)) => json!({
            "what": "dead_letter", "lane": readable(&letter.purpose.name(&letter.tenant)), "seq": key.place().1,
            "correlation_id": readable(&letter.entry.correlation_id), "kind": readable(&letter.entry.kind),
            "warehouse": readable(&letter.entry.subject), "reason": letter.reason.name(),
            "attempts": letter.attempts, "status": letter.answer.status, "fate": letter.fate.name(),
        }),
        Record::Lane(lane::Record::Cancelled(cancelled)) => json!({
            "what": "cancelled", "lane_id": lane_id(key), "seq": key.place().1, "by": readable(&cancelled.by),
        }),
        Record::Lane(lane::Record::LaneNotice) => json!({ "what": "poke" }),
        Record::Audit(audit::Record::Entry(entry)) => json!({
            "what": "audit", "by": readable(&entry.by), "op": readable(&entry.op), "outcome": readable(&entry.outcome),
            "tenant": entry.subject.tenant.as_ref().map(|tenant| readable(tenant.as_str())),
            "on": readable(&entry.subject.on), "why": entry.subject.why.as_deref().map(readable),
            "at_ms": entry.at.0,
        }),
        Record::Counter(counter) => json!({ "what": "counter", "value": decimal(counter.value) }),
        Record::Item(item::Record::Item(item)) => about_item(item),
        Record::Item(item::Record::Replaced(replaced)) => about_replaced(key, replaced),
        Record::Item(item::Record::Quarantined(quarantined)) => about_quarantined(quarantined),
        Record::Item(item::Record::Waiting(waiting)) => about_waiting(waiting),
        Record::Item(item::Record::Arrival(arrival)) => about_arrival(arrival),
        Record::Job(job::Record::Job(job)) => about_job(job),
        Record::Job(job::Record::Chunk(chunk)) => json!({
            "what": "job_chunk", "job_id": chunk.job.to_string(), "first_line": chunk.first_line, "lines": chunk.lines,
        }),
        Record::Job(job::Record::Results(results)) => json!({
            "what": "job_results", "job_id": key.job_id().to_string(), "first_line": results.first_line,
            "lines": results.lines.len(),
        }),
    }
}

fn about_item(item: &Item) -> Value {
    let current = item.current.as_ref();
    json!({
        "what": "item", "tenant": readable(item.tenant.as_str()), "collection": readable(&item.collection),
        "source_id": readable(&item.source_id), "internal_id": item.id().internal(),
        "version": current.and_then(|current| version(current.version.as_ref())),
        "status": current.map(status), "seq": item.seq, "quarantined": item.quarantine.is_some(),
        "accepted_at_ms": current.map(|current| current.from.at.0),
        "by": current.map(|current| readable(&current.from.by)),
        "correlation_id": current.map(|current| readable(&current.from.correlation_id)),
        "item_text": current.map(|current| text(&current.content)),
    })
}

fn about_replaced(key: &RowKey, replaced: &Replaced) -> Value {
    let Replaced { tenant, collection, source_id, accepted, replaced_at } = replaced;
    json!({
        "what": "item_version", "tenant": readable(tenant.as_str()), "collection": readable(collection),
        "source_id": readable(source_id), "internal_id": key.item_id().internal(), "seq": seq(key),
        "version": version(accepted.version.as_ref()), "accepted_at_ms": accepted.from.at.0,
        "by": readable(&accepted.from.by), "correlation_id": readable(&accepted.from.correlation_id),
        "replaced_at_ms": replaced_at.0, "item_text": text(&accepted.content),
    })
}

fn about_quarantined(quarantined: &Quarantined) -> Value {
    let id = quarantined.id();
    let resolved = quarantined.resolved.as_ref();
    let unresolved = |missing: &Missing| {
        json!({
            "entity_kind": readable(&missing.collection), "source_id": readable(&missing.source_id),
            "reason_code": readable(&missing.reason),
        })
    };
    json!({
        "what": "quarantine", "tenant": readable(quarantined.tenant.as_str()),
        "collection": readable(&quarantined.collection), "source_id": readable(&quarantined.source_id),
        "quarantine_id": id.to_string(), "internal_id": id.item.internal(),
        "version": version(quarantined.version.as_ref()),
        "status": if resolved.is_some() { "RESOLVED" } else { "OPEN" },
        "resolution": resolved.map(|resolved| resolved.how.name()),
        "opened_at_ms": quarantined.opened.0, "resolved_at_ms": resolved.map(|resolved| resolved.from.at.0),
        "by": readable(&quarantined.from.by), "correlation_id": readable(&quarantined.from.correlation_id),
        "unresolved": quarantined.unresolved.iter().map(unresolved).collect::<Vec<_>>(),
        "item_text": text(&quarantined.content),
    })
}

fn about_waiting(waiting: &Waiting) -> Value {
    json!({
        "what": "waiting", "tenant": readable(waiting.tenant.as_str()), "internal_id": waiting.item.internal(),
        "missing_internal_id": waiting.missing.internal(),
    })
}

fn about_arrival(arrival: &Arrival) -> Value {
    json!({
        "what": "arrival", "tenant": readable(arrival.tenant.as_str()), "collection": readable(&arrival.collection),
        "source_id": readable(&arrival.source_id), "at_ms": arrival.at.0,
    })
}

fn about_job(job: &Job) -> Value {
    let progress = job.progress;
    json!({
        "what": "job", "job_id": job.id.to_string(), "tenant": readable(job.tenant.as_str()),
        "collection": readable(&job.collection), "status": job.state.name(), "dry_run": job.dry_run,
        "by": readable(&job.by), "correlation_id": readable(&job.correlation_id),
        "total": job.lines, "done": progress.done(), "accepted": progress.accepted, "replay": progress.replay,
        "quarantined": progress.quarantined, "rejected": progress.rejected, "bytes": job.bytes,
        "created_at_ms": job.created.0, "ended_at_ms": job.ended.map(|ended| ended.0),
    })
}

// The row's id ends in the number of the version, inverted: the newest comes first.
fn seq(key: &RowKey) -> u64 {
    key.id.last_chunk().map_or(0, |number| !u64::from_be_bytes(*number))
}

// As a text: no number of JSON holds them all.
fn version(version: Option<&ItemVersion>) -> Option<String> {
    version.map(|version| readable(&version.to_string()).into_owned())
}

fn status(accepted: &Accepted) -> &'static str {
    accepted.retired.as_ref().map_or("ACTIVE", |retired| retired.cause.status())
}

/// How JSON writes NUL.
const NUL: &str = "\\u0000";

// An item goes in as one JSON string, which takes every text. As JSON within this JSON it would be read by `jsonb`, which
// refuses NUL and numbers with a large exponent: a partner's item would make the commit fail. `json`, as which the views show
// it, takes both, but refuses to look into an object with NUL.
fn text(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content);
    let text = readable(&text);
    let mut shown = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find(NUL) {
        let (before, after) = (&rest[..at], &rest[at + NUL.len()..]);
        let backslashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
        shown.push_str(before);
        // After a backslash of its own it is that backslash which is meant, with a text behind it.
        shown.push_str(if backslashes.is_multiple_of(2) { "\\ufffd" } else { NUL });
        rest = after;
    }
    shown.push_str(rest);
    shown
}

// The figure as people write it, with all its digits.
fn decimal(value: i128) -> String {
    let (sign, parts, scale) = (if value < 0 { "-" } else { "" }, value.unsigned_abs(), SCALE.unsigned_abs());
    format!("{sign}{}.{:09}", parts / scale, parts % scale)
}

fn lane_id(key: &RowKey) -> String {
    key.place().0.to_string()
}

/// PostgreSQL has no NUL in texts. The record keeps it; a person sees that something stood there.
pub(super) fn readable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}
