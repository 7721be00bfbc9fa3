//! The schemas of what `/wes/v1` takes and answers.

use serde_json::{Map, Value, json};

/// The schemas that these operations name.
pub(in crate::http::openapi) fn schemas(object: impl Fn(&[&str], &[(&str, &Value)]) -> Value) -> Map<String, Value> {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let count = json!({"type": "integer", "minimum": 0});
    let yes = json!({"type": "boolean"});
    let any = json!({"type": "object"});
    let list = |items: &Value| json!({"type": "array", "items": items});
    let id = json!({"type": "string", "minLength": 1, "maxLength": 128});
    let correlation_id = json!({"type": "string", "pattern": "^[!-~]{1,128}$"});
    let number = json!({"type": "number"});
    let delta = object(&["sku", "qty"], &[("sku", &text), ("qty", &number)]);
    let amount = json!({"type": "number", "minimum": 0});
    let op = object(
        &["op_id", "kind"],
        &[
            ("op_id", &id),
            ("kind", &id),
            ("qty", &amount),
            ("expected_seconds", &amount),
            ("expected_cost", &amount),
            ("bom_deltas", &list(&delta)),
            ("skills", &list(&text)),
            ("resources", &list(&text)),
        ],
    );
    let routing = object(&[], &[("ops", &list(&op)), ("expected_duration_seconds", &amount)]);
    let kinds = json!({"enum": ["SHIPPER_RELEASED", "RECEIVER_EXPECTED", "WORKORDER_RELEASED", "TRANSFER_OUT_RELEASED", "TRANSFER_IN_EXPECTED", "VASORDER_RELEASED", "REFURBISH_ORDER_RELEASED", "CANCELLED"]});
    let document = object(&["type", "id"], &[("type", &text), ("id", &text)]);
    let meta = object(&[], &[("released_at", &time)]);
    let mut event = object(
        &["kind", "correlation_id", "planner_id", "warehouse_id"],
        &[
            ("kind", &kinds),
            ("correlation_id", &correlation_id),
            ("planner_id", &text),
            ("warehouse_id", &id),
            ("document_ref", &document),
            ("routing", &routing),
            ("meta", &meta),
            ("cancels_correlation_id", &correlation_id),
        ],
    );
    event["description"] = json!(
        "document_ref is needed by all but CANCELLED, routing.ops by the five kinds that end in RELEASED, cancels_correlation_id by CANCELLED. Further members are kept and delivered."
    );
    let event_ref = json!({"$ref": "#/components/schemas/Event"});
    let published = [
        ("accepted", &yes),
        ("replay", &yes),
        ("lane", &text),
        ("lane_id", &text),
        ("seq", &count),
        ("original", &json!({"enum": ["undelivered", "in_flight", "delivered", "dead", "unknown"]})),
        ("results", &list(&any)),
    ];
    let secret = json!({"type": "string", "maxLength": 1024, "writeOnly": true, "description": "at least 16 bytes, but for one that is live already"});
    let webhook = object(
        &["url"],
        &[
            ("url", &text),
            ("secret", &secret),
            (
                "secrets",
                &json!({"type": "array", "minItems": 1, "maxItems": 2, "items": secret, "description": "the newest first"}),
            ),
            ("standard_webhooks", &yes),
        ],
    );
    let after_dead = json!({"enum": ["continue", "block"]});
    let span = json!({"type": ["string", "integer"], "description": "such as 7d, or seconds"});
    let transport = [
        ("executor_id", &text),
        ("webhook", &webhook),
        ("kafka", &object(&[], &[("topic", &text)])),
        ("poll", &any),
        ("after_dead_letter", &after_dead),
        ("receiver_retention", &span),
        (
            "drain",
            &json!({"type": ["boolean", "integer"], "description": "waits up to 30 seconds, or as many as given, until the lane is drained"}),
        ),
    ];
    let set = [
        ("warehouse_id", &text),
        ("executor_id", &text),
        ("transport", &json!({"enum": ["webhook", "kafka", "poll"]})),
        ("lane", &text),
        ("lane_id", &text),
        ("replay", &yes),
    ];
    let head = object(
        &["seq", "attempts"],
        &[
            ("seq", &count),
            ("attempts", &count),
            ("first_attempt_at", &time),
            ("next_attempt_at", &time),
            ("last_status", &count),
            ("last_answer", &text),
        ],
    );
    let lane = object(
        &["lane", "lane_id", "planner_id", "state", "tail", "settled", "backlog"],
        &[
            ("lane", &text),
            ("lane_id", &text),
            ("planner_id", &text),
            ("warehouse_id", &text),
            ("executor_id", &text),
            ("transport", &text),
            ("state", &json!({"enum": ["idle", "waiting", "delivering", "retrying", "paused", "blocked"]})),
            ("tail", &count),
            ("settled", &count),
            ("backlog", &count),
            ("head", &head),
            ("paused", &object(&["at", "by", "why"], &[("at", &time), ("by", &text), ("why", &text)])),
            ("owner", &text),
        ],
    );
    let letter = object(
        &[
            "id",
            "lane",
            "lane_id",
            "seq",
            "correlation_id",
            "kind",
            "warehouse_id",
            "reason",
            "attempts",
            "died_at",
            "state",
        ],
        &[
            ("id", &text),
            ("lane", &text),
            ("lane_id", &text),
            ("seq", &count),
            ("planner_id", &text),
            ("warehouse_id", &text),
            ("correlation_id", &text),
            ("kind", &text),
            ("reason", &json!({"enum": ["horizon", "too_large", "skipped"]})),
            ("attempts", &count),
            ("first_attempt_at", &time),
            ("published_at", &time),
            ("died_at", &time),
            ("last_status", &count),
            ("last_answer", &text),
            ("cancelled_by", &text),
            ("blocks", &yes),
            ("state", &json!({"enum": ["waiting", "redriven", "discarded"]})),
            (
                "decided",
                &object(
                    &["at", "by"],
                    &[("at", &time), ("by", &text), ("why", &text), ("lane", &text), ("seq", &count)],
                ),
            ),
            ("event", &event_ref),
            ("replay", &yes),
        ],
    );
    let why = object(&["why"], &[("why", &text)]);
    let filter = object(&[], &[("warehouse_id", &text), ("reason", &text), ("kind", &text), ("correlation_id", &text)]);
    let many = [
        ("filter", &filter),
        ("ids", &list(&text)),
        ("preview", &yes),
        ("limit", &json!({"type": "integer", "minimum": 1, "maximum": 1000})),
        ("rate_per_second", &json!({"type": "integer", "minimum": 1, "maximum": 1000})),
        ("after", &text),
        ("force", &why),
    ];
    let schemas = json!({
        "Event": event,
        "Events": {"anyOf": [event_ref, object(&["events"], &[("events", &json!({"type": "array", "minItems": 1, "maxItems": 1000, "items": event_ref}))])]},
        "Published": object(&[], &published),
        "Transport": object(&[], &transport),
        "TransportSet": object(&["warehouse_id", "executor_id", "transport", "lane", "replay"], &set),
        "TransportShown": object(&["warehouse_id", "executor_id", "transport", "lane"], &[&set[..5], &[("planner_id", &text), ("webhook", &any), ("kafka", &any), ("poll", &any), ("after_dead_letter", &after_dead), ("receiver_retention", &text), ("changed_at", &time)]].concat()),
        "Lane": lane,
        "Lanes": object(&["lanes", "next"], &[("lanes", &list(&json!({"$ref": "#/components/schemas/Lane"}))), ("next", &text)]),
        "LaneActed": object(&["lane", "lane_id", "settled", "paused", "blocked", "replay"], &[("lane", &text), ("lane_id", &text), ("settled", &count), ("paused", &yes), ("blocked", &yes), ("dead_letter", &text), ("replay", &yes)]),
        "Skip": object(&["seq"], &[("seq", &json!({"type": "integer", "minimum": 1}))]),
        "Why": why,
        "DeadLetter": letter,
        "DeadLetters": object(&["dead_letters", "next"], &[("dead_letters", &list(&json!({"$ref": "#/components/schemas/DeadLetter"}))), ("next", &text)]),
        "Redrive": object(&[], &[("force", &why)]),
        "RedriveMany": object(&[], &many),
        "Redriven": object(&["preview", "refused", "next"], &[("preview", &yes), ("would_redrive", &count), ("redriven", &count), ("replayed", &count), ("refused", &list(&object(&["id", "code", "detail"], &[("id", &text), ("code", &text), ("detail", &text)]))), ("next", &text)]),
        "Pending": object(&["events", "next_cursor"], &[("events", &list(&event_ref)), ("next_cursor", &text)]),
        "Ack": object(&["cursor"], &[("cursor", &text)]),
        "Acked": object(&["acked"], &[("acked", &text)]),
    });
    match schemas {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    }
}
