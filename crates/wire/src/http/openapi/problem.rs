//! The schema of a refusal, with the members that some codes add. Called by `schemas`.

use serde_json::{Value, json};

/// The members that some codes add, also to a refusal that is one of many results.
fn added(object: &impl Fn(&[&str], &[(&str, &Value)]) -> Value) -> Vec<(&'static str, Value)> {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let count = json!({"type": "integer", "minimum": 0});
    let yes = json!({"type": "boolean"});
    let version = json!({"type": ["integer", "string"]});
    let op = json!({"type": "string", "enum": ["add", "remove", "replace"]});
    let any = json!({"description": "Any JSON"});
    let operation = object(&["op", "path"], &[("op", &op), ("path", &text), ("value", &any)]);
    let diff = json!({"type": "array", "items": operation, "description": "RFC 6902, from the first body to this one"});
    let side = object(&["sha256", "size"], &[("sha256", &text), ("size", &count)]);
    let about = |description: &str, schema: &Value| {
        let mut schema = schema.clone();
        schema["description"] = json!(description);
        schema
    };
    let names = json!({"type": "array", "items": text});
    [
        ("explain", &about("The console's page about the key, where its state refuses", &text)),
        ("diff", &diff),
        ("diff_truncated", &yes),
        ("first", &about("The first body, where it has no diff", &side)),
        ("second", &about("This body, where it has no diff", &side)),
        ("sealed_version", &version),
        ("retry_after", &about("Seconds", &count)),
        ("first_seen_at", &about("When the key in flight was first claimed", &time)),
        ("lease_expires_at", &about("When the lease of the key in flight runs out", &time)),
        ("held_by_trace", &about("The trace_id of the request that holds the key, where it is known", &text)),
        ("since", &about("Since when the key is in doubt", &time)),
        ("last", &about("The last repetition that was claimed", &count)),
        ("last_sealed", &about("Whether that one is sealed", &yes)),
        ("pointer", &about("RFC 6901, to what is wrong", &text)),
        ("resolved_by", &about("Who resolved the key, where that is why the token is refused", &text)),
        ("resolved_at", &about("When they did", &time)),
        ("lease_ms_max", &about("The longest lease of the scope, where more was asked", &count)),
        ("tenants", &about("Those who have the key that was looked up", &names)),
        ("lane", &text),
        ("lane_id", &text),
        ("first_seq", &count),
        ("last_seq", &count),
        ("settled", &count),
        ("tail", &count),
        ("state", &text),
        ("cancelled_by", &text),
        ("receiver_retention_ms", &count),
    ]
    .map(|(name, schema): (&'static str, &Value)| (name, schema.clone()))
    .to_vec()
}

/// A refusal among other answers: of one event of a batch by its index or correlation_id, of one dead letter by its id.
pub(super) fn part(object: &impl Fn(&[&str], &[(&str, &Value)]) -> Value) -> Value {
    let (text, count) = (json!({"type": "string"}), json!({"type": "integer", "minimum": 0}));
    let (added, refused) = (added(object), json!({"type": "boolean", "const": false}));
    let mut parts = vec![("index", &count), ("id", &text), ("code", &text), ("detail", &text)];
    parts.extend([("correlation_id", &text), ("accepted", &refused)]);
    parts.extend(added.iter().map(|(name, schema)| (*name, schema)));
    object(&["code", "detail"], &parts)
}

pub(super) fn schema(object: &impl Fn(&[&str], &[(&str, &Value)]) -> Value, codes: &[&str], findings: &Value) -> Value {
    let text = json!({"type": "string"});
    let errors = json!({"type": "array", "items": {"$ref": "#/components/schemas/RefusedPart"}, "description": "Each part of a batch that is refused, by its index"});
    let (status, code) = (json!({"type": "integer"}), json!({"type": "string", "enum": codes}));
    let added = added(object);
    let mut parts = vec![
        ("type", &text),
        ("title", &text),
        ("status", &status),
        ("detail", &text),
        ("instance", &text),
        ("code", &code),
        ("trace_id", &text),
        ("errors", &errors),
        ("findings", findings),
    ];
    parts.extend(added.iter().map(|(name, schema)| (*name, schema)));
    object(&["type", "title", "status", "detail", "code", "trace_id"], &parts)
}
