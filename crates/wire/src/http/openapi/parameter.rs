//! Parameters of the OpenAPI document, with the bounds that the routes enforce.

use fencepost::{dispatch::envelope, ingest::items::SOURCE_ID_BYTES_MAX, policy::collections::Reason};
use fencepost_kernel::{item::StayOutcome, lane::DeadLetterReason};
use serde_json::{Value, json};

use crate::http::{
    query::{LIMIT_DEFAULT, LIMIT_MAX},
    request::VALUE_BYTES_MAX,
    wes,
};

/// One parameter of an operation.
pub(in crate::http) struct Parameter {
    pub(in crate::http) name: &'static str,
    /// `path` or `query`.
    pub(in crate::http) place: &'static str,
    description: &'static str,
    schema: Schema,
}

/// The allowed values of a parameter.
enum Schema {
    /// A text of 1 to so many characters.
    Text(usize),
    /// Any text. In a query, an empty one is as good as none.
    Any,
    /// Any text but an empty one.
    Some,
    Pattern(&'static str),
    Words(fn() -> Vec<&'static str>),
    Whole {
        min: u64,
        max: u64,
    },
    Limit,
    Truth,
    /// Any number of parameters, one for each member.
    Members,
}

/// Names of warehouses: a warehouse's lane must not look like one that is polled.
pub(in crate::http) const WAREHOUSE_PATTERN: &str = "^(?!poll:)[^\\x00-\\x1f\\x7f-\\x9f]{1,128}$";
/// Names of executors.
pub(in crate::http) const NAME_PATTERN: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]{1,128}$";

const fn new(name: &'static str, place: &'static str, description: &'static str, schema: Schema) -> Parameter {
    Parameter { name, place, description, schema }
}

pub(in crate::http) const ALIAS: Parameter = new("name", "path", "1 to 255 bytes", Schema::Text(255));
pub(in crate::http) const ALIAS_TENANT: Parameter = new("tenant", "query", "whose name it is; for admins", Schema::Any);
pub(in crate::http) const SCOPE: Parameter = new("scope", "query", "the scope's name", Schema::Text(64));
pub(in crate::http) const KEY: Parameter =
    new("key", "query", "each field of the scope's key as a parameter of its own name", Schema::Members);
pub(in crate::http) const SEQ: Parameter = new(
    "seq",
    "query",
    "which repetition, from 1; the name of the scope's sequence says the same",
    Schema::Whole { min: 1, max: u64::MAX },
);
pub(in crate::http) const LOOKUP_TENANT: Parameter = new(
    "tenant",
    "query",
    "whose key it is; for admins and viewers. Without it, those with an identity and those of webhooks are searched",
    Schema::Any,
);
pub(in crate::http) const DOUBT_TENANT: Parameter =
    new("tenant", "query", "only this tenant's; a page may then be short", Schema::Any);
pub(in crate::http) const DOUBT_SCOPE: Parameter =
    new("scope", "query", "only keys of this scope; a page may then be short", Schema::Any);
pub(in crate::http) const AUDIT_BY: Parameter =
    new("by", "query", "only acts of this identity; a page may then be short", Schema::Any);
pub(in crate::http) const AUDIT_WHAT: Parameter =
    new("what", "query", "only this operation, such as pauseLane; a page may then be short", Schema::Any);
pub(in crate::http) const AUDIT_ON: Parameter = new(
    "on",
    "query",
    "only acts on this: a key as SCOPE/KEY, a lane by its name, a dead letter by its id; a page may then be short",
    Schema::Any,
);
pub(in crate::http) const AUDIT_TENANT: Parameter =
    new("tenant", "query", "only acts on what is this tenant's; a page may then be short", Schema::Any);
pub(in crate::http) const DRY_RUN: Parameter =
    new("dry_run", "query", "true: only say what would change", Schema::Truth);

pub(in crate::http) const LIMIT: Parameter = new("limit", "query", "how many at most", Schema::Limit);
pub(in crate::http) const AFTER: Parameter = new(
    "after",
    "query",
    "the next_cursor of the page before; it is opaque, and the last page's is empty",
    Schema::Any,
);
pub(in crate::http) const SINCE: Parameter = new("since", "query", "another name of `after`", Schema::Any);

pub(in crate::http) const COLLECTION: Parameter = new(
    "collection",
    "path",
    "one of those that GET /wms-ingest/v1/capabilities lists under this group",
    Schema::Pattern("^[a-z][a-z0-9-]{0,63}$"),
);
pub(in crate::http) const SOURCE_ID: Parameter =
    new("source_id", "path", "the partner's id of the item, 1 to 256 bytes", Schema::Text(SOURCE_ID_BYTES_MAX));
pub(in crate::http) const CORRELATION_ID: Parameter = new(
    "X-Correlation-Id",
    "header",
    "your id of this request, the same for each retry; left out only with dry_run=true",
    Schema::Pattern("^[!-~]{1,128}$"),
);
pub(in crate::http) const INGEST_MODE: Parameter = new(
    "mode",
    "query",
    "upsert where absent; bulk makes a job of any number of items, also one a line as application/x-ndjson",
    Schema::Words(|| vec!["upsert", "bulk"]),
);
pub(in crate::http) const JOB_ID: Parameter = new("job_id", "path", "the id of the job", Schema::Some);
pub(in crate::http) const JOB_STATUS: Parameter = new(
    "status",
    "query",
    "only these; all where absent",
    Schema::Words(|| vec!["QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]),
);
pub(in crate::http) const LINE_STATUS: Parameter =
    new("status", "query", "only these verdicts, with commas between them; all where absent", Schema::Any);
pub(in crate::http) const WITH_ITEM: Parameter =
    new("include", "query", "adds each item that was not taken, as it was sent", Schema::Words(|| vec!["item"]));
pub(in crate::http) const OF_TENANT: Parameter =
    new("tenant", "query", "whose items; for admins and viewers", Schema::Any);
pub(in crate::http) const QUARANTINE_ID: Parameter =
    new("quarantine_id", "path", "the id of the quarantine", Schema::Some);
pub(in crate::http) const QUARANTINE_STATUS: Parameter =
    new("status", "query", "only these; both where absent", Schema::Words(|| vec!["OPEN", "RESOLVED"]));
pub(in crate::http) const QUARANTINE_COLLECTION: Parameter =
    new("collection", "query", "only items of this collection", Schema::Any);
pub(in crate::http) const QUARANTINE_SOURCE_ID: Parameter =
    new("source_id", "query", "only items of this source id", Schema::Any);
pub(in crate::http) const QUARANTINE_CORRELATION_ID: Parameter =
    new("correlation_id", "query", "only items that the request of this id brought", Schema::Any);
pub(in crate::http) const QUARANTINE_RESOLUTION: Parameter = new(
    "resolution",
    "query",
    "only those that ended so",
    Schema::Words(|| StayOutcome::ALL.map(StayOutcome::name).to_vec()),
);
pub(in crate::http) const QUARANTINE_REASON: Parameter = new(
    "reason_code",
    "query",
    "only those that wait for this reason",
    Schema::Words(|| Reason::WORDS.map(|(word, _)| word).to_vec()),
);
pub(in crate::http) const WAITING_FOR: Parameter =
    new("waiting_for", "query", "only those that wait for this item, as COLLECTION/SOURCE_ID", Schema::Any);

pub(in crate::http) const PLANNER: Parameter =
    new("planner_id", "query", "whose; for admins and viewers. `tenant` says the same", Schema::Any);
pub(in crate::http) const WAREHOUSE: Parameter =
    new("warehouse_id", "path", "1 to 128 characters", Schema::Pattern(WAREHOUSE_PATTERN));
pub(in crate::http) const LANE: Parameter = new("lane", "path", "its name, or its lane_id", Schema::Some);
pub(in crate::http) const LETTER: Parameter = new("id", "path", "the id of the dead letter", Schema::Some);
pub(in crate::http) const LANE_STATE: Parameter = new(
    "state",
    "query",
    "only lanes in this state; a page may then be short",
    Schema::Words(|| wes::lanes::STATES.to_vec()),
);
pub(in crate::http) const LANE_WAREHOUSE: Parameter =
    new("warehouse_id", "query", "only the lane of this warehouse; a page may then be short", Schema::Any);
pub(in crate::http) const LANE_EXECUTOR: Parameter =
    new("executor_id", "query", "only lanes that this executor polls; a page may then be short", Schema::Any);
pub(in crate::http) const LETTER_STATE: Parameter =
    new("state", "query", "waiting where absent", Schema::Words(|| wes::letters::STATES.to_vec()));
pub(in crate::http) const LETTER_WAREHOUSE: Parameter =
    new("warehouse_id", "query", "only of this warehouse", Schema::Any);
pub(in crate::http) const LETTER_REASON: Parameter =
    new("reason", "query", "only those that died of this", Schema::Words(reasons));
pub(in crate::http) const LETTER_KIND: Parameter =
    new("kind", "query", "only events of this kind", Schema::Words(envelope::kinds));
pub(in crate::http) const LETTER_EVENT: Parameter = new("correlation_id", "query", "only this event", Schema::Any);
pub(in crate::http) const CURSOR: Parameter =
    new("since", "query", "a next_cursor; absent or before the acknowledged position means that position", Schema::Any);
pub(in crate::http) const WAIT: Parameter =
    new("wait", "query", "seconds to wait for something new", Schema::Whole { min: 0, max: 30 });
pub(in crate::http) const POLLED_PLANNER: Parameter =
    new("planner_id", "query", "which planner's events, where the executor serves several", Schema::Any);

/// Why events die.
pub(super) fn reasons() -> Vec<&'static str> {
    DeadLetterReason::ALL.map(DeadLetterReason::name).to_vec()
}

impl Parameter {
    /// A parameter of a test's path.
    #[cfg(test)]
    pub(in crate::http) const fn in_path(name: &'static str, description: &'static str) -> Self {
        new(name, "path", description, Schema::Some)
    }

    pub(super) fn said(&self) -> Value {
        let schema = match self.schema {
            Schema::Any => json!({"type": "string"}),
            Schema::Some => json!({"type": "string", "minLength": 1}),
            Schema::Text(max) => json!({"type": "string", "minLength": 1, "maxLength": max}),
            Schema::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
            Schema::Words(words) => json!({"type": "string", "enum": words()}),
            Schema::Whole { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
            Schema::Limit => json!({"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}),
            Schema::Truth => json!({"type": "boolean"}),
            Schema::Members => {
                json!({"type": "object", "additionalProperties": {"type": "string", "maxLength": VALUE_BYTES_MAX}})
            }
        };
        let required = self.place == "path" || (self.name == "scope" && matches!(self.schema, Schema::Text(_)));
        let mut said = json!({"name": self.name, "in": self.place, "required": required, "description": self.description, "schema": schema});
        if matches!(self.schema, Schema::Members) {
            said["style"] = json!("form");
            said["explode"] = json!(true);
        }
        said
    }
}
