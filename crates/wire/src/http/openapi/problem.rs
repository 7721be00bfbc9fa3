//! The schema of a refusal, with the members that some codes add.

use serde_json::{Value, json};

pub(super) fn schema(object: impl Fn(&[&str], &[(&str, &Value)]) -> Value, codes: &[&str], findings: &Value) -> Value {
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
    let part = object(&["index", "code", "detail"], &[("index", &count), ("code", &text), ("detail", &text)]);
    let errors =
        json!({"type": "array", "items": part, "description": "Each part of a batch that is refused, by its index"});
    let about = |description: &str, schema: &Value| {
        let mut schema = schema.clone();
        schema["description"] = json!(description);
        schema
    };
    object(
        &["type", "title", "status", "detail", "code", "trace_id"],
        &[
            ("type", &text),
            ("title", &text),
            ("status", &json!({"type": "integer"})),
            ("detail", &text),
            ("instance", &text),
            ("code", &json!({"type": "string", "enum": codes})),
            ("trace_id", &text),
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
            ("errors", &errors),
            ("findings", findings),
            ("lane", &text),
            ("lane_id", &text),
            ("first_seq", &count),
            ("last_seq", &count),
            ("settled", &count),
            ("tail", &count),
            ("state", &text),
            ("cancelled_by", &text),
            ("receiver_retention_ms", &count),
        ],
    )
}
