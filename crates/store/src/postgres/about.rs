//! The text that the `about` column shows a person for a row that is not a fence.
//! Never a body and never a secret; never read back. Called where rows become columns.

use std::borrow::Cow;

use fencepost_kernel::{
    RowKey, Version, audit,
    dispatch::{self, Transport},
    fence,
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
    }
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
